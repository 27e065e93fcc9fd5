// The input of the network at a place of the plane, and images of inputs and gradients.

import type { DomainHeader, Pair } from "../protocol/messages";
import type { Mesh } from "./mesh";

export type ImageShape = NonNullable<DomainHeader["image"]>;

/** origin + u * basis[0] + v * basis[1]; basis: (2, D), row after row. */
export function inputAt(
  origin: ArrayLike<number>,
  basis: ArrayLike<number>,
  [u, v]: Readonly<Pair>,
): Float32Array {
  const size = origin.length;
  const input = new Float32Array(size);
  for (let k = 0; k < size; k++) input[k] = origin[k]! + u * basis[k]! + v * basis[size + k]!;
  return input;
}

/** The pixels (h, w, 4) of an input (channels, h, w): grey, or red, green and blue. */
export function imageOf(
  input: ArrayLike<number>,
  shape: ImageShape,
): Uint8ClampedArray<ArrayBuffer> {
  const { low, high, channels } = shape;
  const size = shape.height * shape.width;
  const factor = 255 / (high > low ? high - low : 1);
  const pixels = new Uint8ClampedArray(4 * size);
  for (let k = 0; k < size; k++) {
    for (let c = 0; c < 3; c++) {
      const channel = channels >= 3 ? c : 0;
      pixels[4 * k + c] = (input[channel * size + k]! - low) * factor;
    }
    pixels[4 * k + 3] = 255;
  }
  return pixels;
}

/** The pixels (h, w, 4) of a gradient, blue below and red above 0; channels are added up. */
export function gradientImage(
  gradient: ArrayLike<number>,
  shape: ImageShape,
): Uint8ClampedArray<ArrayBuffer> {
  const size = shape.height * shape.width;
  const sums = new Float64Array(size);
  for (let k = 0; k < gradient.length; k++) sums[k % size]! += gradient[k]!;
  const most = sums.reduce((largest, sum) => Math.max(largest, Math.abs(sum)), 0);
  const pixels = new Uint8ClampedArray(4 * size);
  for (let k = 0; k < size; k++) {
    pixels.set(diverging(most > 0 ? sums[k]! / most : 0), 4 * k);
    pixels[4 * k + 3] = 255;
  }
  return pixels;
}

/** The gradient of the winning output on a region that a file holds, in input space, or null. */
export function storedGradient(mesh: Mesh, region: number): Float32Array | null {
  const { gradients, gradientScale, regionCount } = mesh;
  if (!gradients || !gradientScale) return null;
  const size = gradients.length / regionCount;
  const row = gradients.subarray(region * size, (region + 1) * size);
  return Float32Array.from(row, (number) => number * gradientScale[region]!);
}

// The colour map RdBu_r of the static pictures, from blue to red: ColorBrewer's eleven colours.
const BLUE_TO_RED = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
  .split(" ")
  .map((hex) => [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)));

/** The colour of a number from -1 to 1. */
export function diverging(number: number): [number, number, number] {
  const last = BLUE_TO_RED.length - 1;
  const place = (Math.min(1, Math.max(-1, number || 0)) + 1) * 0.5 * last;
  const below = Math.min(last - 1, Math.floor(place));
  const t = place - below;
  const mix = (c: number) =>
    Math.round((1 - t) * BLUE_TO_RED[below]![c]! + t * BLUE_TO_RED[below + 1]![c]!);
  return [mix(0), mix(1), mix(2)];
}
