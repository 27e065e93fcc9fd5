// A mesh as the graphics card takes it, made elsewhere: for pictures that follow each other quickly.

import type { Mesh } from "../geometry/mesh";
import type { Box } from "../protocol/messages";

/** Segments in groups: x0 y0 x1 y1 of each, where groups begin, and how long all of a group are. */
export interface PreparedLines {
  ends: Float32Array;
  first: Uint32Array;
  lengths: Float32Array;
}

export interface Prepared {
  /** A corner of a cell is a vertex: x y of each, and triangles between them. */
  at: Float32Array;
  triangles: Uint32Array;
  area: number;
  box: Box;
  /** The edges of each layer, and the decision boundary. */
  inner: PreparedLines;
  boundary: PreparedLines;
}

/** Cells from which on a picture that replaces another one is sketched. */
export const MANY = 2000;

export function prepared(mesh: Mesh): Prepared {
  const { edges, corners, offsets, cellCount, points, edgeLayer, boundary } = mesh;
  const at = new Float32Array(2 * corners.length);
  const triangles = new Uint32Array(3 * (corners.length - 2 * cellCount));
  for (let k = 0; k < corners.length; k++) {
    const v = 2 * edges[corners[k]!]!;
    at[2 * k] = points[v]!;
    at[2 * k + 1] = points[v + 1]!;
  }
  for (let cell = 0, index = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const end = offsets[cell + 1]! - 1;
    for (let k = begin + 1; k < end; k++) {
      triangles[index++] = begin;
      triangles[index++] = k;
      triangles[index++] = k + 1;
    }
  }
  const box: Box = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < points.length; k += 2) {
    box[0] = Math.min(box[0], points[k]!);
    box[1] = Math.min(box[1], points[k + 1]!);
    box[2] = Math.max(box[2], points[k]!);
    box[3] = Math.max(box[3], points[k + 1]!);
  }
  const area = (box[2] - box[0]) * (box[3] - box[1]);
  const curves = linesOf(mesh, boundary, null);
  return { at, triangles, area, box, inner: linesOf(mesh, null, edgeLayer), boundary: curves };
}

/** Some edges, or all that have a layer, one layer after the other. */
function linesOf(
  { edges, points, edgeCount }: Mesh,
  chosen: Uint32Array | null,
  layer: Int16Array | null,
): PreparedLines {
  const count = chosen ? chosen.length : edgeCount;
  let groups = 1;
  for (let e = 0; layer && e < count; e++) if (layer[e]! >= groups) groups = layer[e]! + 1;
  const first = new Uint32Array(groups + 1);
  for (let i = 0; i < count; i++) {
    const group = layer ? layer[i]! : 0;
    if (group >= 0) first[group + 1]!++;
  }
  for (let group = 0; group < groups; group++) first[group + 1]! += first[group]!;
  const next = first.slice();
  const ends = new Float32Array(4 * first[groups]!);
  const lengths = new Float32Array(groups);
  for (let i = 0; i < count; i++) {
    const group = layer ? layer[i]! : 0;
    if (group < 0) continue;
    const e = chosen ? chosen[i]! : i;
    const a = 2 * edges[2 * e]!;
    const b = 2 * edges[2 * e + 1]!;
    const k = 4 * next[group]!++;
    const dx = points[b]! - points[a]!;
    const dy = points[b + 1]! - points[a + 1]!;
    ends[k] = points[a]!;
    ends[k + 1] = points[a + 1]!;
    ends[k + 2] = points[b]!;
    ends[k + 3] = points[b + 1]!;
    lengths[group]! += Math.sqrt(dx * dx + dy * dy);
  }
  return { ends, first, lengths };
}
