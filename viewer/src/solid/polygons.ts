// Flat convex polygons in space: those of a surface, and the regions of a plane through it.

import type { Message } from "../protocol/messages";
import type { Ray } from "./eye";
import { cross, dot, length, minus, row, unit, type Vec3 } from "./vectors";

/** Points are only kept where normal · point <= offset. */
export interface Half {
  normal: Vec3;
  offset: number;
}

export interface Hit {
  face: number;
  at: Vec3;
  /** From the eye. */
  far: number;
}

/** V vertices (x y z of each), F faces with offsets (F + 1) into the corners (C), which are vertices;
 * layer (C): of the edge after each corner. normals (F): x y z of each, or null to find them. */
export class Polygons {
  readonly count: number;
  readonly face: Uint32Array;
  readonly middles: Float32Array;
  readonly normals: Float32Array;
  /** How far the corners are from the middle of each face, at most. */
  readonly reach: Float32Array;
  readonly area: Float32Array;

  constructor(
    readonly vertices: Float32Array,
    readonly offsets: Uint32Array,
    readonly corners: ArrayLike<number>,
    readonly layer: ArrayLike<number>,
    normals: Float32Array | null = null,
  ) {
    this.count = offsets.length - 1;
    this.face = new Uint32Array(corners.length);
    this.middles = new Float32Array(3 * this.count);
    this.normals = new Float32Array(3 * this.count);
    this.reach = new Float32Array(this.count);
    this.area = new Float32Array(this.count);
    for (let k = 0; k < this.count; k++) this.measure(k, normals);
  }

  static of({ arrays }: Message): Polygons {
    const { vertices, counts, corners, edgeLayer, gradients } = arrays;
    const points = vertices?.data;
    const slopes = gradients?.data;
    if (!(points instanceof Float32Array) || !(slopes instanceof Float32Array)) {
      throw new Error("The surface was not sent as it should be.");
    }
    const offsets = sums(counts!.data);
    return new Polygons(points, offsets, corners!.data, edgeLayer!.data, slopes);
  }

  private measure(k: number, given: Float32Array | null): void {
    const { vertices, corners, middles } = this;
    const [first, end] = [this.offsets[k]!, this.offsets[k + 1]!];
    const n = end - first;
    let [x, y, z] = [0, 0, 0];
    for (let c = first; c < end; c++) {
      this.face[c] = k;
      const v = 3 * corners[c]!;
      x += vertices[v]!;
      y += vertices[v + 1]!;
      z += vertices[v + 2]!;
    }
    const middle: Vec3 = [x / n, y / n, z / n];
    middles.set(middle, 3 * k);
    let sum: Vec3 = [0, 0, 0];
    let reach = 0;
    let before = minus(row(vertices, corners[end - 1]!), middle);
    for (let c = first; c < end; c++) {
      const here = minus(row(vertices, corners[c]!), middle);
      const part = cross(before, here);
      sum = [sum[0] + part[0], sum[1] + part[1], sum[2] + part[2]];
      reach = Math.max(reach, length(here));
      before = here;
    }
    this.reach[k] = reach;
    this.area[k] = length(sum) / 2;
    const slope = given ? unit(row(given, k)) : unit(sum);
    this.normals.set(length(slope) > 0 ? slope : unit(sum), 3 * k);
  }

  /** The last layer that bounds each face, -1 where only sides of the box do. */
  lastLayer(face: number): number {
    let last = -1;
    for (let c = this.offsets[face]!; c < this.offsets[face + 1]!; c++) {
      last = Math.max(last, this.layer[c]!);
    }
    return last;
  }

  /** The layers of the edges of a face, each once, ascending. */
  layersOf(face: number): number[] {
    const found = new Set<number>();
    for (let c = this.offsets[face]!; c < this.offsets[face + 1]!; c++) found.add(this.layer[c]!);
    return [...found].filter((layer) => layer >= -1).sort((a, b) => a - b);
  }

  /** The area, and for each layer the length of its edges; most edges count once for each side. */
  lengths(layers: number): { area: number; lengths: Float64Array } {
    const lengths = new Float64Array(layers);
    for (let k = 0; k < this.count; k++) {
      const [first, end] = [this.offsets[k]!, this.offsets[k + 1]!];
      for (let c = first; c < end; c++) {
        const layer = this.layer[c]!;
        if (layer < 0 || layer >= layers) continue;
        const next = this.corners[c + 1 < end ? c + 1 : first]!;
        const edge = minus(row(this.vertices, next), row(this.vertices, this.corners[c]!));
        lengths[layer]! += length(edge) / 2;
      }
    }
    return { area: this.area.reduce((a, b) => a + b, 0), lengths };
  }

  /** The first face that a ray meets in a half-space. */
  pick({ from, way }: Ray, half: Half | null = null): Hit | null {
    const { normals, middles, reach } = this;
    let found: Hit | null = null;
    let best = Number.POSITIVE_INFINITY;
    for (let k = 0, at = 0; k < this.count; k++, at += 3) {
      const [nx, ny, nz] = [normals[at]!, normals[at + 1]!, normals[at + 2]!];
      const steep = nx * way[0] + ny * way[1] + nz * way[2];
      const [cx, cy, cz] = [middles[at]!, middles[at + 1]!, middles[at + 2]!];
      const far = (nx * (cx - from[0]) + ny * (cy - from[1]) + nz * (cz - from[2])) / steep;
      if (!(far > 0 && far < best)) continue;
      const x = from[0] + far * way[0];
      const y = from[1] + far * way[1];
      const z = from[2] + far * way[2];
      const off = (x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2;
      if (off > reach[k]! ** 2) continue;
      if (half && dot(half.normal, [x, y, z]) > half.offset) continue;
      if (!this.holds(k, [x, y, z])) continue;
      best = far;
      found = { face: k, at: [x, y, z], far };
    }
    return found;
  }

  /** The value at a place in a face of a function that is linear there; values: at the vertices. */
  valueAt(face: number, place: Vec3, values: ArrayLike<number>): number {
    const [first, end] = [this.offsets[face]!, this.offsets[face + 1]!];
    const [origin, normal] = [this.corners[first]!, row(this.normals, face)];
    let [best, found] = [0, values[origin]!];
    const start = row(this.vertices, origin);
    const off = minus(place, start);
    // The largest of the triangles at the first corner loses the least.
    for (let c = first + 1; c + 1 < end; c++) {
      const [p, q] = [this.corners[c]!, this.corners[c + 1]!];
      const [a, b] = [minus(row(this.vertices, p), start), minus(row(this.vertices, q), start)];
      const area = dot(normal, cross(a, b));
      if (Math.abs(area) <= Math.abs(best)) continue;
      const [s, t] = [dot(normal, cross(off, b)) / area, dot(normal, cross(a, off)) / area];
      const here = values[origin]!;
      [best, found] = [area, here + s * (values[p]! - here) + t * (values[q]! - here)];
    }
    return found;
  }

  /** Whether a place in the plane of a face lies in it. */
  private holds(face: number, place: Vec3): boolean {
    const { vertices, corners } = this;
    const normal = row(this.normals, face);
    const [first, end] = [this.offsets[face]!, this.offsets[face + 1]!];
    let sign = 0;
    let before = row(vertices, corners[end - 1]!);
    for (let c = first; c < end; c++) {
      const here = row(vertices, corners[c]!);
      const side = dot(normal, cross(minus(here, before), minus(place, before)));
      if (side * sign < 0) return false;
      sign ||= side;
      before = here;
    }
    return true;
  }
}

/** Where each part begins, and the end. */
export function sums(counts: ArrayLike<number>): Uint32Array {
  const offsets = new Uint32Array(counts.length + 1);
  for (let k = 0; k < counts.length; k++) offsets[k + 1] = offsets[k]! + counts[k]!;
  return offsets;
}
