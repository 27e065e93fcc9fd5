// Data points as they are drawn: places, colours, thumbnails.

import type { Message, PaneHeader } from "../protocol/messages";
import { rgb } from "./colours";
import { INK } from "./theme";

const GREY = rgb("#a9aeb5"); // points without a label among others

/** Small pictures of the first points, (count, height, width, 4) bytes, row after row from above. */
export interface Thumbnails {
  pixels: Uint8Array;
  count: number;
  width: number;
  height: number;
}

export interface Samples {
  /** (2 N) plane coordinates. */
  at: Float64Array;
  /** (4 N) red, green, blue, and 255 for points in the plane, 0 for hollow ones beside it. */
  colors: Uint8Array;
  thumbnails: Thumbnails | null;
}

/** The data points of a pane; null if there are none. Points that are not numbers are left out. */
export function samplesOf(
  pane: number,
  { points }: Pick<PaneHeader, "points">,
  arrays: Message["arrays"],
): Samples | null {
  const at = arrays[`${pane}/points`]?.data;
  if (!points || !at) return null;
  const label = arrays[`${pane}/label`]?.data;
  const off = arrays[`${pane}/off`]?.data;
  const palette = (points.colors ?? []).map(rgb);
  const count = Math.floor(at.length / 2);
  const colors = new Uint8Array(4 * count);
  for (let k = 0; k < count; k++) {
    const color = label ? (palette[label[k]!] ?? GREY) : INK;
    for (let j = 0; j < 3; j++) colors[4 * k + j] = Math.round(255 * color[j]!);
    colors[4 * k + 3] = off?.[k] ? 0 : 255;
  }
  return { at: Float64Array.from(at), colors, thumbnails: thumbnailsOf(pane, arrays) };
}

function thumbnailsOf(pane: number, arrays: Message["arrays"]): Thumbnails | null {
  const images = arrays[`${pane}/thumbnails`];
  const [count = 0, height = 0, width = 0] = images?.shape ?? [];
  if (!images || !(images.data instanceof Uint8Array)) return null;
  const fits = images.data.length === 4 * count * height * width && images.data.length > 0;
  return fits ? { pixels: images.data, count, width, height } : null;
}
