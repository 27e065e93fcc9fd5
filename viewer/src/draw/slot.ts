// What is drawn of one mesh, its colours, and the raster below it.

import type { Mesh } from "../geometry/mesh";
import type { Box, ColoringHeader, Message, RasterHeader } from "../protocol/messages";
import { brightness, isEven, type Paint, paintOf, type Rgb, type Theme } from "./colours";
import { type EdgeLooks, Edges } from "./edges";
import { Fill } from "./fills";
import type { Prepared } from "./prepared";
import type { Programs } from "./programs";
import { Raster } from "./raster";
import { type Sketch, sketchOf } from "./sketch";
import type { Sketchpad } from "./sketchpad";
import { inkOn, rimOn } from "./theme";
import type { View } from "./view";
import { type Steps, stepUntil, type Work } from "./work";

const SMALL = 100_000; // cells
const PIXELS = 4_000_000; // of a sketch that becomes a texture, at most
const PATIENCE = 400; // milliseconds that a mesh waits for its colours

/** The switches of a picture of cells. */
export interface SceneLook {
  edges: boolean;
  boundary: boolean;
  /** Layers whose edges are not drawn. */
  hidden: ReadonlySet<number>;
  /** The width of edges as a multiple of the usual one. */
  edgeWidth: number;
  /** The number of layers of the network; 0: as many as the mesh has. */
  layers: number;
  /** The ink of lines where cells have no colours. */
  ink: Rgb;
}

/** What is to be shown of a mesh. */
interface Content {
  mesh: Mesh;
  paint: Paint | null;
  byClass: boolean;
  /** The only edges to draw, or null for all. */
  only: Uint32Array | null;
  /** What was made ready elsewhere. */
  prepared: Prepared | null;
}

/** What is on the graphics card of it; edges come after the cells. */
interface Shown {
  content: Content;
  fill: Fill;
  edges: Edges | null;
}

/** A mesh with its colours, and a raster.
 *
 * A mesh is made ready in steps. What was shown before stays until the cells of the new one are
 * there. */
export class Slot {
  private content: Content | null = null;
  private shown: Shown | null = null;
  private making: Steps<void> | null = null;
  /** Whether a sketch of the mesh is shown until it is ready. */
  sketched = false;
  /** When the mesh was set. */
  private since = 0;
  private coloring: Message<ColoringHeader> | null = null;
  private theme: Theme = "light";
  private message: Message<RasterHeader> | null = null;
  private raster: Raster | null = null;

  setMesh(mesh: Mesh | null, prepared: Prepared | null = null): void {
    this.stop();
    this.content = mesh && { mesh, paint: null, byClass: false, only: null, prepared };
    this.coloring = null;
    this.since = performance.now();
    this.sketched = false;
    if (!mesh) this.forget();
  }

  /** Colour the mesh; an Error says what is wrong with the message. */
  setColoring(message: Message<ColoringHeader>): void {
    if (!this.content) return;
    const { mesh, prepared } = this.content;
    const only = message.arrays.edges?.data;
    const paint = paintOf(mesh, message, this.theme);
    this.coloring = message;
    this.stop();
    this.content = {
      mesh,
      paint,
      byClass: message.header.name === "class",
      only: only ? partsOf(mesh, only) : null,
      prepared,
    };
  }

  /** Show all colours in a scheme. */
  setTheme(theme: Theme): void {
    if (theme === this.theme) return;
    this.theme = theme;
    if (this.coloring) this.setColoring(this.coloring);
    this.setRaster(this.message);
  }

  setRaster(message: Message<RasterHeader> | null): void {
    this.message = message;
    this.raster?.dispose();
    this.raster = null;
  }

  /** Make ready what is missing, until a moment; returns whether something new can be shown. */
  prepare(programs: Programs, moment: number): boolean {
    const before = this.shown;
    const edges = before?.edges;
    if (this.message) this.raster ??= new Raster(programs, this.message, this.theme);
    if (!this.making && this.content && !this.ready && !this.expectsColors) {
      this.making = this.make(programs, this.content);
    }
    try {
      if (this.making && stepUntil(this.making, moment)) this.making = null;
    } catch (error) {
      this.content = this.shown?.content ?? null; // so that it is not tried again
      this.making = null;
      throw error;
    }
    return this.shown !== before || this.shown?.edges !== edges;
  }

  /** Draw a mesh that is not ready with the processor, and forget what was shown before it.
   *
   * few: cells below which this is not worth it. pad: draw on it, even if it was sketched already.
   * Null: it is ready, or cannot be drawn so. */
  sketch(
    view: View,
    look: SceneLook,
    paper: Rgb,
    few: number,
    pad: Sketchpad | null = null,
  ): Sketch | null {
    const { content } = this;
    const { paint } = content ?? {};
    if (!content || !paint || !isEven(paint) || content.only || content.prepared) return null;
    if (this.message || (this.sketched && !pad)) return null;
    const { mesh, byClass } = content;
    if (mesh === this.shown?.content.mesh || mesh.cellCount < few) return null;
    if (!pad && view.size[0] * view.size[1] > PIXELS) return null;
    const ink = inkOn(brightness(paint));
    const rim = byClass ? null : rimOn(ink);
    const sketch = sketchOf(mesh, paint, view, { ...look, paper, ink, rim }, pad ?? undefined);
    this.forget();
    this.sketched = true;
    return sketch;
  }

  /** Whether there is a mesh that cannot be shown yet, and none before it. */
  get waiting(): boolean {
    return this.content !== null && !this.shown;
  }

  /** Whether the colours of a mesh that replaces another one may come soon. */
  private get expectsColors(): boolean {
    return !this.content?.paint && !!this.shown && performance.now() - this.since < PATIENCE;
  }

  /** The rectangle around what is shown, in plane coordinates. */
  get box(): Box | null {
    return this.shown?.fill.box ?? this.message?.header.window ?? null;
  }

  /** The ink that is seen on the cells. */
  get ink(): Rgb {
    const paint = this.content?.paint;
    return inkOn(paint ? brightness(paint) : 1);
  }

  /** Whether there is nothing to show. */
  get blank(): boolean {
    return !this.content && !this.message;
  }

  /** Whether nothing can be shown yet. */
  get empty(): boolean {
    return !this.shown && !this.raster;
  }

  /** Whether all of it can be shown. */
  get ready(): boolean {
    return !this.making && (this.shown?.content ?? null) === this.content;
  }

  /** How edges look in a view. */
  looks(view: View, look: SceneLook): EdgeLooks | null {
    if (!this.shown?.edges) return null;
    const { fill, edges } = this.shown;
    return edges.looks(view, fill.visibleArea(view), look.layers || edges.layerCount);
  }

  /** Add the drawing of the raster and the cells to the work. */
  drawCells(programs: Programs, view: View, work: Work): void {
    const { raster } = this;
    if (raster) work.add(100, () => raster.draw(programs, view));
    this.shown?.fill.draw(programs, view, work);
  }

  /** Add the drawing of edges and boundary to the work. */
  drawLines(
    programs: Programs,
    view: View,
    work: Work,
    look: SceneLook,
    looks: EdgeLooks | undefined,
  ): void {
    if (!this.shown?.edges || !looks) return;
    const { edges, content } = this.shown;
    const { paint, byClass } = content;
    const ink = paint ? inkOn(brightness(paint)) : look.ink;
    const { hidden, edgeWidth: factor } = look;
    if (look.edges) edges.draw(programs, view, work, { looks, ink, hidden, factor });
    const rim = byClass || !paint ? null : rimOn(ink);
    if (look.boundary) edges.drawBoundary(programs, view, work, { looks, ink, rim });
  }

  /** Forget what was on the graphics card, after it was lost. */
  lose(): void {
    this.shown = null;
    this.sketched = false;
    this.making = null;
    this.raster = null;
  }

  dispose(): void {
    this.setMesh(null);
    this.setRaster(null);
  }

  private *make(programs: Programs, content: Content): Steps<void> {
    const { mesh, paint, only, prepared } = content;
    const { gl } = programs;
    const kept = this.shown?.content.mesh === mesh ? this.shown : null;
    const fill =
      kept?.fill ?? (prepared ? Fill.prepared(gl, mesh, prepared) : yield* Fill.of(gl, mesh));
    let edges = kept?.content.only === only ? (kept?.edges ?? null) : null;
    if (prepared) edges ??= Edges.prepared(programs, mesh, prepared);
    let shown = false;
    try {
      if (paint) yield* fill.setPaint(paint);
      // Cells of small meshes are shown together with their edges, those of large ones before.
      if (mesh.cellCount <= SMALL || this.sketched) edges ??= yield* Edges.of(programs, mesh, only);
      shown = true;
    } finally {
      if (!shown && !kept) fill.dispose();
    }
    if (!kept) this.forget();
    else if (kept.edges !== edges) kept.edges?.dispose();
    this.shown = { content, fill, edges };
    this.sketched = false;
    yield;
    this.shown.edges ??= yield* Edges.of(programs, mesh, only);
  }

  private stop(): void {
    this.making?.return();
    this.making = null;
  }

  private forget(): void {
    this.shown?.fill.dispose();
    this.shown?.edges?.dispose();
    this.shown = null;
  }
}

/** The edges of a mesh that are parts of some edges of the mesh it was cut from. */
function partsOf({ sourceEdge, edgeCount }: Mesh, chosen: ArrayLike<number>): Uint32Array {
  const all = new Set(Array.from(chosen));
  const parts: number[] = [];
  for (let e = 0; e < edgeCount; e++) if (all.has(sourceEdge ? sourceEdge[e]! : e)) parts.push(e);
  return Uint32Array.from(parts);
}
