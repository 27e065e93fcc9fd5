// The legend below the pictures of an SVG: names with their colours, or a colour bar with ticks.

import { colorAt, type LegendContent, ticksThatFit } from "../panels/legend";
import { coordinate, escaped, safeColor } from "./svg_text";

const [MARGIN, LINE, SWATCH, BAR, TIP, LETTER] = [12, 20, 11, 220, 8, 6.6];

export interface SvgLegend {
  height: number;
  definitions: string;
  body: string;
}

/** A legend that begins at the top left of its own strip, in the width of the pictures. */
export function svgLegend(content: LegendContent | null, width: number): SvgLegend {
  if (!content || !(content.entries.length || (content.scale && content.lut))) {
    return { height: 0, definitions: "", body: "" };
  }
  let y = MARGIN + SWATCH;
  const parts: string[] = [];
  if (content.label) {
    parts.push(textAt(MARGIN, y, content.label));
    y += LINE;
  }
  let definitions = "";
  if (content.scale && content.lut) {
    definitions = barGradient(content.lut);
    const left = MARGIN + TIP;
    parts.push(
      `<rect x="${left}" y="${y - SWATCH}" width="${BAR}" height="${SWATCH}" fill="url(#bar)"/>`,
    );
    const { extend } = content.scale;
    const half = `${SWATCH / 2}L0 ${SWATCH}Z`;
    const tip = (x: number, by: number, place: number) =>
      `<path transform="translate(${x} ${y - SWATCH})" d="M0 0L${by} ${half}" fill="${colorAt(content.lut!, place)}"/>`;
    if (extend === "min" || extend === "both") parts.push(tip(left, -TIP, 0));
    if (extend === "max" || extend === "both") parts.push(tip(left + BAR, TIP, 255));
    y += LINE - 3;
    for (const { at, label } of ticksThatFit(content.scale, BAR)) {
      parts.push(textAt(left + at * BAR, y, label, "middle"));
    }
    y += LINE;
  }
  let x = MARGIN;
  for (const { name, color } of content.entries) {
    const long = SWATCH + 6 + LETTER * name.length + 16;
    if (x > MARGIN && x + long > width) [x, y] = [MARGIN, y + LINE];
    const square = `x="${coordinate(x)}" y="${y - SWATCH + 1}" width="${SWATCH}" height="${SWATCH}"`;
    parts.push(`<rect ${square} rx="2" fill="${safeColor(color)}"/>`);
    parts.push(textAt(x + SWATCH + 6, y, name));
    x += long;
  }
  const height = y + (content.entries.length ? MARGIN : MARGIN - LINE);
  return { height, definitions, body: parts.join("\n") };
}

function textAt(x: number, y: number, text: string, anchor = "start"): string {
  return `<text x="${coordinate(x)}" y="${coordinate(y)}" text-anchor="${anchor}">${escaped(text)}</text>`;
}

function barGradient(lut: Uint8Array): string {
  const stops = Array.from({ length: 33 }, (_, k) => {
    const color = colorAt(lut, Math.min(255, 8 * k));
    return `<stop offset="${coordinate((100 * k) / 32)}%" stop-color="${color}"/>`;
  });
  return `<linearGradient id="bar">${stops.join("")}</linearGradient>`;
}
