// Where an output has a given value: a segment in every cell that has such places.

import type { Mesh } from "./mesh";

/** The segments on which a column of `values` equals a level: x0 y0 x1 y1 ..., local coordinates.
 *
 * Outputs are affine on a cell, so they pass the level along one segment, between the two edges
 * whose ends are on different sides of it; values at the level count as above it. The place on an
 * edge follows from the edge alone, so that the segments of neighbouring cells meet exactly. Of
 * cells that are at the level as a whole, the outline is returned. Settled regions are left out:
 * where outputs have the level in them is not known. */
export function levelSet(mesh: Mesh, column: number, level: number): Float64Array {
  const { edges, points, halfedgeCell, preciseValues, cellCount } = mesh;
  const width = mesh.outputs.length;
  const above = new Uint8Array(mesh.vertexCount);
  let equal = 0;
  for (let vertex = 0, k = column; vertex < above.length; vertex++, k += width) {
    const value = preciseValues[k]!;
    if (value >= level) above[vertex] = 1;
    if (value === level) equal++;
  }
  const crossed: number[] = [];
  for (let h = 0; h < edges.length; h += 2) {
    if (above[edges[h]!] !== above[edges[h + 1]!]) crossed.push(h);
  }
  const segments = new Segments(crossed.length);
  const open = new Int32Array(cellCount); // one more than the crossing at which a cell was entered
  const places = new Float64Array(2 * crossed.length);
  for (let k = 0; k < crossed.length; k++) {
    const h = crossed[k]!;
    const a = edges[h]!;
    const b = edges[h + 1]!;
    const from = preciseValues[a * width + column]! - level;
    const t = from / (from - (preciseValues[b * width + column]! - level));
    if (!(t >= 0 && t <= 1)) continue; // a value that is not a number
    places[2 * k] = points[2 * a]! + t * (points[2 * b]! - points[2 * a]!);
    places[2 * k + 1] = points[2 * a + 1]! + t * (points[2 * b + 1]! - points[2 * a + 1]!);
    for (let side = 0; side < 2; side++) {
      const cell = halfedgeCell[h + side]!;
      if (cell < 0 || mesh.isSettled(cell)) continue;
      const entry = open[cell]! - 1;
      open[cell] = entry < 0 ? k + 1 : 0;
      if (entry >= 0) {
        segments.add(
          places[2 * entry]!,
          places[2 * entry + 1]!,
          places[2 * k]!,
          places[2 * k + 1]!,
        );
      }
    }
  }
  if (equal > 2) addFlatCells(mesh, column, level, segments);
  return segments.result();
}

/** Add the outlines of the cells all of whose corners are at the level, each edge once. */
function addFlatCells(mesh: Mesh, column: number, level: number, segments: Segments): void {
  const { offsets, corners, edges, points, preciseValues } = mesh;
  const width = mesh.outputs.length;
  const drawn = new Set<number>();
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    if (mesh.isSettled(cell)) continue;
    const end = offsets[cell + 1]!;
    let k = offsets[cell]!;
    while (k < end && preciseValues[edges[corners[k]!]! * width + column] === level) k++;
    if (k < end) continue;
    for (k = offsets[cell]!; k < end; k++) {
      const edge = corners[k]! >> 1;
      if (drawn.has(edge)) continue;
      drawn.add(edge);
      const [a, b] = [2 * edges[2 * edge]!, 2 * edges[2 * edge + 1]!];
      segments.add(points[a]!, points[a + 1]!, points[b]!, points[b + 1]!);
    }
  }
}

/** A list of segments that grows. */
class Segments {
  private data: Float64Array;
  private length = 0;

  constructor(room: number) {
    this.data = new Float64Array(4 * room + 4);
  }

  add(x0: number, y0: number, x1: number, y1: number): void {
    if (this.length === this.data.length) {
      const larger = new Float64Array(2 * this.data.length);
      larger.set(this.data);
      this.data = larger;
    }
    const { data, length } = this;
    data[length] = x0;
    data[length + 1] = y0;
    data[length + 2] = x1;
    data[length + 3] = y1;
    this.length += 4;
  }

  result(): Float64Array {
    return this.data.slice(0, this.length);
  }
}
