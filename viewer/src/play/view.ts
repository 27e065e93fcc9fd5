// The picture: regions drawn by the viewer's code, what is pointed at, and the camera.

import { UNIT } from "../control/overlays";
import { Pointer } from "../control/pointer";
import { inTheme, rgb, type Theme } from "../draw/colours";
import type { LineStyle } from "../draw/lines";
import { type Look, Renderer } from "../draw/renderer";
import { Camera } from "../geometry/camera";
import { segmentsOf, unitCurve } from "../geometry/curves";
import { regionInfo } from "../geometry/maps";
import { Mesh } from "../geometry/mesh";
import { Picker } from "../geometry/picking";
import type { RegionInfo } from "../geometry/region_info";
import type { Box, ColoringHeader, Message, Pair } from "../protocol/messages";
import { svgOf } from "../share/svg";
import { CLASSES, DIVERGING, PALETTE } from "./colorings";
import type { Task } from "./data";
import { type Pixels, type Snapshot, SQUARE } from "./snapshot";

const LEVEL: LineStyle = { color: "#CC2EA0", width: 2.5, halo: "#FFFFFF" };
const HOVERED = {
  color: "#FFFFFF",
  opacity: 0.25,
  outline: { color: "#16202C", width: 2, halo: "#FFFFFF" },
};
const REACH = 6; // pixels from a line within which one points at it
const DEEP = 0.55; // share of the square below which a part of it is computed on its own

export type Unit = [layer: number, unit: number];

/** What is pointed at. */
export interface Pointed {
  at: Pair;
  region: RegionInfo | null;
  unit: Unit | null;
}

export interface Listening {
  point(pointed: Pointed | null): void;
  click(at: Pair, shift: boolean): void;
  /** Another part of the square is looked at. */
  look(window: Box | null): void;
  /** Nothing can be drawn. */
  fail(error: unknown): void;
}

export class Picture {
  theme: Theme = "light";
  edges = true;
  mesh: Mesh | null = null;
  coloring: Message<ColoringHeader> | null = null;
  /** Whether no other frame is about to come, so that finishing touches are worth it. */
  calm = true;
  /** When the first picture was complete, by the clock of the page. */
  firstPicture: number | null = null;
  private readonly renderer: Renderer;
  private picker: Picker | null = null;
  private snapshot: Snapshot | null = null;
  private pixels: Pixels | null = null;
  private task: Task | null = null;
  private layers = 1;
  private camera: Camera;
  private unit: Unit | null = null;
  private unitSeen = false;
  private hovered = -1;
  private wanted = 0;
  private cursor: Pair | null = null;
  /** Of the canvas; asking for it in every frame would have the page laid out anew. */
  private size: Pair;

  constructor(
    readonly canvas: HTMLCanvasElement,
    below: HTMLCanvasElement,
    private readonly listening: Listening,
  ) {
    this.renderer = new Renderer(canvas, below);
    this.size = [canvas.clientWidth || 1, canvas.clientHeight || 1];
    this.renderer.onWake = () => this.redraw();
    this.camera = Camera.fit(SQUARE, this.size);
    this.renderer.setDomain(cornersOf(SQUARE));
    const fingers = window.matchMedia("(hover: none)").matches;
    new Pointer(canvas, {
      camera: () => this.camera,
      move: (camera, moving) => this.move(camera, moving),
      // A finger that leaves lets go of nothing: what was tapped stays.
      hover: (xy) => (xy || !fingers) && this.point(xy),
      click: (xy, shift) => {
        this.point(xy);
        listening.click(this.camera.toPlane(xy), shift);
      },
      dive: (xy, out) => this.move(this.zoomed(out ? 0.4 : 2.5, xy), false),
    });
    new ResizeObserver(() => {
      this.size = [canvas.clientWidth || 1, canvas.clientHeight || 1];
      const whole = this.isWhole;
      this.camera = whole ? Camera.fit(SQUARE, this.size) : this.camera.resized(this.size);
      this.redraw();
    }).observe(canvas);
  }

  private get isWhole(): boolean {
    const fit = Camera.fit(SQUARE, this.camera.pixels);
    return this.camera.width >= 0.999 * fit.width;
  }

  /** The part of the square that is to be computed; null: all of it. */
  get window(): Box | null {
    const [u0, v0, u1, v1] = this.camera.window;
    if (u1 - u0 > 2 * DEEP) return null;
    const [du, dv] = [0.25 * (u1 - u0), 0.25 * (v1 - v0)];
    const window: Box = [
      Math.max(-1, u0 - du),
      Math.max(-1, v0 - dv),
      Math.min(1, u1 + du),
      Math.min(1, v1 + dv),
    ];
    return window[2] > window[0] && window[3] > window[1] ? window : null;
  }

  /** Whether a graphics card draws; else the processor does. */
  get card(): boolean {
    return !this.renderer.software;
  }

  /** The keys with which one moves; returns whether this was one. */
  key(key: string): boolean {
    const [w, h] = this.size;
    const step = 0.12 * Math.min(w, h);
    const moves: Record<string, () => Camera> = {
      ArrowLeft: () => this.camera.panned(step, 0),
      ArrowRight: () => this.camera.panned(-step, 0),
      ArrowUp: () => this.camera.panned(0, step),
      ArrowDown: () => this.camera.panned(0, -step),
      "+": () => this.zoomed(1.5, [w / 2, h / 2]),
      "=": () => this.zoomed(1.5, [w / 2, h / 2]),
      "-": () => this.zoomed(1 / 1.5, [w / 2, h / 2]),
      "0": () => Camera.fit(SQUARE, this.size),
    };
    const move = moves[key];
    if (!move) return false;
    this.move(move(), false);
    return true;
  }

  pointAtMiddle(): void {
    this.point([this.size[0] / 2, this.size[1] / 2]);
  }

  reset(): void {
    this.move(Camera.fit(SQUARE, this.size), false);
  }

  private zoomed(factor: number, at: Pair): Camera {
    const fit = Camera.fit(SQUARE, this.size);
    return this.camera.zoomed(factor, at, [1e-11, 1.5 * fit.width]);
  }

  private move(camera: Camera, moving: boolean): void {
    const fit = Camera.fit(SQUARE, this.size);
    const width = Math.min(Math.max(camera.width, 1e-11), 1.5 * fit.width);
    const center = camera.center.map((x) => Math.min(1, Math.max(-1, x))) as Pair;
    this.camera = new Camera(center, width, camera.pixels, camera.rest);
    this.redraw();
    if (!moving) this.listening.look(this.window);
  }

  /** Show the regions, or the pixels, of a network of so many layers. */
  show(snapshot: Snapshot | null, pixels: Pixels | null, task: Task | null, layers: number): void {
    const mesh = snapshot && new Mesh(snapshot.header, snapshot.arrays);
    [this.snapshot, this.pixels, this.mesh, this.task] = [snapshot, pixels, mesh, task];
    [this.layers, this.picker] = [layers, null];
    this.renderer.setMesh("whole", mesh, true, snapshot?.prepared ?? undefined);
    if (this.hovered >= 0) this.renderer.setHighlight("hovered", null);
    this.hovered = -1;
    this.paint();
    this.drawUnit();
    this.drawLevel();
    this.drawUnresolved();
    if (this.cursor) this.point(this.cursor);
    this.redraw();
  }

  /** The data points, in the colours of their classes. */
  showPoints(task: Task | null): void {
    if (!task?.targets.length) {
      this.renderer.setPoints(null);
      this.redraw();
      return;
    }
    const most = task.targets.reduce((size, x) => Math.max(size, Math.abs(x)), 1e-9);
    const colors = new Uint8Array(4 * task.targets.length);
    task.targets.forEach((target, k) => {
      const at = 3 * Math.round(127.5 + (127 * target) / most);
      const own = rgb(CLASSES[target] ?? "#888888").map((x) => Math.round(255 * x));
      colors.set(task.kind === "numbers" ? DIVERGING.subarray(at, at + 3) : own, 4 * k);
      colors[4 * k + 3] = 255;
    });
    this.renderer.setPoints({ at: task.points, colors, thumbnails: null });
    this.redraw();
  }

  /** Show the curve of a unit; null: none. Returns whether it switches anywhere. */
  showUnit(unit: Unit | null): boolean {
    if (String(unit) !== String(this.unit)) {
      this.unit = unit;
      this.drawUnit();
      this.redraw();
    }
    return this.unitSeen;
  }

  private drawUnit(): void {
    const { mesh, unit } = this;
    const data = mesh && unit ? segmentsOf(mesh, unitCurve(mesh, ...unit)) : null;
    const { center, scale } = mesh ?? { center: [0, 0] as Pair, scale: 1 };
    this.unitSeen = Boolean(data?.length);
    this.renderer.setLines("unit", data && { data, center, scale }, UNIT);
  }

  private drawLevel(): void {
    const { mesh, snapshot } = this;
    const data = snapshot?.level ?? null;
    const { center, scale } = mesh ?? { center: [0, 0] as Pair, scale: 1 };
    this.renderer.setLines("level", data && { data, center, scale }, LEVEL);
  }

  /** Hatch what rounding leaves undecided. */
  private drawUnresolved(): void {
    const places = this.snapshot?.unresolved ?? [];
    const r = 0.01 * (this.snapshot?.header.scale ?? 1);
    const data = Float64Array.from(
      places.flatMap(([u, v]) => [u - r, v - r, u + r, v - r, u + r, v + r, u - r, v + r]),
    );
    const counts = new Uint16Array(places.length).fill(4);
    const band = { data, counts, center: [0, 0] as Pair, scale: 1 };
    this.renderer.setBand(places.length ? band : null);
  }

  private paint(): void {
    this.renderer.setRaster("raster", null);
    if (this.mesh && this.snapshot) {
      this.coloring = this.snapshot.coloring;
      this.renderer.setColoring("whole", this.coloring);
    } else if (this.pixels) this.paintPixels(this.pixels);
  }

  private paintPixels({ size, window, outputs }: Pixels): void {
    const count = outputs.length / size / size;
    const data = new Uint8Array(3 * size * size);
    for (let k = 0; k < size * size; k++) {
      let best = count === 1 ? Number(outputs[k]! > 0) : 0;
      for (let j = 1; j < count; j++) {
        if (outputs[k * count + j]! > outputs[k * count + best]!) best = j;
      }
      const lead = count === 1 ? Math.abs(outputs[k]!) : 1;
      const share = 0.12 + 0.68 * (lead / (lead + 1));
      rgb(CLASSES[best % CLASSES.length]!).forEach((x, j) => {
        data[3 * k + j] = Math.round(255 * (1 - share * (1 - x)));
      });
    }
    const arrays = { pixels: { data, shape: [size, size, 3] } };
    const about = { pane: 0, frame: 0, window, reason: "", palette: PALETTE };
    const header = { kind: "raster", ...about } as const;
    this.renderer.setRaster("raster", { header, arrays });
  }

  /** Look at what is under a pixel. */
  private point(xy: Pair | null): void {
    this.cursor = xy;
    const { mesh } = this;
    if (!xy || !mesh) {
      this.mark(-1);
      this.listening.point(null);
      return;
    }
    this.picker ??= new Picker(mesh);
    const at = this.camera.toPlane(xy);
    const cell = this.picker.cell(at);
    const reach = REACH * this.camera.unitsPerPixel;
    const edge = this.picker.edge(at, reach, (e) => mesh.edgeLayer[e]! >= 0);
    const unit: Unit | null = edge < 0 ? null : [mesh.edgeLayer[edge]!, mesh.edgeUnit[edge]!];
    const classes = this.task?.kind === "numbers" ? null : [];
    const region = cell < 0 ? null : regionInfo(mesh, cell, at, { classes });
    this.mark(region && !unit ? region.region : -1);
    this.listening.point({ at, region, unit });
  }

  private mark(region: number): void {
    if (region === this.hovered) return;
    this.hovered = region;
    const { mesh } = this;
    const cells = mesh && region >= 0 ? mesh.cellsOf(region) : null;
    this.renderer.setHighlight("hovered", cells && mesh, cells, HOVERED);
    this.redraw();
  }

  redraw(): void {
    if (this.wanted) return;
    this.wanted = requestAnimationFrame(() => {
      this.wanted = 0;
      try {
        if (this.renderer.draw(this.camera, this.look)) this.redraw();
        if (this.renderer.current) this.firstPicture ??= performance.now();
      } catch (error) {
        this.listening.fail(error);
      }
    });
  }

  private get look(): Look {
    return {
      theme: this.theme,
      slots: this.mesh ? ["whole"] : ["raster"],
      edges: this.edges,
      boundary: true,
      hiddenLayers: [],
      edgeWidth: 1,
      layers: this.layers,
      calm: this.calm,
      points: true,
      thumbnails: false,
    };
  }

  png(): Promise<Blob> {
    return this.renderer.toBlob(this.camera, this.look, 2);
  }

  /** The picture as the text of an SVG file; an Error says if there is too much in it. */
  svg(title: string): string {
    const { mesh, coloring, camera, layers, task } = this;
    if (!mesh) throw new Error("There are no exact regions to save. Save a PNG.");
    const color = (k: number) => CLASSES[task?.targets[k] ?? 0] ?? "#888888";
    const points = task && { at: task.points, color };
    const pane = { camera, mesh, picker: new Picker(mesh), coloring, layers, points };
    const state = { edges: this.edges, hiddenLayers: [], edgeWidth: 1, boundary: true };
    return svgOf({ title, panes: [pane], state, theme: this.theme, legend: null });
  }

  /** The colours of numbers in the scheme of the page, for a legend; null for classes. */
  legend(): { low: number; high: number; label: string; gradient: string } | null {
    const { scale, label } = this.coloring?.header ?? {};
    const lut = this.coloring?.arrays.lut?.data;
    if (!this.mesh || !scale || !lut) return null;
    const shown = inTheme(lut as Uint8Array, this.theme);
    const stops = [0, 64, 128, 191, 255].map((k) => `rgb(${shown.slice(3 * k, 3 * k + 3)})`);
    return { low: scale.low, high: scale.high, label: label ?? "", gradient: stops.join(", ") };
  }
}

function cornersOf([u0, v0, u1, v1]: Box): Pair[] {
  return [
    [u0, v0],
    [u1, v0],
    [u1, v1],
    [u0, v1],
  ];
}
