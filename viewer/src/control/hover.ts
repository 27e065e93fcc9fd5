// What is under the cursor: at most one search for each picture, however fast the cursor moves.

import { outputsAt } from "../geometry/maps";
import type { Mesh } from "../geometry/mesh";
import type { Pair } from "../protocol/messages";
import type { Level, PaneView } from "./panes";
import type { Stage } from "./stage";

const REACH = 5; // CSS pixels within which an edge is pointed at
/** How often it is practised to point, in how many lessons at most, of how many milliseconds. */
const [PRACTICE, LESSONS, LESSON] = [1500, 40, 4];

/** A place of a pane and what is there. */
export interface Hit {
  pane: PaneView;
  level: Level;
  at: Pair;
  /** The cell, -1 outside. */
  cell: number;
  /** The edge near the place, -1 if there is none. */
  edge: number;
}

/** What is at a pixel of a pane; null where nothing is loaded. */
export function hitAt(stage: Stage, pane: PaneView, xy: Pair): Hit | null {
  const camera = stage.view.camera(pane.pixels);
  const level = pane.shown(camera);
  if (!level) return null;
  const at = camera.toPlane(xy);
  const cell = level.picker.cell(at);
  const { state } = stage.store;
  let edge = -1;
  if (cell >= 0 && state.edges) {
    const { hiddenLayers } = state;
    const { edgeLayer } = level.mesh;
    edge = level.picker.edge(at, REACH * camera.unitsPerPixel, (e) => {
      const layer = edgeLayer[e]!;
      return layer >= 0 && !hiddenLayers.includes(layer);
    });
  }
  return { pane, level, at, cell, edge };
}

/** What is at a place of the plane. */
export function hitAtPlace(stage: Stage, pane: PaneView, at: Pair): Hit | null {
  const level = pane.shown(stage.view.camera(pane.pixels));
  if (!level) return null;
  return { pane, level, at, cell: level.picker.cell(at), edge: -1 };
}

/** Point at places of a pane, of which nothing is shown.
 *
 * Browsers compile what has run often, and the first answers would wait for that. */
export async function practisePointing(stage: Stage, pane: PaneView): Promise<void> {
  const [width, height] = pane.pixels;
  for (let k = 0, lesson = 0; k < PRACTICE && lesson < LESSONS && !stage.disposed; lesson++) {
    for (const end = performance.now() + LESSON; k < PRACTICE && performance.now() < end; k++) {
      // The places of a sequence that leaves no part of the picture out.
      const hit = hitAt(stage, pane, [((0.7548 * k) % 1) * width, ((0.5698 * k) % 1) * height]);
      if (hit && hit.cell >= 0) outputsAt(hit.level.mesh, hit.cell, hit.at);
    }
    await new Promise((resolve) => setTimeout(resolve));
  }
}

/** Follows the cursor; tells what it points at once for each picture. */
export class Hover {
  private cursor: { pane: PaneView; xy: Pair } | null = null;
  private searched = "";
  hit: Hit | null = null;

  constructor(
    private stage: Stage,
    private changed: (hit: Hit | null) => void,
  ) {}

  /** The cursor is at a pixel of a pane, or nowhere. */
  move(pane: PaneView, xy: Pair | null): void {
    this.cursor = xy ? { pane, xy } : null;
    this.stage.redraw();
  }

  /** Search again although the cursor rests: the picture below it has changed. */
  refresh(): void {
    this.searched = "";
  }

  /** Search what the cursor points at, if it or the camera has moved; before each picture. */
  update(): void {
    const { cursor } = this;
    const key = cursor ? this.keyOf(cursor.pane, cursor.xy) : "";
    if (key === this.searched && key !== "") return;
    if (!cursor && !this.hit) return;
    this.searched = key;
    this.hit = cursor && hitAt(this.stage, cursor.pane, cursor.xy);
    this.changed(this.hit);
  }

  private keyOf(pane: PaneView, xy: Pair): string {
    const { center, rest, width } = this.stage.view.camera(pane.pixels);
    return [pane.index, ...xy, ...center, ...rest, width].join(" ");
  }
}

/** The layer and the unit that draw an edge; null on the border and on the decision boundary. */
export function unitOf(mesh: Mesh, edge: number): [number, number] | null {
  if (edge < 0) return null;
  const [layer, unit] = [mesh.edgeLayer[edge]!, mesh.edgeUnit[edge]!];
  return layer >= 0 && unit >= 0 ? [layer, unit] : null;
}
