// All that one pane needs to be looked at: its frames, deeper windows, moves of its plane, pointer.

import { paintOf } from "../draw/colours";
import { type Extent, overviewOf, overviewOfRaster } from "../draw/overview";
import type { Look } from "../draw/renderer";
import type { Camera } from "../geometry/camera";
import type { Pair, PlaneRequest } from "../protocol/messages";
import type { SvgPane } from "../share/svg";
import type { Colors } from "./colors";
import { Deeper } from "./deeper";
import { Frames } from "./frames";
import { type Marks, Overlays } from "./overlays";
import type { PaneView } from "./panes";
import { Planes } from "./planes";
import { type Gestures, Pointer } from "./pointer";
import type { Stage } from "./stage";

export class PaneControl {
  readonly frames: Frames;
  readonly deeper: Deeper;
  readonly planes: Planes;
  readonly overlays: Overlays;
  readonly pointer: Pointer;
  private overviewed: unknown[] = [];
  private marks: Marks = { hovered: null, kept: null, compared: null };

  /** shown: called when another mesh is shown. */
  constructor(
    private stage: Stage,
    readonly pane: PaneView,
    colors: Colors,
    gestures: Gestures,
    shown: () => void,
  ) {
    this.frames = new Frames(stage, colors, pane, shown);
    this.deeper = new Deeper(stage, colors, pane, () => this.frames.current, shown);
    this.planes = new Planes(
      stage,
      pane,
      () => this.frames.refetch(),
      () => this.reload(),
    );
    this.overlays = new Overlays(stage, pane);
    this.pointer = new Pointer(pane.canvas, gestures);
  }

  get busy(): boolean {
    return this.frames.busy || this.deeper.busy || this.planes.busy;
  }

  showFrame(frame: number): void {
    this.deeper.reset();
    this.frames.show(frame);
  }

  /** Drag an anchor to a pixel: where that is in the plane depends on the plane at that time. */
  dragAnchor(anchor: number, to: Pair, last: boolean): void {
    const request = () => {
      const place = this.stage.view.camera(this.pane.pixels).toPlane(to);
      return this.withAnchor(anchor, place);
    };
    this.planes.push({ key: `${anchor} to ${to}`, request }, last);
  }

  /** Put an anchor on one of the data points that are shown. */
  setAnchor(anchor: number, point: number): void {
    const number = this.pane.arrays[`${this.pane.index}/number`]?.data[point];
    if (number === undefined) return;
    const request = () => this.withAnchor(anchor, number);
    this.planes.push({ key: `${anchor} on ${number}`, request }, true);
  }

  movePlane(turn: number[], shift: number[], last: boolean): void {
    const request = () => this.request({ turn, shift });
    this.planes.push({ key: `${turn} ${shift}`, request }, last);
  }

  /** Go back to the plane as it was at first. */
  resetPlane(): void {
    this.planes.push({ key: "reset", request: () => this.request({ reset: true }) }, true);
  }

  private withAnchor(anchor: number, place: Pair | number): PlaneRequest | null {
    const { anchors } = this.pane.header;
    if (!anchors) return null;
    return this.request({ anchors: anchors.at.map((at, k) => (k === anchor ? place : at)) });
  }

  /** Draw the pane; goal: where the camera will come to rest. Returns whether it goes on. */
  draw(camera: Camera, goal: Camera, moving: boolean, marks: Marks): boolean {
    this.marks = marks;
    const { mesh, slots } = this.pane.prepare(camera);
    this.overlays.update(mesh, marks);
    if (this.pane.header.live && !this.frames.busy && this.pane.loaded)
      this.deeper.look(goal, moving);
    return this.pane.renderer.draw(camera, this.look(slots));
  }

  /** The picture, drawn completely, on a canvas of its own. */
  picture(): HTMLCanvasElement {
    const camera = this.stage.view.camera(this.pane.pixels);
    return this.pane.renderer.snapshot(camera, this.look(this.pane.prepare(camera).slots));
  }

  /** A small picture of everything; null if it is not loaded, or the same as the last one. */
  overview(extent: Extent): ImageData | null {
    const { theme } = this.stage.panels;
    const { whole, coarse } = this.pane;
    const shown = [whole?.mesh, whole?.coloring ?? coarse, theme];
    if (shown.every((each, k) => each === this.overviewed[k])) return null;
    this.overviewed = shown;
    if (whole?.coloring) {
      return overviewOf(whole.mesh, paintOf(whole.mesh, whole.coloring, theme), extent, theme);
    }
    return coarse && overviewOfRaster(this.pane.withPalette(coarse), extent, theme);
  }

  /** What the pane shows, for an SVG file. */
  svg(): SvgPane | null {
    const camera = this.stage.view.camera(this.pane.pixels);
    const level = this.pane.shown(camera);
    if (!level) return null;
    // Marks belong to the mesh that is drawn; where that is a re-based piece, mark in the whole.
    this.overlays.update(level.mesh, this.marks);
    return {
      camera,
      mesh: level.mesh,
      picker: level.picker,
      coloring: level.coloring,
      layers: this.pane.header.layers.length,
      highlights: [...this.overlays.highlights.values()],
      lines: [...this.overlays.lines.values()],
      band: this.overlays.band,
      points: this.stage.store.state.points ? this.pane.points() : null,
    };
  }

  dispose(): void {
    this.frames.dispose();
    this.deeper.dispose();
    this.planes.dispose();
    this.pointer.dispose();
    this.pane.dispose();
  }

  private look(slots: readonly string[]): Look {
    const { state } = this.stage.store;
    const { edges, boundary, hiddenLayers, edgeWidth, points, thumbnails } = state;
    const layers = this.pane.header.layers.length;
    const { theme } = this.stage.panels;
    const own = { theme, slots, edges, boundary, hiddenLayers, edgeWidth, layers };
    return { ...own, points, thumbnails, calm: !this.planes.busy };
  }

  private request(change: Omit<PlaneRequest, "ask" | "pane">): PlaneRequest {
    return { ask: "plane", pane: this.pane.index, ...change };
  }

  private reload(): Promise<void> {
    this.deeper.reset();
    return this.frames.reload();
  }
}
