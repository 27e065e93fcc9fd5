// Convex polygons and segments against rectangles.

import type { Box } from "../protocol/messages";

/** The part of a convex polygon (x y x y ...) inside a rectangle, by Sutherland and Hodgman. */
export function clippedPolygon(polygon: ArrayLike<number>, box: Readonly<Box>): number[] {
  let ring = Array.from(polygon);
  for (const [axis, sign, bound] of [
    [0, -1, -box[0]],
    [1, -1, -box[1]],
    [0, 1, box[2]],
    [1, 1, box[3]],
  ] as const) {
    ring = belowLine(ring, axis, sign, bound);
  }
  return ring;
}

/** The part of a ring where sign * coordinate <= bound. */
function belowLine(ring: number[], axis: 0 | 1, sign: number, bound: number): number[] {
  const result: number[] = [];
  for (let k = 0; k < ring.length; k += 2) {
    const next = (k + 2) % ring.length;
    const here = sign * ring[k + axis]! - bound;
    const there = sign * ring[next + axis]! - bound;
    if (here <= 0) result.push(ring[k]!, ring[k + 1]!);
    if (here < 0 !== there < 0 && here !== 0 && there !== 0) {
      const t = here / (here - there);
      const x = ring[k]! + t * (ring[next]! - ring[k]!);
      const y = ring[k + 1]! + t * (ring[next + 1]! - ring[k + 1]!);
      if (axis === 0) result.push(sign * bound, y);
      else result.push(x, sign * bound);
    }
  }
  return result;
}

/** The part of a segment inside a rectangle, or null (Liang and Barsky). */
export function clippedSegment(
  x0: number,
  y0: number,
  x1: number,
  y1: number,
  box: Readonly<Box>,
): Box | null {
  const [dx, dy] = [x1 - x0, y1 - y0];
  let [enter, leave] = [0, 1];
  for (const [step, room] of [
    [-dx, x0 - box[0]],
    [dx, box[2] - x0],
    [-dy, y0 - box[1]],
    [dy, box[3] - y0],
  ] as const) {
    if (step === 0) {
      if (room < 0) return null;
    } else if (step < 0) enter = Math.max(enter, room / step);
    else leave = Math.min(leave, room / step);
  }
  if (enter > leave) return null;
  return [x0 + enter * dx, y0 + enter * dy, x0 + leave * dx, y0 + leave * dy];
}

/** Whether a segment meets a rectangle, touching included. */
export function segmentMeets(
  x0: number,
  y0: number,
  x1: number,
  y1: number,
  box: Readonly<Box>,
): boolean {
  if (x0 < box[0] && x1 < box[0]) return false;
  if (x0 > box[2] && x1 > box[2]) return false;
  if (y0 < box[1] && y1 < box[1]) return false;
  if (y0 > box[3] && y1 > box[3]) return false;
  const dx = x1 - x0;
  const dy = y1 - y0;
  const away = dx * (y0 - (box[1] + box[3]) / 2) - dy * (x0 - (box[0] + box[2]) / 2);
  const half = (Math.abs(dx) * (box[3] - box[1]) + Math.abs(dy) * (box[2] - box[0])) / 2;
  return Math.abs(away) <= half;
}

/** The square of the distance of a point from a segment. */
export function squaredDistance(
  x: number,
  y: number,
  x0: number,
  y0: number,
  x1: number,
  y1: number,
): number {
  const dx = x1 - x0;
  const dy = y1 - y0;
  const square = dx * dx + dy * dy;
  const along = square > 0 ? ((x - x0) * dx + (y - y0) * dy) / square : 0;
  const t = Math.min(1, Math.max(0, along));
  return (x - x0 - t * dx) ** 2 + (y - y0 - t * dy) ** 2;
}
