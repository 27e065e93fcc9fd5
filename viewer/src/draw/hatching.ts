// An area of many convex polygons: translucent, and hatched by lines that stay with the plane.

import { clippedPolygon, type Local } from "./clip";
import type { Rgb } from "./colours";
import { attribute, type Programs } from "./programs";
import type { View } from "./view";

/** How strong the veil and the lines are, and the width of lines and from line to line in CSS pixels. */
export const HATCHING = { veil: 0.22, lines: 0.62, width: 1.1, period: 6.5 };

/** Convex polygons, ring after ring; counts: the corners of each. */
export interface Polygons extends Local {
  counts: ArrayLike<number>;
}

export class Hatching {
  constructor(private readonly polygons: Polygons) {}

  draw(programs: Programs, view: View, ink: Rgb): void {
    const { gl } = programs;
    const triangles = trianglesOf(this.polygons, view);
    if (!triangles.length) return;
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    const buffer = attribute(gl, 0, [2, gl.FLOAT, false], triangles);
    const { veil, lines } = HATCHING;
    const [width, period] = [HATCHING.width * view.ratio, HATCHING.period * view.ratio];
    const [x, y] = view.offset(this.polygons.center);
    const across = (x + view.size[0] / 2 - y - view.size[1] / 2) * Math.SQRT1_2;
    programs.hatched.use({
      place: [2 / view.size[0], 2 / view.size[1], 0, 0],
      color: ink,
      opacity: [veil, lines],
      hatch: [width, period, across % period],
    });
    gl.enable(gl.BLEND);
    gl.drawArrays(gl.TRIANGLES, 0, triangles.length / 2);
    gl.bindVertexArray(null);
    gl.deleteBuffer(buffer);
    gl.deleteVertexArray(array);
  }
}

/** The triangles of polygons in a view, in device pixels from its centre. */
export function trianglesOf({ data, counts, center, scale }: Polygons, view: View): Float32Array {
  const [left, low, right, high] = view.window(center, scale);
  const [x, y] = view.offset(center);
  const k = scale / view.unit;
  const result: number[] = [];
  for (let p = 0, begin = 0; p < counts.length; p++) {
    const end = begin + 2 * counts[p]!;
    let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = begin; i < end; i += 2) {
      x0 = Math.min(x0, data[i]!);
      x1 = Math.max(x1, data[i]!);
      y0 = Math.min(y0, data[i + 1]!);
      y1 = Math.max(y1, data[i + 1]!);
    }
    const ring = data.subarray(begin, end);
    begin = end;
    if (x1 < left || x0 > right || y1 < low || y0 > high) continue;
    // Most polygons are small; only those that leave the picture are cut.
    const inside = x0 >= left && x1 <= right && y0 >= low && y1 <= high;
    const polygon = inside
      ? ring.map((z, i) => (i & 1 ? y : x) + k * z)
      : clippedPolygon({ data: ring, center, scale }, view);
    for (let j = 4; j + 1 < polygon.length; j += 2) {
      for (const i of [0, j - 2, j]) result.push(polygon[i]!, polygon[i + 1]!);
    }
  }
  return Float32Array.from(result);
}
