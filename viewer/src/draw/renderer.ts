// Draws meshes, rasters, lines, marks and points on a canvas with WebGL2.

import type { Camera } from "../geometry/camera";
import type { Mesh } from "../geometry/mesh";
import type { ColoringHeader, Message, Pair, RasterHeader } from "../protocol/messages";
import { Below } from "./below";
import type { Local } from "./clip";
import { type Rgb, rgb } from "./colours";
import type { Polygons } from "./hatching";
import type { HighlightStyle } from "./highlight";
import type { LineStyle } from "./lines";
import { Overlay, type OverlayLook } from "./overlay";
import { Pictures, toCanvas } from "./pictures";
import { MANY, type Prepared } from "./prepared";
import { type GL, Programs } from "./programs";
import type { Samples } from "./samples";
import { type Scene, sceneOf } from "./scene";
import { type SceneLook, Slot } from "./slot";
import { DARK_PAPER, INK, INK_ON_DARK, PAPER } from "./theme";
import { View } from "./view";
import { warmUp, warmUpRest } from "./warm_up";

const NO_WEBGL =
  "This browser draws no WebGL2 pictures. Update it, or switch on hardware acceleration in its " +
  "settings; Chrome, Edge, Firefox and Safari of the last years can draw them.";
const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;
const RESTING = 80; // milliseconds without movement after which the camera rests

/** Milliseconds in which meshes are made ready in a frame: while one moves, while nothing does, and
 * where a picture is waited for, because there is none or the plane has moved. */
const [MOVING, STILL, AWAITED] = [8, 25, 150];

/** How everything is drawn. */
export interface Look extends OverlayLook {
  /** The slots to draw, from below. */
  slots: readonly string[];
  edges: boolean;
  boundary: boolean;
  hiddenLayers: readonly number[];
  /** The width of edges as a multiple of the usual one. */
  edgeWidth: number;
  /** The number of layers of the network. */
  layers?: number;
  /** The colour around the domain, such as "#ffffff"; by default that of the theme. */
  paper?: string;
  /** Whether no other mesh is about to come; by default so. */
  calm?: boolean;
  /** Device pixels per CSS pixel; by default those of the screen. */
  pixelRatio?: number;
}

export class Renderer {
  /** Called when a frame is to be drawn though nothing was set: the graphics card is back. */
  onWake: () => void = () => {};
  /** Whether the canvas shows all that was set, though perhaps not smoothed yet. */
  current = false;
  /** Whether the processor does the work of the graphics card. */
  software = false;
  private gl!: GL;
  private programs!: Programs;
  private pictures!: Pictures;
  /** Whether the graphics card was asked for, and the three before it are there. */
  private started = false;
  private readonly slots = new Map<string, Slot>();
  private readonly overlay = new Overlay();
  private version = 0;
  private key = "";
  private view: View | null = null;
  private movedAt = 0;
  private begun = false;
  private warm = false;
  private lost = false;
  /** Where the processor paints the first picture and, without a graphics card, those that others
   * follow or that are waited for. */
  private readonly below: Below | null;
  /** Whether the canvas has only what lies over the cells, which are painted below. */
  private bare = false;

  /** below: a canvas of the same size below this one. Then the graphics card, which may take long to
   * answer, is asked for after the first picture. */
  constructor(
    readonly canvas: HTMLCanvasElement,
    below: HTMLCanvasElement | null = null,
  ) {
    this.below = below && new Below(below);
    if (!below) this.start();
  }

  private start(): void {
    const { canvas } = this;
    const gl = canvas.getContext("webgl2", {
      alpha: true, // as textures have, so that programs are compiled once
      antialias: false,
      depth: false,
      stencil: false,
      powerPreference: "high-performance",
    });
    if (!gl) throw new Error(NO_WEBGL);
    this.gl = this.overlay.gl = gl;
    const name = gl.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL;
    this.software = SOFTWARE.test(String(gl.getParameter(name ?? gl.RENDERER)));
    this.programs = new Programs(gl);
    this.pictures = new Pictures(this.programs);
    this.started = true;
    if (!this.below) warmUp(this.programs);
    canvas.addEventListener("webglcontextlost", this.onLost);
    canvas.addEventListener("webglcontextrestored", this.onRestored);
  }

  /** Draw a mesh in a slot, in place of the one before it, which stays until this one is ready.
   *
   * abrupt: it replaces what is shown at once, and not by fading. prepared: made ready elsewhere. */
  setMesh(slot: string, mesh: Mesh | null, abrupt = false, prepared?: Prepared): void {
    if (this.started) this.pictures.abrupt ||= abrupt;
    this.slot(slot).setMesh(mesh, prepared);
    if (!mesh) this.version++;
  }

  /** Colour the mesh of a slot; an Error says what is wrong with the message. */
  setColoring(slot: string, message: Message<ColoringHeader>): void {
    this.slot(slot).setColoring(message);
  }

  setRaster(slot: string, message: Message<RasterHeader> | null): void {
    this.slot(slot).setRaster(message);
    this.version++;
    this.current = false;
  }

  /** Draw segments over the cells: (x0 y0 x1 y1) each, with plane = center + scale * data. */
  setLines(name: string, segments: Local | null, style?: LineStyle): void {
    this.overlay.setLines(name, segments, style);
  }

  /** Hatch the area on which the decision is not certain. */
  setBand(polygons: Polygons | null): void {
    this.overlay.setBand(polygons);
  }

  /** Mark cells of a mesh. */
  setHighlight(
    name: string,
    mesh: Mesh | null,
    cells?: Uint32Array | null,
    style?: HighlightStyle,
  ): void {
    this.overlay.setHighlight(name, mesh, cells, style);
  }

  /** Draw the border of a domain, whose corners are given. */
  setDomain(corners: readonly Readonly<Pair>[]): void {
    this.overlay.setDomain(corners);
  }

  /** Draw data points, and thumbnails beside them if they have any. */
  setPoints(samples: Samples | null): void {
    this.overlay.setPoints(samples);
  }

  /** The data point whose thumbnail is at a CSS pixel, as drawn last; -1: none. */
  thumbnailAt(xy: Readonly<Pair>): number {
    return this.overlay.thumbnailAt(xy);
  }

  /** Draw; returns whether the picture is not finished, so that another frame is wanted. */
  draw(camera: Camera, look: Look): boolean {
    for (const slot of this.slots.values()) slot.setTheme(look.theme);
    if (!this.started) {
      const view = View.of(camera, ratioOf(look));
      if (look.slots.every((name) => this.slot(name).blank)) return false;
      if (!this.isBelow(look, view) && this.paintBelow(look, view)) return true;
      this.start();
    }
    if (this.lost || this.gl.isContextLost()) return false;
    const wanted = View.of(camera, this.fittingRatio(camera, ratioOf(look)));
    const changed = this.overlay.changed(look);
    const again = this.resize(wanted) || changed;
    const moving = this.noteMovement(wanted);
    const calm = look.calm ?? true;
    const there = this.isBelow(look, wanted);
    if (there || this.paintBelow(look, wanted)) {
      if (again || !this.bare) this.drawBare(look, wanted);
      if (there && calm) this.prepare(look.slots, this.patience(moving), calm);
      return calm || moving;
    }
    const sketched = this.sketch(look, wanted);
    const ready = !sketched && this.prepare(look.slots, this.patience(moving), calm);
    const scene = this.scene(look);
    // Nothing is put on the canvas before there is a picture: that would make it come later.
    if (!this.begun && scene.empty && !ready && !sketched) return true;
    this.begun = true;
    const view = this.pictures.aligned(wanted);
    const pass = { moving, again: again || this.bare, calm, covered: this.bare };
    const { more, shown, current } = this.pictures.draw(scene, view, pass);
    if (shown) {
      this.overlay.draw(this.programs, view, look, this.ink(look));
      this.below?.hide();
      this.bare = false;
    }
    // The frame after the first complete one has time for it.
    if (this.current && !this.warm) {
      this.warm = true;
      warmUpRest(this.programs);
    }
    this.current = current && (ready || scene.waiting);
    if (this.current) this.pictures.abrupt = false;
    return more || moving || (!ready && calm) || !this.warm;
  }

  /** What one sees on a canvas of its own, drawn completely, with so many pixels for each of now.
   *
   * It is drawn twice as large if the graphics card can, and made smaller, which smooths borders. */
  snapshot(camera: Camera, look: Look, scale = 1): HTMLCanvasElement {
    if (!this.started) this.start();
    const { gl, canvas, programs } = this;
    const page = document.createElement("canvas");
    const context = page.getContext("2d");
    if (!context || gl.isContextLost()) throw new Error("The picture cannot be drawn now.");
    const ratio = this.fittingRatio(camera, scale * ratioOf(look));
    const [width, height] = View.of(camera, ratio).size;
    const view = View.of(camera, this.fittingRatio(camera, 2 * ratio));
    for (const slot of this.slots.values()) slot.setTheme(look.theme);
    this.prepare(look.slots, Number.POSITIVE_INFINITY, true);
    this.resize(view);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    Pictures.drawNow(programs, this.scene(look), view);
    this.overlay.draw(this.programs, view, look, this.ink(look));
    page.width = width;
    page.height = height;
    context.imageSmoothingQuality = "high";
    context.drawImage(canvas, 0, 0, width, height);
    this.draw(camera, look);
    return page;
  }

  /** What one sees as a PNG file. */
  toBlob(camera: Camera, look: Look, scale = 1): Promise<Blob> {
    const page = this.snapshot(camera, look, scale);
    return new Promise((resolve, reject) => {
      const failed = new Error("The picture is too large for this browser. Choose a smaller one.");
      page.toBlob((blob) => (blob ? resolve(blob) : reject(failed)), "image/png");
    });
  }

  /** Free everything on the graphics card. */
  dispose(): void {
    if (!this.started) return;
    this.canvas.removeEventListener("webglcontextlost", this.onLost);
    this.canvas.removeEventListener("webglcontextrestored", this.onRestored);
    this.pictures.dispose();
    for (const slot of this.slots.values()) slot.dispose();
    this.overlay.dispose();
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }

  private patience(moving: boolean): number {
    if (!this.begun || this.pictures.abrupt) return AWAITED;
    return moving ? MOVING : STILL;
  }

  /** The ink that is seen on the cells of the finest slot. */
  private ink({ slots }: Look): Rgb {
    return this.slot(slots.at(-1) ?? "whole").ink;
  }

  private slot(name: string): Slot {
    const slot = this.slots.get(name) ?? new Slot();
    this.slots.set(name, slot);
    return slot;
  }

  /** Sketch the mesh of a picture that is waited for; returns whether it did. */
  private sketch(look: Look, view: View): boolean {
    const [name] = look.slots;
    if (name === undefined || look.slots.length > 1) return false;
    const { blank, abrupt } = this.pictures;
    if (!blank && !abrupt) return false;
    const { own, paper } = this.sceneLook(look);
    const sketch = this.slot(name).sketch(view, own, paper, blank ? 0 : MANY);
    if (!sketch) return false;
    this.version++;
    this.pictures.take(this.scene(look), view, sketch, new Map([[name, sketch.looks]]));
    return true;
  }

  /** Whether what is to be drawn is painted on the canvas below. */
  private isBelow({ slots: [name] }: Look, view: View): boolean {
    return !!this.below?.shows(view) && this.slot(name ?? "").sketched;
  }

  /** Paint what is to be drawn on the canvas below; returns whether it can be painted there. */
  private paintBelow(look: Look, view: View): boolean {
    const [name] = look.slots;
    const { below, started } = this;
    if (!below || (started && !this.software)) return false;
    if (name === undefined || look.slots.length > 1) return false;
    const { own, paper } = this.sceneLook(look);
    if (!this.slot(name).sketch(view, own, paper, 0, below.padFor(view))) return false;
    below.show(view);
    if (started) this.pictures.dispose();
    this.current = true;
    return true;
  }

  /** Draw only what lies over the cells. */
  private drawBare(look: Look, view: View): void {
    const { gl } = this;
    toCanvas(gl, view);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    this.overlay.draw(this.programs, view, look, this.ink(look));
    this.begun = this.bare = true;
  }

  /** Make meshes ready for so many milliseconds; returns whether all are.
   *
   * calm: no other mesh is about to come, so that one that is sketched is worth it. */
  private prepare(names: readonly string[], patience: number, calm: boolean): boolean {
    const moment = performance.now() + patience;
    let ready = true;
    for (const name of names) {
      const slot = this.slot(name);
      if ((calm || !slot.sketched) && slot.prepare(this.programs, moment)) this.version++;
      ready &&= slot.ready;
    }
    return ready;
  }

  /** The scene of a look; its version changes with what pictures of cells depend on. */
  private scene(look: Look): Scene {
    const { theme, slots, edges, boundary, hiddenLayers, edgeWidth } = look;
    const { own, paper } = this.sceneLook(look);
    const key = JSON.stringify([theme, slots, edges, boundary, hiddenLayers, edgeWidth, paper]);
    if (key !== this.key) this.version++;
    this.key = key;
    const used = slots.map((name) => [name, this.slot(name)] as const);
    return sceneOf(this.programs, used, own, paper, this.version);
  }

  private sceneLook(look: Look): { own: SceneLook; paper: Rgb } {
    const { theme, edges, boundary, hiddenLayers, edgeWidth, layers = 0 } = look;
    const paper = look.paper ? rgb(look.paper) : theme === "dark" ? DARK_PAPER : PAPER;
    const ink = theme === "dark" ? INK_ON_DARK : INK;
    const hidden = new Set(hiddenLayers);
    return { own: { edges, boundary, hidden, edgeWidth, layers, ink }, paper };
  }

  /** A ratio with which the canvas is not larger than the graphics card can draw. */
  private fittingRatio(camera: Camera, ratio: number): number {
    return Math.min(ratio, this.programs.maxTexture / Math.max(...camera.pixels));
  }

  /** Give the canvas the size of a view; returns whether it had another one. */
  private resize({ size }: View): boolean {
    const { canvas } = this;
    if (canvas.width === size[0] && canvas.height === size[1]) return false;
    canvas.width = size[0];
    canvas.height = size[1];
    return true;
  }

  /** Whether the camera moves: it differs from that of the last frames. */
  private noteMovement(view: View): boolean {
    const before = this.view;
    const now = performance.now();
    this.view = view;
    const [x, y] = before ? view.from(before) : [0, 0];
    const moved = before && !(view.isShiftOf(before) && Math.abs(x) + Math.abs(y) < 1e-3);
    if (moved) this.movedAt = now;
    return now - this.movedAt < RESTING;
  }

  private readonly onLost = (event: Event): void => {
    event.preventDefault();
    this.lost = true;
  };

  private readonly onRestored = (): void => {
    this.lost = false;
    this.programs = new Programs(this.gl);
    this.pictures = new Pictures(this.programs);
    for (const slot of this.slots.values()) slot.lose();
    this.overlay.lose();
    this.onWake();
  };
}

function ratioOf(look: Look): number {
  return look.pixelRatio ?? (window.devicePixelRatio || 1);
}
