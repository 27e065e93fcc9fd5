// The colours of cells by class: paler where the class leads by little, as in the static pictures.

import type { Mesh } from "./mesh";

/** The share of its colour that a class has where it leads by nothing, and by very much. */
const [PALEST, STRONGEST] = [0.12, 0.8];

/** The colours of all cells, (C, 3) bytes.
 *
 * palette: red, green and blue from 0 to 255 of each class; typical: the lead at which a class has
 * half of its colour; leads: by how much it leads in each cell. */
export function classColors(
  mesh: Mesh,
  palette: readonly number[][],
  typical: number,
  leads: Float64Array,
): Uint8Array {
  const { cellClass, cellCount } = mesh;
  // What each class takes away from white.
  const ink = Float64Array.from(palette.flat(), (part) => 255 - part);
  const colors = new Uint8Array(3 * cellCount);
  for (let cell = 0; cell < cellCount; cell++) {
    const lead = leads[cell]!;
    const strength = typical > 0 ? lead / (lead + typical) : 1;
    const share = PALEST + (STRONGEST - PALEST) * strength;
    const k = 3 * (cellClass ? cellClass[cell]! % palette.length : 0);
    colors[3 * cell] = 255.5 - share * ink[k]!;
    colors[3 * cell + 1] = 255.5 - share * ink[k + 1]!;
    colors[3 * cell + 2] = 255.5 - share * ink[k + 2]!;
  }
  return colors;
}

/** How far the largest output is above the second in each cell, on average over its corners.
 *
 * level: what a single output is compared with. */
export function leadsOf(mesh: Mesh, level = 0): Float64Array {
  const { offsets, corners, edges, preciseValues: values, cellCount } = mesh;
  const count = mesh.outputs.length;
  const leads = new Float64Array(cellCount);
  const rows: number[] = []; // where the outputs of the cell's corners are
  for (let cell = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const size = offsets[cell + 1]! - begin;
    for (let c = 0; c < size; c++) rows[c] = edges[corners[begin + c]!]! * count;
    let first = Number.NEGATIVE_INFINITY;
    let second = count > 1 ? Number.NEGATIVE_INFINITY : level * size;
    for (let k = 0; k < count; k++) {
      let sum = values[rows[0]! + k]!;
      for (let c = 1; c < size; c++) sum += values[rows[c]! + k]!;
      if (sum > first) {
        if (k > 0) second = first;
        first = sum;
      } else if (sum > second) second = sum;
    }
    leads[cell] = Math.abs(first - second) / size;
  }
  return leads;
}
