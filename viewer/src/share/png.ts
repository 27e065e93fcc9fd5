// A PNG of what one sees: the canvases as they are placed, with titles, legend and scale bar.

import type { LegendContent } from "../panels/legend";
import { formatNumber } from "../panels/numbers";
import { barLength } from "../panels/scale_bar";
import { svgLegend } from "./svg_legend";

const MARGIN = 12; // CSS pixels around what is written
const TITLE = 30;
const LEAST = 44; // the height of the strip with the scale bar

/** What is drawn around the pictures. */
export interface Surroundings {
  /** The titles of the panes; not drawn if there is one pane. */
  titles: readonly string[];
  /** Whether the panes are below each other. */
  stacked: boolean;
  legend: LegendContent | null;
  unitsPerPixel: number;
  /** Pixels of the pictures per CSS pixel. */
  pixelRatio: number;
  paper: string;
  ink: string;
  font: string;
}

/** Compose a picture of the pictures of the panes. */
export async function composePng(
  canvases: readonly HTMLCanvasElement[],
  around: Surroundings,
): Promise<Blob> {
  const { stacked, ink, pixelRatio: ratio } = around;
  const [first] = canvases;
  const page = document.createElement("canvas");
  const context = page.getContext("2d");
  if (!first || !context) throw new Error("there is nothing to save yet");
  const title = canvases.length > 1 ? TITLE : 0;
  const across = canvases.map((canvas) => canvas.width / ratio);
  const down = canvases.map((canvas) => canvas.height / ratio + title);
  const width = stacked ? Math.max(...across) : sum(across);
  const height = stacked ? sum(down) : Math.max(...down);
  const legend = svgLegend(around.legend, 0.7 * width);
  page.width = Math.round(ratio * width);
  page.height = Math.round(ratio * (height + Math.max(LEAST, legend.height)));
  context.scale(ratio, ratio);
  context.fillStyle = around.paper;
  context.fillRect(0, 0, page.width, page.height);
  context.fillStyle = ink;
  context.textAlign = "center";
  let [x, y] = [0, 0];
  for (const [k, canvas] of canvases.entries()) {
    context.font = `600 13px ${around.font}`;
    if (title) context.fillText(around.titles[k] ?? "", x + across[k]! / 2, y + 20, across[k]);
    context.drawImage(canvas, x, y + title, across[k]!, down[k]! - title);
    if (stacked) y += down[k]!;
    else x += across[k]!;
  }
  context.font = `12px ${around.font}`;
  drawScale(context, around.unitsPerPixel, [width - MARGIN, height + MARGIN]);
  if (legend.height) {
    const image = new Image();
    const size = `width="${ratio * width}" height="${ratio * legend.height}"`;
    const view = `viewBox="0 0 ${width} ${legend.height}"`;
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${view} font-family="system-ui, sans-serif" font-size="12" fill="${ink}"><defs>${legend.definitions}</defs>${legend.body}</svg>`;
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
    await image.decode();
    context.drawImage(image, 0, height, width, legend.height);
  }
  return blobOf(page);
}

/** A bar of a round length, with its upper right corner at a place. */
function drawScale(
  context: CanvasRenderingContext2D,
  unitsPerPixel: number,
  [right, top]: [number, number],
): void {
  if (!(unitsPerPixel > 0)) return;
  const length = barLength(unitsPerPixel);
  const width = length / unitsPerPixel;
  context.fillText(formatNumber(length), right - width / 2, top + 10);
  context.fillRect(right - width, top + 20, width, 1.5);
  context.fillRect(right - width, top + 16, 1.5, 5);
  context.fillRect(right - 1.5, top + 16, 1.5, 5);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}

function blobOf(page: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) => {
    const take = (blob: Blob | null) =>
      blob ? resolve(blob) : reject(new Error("the picture is too large for the browser"));
    page.toBlob(take, "image/png");
  });
}
