// Which cell and which edge is under the cursor.
//
// A walk goes from cell to cell across an edge that has the point on its other side; it begins at
// the last hit or at a grid of seeds, so that it is short in meshes of any size. Where several
// edges have the point on their other side, one is taken at random: such a walk ends in every
// subdivision into convex cells, where fixed choices can turn in circles. Rounding is the same from
// both sides of an edge, and what it spoils is found by a scan of all cells.

import type { Box, Pair } from "../protocol/messages";
import { clippedPolygon, squaredDistance } from "./clip";
import { Flood } from "./flood";
import { hullOf, inHull } from "./hull";
import type { Mesh } from "./mesh";
import { Seeds } from "./seeds";

const ROUNDING = 1e-12; // of the size of the mesh: how far outside a cell a point may seem to be

export class Picker {
  private lastCell = -1;
  /** The place of the last hit, in local coordinates. */
  private readonly lastAt = new Float64Array(2);
  /** The square of the distance within which edges are searched. */
  private within = 0;
  private random = 1;
  private made: { seeds: Seeds; hull: Float64Array; flood: Flood } | null = null;

  constructor(readonly mesh: Mesh) {}

  /** Make what later questions need: once, in time proportional to the mesh. */
  prepare(): { seeds: Seeds; hull: Float64Array; flood: Flood } {
    const { mesh } = this;
    this.made ??= { seeds: new Seeds(mesh), hull: hullOf(mesh), flood: new Flood(mesh) };
    return this.made;
  }

  /** Whether it is made. */
  get ready(): boolean {
    return this.made !== null;
  }

  get flood(): Flood {
    return this.prepare().flood;
  }

  /** The cell that has a place, -1 outside of the mesh. */
  cell(uv: Readonly<Pair>): number {
    const [x, y] = this.mesh.toLocal(uv);
    if (!inHull(this.prepare().hull, x, y)) return -1;
    let cell = this.walk(this.start(x, y), x, y);
    if (cell < 0) cell = this.scan(x, y);
    if (cell >= 0) {
      this.lastCell = cell;
      this.lastAt[0] = x;
      this.lastAt[1] = y;
    }
    return cell;
  }

  /** The nearest edge within `reach` (in plane units) among those that are accepted, or -1. */
  edge(uv: Readonly<Pair>, reach: number, accepts: (edge: number) => boolean = () => true): number {
    const start = this.cell(uv);
    if (start < 0) return -1;
    this.within = (reach / this.mesh.scale) ** 2;
    const { flood } = this;
    const count = flood.spreadNear(start, this.isWithin);
    const { offsets, corners } = this.mesh;
    let best = -1;
    let nearest = this.within;
    for (let i = 0; i < count; i++) {
      const cell = flood.near[i]!;
      const end = offsets[cell + 1]!;
      for (let k = offsets[cell]!; k < end; k++) {
        const edge = corners[k]! >> 1;
        const far = this.squaredDistance(edge);
        if (far > nearest || !accepts(edge)) continue;
        best = edge;
        nearest = far;
      }
    }
    return best;
  }

  /** Whether the last hit is so near an edge that edges beyond it are searched. */
  private readonly isWithin = (edge: number): boolean => this.squaredDistance(edge) <= this.within;

  /** The square of the distance of the last hit from an edge, in local units. */
  private squaredDistance(edge: number): number {
    const { points, edges } = this.mesh;
    const x = this.lastAt[0]!;
    const y = this.lastAt[1]!;
    const a = 2 * edges[2 * edge]!;
    const b = 2 * edges[2 * edge + 1]!;
    return squaredDistance(x, y, points[a]!, points[a + 1]!, points[b]!, points[b + 1]!);
  }

  /** A cell that meets a rectangle, in its middle if possible; -1 if there is none. */
  cellIn(window: Readonly<Box>): number {
    const middle: Pair = [(window[0] + window[2]) / 2, (window[1] + window[3]) / 2];
    const cell = this.cell(middle);
    if (cell >= 0) return cell;
    const low = this.mesh.toLocal([window[0], window[1]]);
    const high = this.mesh.toLocal([window[2], window[3]]);
    const seen = clippedPolygon(this.prepare().hull, [...low, ...high]);
    if (!seen.length) return -1;
    const mean = (axis: number) =>
      (2 * seen.reduce((sum, x, k) => (k % 2 === axis ? sum + x : sum), 0)) / seen.length;
    return this.cell(this.mesh.toPlane([mean(0), mean(1)]));
  }

  /** The last hit or a seed, whichever is nearer. */
  private start(x: number, y: number): number {
    const seed = this.prepare().seeds.at(x, y);
    if (this.lastCell < 0) return seed;
    const { points, edges, corners, offsets } = this.mesh;
    const vertex = 2 * edges[corners[offsets[seed]!]!]!;
    const fromSeed = Math.hypot(points[vertex]! - x, points[vertex + 1]! - y);
    const fromLast = Math.hypot(this.lastAt[0]! - x, this.lastAt[1]! - y);
    return fromLast <= fromSeed ? this.lastCell : seed;
  }

  private walk(start: number, x: number, y: number): number {
    const { offsets, corners, halfedgeCell, cellCount } = this.mesh;
    let cell = start;
    for (let steps = 1000 + 16 * Math.sqrt(cellCount); steps > 0; steps--) {
      const begin = offsets[cell]!;
      const end = offsets[cell + 1]!;
      this.random = (Math.imul(this.random, 1664525) + 1013904223) >>> 0;
      const first = begin + Math.floor((this.random / 2 ** 32) * (end - begin));
      let next = -1;
      let outside = false;
      for (let turn = 0, k = first; turn < end - begin && next < 0; turn++) {
        const h = corners[k]!;
        if (this.left(h, x, y) < 0) {
          outside = true;
          next = halfedgeCell[h ^ 1]!;
        }
        k = k + 1 === end ? begin : k + 1;
      }
      if (!outside) return cell;
      if (next < 0) return -1; // rounding at the border
      cell = next;
    }
    return -1;
  }

  /** Twice the area of the triangle of a half-edge and a point: below 0 if it is to the right. */
  private left(h: number, x: number, y: number): number {
    const { points, edges } = this.mesh;
    const a = 2 * edges[h & ~1]!;
    const b = 2 * edges[h | 1]!;
    const ax = points[a]!;
    const ay = points[a + 1]!;
    const area = (points[b]! - ax) * (y - ay) - (points[b + 1]! - ay) * (x - ax);
    return h & 1 ? -area : area;
  }

  /** The cell that a point is in, or least outside of if rounding puts it outside of all. */
  private scan(x: number, y: number): number {
    const { offsets, corners, edges, points, cellCount } = this.mesh;
    const { hull } = this.prepare();
    const size = hull.reduce((most, x, k) => Math.max(most, Math.abs(x - hull[k % 2]!)), 0);
    let best = -1;
    let least = ROUNDING * size;
    for (let cell = 0; cell < cellCount; cell++) {
      let worst = 0;
      for (let k = offsets[cell]!; k < offsets[cell + 1]! && worst < least; k++) {
        const h = corners[k]!;
        const area = -this.left(h, x, y);
        if (area <= 0) continue;
        const a = 2 * edges[h]!;
        const b = 2 * edges[h ^ 1]!;
        const length = Math.hypot(points[b]! - points[a]!, points[b + 1]! - points[a + 1]!);
        worst = Math.max(worst, area / length);
      }
      if (worst === 0) return cell;
      if (worst < least) [best, least] = [cell, worst];
    }
    return best;
  }
}
