// Small convolutions and average pooling as dense layers.

import type { Layer } from "./network";

/** The size of an image; its numbers come channel after channel, row after row. */
export interface Shape {
  channels: number;
  height: number;
  width: number;
}

/** How a window moves: down and across; pads: above, left, below, right. */
export interface Convolution {
  strides: [number, number];
  dilations: [number, number];
  pads: number[];
}

interface Made {
  layer: Layer;
  shape: Shape;
}

const MOST = 4_000_000; // weights of a dense layer

/** A convolution; weight: (channels out, channels in of a group, height, width). */
export function convolved(
  shape: Shape,
  weight: { dims: number[]; data: Float64Array },
  bias: Float64Array | null,
  groups: number,
  how: Convolution,
): Made {
  const [out = 0, own = 0, high = 0, wide = 0] = weight.dims;
  if (own * groups !== shape.channels) throw new Error("A convolution has other channels.");
  const made = empty(shape, out, [high, wide], how);
  const { units } = made.layer;
  visit(shape, made.shape, [high, wide], how, (place, from, i, j) => {
    for (let c = 0; c < out; c++) {
      const first = Math.floor((c * groups) / out) * own;
      for (let d = 0; d < own; d++) {
        const row = (first + d) * shape.height * shape.width + from;
        const column = c * made.shape.height * made.shape.width + place;
        made.layer.weight[row * units + column]! +=
          weight.data[((c * own + d) * high + i) * wide + j]!;
      }
    }
  });
  const size = made.shape.height * made.shape.width;
  if (bias) made.layer.bias.set(made.layer.bias.map((_, k) => bias[Math.floor(k / size)]!));
  return made;
}

/** The mean of windows; padded: whether what is beyond the image counts as zeros. */
export function pooled(
  shape: Shape,
  size: [number, number],
  how: Convolution,
  padded: boolean,
): Made {
  const made = empty(shape, shape.channels, size, how);
  const { units } = made.layer;
  const count = new Float64Array(made.shape.height * made.shape.width);
  visit(shape, made.shape, size, how, (place) => {
    count[place]! += 1;
  });
  if (padded) count.fill(size[0] * size[1]);
  visit(shape, made.shape, size, how, (place, from) => {
    for (let c = 0; c < shape.channels; c++) {
      const row = c * shape.height * shape.width + from;
      made.layer.weight[row * units + c * count.length + place] = 1 / count[place]!;
    }
  });
  return made;
}

/** A layer without weights, for windows of a size. */
function empty(shape: Shape, channels: number, size: [number, number], how: Convolution): Made {
  const [top = 0, left = 0, below = 0, right = 0] = how.pads;
  const places = (length: number, pads: number, k: 0 | 1): number =>
    Math.floor((length + pads - how.dilations[k] * (size[k] - 1) - 1) / how.strides[k]) + 1;
  const height = places(shape.height, top + below, 0);
  const width = places(shape.width, left + right, 1);
  const inputs = shape.channels * shape.height * shape.width;
  const units = channels * height * width;
  if (!(units > 0)) throw new Error("A window is larger than the image.");
  if (inputs * units > MOST) {
    const numbers = (inputs * units).toLocaleString("en");
    throw new Error(
      `A layer from ${inputs} to ${units} numbers has ${numbers} weights as a dense one; the page ` +
        `takes ${MOST.toLocaleString("en")}.`,
    );
  }
  const weight = new Float64Array(inputs * units);
  const bias = new Float64Array(units);
  const layer = { inputs, units, weight, bias, activation: { name: "linear" } } as const;
  return { layer, shape: { channels, height, width } };
}

/** Call for each place of a window, and each pixel of the image in it: their numbers within a
 * channel, and the row and column in the window. */
function visit(
  { height, width }: Shape,
  made: Shape,
  [high, wide]: [number, number],
  { strides, dilations, pads }: Convolution,
  each: (place: number, from: number, i: number, j: number) => void,
): void {
  for (let y = 0; y < made.height; y++) {
    for (let x = 0; x < made.width; x++) {
      for (let i = 0; i < high; i++) {
        for (let j = 0; j < wide; j++) {
          const row = y * strides[0] + i * dilations[0] - (pads[0] ?? 0);
          const column = x * strides[1] + j * dilations[1] - (pads[1] ?? 0);
          const inside = row >= 0 && column >= 0 && row < height && column < width;
          if (inside) each(y * made.width + x, row * width + column, i, j);
        }
      }
    }
  }
}
