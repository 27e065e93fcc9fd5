// What is far more precise than single precision, cut to the window and given from its centre.
//
// Zoomed in deeply, coordinates in 32 bits are too coarse, and ends of lines are too far away. Lines
// and polygons that lie over the mesh are then cut in 64 bits, for each picture.

import type { Pair } from "../protocol/messages";
import type { View } from "./view";

const FINE = 2 ** 20; // pixels per local unit beyond which 32 bits are too coarse
const MARGIN = 64; // pixels beyond the window

/** Coordinates in double precision: plane = center + scale * data. */
export interface Local {
  data: Float64Array;
  center: Readonly<Pair>;
  scale: number;
}

/** Whether local coordinates in 32 bits are too coarse for a view. */
export function tooFine({ scale }: Local, view: View): boolean {
  return scale / view.unit > FINE;
}

/** Segments (x0 y0 x1 y1 each) cut to the window, in device pixels from its centre. */
export function clippedSegments(local: Local, view: View): Float32Array {
  const { data } = local;
  const [x, y] = view.offset(local.center);
  const k = local.scale / view.unit;
  const [w, h] = [view.size[0] / 2 + MARGIN, view.size[1] / 2 + MARGIN];
  const result: number[] = [];
  for (let i = 0; i < data.length; i += 4) {
    const [ax, ay] = [x + k * data[i]!, y + k * data[i + 1]!];
    const [dx, dy] = [x + k * data[i + 2]! - ax, y + k * data[i + 3]! - ay];
    let [from, to] = [0, 1];
    for (const [start, step, reach] of [
      [ax, dx, w],
      [ay, dy, h],
    ] as const) {
      const [low, high] = [(-reach - start) / step, (reach - start) / step];
      if (step === 0) {
        if (Math.abs(start) > reach) to = -1;
      } else {
        from = Math.max(from, Math.min(low, high));
        to = Math.min(to, Math.max(low, high));
      }
    }
    if (from < to) result.push(ax + from * dx, ay + from * dy, ax + to * dx, ay + to * dy);
  }
  return Float32Array.from(result);
}

/** Points (x y each) in the window, in device pixels from its centre, and their numbers. */
export function clippedPoints(local: Local, view: View): { at: Float32Array; kept: number[] } {
  const { data } = local;
  const [x, y] = view.offset(local.center);
  const k = local.scale / view.unit;
  const [w, h] = [view.size[0] / 2 + MARGIN, view.size[1] / 2 + MARGIN];
  const at: number[] = [];
  const kept: number[] = [];
  for (let i = 0; i < data.length; i += 2) {
    const [px, py] = [x + k * data[i]!, y + k * data[i + 1]!];
    if (!(Math.abs(px) < w && Math.abs(py) < h)) continue;
    at.push(px, py);
    kept.push(i / 2);
  }
  return { at: Float32Array.from(at), kept };
}

/** A convex polygon (x y x y ...) cut to the window, in device pixels from its centre. */
export function clippedPolygon(local: Local, view: View): number[] {
  const [x, y] = view.offset(local.center);
  const k = local.scale / view.unit;
  let polygon: Pair[] = [];
  for (let i = 0; i < local.data.length; i += 2) {
    polygon.push([x + k * local.data[i]!, y + k * local.data[i + 1]!]);
  }
  for (const [axis, sign] of [
    [0, 1],
    [0, -1],
    [1, 1],
    [1, -1],
  ] as const) {
    const reach = view.size[axis] / 2 + MARGIN;
    const inside = (p: Pair): number => reach - sign * p[axis];
    const kept: Pair[] = [];
    polygon.forEach((p, i) => {
      const before = polygon.at(i - 1)!;
      const [d, e] = [inside(before), inside(p)];
      if (d < 0 !== e < 0) {
        const t = d / (d - e);
        kept.push([before[0] + t * (p[0] - before[0]), before[1] + t * (p[1] - before[1])]);
      }
      if (e >= 0) kept.push(p);
    });
    polygon = kept;
  }
  return polygon.flat();
}
