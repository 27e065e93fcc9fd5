// Which part of the plane is known how well: when to re-base points, and when to ask Python.

import type { Camera } from "../geometry/camera";
import type { Box } from "../protocol/messages";

/** The graphics card rounds local coordinates by this; points may be off by a small part of a pixel. */
const SINGLE = 2 ** -24;
const SHARE_OF_PIXEL = 1 / 16;
/** Vertices of a mesh in double precision are trusted to this many units of its scale. */
const TRUSTED = 1e-10;
/** A mesh whose points came in single precision is trusted to this. */
const TRUSTED_SINGLE = 2 ** -22;

/** Whether one rectangle lies in another. */
export function contains(outer: Readonly<Box>, inner: Readonly<Box>): boolean {
  return (
    outer[0] <= inner[0] && outer[1] <= inner[1] && outer[2] >= inner[2] && outer[3] >= inner[3]
  );
}

/** The common part of two rectangles, or null. */
export function intersection(a: Readonly<Box>, b: Readonly<Box>): Box | null {
  const box: Box = [
    Math.max(a[0], b[0]),
    Math.max(a[1], b[1]),
    Math.min(a[2], b[2]),
    Math.min(a[3], b[3]),
  ];
  return box[0] < box[2] && box[1] < box[3] ? box : null;
}

/** A rectangle with the same middle, `factor` times as large. */
export function enlarged(box: Readonly<Box>, factor: number): Box {
  const [u, v] = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
  const [w, h] = [((box[2] - box[0]) / 2) * factor, ((box[3] - box[1]) / 2) * factor];
  return [u - w, v - h, u + w, v + h];
}

/** The box around a polygon. */
export function boxAround(corners: readonly Readonly<[number, number]>[]): Box {
  const box: Box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [u, v] of corners) {
    box[0] = Math.min(box[0], u);
    box[1] = Math.min(box[1], v);
    box[2] = Math.max(box[2], u);
    box[3] = Math.max(box[3], v);
  }
  return box;
}

/** Whether single precision, which the graphics card has, shows a mesh well enough. */
export function drawnWell(scale: number, camera: Camera): boolean {
  return SINGLE * scale < SHARE_OF_PIXEL * camera.unitsPerPixel;
}

/** Whether points of double or single precision show a mesh well enough. */
export function knownWell(scale: number, precise: boolean, camera: Camera): boolean {
  return (precise ? TRUSTED : TRUSTED_SINGLE) * scale < camera.unitsPerPixel;
}

/** The narrowest view in which a mesh is precise enough, on a screen some pixels wide. */
export function narrowest(scale: number, precise: boolean, pixels: number): number {
  return (precise ? TRUSTED : TRUSTED_SINGLE) * scale * pixels;
}
