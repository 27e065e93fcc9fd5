// The cells of a mesh as triangles, in tiles.

import type { Mesh } from "../geometry/mesh";
import type { Paint } from "./colours";
import { attribute, type GL, type Programs, textureOf } from "./programs";
import { coveredShares, type Tiles, tileSize, tilesOf, visibleRuns } from "./tiles";
import type { View } from "./view";
import type { Work } from "./work";

const MOST = 16384; // triangles that are drawn at once, so that slices of work are small

/** Cells on the graphics card: a corner of a cell is a vertex, so that cells differ in colour. */
export class Fill {
  private readonly tiles: Tiles;
  /** (T + 1) the first triangle of each tile, and the area of each tile's cells in local units. */
  private readonly triangles: Uint32Array;
  private readonly areas: Float32Array;
  private readonly corners: WebGLVertexArrayObject;
  private readonly buffers: WebGLBuffer[] = [];
  private readonly wide: boolean;
  private paintBuffer: WebGLBuffer | null = null;
  private table: WebGLTexture | null = null;
  private paint: Paint | null = null;

  constructor(
    private readonly gl: GL,
    private readonly mesh: Mesh,
  ) {
    const { offsets, cellCount } = mesh;
    const rectangles = rectanglesOf(mesh);
    this.tiles = tilesOf(rectangles, tileSize(cellCount));
    const { order, first } = this.tiles;
    this.areas = new Float32Array(first.length - 1);
    this.triangles = new Uint32Array(first.length);
    const count = offsets[cellCount]!;
    this.wide = count > 65536;
    const at = new Float32Array(2 * count);
    const numbers = new (this.wide ? Uint32Array : Uint16Array)(3 * (count - 2 * cellCount));
    let [vertex, index] = [0, 0];
    for (let t = 0; t < this.areas.length; t++) {
      this.triangles[t] = index / 3;
      let area = 0;
      for (let i = first[t]!; i < first[t + 1]!; i++) {
        const size = this.copyCorners(order[i]!, at, vertex);
        for (let k = 2; k < size; k++) {
          numbers[index++] = vertex;
          numbers[index++] = vertex + k - 1;
          numbers[index++] = vertex + k;
          area += doubleArea(at, vertex, vertex + k - 1, vertex + k);
        }
        vertex += size;
      }
      this.areas[t] = area / 2;
    }
    this.triangles[this.areas.length] = index / 3;
    this.corners = gl.createVertexArray();
    gl.bindVertexArray(this.corners);
    this.buffers.push(attribute(gl, 0, [2, gl.FLOAT, false], at));
    const indices = gl.createBuffer();
    this.buffers.push(indices);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, indices);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, numbers, gl.STATIC_DRAW);
    gl.bindVertexArray(null);
  }

  /** Give the cells other colours. */
  setPaint(paint: Paint): void {
    const { gl, mesh } = this;
    this.forgetPaint();
    this.paint = paint;
    const { order } = this.tiles;
    const { offsets, corners, edges } = mesh;
    const flat = paint.kind === "flat";
    const data = new (flat ? Uint32Array : Float32Array)(corners.length);
    let vertex = 0;
    for (const cell of order) {
      const end = offsets[cell + 1]!;
      for (let k = offsets[cell]!; k < end; k++) {
        data[vertex++] = flat ? paint.colors[cell]! : paint.numbers[edges[corners[k]!]!]!;
      }
    }
    gl.bindVertexArray(this.corners);
    const format = flat ? ([4, gl.UNSIGNED_BYTE, true] as const) : ([1, gl.FLOAT, false] as const);
    this.paintBuffer = attribute(gl, 1, format, data);
    gl.bindVertexArray(null);
    if (!flat) {
      this.table = textureOf(gl, [256, 1], gl.RGB8, gl.NEAREST);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, 256, 1, gl.RGB, gl.UNSIGNED_BYTE, paint.table);
    }
  }

  /** The area that is seen, in square local units. */
  visibleArea(view: View): number {
    const { center, scale } = this.mesh;
    const shares = coveredShares(this.tiles, view.window(center, scale));
    return shares.reduce((sum, share, t) => sum + share * this.areas[t]!, 0);
  }

  /** Add the drawing of what is in a view to the work. */
  draw(programs: Programs, view: View, work: Work): void {
    const { mesh, triangles, paint } = this;
    if (!paint) return;
    const place = view.place(mesh.center, mesh.scale);
    visibleRuns(this.tiles, view.window(mesh.center, mesh.scale), (begin, end) => {
      const last = triangles[end]!;
      for (let k = triangles[begin]!; k < last; k += MOST) {
        const count = Math.min(MOST, last - k);
        work.add(count, () => this.drawTriangles(programs, place, k, count));
      }
    });
  }

  dispose(): void {
    const { gl } = this;
    this.forgetPaint();
    for (const buffer of this.buffers) gl.deleteBuffer(buffer);
    gl.deleteVertexArray(this.corners);
  }

  private drawTriangles(
    programs: Programs,
    place: readonly number[],
    first: number,
    count: number,
  ): void {
    const { gl, paint, wide } = this;
    if (!paint) return;
    if (paint.kind === "flat") {
      programs.flat.use({ place });
    } else {
      programs.shaded.use({ place, rate: paint.rate }).setInteger("scale", paint.scale);
      gl.bindTexture(gl.TEXTURE_2D, this.table);
    }
    if (paint.kind === "flat" && !paint.opaque) gl.enable(gl.BLEND);
    else gl.disable(gl.BLEND);
    gl.bindVertexArray(this.corners);
    const type = wide ? gl.UNSIGNED_INT : gl.UNSIGNED_SHORT;
    gl.drawElements(gl.TRIANGLES, 3 * count, type, 3 * first * (wide ? 4 : 2));
  }

  private copyCorners(cell: number, at: Float32Array, vertex: number): number {
    const { points, edges, corners, offsets } = this.mesh;
    const [begin, end] = [offsets[cell]!, offsets[cell + 1]!];
    for (let k = begin, j = 2 * vertex; k < end; k++) {
      const v = edges[corners[k]!]!;
      at[j++] = points[2 * v]!;
      at[j++] = points[2 * v + 1]!;
    }
    return end - begin;
  }

  private forgetPaint(): void {
    this.gl.deleteBuffer(this.paintBuffer);
    this.gl.deleteTexture(this.table);
    this.paintBuffer = null;
    this.table = null;
    this.paint = null;
  }
}

/** (4 C) the rectangles around cells. */
function rectanglesOf({ points, edges, corners, offsets, cellCount }: Mesh): Float32Array {
  const rectangles = new Float32Array(4 * cellCount);
  for (let cell = 0; cell < cellCount; cell++) {
    let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let k = offsets[cell]!; k < offsets[cell + 1]!; k++) {
      const v = 2 * edges[corners[k]!]!;
      const [x, y] = [points[v]!, points[v + 1]!];
      if (x < x0) x0 = x;
      if (x > x1) x1 = x;
      if (y < y0) y0 = y;
      if (y > y1) y1 = y;
    }
    rectangles[4 * cell] = x0;
    rectangles[4 * cell + 1] = y0;
    rectangles[4 * cell + 2] = x1;
    rectangles[4 * cell + 3] = y1;
  }
  return rectangles;
}

function doubleArea(at: Float32Array, a: number, b: number, c: number): number {
  const [x, y] = [at[2 * a]!, at[2 * a + 1]!];
  return (at[2 * b]! - x) * (at[2 * c + 1]! - y) - (at[2 * c]! - x) * (at[2 * b + 1]! - y);
}
