// What is drawn of one mesh, its colours, and the raster below it.

import type { Mesh } from "../geometry/mesh";
import type { ColoringHeader, Message, RasterHeader } from "../protocol/messages";
import { brightness, type Paint, paintOf, type Rgb } from "./colours";
import { type EdgeLooks, Edges } from "./edges";
import { Fill } from "./fills";
import type { Programs } from "./programs";
import { Raster } from "./raster";
import { inkOn } from "./theme";
import type { View } from "./view";
import type { Work } from "./work";

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

export class Slot {
  mesh: Mesh | null = null;
  private paint: Paint | null = null;
  private byClass = false;
  private rasterMessage: Message<RasterHeader> | null = null;
  private fill: Fill | null = null;
  private edges: Edges | null = null;
  private raster: Raster | null = null;
  private painted = false;

  setMesh(mesh: Mesh | null): void {
    if (mesh !== this.mesh) this.paint = null;
    this.mesh = mesh;
    this.fill?.dispose();
    this.edges?.dispose();
    this.fill = null;
    this.edges = null;
  }

  setColoring(message: Message<ColoringHeader>): void {
    if (!this.mesh) return;
    this.paint = paintOf(this.mesh, message);
    this.byClass = message.header.name === "class";
    this.painted = false;
  }

  setRaster(message: Message<RasterHeader> | null): void {
    this.rasterMessage = message;
    this.raster?.dispose();
    this.raster = null;
  }

  get empty(): boolean {
    return !this.mesh && !this.rasterMessage;
  }

  /** How edges look in a view. */
  looks(view: View, look: SceneLook): EdgeLooks | null {
    const { fill, edges } = this;
    if (!fill || !edges) return null;
    return edges.looks(view, fill.visibleArea(view), look.layers || edges.layerCount);
  }

  /** Make what is missing on the graphics card. */
  prepare(programs: Programs): void {
    const { gl, maxTexture } = programs;
    if (this.rasterMessage) this.raster ??= new Raster(gl, this.rasterMessage, maxTexture);
    if (!this.mesh) return;
    if (!this.fill) {
      this.fill = new Fill(gl, this.mesh);
      this.painted = false;
    }
    if (this.paint && !this.painted) this.fill.setPaint(this.paint);
    this.painted = true;
    this.edges ??= new Edges(gl, this.mesh, maxTexture);
  }

  /** Add the drawing of all of it to the work. */
  draw(programs: Programs, view: View, work: Work, look: SceneLook, looks: EdgeLooks | null): void {
    const { raster, fill, edges, paint } = this;
    if (raster) work.add(100, () => raster.draw(programs, view));
    fill?.draw(programs, view, work);
    if (!edges || !looks) return;
    const ink = paint ? inkOn(brightness(paint)) : look.ink;
    const { hidden, edgeWidth: factor } = look;
    if (look.edges) edges.draw(programs, view, work, { looks, ink, hidden, factor });
    const rim = !this.byClass && paint !== null && ink === inkOn(1);
    if (look.boundary) edges.drawBoundary(programs, view, work, { looks, ink, rim });
  }

  /** Forget what is on the graphics card, after it was lost. */
  lose(): void {
    this.fill = null;
    this.edges = null;
    this.raster = null;
  }

  dispose(): void {
    this.setMesh(null);
    this.setRaster(null);
  }
}
