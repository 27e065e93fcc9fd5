// The colours of cells by class: paler where the class leads by little, as in the static pictures.

import type { Mesh } from "./mesh";

/** The share of its colour that a class has where it leads by nothing, and by very much. */
const [PALEST, STRONGEST] = [0.12, 0.8];

/** The colours of all cells, (C, 3) bytes.
 *
 * palette: red, green and blue from 0 to 255 of each class; typical: the lead at which a class has
 * half of its colour; level: what a single output is compared with. */
export function classColors(
  mesh: Mesh,
  palette: readonly number[][],
  typical: number,
  level = 0,
): Uint8Array {
  const { offsets, corners, edges, preciseValues: values, cellClass } = mesh;
  const count = mesh.outputs.length;
  const sums = new Float64Array(count);
  const colors = new Uint8Array(3 * mesh.cellCount);
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const [begin, end] = [offsets[cell]!, offsets[cell + 1]!];
    sums.fill(0);
    for (let c = begin; c < end; c++) {
      const row = edges[corners[c]!]! * count;
      for (let k = 0; k < count; k++) sums[k]! += values[row + k]!;
    }
    const lead = count > 1 ? gap(sums) / (end - begin) : Math.abs(sums[0]! / (end - begin) - level);
    const strength = typical > 0 ? lead / (lead + typical) : 1;
    const share = PALEST + (STRONGEST - PALEST) * strength;
    const color = palette[(cellClass?.[cell] ?? 0) % palette.length]!;
    for (let k = 0; k < 3; k++) colors[3 * cell + k] = 255 - share * (255 - color[k]!) + 0.5;
  }
  return colors;
}

/** How far the largest number is above the second. */
function gap(numbers: Float64Array): number {
  let first = Number.NEGATIVE_INFINITY;
  let second = Number.NEGATIVE_INFINITY;
  for (let k = 0; k < numbers.length; k++) {
    const number = numbers[k]!;
    if (number > first) {
      second = first;
      first = number;
    } else if (number > second) second = number;
  }
  return first - second;
}
