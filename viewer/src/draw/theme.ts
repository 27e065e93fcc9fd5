// The inks and widths of the static pictures; see splinecam/plot/palette.py and picture.py.

import { type Rgb, rgb } from "./colours";

/** The ink of lines on the paper of a theme. */
export const INKS = { light: "#16202c", dark: "#e6e9ee" };
export const INK = rgb(INKS.light);
export const INK_ON_DARK = rgb(INKS.dark);
export const PAPER = rgb("#ffffff");
export const DARK_PAPER = rgb("#11161d");
const DARK = 0.4; // brightness below which lines are light

/** The ink for lines on a background that is so bright. */
export function inkOn(brightness: number): Rgb {
  return brightness > DARK ? INK : INK_ON_DARK;
}

/** The rim of lines in an ink, which parts them from colours that are as bright as they are. */
export function rimOn(ink: Rgb): Rgb {
  return ink === INK ? PAPER : DARK_PAPER;
}

export const POINT = 4 / 3; // CSS pixels
// Of edges, from the first layer to the last.
const [WIDEST, NARROWEST] = [0.6 * POINT, 0.35 * POINT];
const [STRONG, WEAK] = [0.6, 0.45];
const SHARE = 0.06;
// Pixels between lines: below, they are not drawn or fade; above, they become stronger.
const [HIDDEN, CLEAR, ROOMY, EMPTY] = [1.2, 2.5, 30, 300];
const STRONGER = 1.8;
export const BORDER = 0.9 * POINT;

export interface LineLook {
  /** In CSS pixels. */
  width: number;
  opacity: number;
}

/** How edges of a layer look if lines of it and of earlier layers are so many CSS pixels apart. */
export function edgeLook(layer: number, layers: number, spacing: number): LineLook {
  const late = layer / Math.max(layers - 1, 1);
  const near = between(Math.log(spacing / ROOMY) / Math.log(EMPTY / ROOMY));
  const most = (WIDEST + (NARROWEST - WIDEST) * late) * (1 + (STRONGER - 1) * near);
  const opacity = STRONG + (WEAK - STRONG) * late + 0.2 * near;
  const seen = between((spacing - HIDDEN) / (CLEAR - HIDDEN));
  return { width: Math.min(most, SHARE * spacing), opacity: opacity * seen };
}

/** The width of the decision boundary, in CSS pixels, at a spacing of its curves. */
export function boundaryWidth(spacing: number): number {
  return Math.max(0.5 * POINT, Math.min(1.9 * POINT, 0.25 * spacing));
}
export const RIM = 1.6 * POINT; // of the boundary on colours of numbers

function between(t: number): number {
  return t > 0 ? Math.min(t, 1) : 0;
}
