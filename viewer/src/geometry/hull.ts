// The outline of a mesh: the convex hull of the vertices on its border.

import type { Mesh } from "./mesh";

/** The hull, x y x y and so on, counter-clockwise, in local coordinates (Andrew's chains). */
export function hullOf(mesh: Mesh): Float64Array {
  const { edges, points, halfedgeCell } = mesh;
  const border = new Set<number>();
  for (let h = 0; h < edges.length; h += 2) {
    if (halfedgeCell[h]! < 0 === halfedgeCell[h + 1]! < 0) continue;
    border.add(edges[h]!).add(edges[h + 1]!);
  }
  const sorted = [...border].sort(
    (p, q) => points[2 * p]! - points[2 * q]! || points[2 * p + 1]! - points[2 * q + 1]!,
  );
  const lower = chain(points, sorted);
  const upper = chain(points, sorted.reverse());
  const ring = [...lower.slice(0, -1), ...upper.slice(0, -1)];
  return Float64Array.from(ring.flatMap((p) => [points[2 * p]!, points[2 * p + 1]!]));
}

function chain(points: Float64Array, sorted: number[]): number[] {
  const result: number[] = [];
  for (const p of sorted) {
    const [x, y] = [points[2 * p]!, points[2 * p + 1]!];
    while (result.length > 1) {
      const [a, b] = [result[result.length - 2]!, result[result.length - 1]!];
      const [ax, ay] = [points[2 * a]!, points[2 * a + 1]!];
      const left = (points[2 * b]! - ax) * (y - ay) - (points[2 * b + 1]! - ay) * (x - ax);
      if (left > 0) break;
      result.pop();
    }
    result.push(p);
  }
  return result;
}

/** Whether a point is in a convex ring or on it. */
export function inHull(hull: Float64Array, x: number, y: number): boolean {
  let [ax, ay] = [hull[hull.length - 2]!, hull[hull.length - 1]!];
  for (let k = 0; k < hull.length; k += 2) {
    const bx = hull[k]!;
    const by = hull[k + 1]!;
    if (!((bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0)) return false; // also if not a number
    ax = bx;
    ay = by;
  }
  return hull.length > 0;
}
