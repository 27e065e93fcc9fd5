// The cells of a mesh as triangles, in tiles.

import type { Mesh } from "../geometry/mesh";
import type { Box } from "../protocol/messages";
import type { Paint } from "./colours";
import type { Prepared } from "./prepared";
import { attribute, type GL, type Programs, textureOf } from "./programs";
import { boxAround, coveredShares, type Tiles, tileSize, tilesOf, visibleRuns } from "./tiles";
import type { View } from "./view";
import type { Steps, Work } from "./work";

const MOST = 4096; // triangles that are drawn at once, so that slices of work are small
const BLOCK = 16384; // cells between two moments at which the work can be interrupted

/** Cells on the graphics card: a corner of a cell is a vertex, so that cells differ in colour. */
export class Fill {
  /** (T + 1) the first triangle of each tile, and the area of each tile's cells in local units. */
  private readonly triangles: Uint32Array;
  private readonly areas: Float32Array;
  private readonly array: WebGLVertexArrayObject;
  private readonly corners: WebGLBuffer;
  private readonly numbers: WebGLBuffer;
  private colors: WebGLBuffer | null = null;
  private table: WebGLTexture | null = null;
  private paint: Paint | null = null;

  private constructor(
    private readonly gl: GL,
    private readonly mesh: Mesh,
    private readonly tiles: Tiles,
  ) {
    this.areas = new Float32Array(tiles.first.length - 1);
    this.triangles = new Uint32Array(tiles.first.length);
    const count = mesh.corners.length;
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    this.corners = attribute(gl, 0, [2, gl.FLOAT, false], 8 * count);
    this.numbers = gl.createBuffer();
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.numbers);
    const bytes = 12 * (count - 2 * mesh.cellCount);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, bytes, gl.STATIC_DRAW);
    gl.bindVertexArray(null);
  }

  /** The cells of a mesh that were made ready elsewhere, as a single tile. */
  static prepared(gl: GL, mesh: Mesh, { at, triangles, area, box }: Prepared): Fill {
    const order = new Uint32Array(mesh.cellCount).map((_, cell) => cell);
    const first = Uint32Array.of(0, mesh.cellCount);
    const fill = new Fill(gl, mesh, { order, first, boxes: Float32Array.from(box) });
    fill.upload(at, triangles, 0, 0);
    fill.triangles[1] = triangles.length / 3;
    fill.areas[0] = area;
    return fill;
  }

  /** The cells of a mesh, made in steps. */
  static *of(gl: GL, mesh: Mesh): Steps<Fill> {
    const rectangles = yield* rectanglesOf(mesh);
    const tiles = yield* tilesOf(rectangles, tileSize(mesh.cellCount));
    const fill = new Fill(gl, mesh, tiles);
    let done = false;
    try {
      yield* fill.write();
      done = true;
      return fill;
    } finally {
      if (!done) fill.dispose();
    }
  }

  /** Give the cells other colours, in steps. */
  *setPaint(paint: Paint): Steps<void> {
    const { gl, mesh } = this;
    const { order } = this.tiles;
    const { corners, cellCount } = mesh;
    const flat = paint.kind === "flat";
    const data = new (flat ? Uint32Array : Float32Array)(corners.length);
    let vertex = 0;
    for (let begin = 0; begin < cellCount; begin += BLOCK) {
      const cells = order.subarray(begin, begin + BLOCK);
      vertex = flat
        ? spreadColors(mesh, paint.colors, cells, data, vertex)
        : spreadNumbers(mesh, paint.numbers, cells, data, vertex);
      yield;
    }
    this.forgetPaint();
    this.paint = paint;
    gl.bindVertexArray(this.array);
    const format = flat ? ([4, gl.UNSIGNED_BYTE, true] as const) : ([1, gl.FLOAT, false] as const);
    this.colors = attribute(gl, 1, format, data);
    gl.bindVertexArray(null);
    if (!flat) {
      this.table = textureOf(gl, [256, 1], gl.RGB8, gl.NEAREST);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, 256, 1, gl.RGB, gl.UNSIGNED_BYTE, paint.table);
    }
  }

  /** The rectangle around all cells, in plane coordinates. */
  get box(): Box {
    const { center, scale } = this.mesh;
    const [x0, y0, x1, y1] = boxAround(this.tiles.boxes);
    const [u, v] = center;
    return [u + scale * x0, v + scale * y0, u + scale * x1, v + scale * y1];
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
    gl.deleteBuffer(this.corners);
    gl.deleteBuffer(this.numbers);
    gl.deleteVertexArray(this.array);
  }

  private drawTriangles(
    programs: Programs,
    place: readonly number[],
    first: number,
    count: number,
  ): void {
    const { gl, paint } = this;
    if (!paint) return;
    if (paint.kind === "flat") {
      programs.flat.use({ place });
    } else {
      programs.shaded.use({ place, rate: paint.rate }).setInteger("scale", paint.scale);
      gl.bindTexture(gl.TEXTURE_2D, this.table);
    }
    if (paint.kind === "flat" && !paint.opaque) gl.enable(gl.BLEND);
    else gl.disable(gl.BLEND);
    gl.bindVertexArray(this.array);
    gl.drawElements(gl.TRIANGLES, 3 * count, gl.UNSIGNED_INT, 12 * first);
  }

  /** Write corners and triangles of all cells, in the order of the tiles. */
  private *write(): Steps<void> {
    const { areas } = this;
    const { first } = this.tiles;
    const tilesInBlock = Math.max(1, Math.floor(BLOCK / Math.max(1, first[1] ?? 1)));
    let [written, done] = [0, 0]; // vertices and triangles before the block
    for (let begin = 0; begin < areas.length; begin += tilesInBlock) {
      const end = Math.min(begin + tilesInBlock, areas.length);
      const { at, numbers } = this.triangulate(begin, end, written, done);
      this.upload(at, numbers, written, done);
      written += at.length / 2;
      done += numbers.length / 3;
      yield;
    }
    this.triangles[areas.length] = done;
  }

  /** Write corners and triangles, after so many before them. */
  private upload(at: Float32Array, numbers: Uint32Array, written: number, done: number): void {
    const { gl } = this;
    gl.bindVertexArray(this.array);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.corners);
    gl.bufferSubData(gl.ARRAY_BUFFER, 8 * written, at);
    gl.bufferSubData(gl.ELEMENT_ARRAY_BUFFER, 12 * done, numbers);
    gl.bindVertexArray(null);
  }

  /** The corners of the cells of some tiles and the triangles between them.
   *
   * written, done: how many corners and triangles there are before. */
  private triangulate(
    begin: number,
    end: number,
    written: number,
    done: number,
  ): { at: Float32Array; numbers: Uint32Array } {
    const { triangles, areas } = this;
    const { order, first } = this.tiles;
    const { points, edges, corners, offsets } = this.mesh;
    let count = 0;
    for (let i = first[begin]!; i < first[end]!; i++) {
      count += offsets[order[i]! + 1]! - offsets[order[i]!]!;
    }
    const at = new Float32Array(2 * count);
    const numbers = new Uint32Array(3 * (count - 2 * (first[end]! - first[begin]!)));
    let vertex = 0;
    let index = 0;
    for (let t = begin; t < end; t++) {
      triangles[t] = done + index / 3;
      let area = 0;
      const lastItem = first[t + 1]!;
      for (let i = first[t]!; i < lastItem; i++) {
        const cell = order[i]!;
        const start = vertex;
        const last = offsets[cell + 1]!;
        for (let k = offsets[cell]!; k < last; k++) {
          const v = 2 * edges[corners[k]!]!;
          at[2 * vertex] = points[v]!;
          at[2 * vertex + 1] = points[v + 1]!;
          if (vertex > start + 1) {
            area += doubleArea(at, start, vertex);
            numbers[index++] = written + start;
            numbers[index++] = written + vertex - 1;
            numbers[index++] = written + vertex;
          }
          vertex++;
        }
      }
      areas[t] = area / 2;
    }
    return { at, numbers };
  }

  private forgetPaint(): void {
    this.gl.deleteBuffer(this.colors);
    this.gl.deleteTexture(this.table);
    this.colors = null;
    this.table = null;
    this.paint = null;
  }
}

/** (4 C) the rectangles around cells. */
function* rectanglesOf(mesh: Mesh): Steps<Float32Array> {
  const rectangles = new Float32Array(4 * mesh.cellCount);
  for (let begin = 0; begin < mesh.cellCount; begin += BLOCK) {
    measure(mesh, rectangles, begin, Math.min(begin + BLOCK, mesh.cellCount));
    yield;
  }
  return rectangles;
}

// Loops are in functions of their own: browsers do not optimise those of generators while they run.

/** Write the rectangles around some cells. */
function measure(
  { points, edges, corners, offsets }: Mesh,
  rectangles: Float32Array,
  begin: number,
  last: number,
): void {
  for (let cell = begin; cell < last; cell++) {
    let x0 = Infinity;
    let y0 = Infinity;
    let x1 = -Infinity;
    let y1 = -Infinity;
    const end = offsets[cell + 1]!;
    for (let k = offsets[cell]!; k < end; k++) {
      const v = 2 * edges[corners[k]!]!;
      const x = points[v]!;
      const y = points[v + 1]!;
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
}

/** Write the colour of some cells at each of their corners; returns where it ends. */
function spreadColors(
  { offsets }: Mesh,
  colors: Uint32Array,
  cells: Uint32Array,
  data: Uint32Array | Float32Array,
  begin: number,
): number {
  let vertex = begin;
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i]!;
    const color = colors[cell]!;
    for (let k = offsets[cell + 1]! - offsets[cell]!; k > 0; k--) data[vertex++] = color;
  }
  return vertex;
}

/** Write the numbers of vertices at the corners of some cells; returns where it ends. */
function spreadNumbers(
  { offsets, corners, edges }: Mesh,
  numbers: Float32Array,
  cells: Uint32Array,
  data: Uint32Array | Float32Array,
  begin: number,
): number {
  let vertex = begin;
  for (let i = 0; i < cells.length; i++) {
    const end = offsets[cells[i]! + 1]!;
    for (let k = offsets[cells[i]!]!; k < end; k++) data[vertex++] = numbers[edges[corners[k]!]!]!;
  }
  return vertex;
}

/** Twice the area of the triangle of vertices a, b - 1 and b. */
function doubleArea(at: Float32Array, a: number, b: number): number {
  const x = at[2 * a]!;
  const y = at[2 * a + 1]!;
  const first = (at[2 * b - 2]! - x) * (at[2 * b + 1]! - y);
  return first - (at[2 * b]! - x) * (at[2 * b - 1]! - y);
}
