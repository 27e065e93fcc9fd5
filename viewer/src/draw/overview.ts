// A small picture of the whole domain, drawn by the processor.

import type { Mesh } from "../geometry/mesh";
import type { Box, Message, Pair, RasterHeader } from "../protocol/messages";
import { brightness, flatOf, inTheme, type Paint, type Theme } from "./colours";
import { sketchOf } from "./sketch";
import { DARK_PAPER, inkOn, PAPER } from "./theme";
import { View } from "./view";

const [LONGEST, SHORTEST] = [132, 33]; // CSS pixels
const FINER = 2; // pixels of the picture per CSS pixel

/** What an overview shows: a rectangle around the domain, and its size in CSS pixels. */
export interface Extent {
  box: Box;
  size: Pair;
}

/** The extent of an overview of a domain, whose box is given. */
export function extentOf([u0, v0, u1, v1]: Readonly<Box>): Extent {
  const [wide, high] = [u1 - u0, v1 - v0];
  const side = (share: number) => Math.max(SHORTEST, LONGEST * Math.min(1, share));
  const size: Pair = [side(wide / high), side(high / wide)];
  const unit = Math.max(wide / size[0], high / size[1]);
  const [u, v, w, h] = [(u0 + u1) / 2, (v0 + v1) / 2, (unit * size[0]) / 2, (unit * size[1]) / 2];
  return { box: [u - w, v - h, u + w, v + h], size };
}

/** The cells of a mesh with its decision boundary, in an extent. */
export function overviewOf(mesh: Mesh, paint: Paint, extent: Extent, theme: Theme): ImageData {
  const { box, size } = extent;
  const pixels = size.map((n) => Math.round(FINER * n)) as Pair;
  const view = new View([0, 0], [0, 0], 1, pixels, FINER).fitting(box);
  const flat = flatOf(mesh, paint);
  const paper = theme === "dark" ? DARK_PAPER : PAPER;
  const look = { edges: false, boundary: true, rim: null, hidden: new Set<number>() };
  const own = { paper, ink: inkOn(brightness(flat)), edgeWidth: 1, layers: 0 };
  return upright(sketchOf(mesh, flat, view, { ...look, ...own }).pixels, pixels);
}

/** The pixels of a raster, which shows all of the extent. */
export function overviewOfRaster(
  { header, arrays }: Message<RasterHeader>,
  { size }: Extent,
  theme: Theme,
): ImageData {
  const [height = 0, width = 0, channels = 3] = arrays.pixels?.shape ?? [];
  const [w, h] = size.map((n) => Math.round(FINER * n)) as Pair;
  const bytes = new Uint8Array(4 * w * h);
  for (let k = 0; k < w * h; k++) {
    const column = Math.floor((((k % w) + 0.5) / w) * width);
    const row = Math.floor(((Math.floor(k / w) + 0.5) / h) * height);
    const from = channels * (row * width + column);
    for (let j = 0; j < 3; j++) bytes[4 * k + j] = arrays.pixels?.data[from + j] ?? 255;
    bytes[4 * k + 3] = channels === 4 ? (arrays.pixels?.data[from + 3] ?? 0) : 255;
  }
  return upright(inTheme(bytes, theme, { palette: header.palette, step: 4 }), [w, h]);
}

/** Pixels whose first row is the lowest, as an image. */
function upright(pixels: Uint8Array, [width, height]: Pair): ImageData {
  const image = new ImageData(width, height);
  for (let row = 0; row < height; row++) {
    const from = 4 * width * (height - 1 - row);
    image.data.set(pixels.subarray(from, from + 4 * width), 4 * width * row);
  }
  return image;
}
