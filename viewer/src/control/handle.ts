// A handle for tests and for the curious: what the viewers on a page show, to read only.

import type { Camera } from "../geometry/camera";
import { outputsAt } from "../geometry/maps";
import { visibleCells } from "../geometry/visible";
import type { Box, Pair } from "../protocol/messages";
import type { SolidHandle } from "../solid/app";
import type { ViewState } from "../state";
import type { Clock } from "./clock";
import { type Hit, type Hover, hitAt, unitOf } from "./hover";
import type { PaneControl } from "./pane_control";
import type { PaneView } from "./panes";
import type { Stage } from "./stage";

/** What is at a pixel of a pane. */
export interface Picked {
  mesh: string;
  cell: number;
  region: number;
  /** The class of the cell; null where there are none. */
  winner: number | null;
  at: Pair;
  outputs: number[];
  values: number[];
  unit: [number, number] | null;
}

/** A running viewer; `viewer/README.md` describes it. */
export interface Handle {
  readonly state: Readonly<ViewState>;
  /** How long drawing took, of the last pictures; milliseconds. */
  readonly frameTimes: readonly number[];
  /** When the first picture was complete, by the clock of the page; null before. */
  readonly firstPicture: number | null;
  /** Whether something is asked, computed or drawn. */
  readonly busy: boolean;
  camera(pane?: number): Camera;
  /** The meshes that are loaded, the one that is shown first. */
  meshes(pane?: number): { id: string; window: Box | null; regions: number }[];
  /** What the cursor points at. */
  hovered(): Picked | null;
  /** What is at a pixel, in CSS pixels from the corner of the canvas. */
  pick(xy: Pair, pane?: number): Picked | null;
  /** The cells that meet a window, with their corners in the plane: u v u v and so on. */
  cells(window: Box, pane?: number): { region: number; winner: number | null; corners: number[] }[];
  /** Whether the exact picture is shown, though perhaps not smoothed yet. */
  readonly exact: boolean;
  /** Draw now, and wait for the graphics card: how long this took, in milliseconds. */
  drawn(): number;
  /** Resolves when nothing is asked, computed or drawn any more. */
  idle(): Promise<void>;
}

declare global {
  var splinecam: (Handle | SolidHandle)[] | undefined;
}

/** The handle of a viewer. */
export function handleOf(
  stage: Stage,
  controls: readonly PaneControl[],
  hover: Hover,
  clock: Clock,
): Handle {
  const pane = (index = 0): PaneView => {
    const found = stage.panes[index];
    if (!found) throw new RangeError(`There is no pane ${index}.`);
    return found;
  };
  const camera = (index?: number) => stage.view.camera(pane(index).pixels);
  const isIdle = () => clock.idle && !controls.some((control) => control.busy);
  return {
    get state() {
      return stage.store.state;
    },
    get frameTimes() {
      return clock.frameTimes;
    },
    get firstPicture() {
      return clock.firstComplete;
    },
    get busy() {
      return !isIdle();
    },
    get exact() {
      const drawn = stage.panes.every(
        (each) => each.renderer.current && each.isShownWell(stage.view.camera(each.pixels)),
      );
      return drawn && !clock.changed && !controls.some((control) => control.busy);
    },
    drawn: () => {
      const start = performance.now();
      clock.drawNow();
      for (const { canvas } of stage.panes) {
        const gl = canvas.getContext("webgl2");
        gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
      }
      return performance.now() - start;
    },
    camera,
    meshes: (index) => {
      const { whole, detail } = pane(index);
      const shown = pane(index).shown(camera(index));
      const levels = shown === detail ? [detail, whole] : [whole, detail];
      return levels.flatMap((level) => {
        if (!level) return [];
        const { id, window, regionCount: regions } = level.mesh.header;
        return [{ id, window, regions }];
      });
    },
    hovered: () => picked(hover.hit),
    pick: (xy, index) => picked(hitAt(stage, pane(index), xy)),
    cells: (window, index) => {
      const level = pane(index).shown(camera(index));
      if (!level) return [];
      const { mesh, picker } = level;
      return [...visibleCells(mesh, picker, window).cells].map((cell) => ({
        region: mesh.region[cell]!,
        winner: mesh.cellClass?.[cell] ?? null,
        corners: [...mesh.polygon(cell)],
      }));
    },
    idle: async () => {
      for (let calm = 0; calm < 3; calm = isIdle() ? calm + 1 : 0) {
        await new Promise((resolve) => setTimeout(resolve, 10));
        if (stage.disposed) return;
      }
    },
  };
}

function picked(hit: Hit | null): Picked | null {
  if (!hit || hit.cell < 0) return null;
  const { mesh } = hit.level;
  return {
    mesh: mesh.id,
    cell: hit.cell,
    region: mesh.region[hit.cell]!,
    winner: mesh.cellClass?.[hit.cell] ?? null,
    at: hit.at,
    outputs: mesh.isSettled(hit.cell) ? [] : [...mesh.outputs],
    values: [...outputsAt(mesh, hit.cell, hit.at)],
    unit: unitOf(mesh, hit.edge),
  };
}

/** Add a viewer to `globalThis.splinecam`; returns the function that removes it. */
export function publish(handle: Handle | SolidHandle): () => void {
  // Before, the name means the element of the page that has it as its id.
  const list = Array.isArray(globalThis.splinecam) ? globalThis.splinecam : [];
  globalThis.splinecam = list;
  list.push(handle);
  return () => {
    const at = list.indexOf(handle);
    if (at >= 0) list.splice(at, 1);
  };
}
