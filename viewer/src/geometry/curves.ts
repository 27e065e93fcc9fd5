// Edges by what drew them, and what lies on their other sides.

import type { Box, Pair } from "../protocol/messages";
import { clippedPolygon } from "./clip";
import type { Mesh } from "./mesh";

/** The edges that a unit of a layer drew. */
export function unitCurve(mesh: Mesh, layer: number, unit: number): Uint32Array {
  const { edgeLayer, edgeUnit } = mesh;
  const found: number[] = [];
  for (let edge = 0; edge < edgeUnit.length; edge++) {
    if (edgeUnit[edge] === unit && edgeLayer[edge] === layer) found.push(edge);
  }
  return Uint32Array.from(found);
}

/** Edges as segments, x0 y0 x1 y1 and so on, in local coordinates. */
export function segmentsOf(mesh: Mesh, edges: ArrayLike<number>): Float64Array {
  const segments = new Float64Array(4 * edges.length);
  for (let k = 0; k < edges.length; k++) {
    const a = 2 * mesh.edges[2 * edges[k]!]!;
    const b = 2 * mesh.edges[2 * edges[k]! + 1]!;
    segments[4 * k] = mesh.points[a]!;
    segments[4 * k + 1] = mesh.points[a + 1]!;
    segments[4 * k + 2] = mesh.points[b]!;
    segments[4 * k + 3] = mesh.points[b + 1]!;
  }
  return segments;
}

/** The segments of the decision boundary, in local coordinates. */
export function boundarySegments(mesh: Mesh): Float64Array {
  return segmentsOf(mesh, mesh.boundary);
}

/** Segments (x0 y0 x1 y1 ...) joined to polylines (x y x y ...) at ends that are exactly equal. */
export function chained(segments: ArrayLike<number>): number[][] {
  const count = segments.length / 4;
  const byEnd = new Map<string, number[]>(); // twice the segment, plus 1 for its second end
  const nameOf = (end: number) => `${segments[2 * end]},${segments[2 * end + 1]}`;
  for (let end = 0; end < 2 * count; end++) {
    const name = nameOf(end);
    const there = byEnd.get(name);
    if (there) there.push(end);
    else byEnd.set(name, [end]);
  }
  const used = new Uint8Array(count);
  const follow = (from: number): number[] => {
    const line = [segments[2 * from]!, segments[2 * from + 1]!];
    for (let end: number | undefined = from; end !== undefined; ) {
      used[end >> 1] = 1;
      const other: number = end ^ 1;
      line.push(segments[2 * other]!, segments[2 * other + 1]!);
      end = byEnd.get(nameOf(other))!.find((next) => !used[next >> 1]);
    }
    return line;
  };
  const lines: number[][] = [];
  const starts = [...byEnd.values()].filter((there) => there.length !== 2).flat();
  for (const end of starts) if (!used[end >> 1]) lines.push(follow(end));
  for (let k = 0; k < count; k++) if (!used[k]) lines.push(follow(2 * k)); // rings
  return lines;
}

/** The half-edges around a region, without those between its own cells. */
export function outlineOf(mesh: Mesh, region: number): Uint32Array {
  const { corners, offsets, halfedgeCell } = mesh;
  const found: number[] = [];
  for (const cell of mesh.cellsOf(region)) {
    for (let k = offsets[cell]!; k < offsets[cell + 1]!; k++) {
      const beyond = halfedgeCell[corners[k]! ^ 1]!;
      if (beyond < 0 || mesh.region[beyond] !== region) found.push(corners[k]!);
    }
  }
  return Uint32Array.from(found);
}

/** The regions that share an edge with a region. */
export function neighbours(mesh: Mesh, region: number): Uint32Array {
  const found = new Set<number>();
  for (const h of outlineOf(mesh, region)) {
    const beyond = mesh.halfedgeCell[h ^ 1]!;
    if (beyond >= 0) found.add(mesh.region[beyond]!);
  }
  return Uint32Array.from(found);
}

/** The half-edge through which one leaves a region, from a place in it and in a direction, in local
 * coordinates; -1 if there is none because of rounding. */
export function exitOf(mesh: Mesh, region: number, from: Pair, [dx, dy]: Readonly<Pair>): number {
  const side = (vertex: number): number =>
    dx * (mesh.points[2 * vertex + 1]! - from[1]) - dy * (mesh.points[2 * vertex]! - from[0]);
  for (const h of outlineOf(mesh, region)) {
    // The outline goes around to the left, so that it crosses the way out from right to left.
    if (side(mesh.edges[h]!) <= 0 && side(mesh.edges[h ^ 1]!) > 0) return h;
  }
  return -1;
}

/** The middle of a region in local coordinates: of what a rectangle shows of it, if that is any. */
export function middleOf(mesh: Mesh, region: number, window: Readonly<Box>): Pair {
  const rings = Array.from(mesh.cellsOf(region), (cell) => mesh.localPolygon(cell));
  const seen = rings.map((ring) => clippedPolygon(ring, window));
  return centroid(seen) ?? centroid(rings) ?? [rings[0]![0]!, rings[0]![1]!];
}

/** The centroid of polygons (x y x y ...); null if they have no area. */
function centroid(rings: readonly ArrayLike<number>[]): Pair | null {
  const first = rings.find((ring) => ring.length) ?? [0, 0];
  const [x0, y0] = [first[0]!, first[1]!];
  let [area, x, y] = [0, 0, 0];
  for (const ring of rings) {
    for (let k = 0; k < ring.length; k += 2) {
      const j = (k + 2) % ring.length;
      const [ax, ay, bx, by] = [ring[k]! - x0, ring[k + 1]! - y0, ring[j]! - x0, ring[j + 1]! - y0];
      const twice = ax * by - ay * bx;
      area += twice;
      x += twice * (ax + bx);
      y += twice * (ay + by);
    }
  }
  return area > 0 ? [x0 + x / (3 * area), y0 + y / (3 * area)] : null;
}
