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
  const leads = leadsOf(mesh, level);
  const colors = new Uint8Array(3 * mesh.cellCount);
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const lead = leads[cell]!;
    const strength = typical > 0 ? lead / (lead + typical) : 1;
    const share = PALEST + (STRONGEST - PALEST) * strength;
    const color = palette[(mesh.cellClass?.[cell] ?? 0) % palette.length]!;
    colors[3 * cell] = 255.5 - share * (255 - color[0]!);
    colors[3 * cell + 1] = 255.5 - share * (255 - color[1]!);
    colors[3 * cell + 2] = 255.5 - share * (255 - color[2]!);
  }
  return colors;
}

/** How far the largest output is above the second in each cell, on average over its corners. */
function leadsOf(mesh: Mesh, level: number): Float64Array {
  const { offsets, corners, edges, preciseValues: values, cellCount } = mesh;
  const count = mesh.outputs.length;
  const sums = new Float64Array(count);
  const leads = new Float64Array(cellCount);
  for (let cell = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const end = offsets[cell + 1]!;
    // The first corner sets the sums, so that they need not be cleared.
    const start = edges[corners[begin]!]! * count;
    for (let k = 0; k < count; k++) sums[k] = values[start + k]!;
    for (let c = begin + 1; c < end; c++) {
      const row = edges[corners[c]!]! * count;
      for (let k = 0; k < count; k++) sums[k]! += values[row + k]!;
    }
    let first = sums[0]!;
    let second = count > 1 ? Number.NEGATIVE_INFINITY : level * (end - begin);
    for (let k = 1; k < count; k++) {
      const sum = sums[k]!;
      if (sum > first) {
        second = first;
        first = sum;
      } else if (sum > second) second = sum;
    }
    leads[cell] = Math.abs(first - second) / (end - begin);
  }
  return leads;
}
