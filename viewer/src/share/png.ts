// A PNG of what one sees: the canvases as they are placed, with titles, legend and scale bar.

import type { LegendContent } from "../panels/legend";
import { formatNumber } from "../panels/numbers";
import { barLength } from "../panels/scale_bar";
import { drawLegend, fitted, type Ink, legendHeight } from "./legend_drawing";

const MARGIN = 12; // CSS pixels around the legend
const TITLE = 30;

/** What is drawn around the pictures. */
export interface Surroundings {
  /** The titles of the panes; not drawn if there is one pane. */
  titles: readonly string[];
  /** Whether the panes are below each other. */
  stacked: boolean;
  legend: LegendContent | null;
  unitsPerPixel: number;
  paper: string;
  ink: Ink;
}

/** Compose a picture. The canvases must have been drawn in the same task. */
export function composePng(
  canvases: readonly HTMLCanvasElement[],
  around: Surroundings,
): Promise<Blob> {
  const [first] = canvases;
  const page = document.createElement("canvas");
  const context = page.getContext("2d");
  if (!first || !context) return Promise.reject(new Error("there is nothing to save yet"));
  const ratio = first.width / (first.clientWidth || first.width);
  const title = canvases.length > 1 ? TITLE : 0;
  const sizes = canvases.map(
    ({ width, height }) => [width / ratio, height / ratio + title] as const,
  );
  const across = sizes.map(([width]) => width);
  const down = sizes.map(([, height]) => height);
  const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);
  const width = around.stacked ? Math.max(...across) : sum(across);
  const above = around.stacked ? sum(down) : Math.max(...down);
  const room = 0.7 * (width - 2 * MARGIN);
  const legend = around.legend ? legendHeight(context, around.legend, room, around.ink) : 0;
  const below = Math.max(legend, 26) + 2 * MARGIN;
  page.width = Math.round(ratio * width);
  page.height = Math.round(ratio * (above + below));
  context.scale(ratio, ratio);
  context.fillStyle = around.paper;
  context.fillRect(0, 0, width, above + below);
  let [x, y] = [0, 0];
  for (const [k, canvas] of canvases.entries()) {
    const [wide, high] = sizes[k]!;
    if (title) drawTitle(context, around.titles[k] ?? "", [x + wide / 2, y], wide, around.ink);
    context.drawImage(canvas, x, y + title, wide, high - title);
    if (around.stacked) y += high;
    else x += wide;
  }
  if (around.legend) drawLegend(context, around.legend, [MARGIN, above + MARGIN], room, around.ink);
  drawScale(context, around, [width - MARGIN, above + MARGIN]);
  return blobOf(page);
}

function drawTitle(
  context: CanvasRenderingContext2D,
  words: string,
  [middle, top]: [number, number],
  width: number,
  ink: Ink,
): void {
  context.font = `600 13px ${ink.family}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = ink.color;
  context.fillText(fitted(context, words, width - 2 * MARGIN), middle, top + TITLE / 2);
}

/** A bar of a round length, with its upper right corner at a place. */
function drawScale(
  context: CanvasRenderingContext2D,
  { unitsPerPixel, ink }: Surroundings,
  [right, top]: [number, number],
): void {
  if (!(unitsPerPixel > 0)) return;
  const length = barLength(unitsPerPixel);
  const width = length / unitsPerPixel;
  context.font = `12px ${ink.family}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = ink.color;
  context.fillText(formatNumber(length), right - width / 2, top + 7);
  context.fillRect(right - width, top + 21, width, 1.5);
  context.fillRect(right - width, top + 17, 1.5, 5);
  context.fillRect(right - 1.5, top + 17, 1.5, 5);
}

function blobOf(page: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) => {
    const take = (blob: Blob | null) =>
      blob ? resolve(blob) : reject(new Error("the picture is too large for the browser"));
    page.toBlob(take, "image/png");
  });
}
