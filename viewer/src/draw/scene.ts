// The meshes and rasters that a picture shows, and how.

import type { Box } from "../protocol/messages";
import type { Rgb } from "./colours";
import type { EdgeLooks } from "./edges";
import type { Programs } from "./programs";
import type { SceneLook, Slot } from "./slot";
import type { View } from "./view";
import type { Work } from "./work";

/** How edges look, by slot. */
export type Looks = Map<string, EdgeLooks>;

/** What pictures are made of. */
export interface Scene {
  /** Pictures with the same version show the same. */
  version: number;
  /** Whether there is nothing but paper. */
  empty: boolean;
  /** Whether something is not ready to be shown at all. */
  waiting: boolean;
  paper: Rgb;
  /** The rectangle around all of it, in plane coordinates; null if it is empty. */
  box: Box | null;
  looks(view: View): Looks;
  draw(view: View, work: Work, looks: Looks): void;
  /** Only the cells and only the lines; null if there is more than one mesh or raster. */
  parts: {
    cells(view: View, work: Work): void;
    lines(view: View, work: Work, looks: Looks): void;
  } | null;
}

/** The scene of some slots, from below; version: a number that changes with what they show. */
export function sceneOf(
  programs: Programs,
  slots: readonly (readonly [string, Slot])[],
  look: SceneLook,
  paper: Rgb,
  version: number,
): Scene {
  const used = slots.filter(([, slot]) => !slot.empty);
  const looks = (view: View): Looks => {
    const result: Looks = new Map();
    for (const [name, slot] of used) {
      const found = slot.looks(view, look);
      if (found) result.set(name, found);
    }
    return result;
  };
  const cells = (slot: Slot) => (view: View, work: Work) => slot.drawCells(programs, view, work);
  const lines = (name: string, slot: Slot) => (view: View, work: Work, found: Looks) =>
    slot.drawLines(programs, view, work, look, found.get(name));
  const draw = (view: View, work: Work, found: Looks): void => {
    for (const [name, slot] of used) {
      cells(slot)(view, work);
      lines(name, slot)(view, work, found);
    }
  };
  const [only] = used;
  const parts = only && used.length === 1 ? { cells: cells(only[1]), lines: lines(...only) } : null;
  const box = used.reduce<Box | null>((sum, [, slot]) => union(sum, slot.box), null);
  const waiting = slots.some(([, slot]) => slot.waiting);
  return { version, empty: !used.length, waiting, paper, box, looks, draw, parts };
}

/** The rectangle around two rectangles. */
function union(a: Box | null, b: Box | null): Box | null {
  if (!a || !b) return a ?? b;
  const [low, high] = [Math.min, Math.max];
  return [low(a[0], b[0]), low(a[1], b[1]), high(a[2], b[2]), high(a[3], b[3])];
}

/** Whether edges look nearly the same. */
export function alike(a: Looks, b: Looks): boolean {
  const near = (x: number, y: number): boolean => Math.abs(x - y) <= 0.1 * Math.max(x, y);
  for (const [name, { layers, boundary }] of b) {
    const other = a.get(name);
    if (!other || !near(other.boundary, boundary)) return false;
    for (let k = 0; k < layers.length; k++) {
      const [one, two] = [layers[k]!, other.layers[k]!];
      if (!near(one.width, two.width) || !near(one.opacity, two.opacity)) return false;
    }
  }
  return true;
}
