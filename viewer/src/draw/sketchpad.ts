// Pixels that the processor paints: convex polygons and smooth lines, by the rules of graphics cards.

import type { Pair } from "../protocol/messages";
import type { Rgb } from "./colours";

/** How a line is drawn: width in pixels, and whether it goes on beyond its ends by half of that. */
export interface PadStroke {
  color: Rgb;
  opacity: number;
  width: number;
  caps: boolean;
}

/** Colours that change evenly: which of them a pixel has, counted from 0, at the lower left corner
 * of the pad, and how much more that is a pixel to the right and above. */
export interface Ramp {
  colors: Uint32Array;
  corner: number;
  across: number;
  up: number;
}

/** A colour as one number, whose bytes are red, green, blue and opacity. */
export function packedRgb([r, g, b]: Rgb): number {
  return (
    Math.round(255 * r) | (Math.round(255 * g) << 8) | (Math.round(255 * b) << 16) | (255 << 24)
  );
}

/** Opaque pixels, row after row; a line is drawn with the stroke that was set last. */
export class Sketchpad {
  readonly pixels: Uint32Array<ArrayBuffer>;
  private readonly width: number;
  private readonly height: number;
  /** Where the lowest row begins, and how far it is from there to the next one. */
  private readonly lowest: number;
  private readonly stride: number;
  /** Where the polygon that is painted begins and ends in each row. */
  private readonly left: Float64Array;
  private readonly right: Float64Array;
  // The stroke: opacity in 256ths, the distance at which a line ends, and its colour.
  private opacity = 0;
  private reach = 0;
  private beyond = 0;
  private redBlue = 0;
  private green = 0;

  /** fromAbove: whether the first row is the highest one, as in images; else it is the lowest. */
  constructor([width, height]: Readonly<Pair>, fromAbove = false) {
    this.width = width;
    this.height = height;
    this.lowest = fromAbove ? width * (height - 1) : 0;
    this.stride = fromAbove ? -width : width;
    this.pixels = new Uint32Array(width * height);
    this.left = new Float64Array(height);
    this.right = new Float64Array(height);
  }

  clear(color: Rgb): void {
    this.pixels.fill(packedRgb(color));
  }

  /** Paint the pixels whose middles are in a convex polygon; returns how many they are.
   *
   * at: x y of vertices in pixels; ring: the vertices of all polygons, counter-clockwise, those of
   * this one from `begin` to before `end`; ramp: colours in place of a single one. Polygons that share
   * an edge leave no gap between them. */
  polygon(
    at: Float64Array,
    ring: Uint32Array,
    begin: number,
    end: number,
    color: number,
    ramp: Ramp | null = null,
  ): number {
    const { left, right, height } = this;
    let low = height;
    let high = 0;
    let a = 2 * ring[end - 1]!;
    let ax = at[a]!;
    let ay = at[a + 1]!;
    let from = this.rowAt(ay);
    for (let k = begin; k < end; k++) {
      const b = 2 * ring[k]!;
      const bx = at[b]!;
      const by = at[b + 1]!;
      const to = this.rowAt(by);
      // Both polygons at an edge go along it from its lower end, so that they find the same.
      if (from < to) {
        const slope = (bx - ax) / (by - ay);
        let x = ax + (from + 0.5 - ay) * slope;
        for (let row = from; row < to; row++, x += slope) right[row] = x;
      } else if (to < from) {
        const slope = (ax - bx) / (ay - by);
        let x = bx + (to + 0.5 - by) * slope;
        for (let row = to; row < from; row++, x += slope) left[row] = x;
      }
      if (to < low) low = to;
      if (to > high) high = to;
      a = b;
      ax = bx;
      ay = by;
      from = to;
    }
    return this.paintRows(low, high, color, ramp);
  }

  setStroke({ color, opacity, width, caps }: PadStroke): void {
    const ink = packedRgb(color);
    this.opacity = Math.round(256 * opacity * Math.min(width, 1));
    this.reach = 0.5 * Math.max(width, 1) + 0.5;
    this.beyond = caps ? 0.5 * width : 0;
    this.redBlue = ink & 0xff00ff;
    this.green = ink & 0x00ff00;
  }

  /** Draw a line between two places in pixels.
   *
   * It has the columns, or where it is steep the rows, whose middles are between its ends: lines that
   * continue each other do not overlap. */
  line(ax: number, ay: number, bx: number, by: number): void {
    const steep = Math.abs(by - ay) > Math.abs(bx - ax);
    const columns = steep ? this.height : this.width;
    const { beyond } = this; // at least as far as it goes on along a column
    const u = steep ? Math.min(ay, by) : Math.min(ax, bx);
    const lastU = steep ? Math.max(ay, by) : Math.max(ax, bx);
    // Most lines of a dense picture are shorter than a pixel, and have no column.
    if (Math.max(0, Math.ceil(u - beyond - 0.5)) >= Math.ceil(lastU + beyond - 0.5)) return;
    const slope = lastU > u ? (steep ? (bx - ax) / (by - ay) : (by - ay) / (bx - ax)) : 0;
    const more = beyond / Math.sqrt(1 + slope * slope);
    const begin = Math.max(0, Math.ceil(u - more - 0.5));
    const end = Math.min(columns, Math.ceil(lastU + more - 0.5));
    const forth = steep ? ay <= by : ax <= bx;
    const v = forth ? (steep ? ax : ay) : steep ? bx : by;
    if (begin < end) this.columns(begin, end, v + (begin + 0.5 - u) * slope, slope, steep);
  }

  /** The first row whose middle is above a height, within the pad. */
  private rowAt(y: number): number {
    const row = Math.ceil(y - 0.5);
    return row > 0 ? Math.min(row, this.height) : 0;
  }

  private paintRows(low: number, high: number, color: number, ramp: Ramp | null): number {
    const { left, right, width, pixels } = this;
    let painted = 0;
    for (let row = low; row < high; row++) {
      const begin = Math.max(0, Math.ceil(left[row]! - 0.5));
      const end = Math.min(width, Math.ceil(right[row]! - 0.5));
      const first = this.lowest + row * this.stride;
      if (ramp) {
        const { colors, across } = ramp;
        let place = ramp.corner + across * (begin + 0.5) + ramp.up * (row + 0.5);
        for (let k = first + begin; k < first + end; k++, place += across) {
          pixels[k] = colors[place > 0 ? Math.min(place, colors.length - 1) | 0 : 0]!;
        }
      } else {
        for (let k = first + begin; k < first + end; k++) pixels[k] = color;
      }
      if (end > begin) painted += end - begin;
    }
    return painted;
  }

  /** Draw the columns of a line, or its rows where it is steep; v: where it is in the first one. */
  private columns(begin: number, end: number, v: number, slope: number, steep: boolean): void {
    const { pixels, width, stride, opacity, redBlue, green } = this;
    const most = (steep ? width : this.height) - 1;
    const [along, aside] = steep ? [stride, 1] : [1, stride];
    const cosine = 1 / Math.sqrt(1 + slope * slope);
    const reach = this.reach / cosine;
    let middle = v - 0.5;
    for (let i = begin; i < end; i++, middle += slope) {
      const first = Math.max(0, Math.ceil(middle - reach));
      const last = Math.min(most, Math.floor(middle + reach));
      for (let j = first; j <= last; j++) {
        const cover = (reach - Math.abs(j - middle)) * cosine;
        const share = cover < 1 ? (opacity * cover) | 0 : opacity;
        const k = this.lowest + i * along + j * aside;
        const pixel = pixels[k]!;
        const rest = 256 - share;
        const rb = Math.imul(pixel & 0xff00ff, rest) + Math.imul(redBlue, share);
        const g = Math.imul(pixel & 0x00ff00, rest) + Math.imul(green, share);
        pixels[k] = ((rb >>> 8) & 0xff00ff) | ((g >>> 8) & 0x00ff00) | 0xff000000;
      }
    }
  }
}
