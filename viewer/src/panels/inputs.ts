// The input at a place of the plane, and inputs and gradients as pixels.

import type { DomainHeader, Pair } from "../protocol/messages";

export type ImageHeader = NonNullable<DomainHeader["image"]>;

/** Where a pane's plane lies in input space: origin (D) and basis (2, D). */
export interface InputPlane {
  origin: ArrayLike<number>;
  basis: ArrayLike<number>;
}

// The ends of the colours of gradients, as of the static pictures' "RdBu_r", and their middle.
const NEGATIVE = [33, 102, 172] as const;
const POSITIVE = [178, 24, 43] as const;
const NEUTRAL = [247, 247, 247] as const;

/** The input at a place: origin + u · basis[0] + v · basis[1]. */
export function inputAt({ origin, basis }: InputPlane, [u, v]: Pair): Float64Array {
  const D = origin.length;
  const input = new Float64Array(D);
  for (let k = 0; k < D; k += 1) input[k] = origin[k]! + u * basis[k]! + v * basis[D + k]!;
  return input;
}

/** Whether numbers are an image of this size. */
export function isImage(numbers: ArrayLike<number>, image: ImageHeader): boolean {
  const size = image.height * image.width * image.channels;
  return size > 0 && numbers.length === size;
}

/** An image, channels first, as RGBA; numbers from low to high are black to white. */
export function imagePixels(numbers: ArrayLike<number>, image: ImageHeader): Uint8ClampedArray {
  const { height, width, channels, low, high } = image;
  const area = height * width;
  const pixels = new Uint8ClampedArray(4 * area);
  const factor = 255 / (high - low || 1);
  for (let k = 0; k < area; k += 1) {
    for (let c = 0; c < 3; c += 1) {
      const channel = channels >= 3 ? c : 0;
      pixels[4 * k + c] = factor * (numbers[channel * area + k]! - low);
    }
    pixels[4 * k + 3] = 255;
  }
  return pixels;
}

/** A gradient as RGBA: the sum over channels, from blue (negative) through white to red. */
export function gradientPixels(numbers: ArrayLike<number>, image: ImageHeader): Uint8ClampedArray {
  const area = image.height * image.width;
  const sums = new Float64Array(area);
  for (let k = 0; k < area * image.channels; k += 1) sums[k % area]! += numbers[k]!;
  const most = sums.reduce((most, sum) => Math.max(most, Math.abs(sum)), 0) || 1;
  const pixels = new Uint8ClampedArray(4 * area);
  for (let k = 0; k < area; k += 1) {
    const strength = Math.abs(sums[k]!) / most;
    const end = sums[k]! < 0 ? NEGATIVE : POSITIVE;
    for (let c = 0; c < 3; c += 1) {
      pixels[4 * k + c] = NEUTRAL[c]! + strength * (end[c]! - NEUTRAL[c]!);
    }
    pixels[4 * k + 3] = 255;
  }
  return pixels;
}
