// A legend drawn on a canvas, for the PNG: entries in columns, or a colour bar with ticks.

import { colorAt, type LegendContent, ticksThatFit } from "../panels/legend";

/** How letters and lines are drawn; lengths are CSS pixels. */
export interface Ink {
  color: string;
  family: string;
}

const SIZE = 12;
const LINE = 18;
const BAR = 220;
const BAR_HEIGHT = 10;
const TIP = 8;
const SQUARE = 11;
const GAP = 18;
const LONGEST = 240; // of a name

interface Columns {
  count: number;
  rows: number;
  width: number;
}

/** The height that a legend needs on a page of some width. */
export function legendHeight(
  context: CanvasRenderingContext2D,
  content: LegendContent,
  width: number,
  ink: Ink,
): number {
  const label = content.label ? LINE : 0;
  if (content.scale && content.lut) return label + BAR_HEIGHT + 1.5 * LINE;
  return label + LINE * columnsOf(context, content, width, ink).rows;
}

/** Draw a legend with its upper left corner at a place. */
export function drawLegend(
  context: CanvasRenderingContext2D,
  content: LegendContent,
  [left, top]: [number, number],
  width: number,
  ink: Ink,
): void {
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = ink.color;
  let y = top;
  if (content.label) {
    context.font = `600 ${SIZE}px ${ink.family}`;
    context.fillText(fitted(context, content.label, width), left, y + LINE / 2);
    y += LINE;
  }
  context.font = `${SIZE}px ${ink.family}`;
  if (content.scale && content.lut) drawBar(context, content, [left + TIP, y], ink);
  else drawEntries(context, content, [left, y], width, ink);
}

function drawBar(
  context: CanvasRenderingContext2D,
  { scale, lut }: LegendContent,
  [left, top]: [number, number],
  ink: Ink,
): void {
  if (!scale || !lut) return;
  const shades = context.createLinearGradient(left, 0, left + BAR, 0);
  for (let k = 0; k < 256; k += 5) shades.addColorStop(k / 255, colorAt(lut, k));
  context.fillStyle = shades;
  context.fillRect(left, top, BAR, BAR_HEIGHT);
  const ends = [
    ["min", left, -TIP, 0],
    ["max", left + BAR, TIP, 255],
  ] as const;
  for (const [end, x, tip, place] of ends) {
    if (scale.extend !== end && scale.extend !== "both") continue;
    context.fillStyle = colorAt(lut, place);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x + tip, top + BAR_HEIGHT / 2);
    context.lineTo(x, top + BAR_HEIGHT);
    context.fill();
  }
  context.fillStyle = ink.color;
  context.textAlign = "center";
  for (const { at, label } of ticksThatFit(scale, BAR)) {
    const x = left + at * BAR;
    context.fillRect(x - 0.5, top + BAR_HEIGHT, 1, 3);
    context.fillText(label, x, top + BAR_HEIGHT + 0.7 * LINE);
  }
  context.textAlign = "left";
}

function drawEntries(
  context: CanvasRenderingContext2D,
  content: LegendContent,
  [left, top]: [number, number],
  width: number,
  ink: Ink,
): void {
  const columns = columnsOf(context, content, width, ink);
  for (const [k, { name, color }] of content.entries.entries()) {
    const x = left + Math.floor(k / columns.rows) * columns.width;
    const y = top + (k % columns.rows) * LINE + LINE / 2;
    context.fillStyle = color;
    context.fillRect(x, y - SQUARE / 2, SQUARE, SQUARE);
    context.fillStyle = ink.color;
    const words = fitted(context, name, columns.width - SQUARE - 7 - GAP);
    context.fillText(words, x + SQUARE + 7, y + 0.5);
  }
}

function columnsOf(
  context: CanvasRenderingContext2D,
  { entries }: LegendContent,
  width: number,
  ink: Ink,
): Columns {
  context.font = `${SIZE}px ${ink.family}`;
  const longest = Math.max(1, ...entries.map(({ name }) => context.measureText(name).width));
  const wanted = Math.min(longest, LONGEST) + SQUARE + 7 + GAP + 1;
  const count = Math.max(1, Math.min(entries.length, Math.floor((width + GAP) / wanted)));
  return { count, rows: Math.ceil(entries.length / count), width: wanted };
}

/** Text that is no longer than a width; what does not fit becomes an ellipsis. */
export function fitted(context: CanvasRenderingContext2D, words: string, width: number): string {
  if (context.measureText(words).width <= width) return words;
  const letters = [...words].slice(0, 400);
  while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}
