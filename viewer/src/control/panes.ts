// A pane: the picture of one partition, with what is loaded of it.

import { paletteOf } from "../draw/colours";
import type { Renderer } from "../draw/renderer";
import { samplesOf } from "../draw/samples";
import type { Camera } from "../geometry/camera";
import { cutByClass } from "../geometry/classes";
import { Mesh } from "../geometry/mesh";
import { Picker } from "../geometry/picking";
import { rebased, visibleCells } from "../geometry/visible";
import type {
  Box,
  ColoringHeader,
  MeshHeader,
  Message,
  Pair,
  PaneHeader,
  RasterHeader,
} from "../protocol/messages";
import { boxAround, contains, drawnWell, enlarged, intersection, knownWell } from "./depth";

/** Cells that are re-based at once, at most. */
const NEAR_CELLS = 60_000;
/** How much more than the window is re-based, so that one can move a little. */
const NEAR_FACTOR = 3;

/** What is drawn where nothing shows all of the window, the coarsest first. */
const PARTS = ["coarse", "whole", "raster", "detail"];

/** A mesh, cut by class where there are classes, with what is needed to point at it. */
export class Level {
  mesh: Mesh;
  picker: Picker;
  readonly precise: boolean;
  private readonly bounds: ArrayLike<number> | null;
  coloring: Message<ColoringHeader> | null = null;
  /** The mesh before it was cut; null where there are no classes. */
  private readonly plain: Mesh | null;

  /** level: with a single output, class 1 is above it. */
  constructor(message: Message<MeshHeader>, pane: PaneHeader, level: number) {
    const mesh = Mesh.of(message);
    this.plain = pane.classes && mesh.outputs.length ? mesh : null;
    this.mesh = this.plain ? cutByClass(mesh, mesh.header.level ?? level) : mesh;
    this.picker = new Picker(this.mesh);
    this.precise = message.arrays.points?.data instanceof Float64Array;
    this.bounds = message.arrays.regionBounds?.data ?? null;
  }

  /** How far each output of the model can be off on a region; undefined if it is exact. */
  boundsOf(region: number): number[] | undefined {
    const { bounds, mesh } = this;
    const count = mesh.outputs.length;
    return bounds ? mesh.outputs.map((_, k) => bounds[count * region + k]!) : undefined;
  }

  /** Cut the mesh at another level; returns whether it depends on the level. */
  recut(level: number): boolean {
    if (!this.plain || !dependsOnLevel(this.plain)) return false;
    this.mesh = cutByClass(this.plain, level);
    this.picker = new Picker(this.mesh);
    return true;
  }

  /** Whether the mesh has all of a window, as far as it is in the domain. */
  covers(window: Box): boolean {
    return this.mesh.header.window === null || contains(this.mesh.header.window, window);
  }
}

/** Whether classes depend on the level: a single output is compared with any. */
export function dependsOnLevel(mesh: Mesh): boolean {
  return mesh.outputs.length === 1 && mesh.header.level === undefined;
}

/** The visible cells of a level, re-based so that single precision is enough. */
interface Near {
  of: Level;
  mesh: Mesh;
  window: Box;
}

export type Arrays = Message["arrays"];

export class PaneView {
  /** The mesh of the frame, and that of a window of it which is known better. */
  whole: Level | null = null;
  detail: Level | null = null;
  /** Pixels in place of the mesh of the frame, and of a window, where there are too many regions. */
  coarse: Message<RasterHeader> | null = null;
  raster: Message<RasterHeader> | null = null;
  /** The size of the picture in CSS pixels. */
  pixels: Pair = [1, 1];
  private near: Near | null = null;
  private boxed: { corners: PaneHeader["domain"]["corners"]; box: Box } | null = null;

  constructor(
    readonly index: number,
    public header: PaneHeader,
    public arrays: Arrays,
    readonly canvas: HTMLCanvasElement,
    readonly renderer: Renderer,
  ) {
    this.measure();
    this.showPoints();
  }

  /** Measure the canvas: asking for its size each time would lay out the page each time. */
  measure(): void {
    const { clientWidth, clientHeight } = this.canvas;
    this.pixels = [Math.max(1, clientWidth), Math.max(1, clientHeight)];
  }

  /** The box around the domain, computed once: it is asked for whenever the cursor moves. */
  get domain(): Box {
    const { corners } = this.header.domain;
    if (this.boxed?.corners !== corners) this.boxed = { corners, box: boxAround(corners) };
    return this.boxed.box;
  }

  /** Whether the frame was answered, by a mesh or by pixels. */
  get loaded(): boolean {
    return this.whole !== null || this.coarse !== null;
  }

  /** What of a camera's window is in the domain; null: nothing. */
  seen(camera: Camera): Box | null {
    return intersection(camera.window, this.domain);
  }

  /** The level that is shown: the finest that has all of what is seen, else the whole. */
  shown(camera: Camera): Level | null {
    const window = this.seen(camera);
    if (window && this.detail?.covers(window)) return this.detail;
    return this.whole ?? this.detail;
  }

  /** Why pixels are shown in place of regions; null: regions are shown. */
  tooMuch(camera: Camera): string | null {
    const window = this.seen(camera);
    if (!window || this.shown(camera)?.covers(window)) return null;
    return (this.raster ?? this.coarse)?.header.reason ?? null;
  }

  /** Whether what is loaded shows the window completely and precisely. */
  isShownWell(camera: Camera): boolean {
    const window = this.seen(camera);
    const level = this.shown(camera);
    if (!window) return true;
    return !!level?.covers(window) && knownWell(level.mesh.scale, level.precise, camera);
  }

  /** Show the mesh of a frame, or pixels in its place; abrupt: at once, and not by fading. */
  setWhole(whole: Level | Message<RasterHeader>, abrupt: boolean): void {
    const level = whole instanceof Level ? whole : null;
    this.coarse = whole instanceof Level ? null : whole;
    this.renderer.setRaster("coarse", this.coarse && this.withPalette(this.coarse));
    if (this.whole === level) return;
    this.whole = level;
    this.renderer.setMesh("whole", level?.mesh ?? null, abrupt);
    this.dropNear();
    if (level) this.recolor(level);
  }

  setDetail(level: Level | null): void {
    if (this.detail === level) return;
    this.detail = level;
    this.renderer.setMesh("detail", level?.mesh ?? null);
    this.dropNear();
    if (level) this.recolor(level);
  }

  /** Classes of a single output change with the level. */
  recut(level: number): void {
    for (const each of [this.whole, this.detail]) {
      if (!each?.recut(level)) continue;
      this.renderer.setMesh(each === this.whole ? "whole" : "detail", each.mesh);
      this.dropNear();
    }
  }

  setRaster(raster: Message<RasterHeader> | null): void {
    this.raster = raster;
    this.renderer.setRaster("raster", raster && this.withPalette(raster));
  }

  /** Pixels of a decision, with the colours of the classes. */
  withPalette(raster: Message<RasterHeader>): Message<RasterHeader> {
    return { ...raster, header: { ...raster.header, palette: paletteOf(this.header) } };
  }

  /** Hand the colours of a level to whatever draws it. */
  recolor(level: Level): void {
    if (!level.coloring) return;
    if (level === this.whole) this.renderer.setColoring("whole", level.coloring);
    if (level === this.detail) this.renderer.setColoring("detail", level.coloring);
    if (level === this.near?.of) this.renderer.setColoring("near", level.coloring);
  }

  /** The mesh that is drawn, and the slots to draw: re-bases what is seen where this is needed. */
  prepare(camera: Camera): { mesh: Mesh | null; slots: string[] } {
    const level = this.shown(camera);
    const window = this.seen(camera);
    if (!level || !window) return { mesh: level?.mesh ?? null, slots: PARTS };
    if (drawnWell(level.mesh.scale, camera)) {
      if (this.near) this.dropNear();
      const complete = level.covers(window);
      const slots = level === this.detail ? ["detail"] : ["whole"];
      return { mesh: level.mesh, slots: complete ? slots : PARTS };
    }
    const near = this.nearOf(level, camera, window);
    return { mesh: near.mesh, slots: ["near"] };
  }

  /** Show the pane of another plane; its meshes come later. */
  setPlane(header: PaneHeader, arrays: Arrays): void {
    this.header = header;
    this.arrays = { ...this.arrays, ...arrays };
    this.showPoints();
  }

  /** The data points, with the colour of each, such as "#0072b2". */
  points(): { at: Float64Array; color: (point: number) => string } | null {
    const samples = samplesOf(this.index, this.header, this.arrays);
    if (!samples) return null;
    const color = (k: number) => {
      const [r, g, b] = samples.colors.subarray(4 * k, 4 * k + 3);
      return `#${[r!, g!, b!].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
    };
    return { at: samples.at, color };
  }

  private showPoints(): void {
    this.renderer.setPoints(samplesOf(this.index, this.header, this.arrays));
    this.renderer.setDomain(this.header.domain.corners);
  }

  dispose(): void {
    this.renderer.dispose();
  }

  private nearOf(level: Level, camera: Camera, window: Box): Near {
    const { near } = this;
    if (near?.of === level && contains(near.window, window) && drawnWell(near.mesh.scale, camera)) {
      return near;
    }
    const wanted = enlarged(camera.window, NEAR_FACTOR);
    const { cells } = visibleCells(level.mesh, level.picker, wanted, NEAR_CELLS);
    const mesh = rebased(level.mesh, cells, [...camera.center], camera.width);
    const covered = intersection(wanted, this.domain) ?? wanted;
    this.near = { of: level, mesh, window: covered };
    this.renderer.setMesh("near", mesh);
    this.recolor(level);
    return this.near;
  }

  private dropNear(): void {
    this.near = null;
    this.renderer.setMesh("near", null);
  }
}
