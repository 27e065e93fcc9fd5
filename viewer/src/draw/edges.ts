// The edges of a mesh by layer, and its decision boundary.

import type { Mesh } from "../geometry/mesh";
import type { Rgb } from "./colours";
import type { Prepared } from "./prepared";
import type { GL, Programs } from "./programs";
import { SegmentTexture, type Stroke, ThinSegments } from "./segments";
import { type Segments, straightened } from "./straighten";
import { boundaryWidth, edgeLook, type LineLook, RIM } from "./theme";
import { coveredShare, coveredShares, type Tiles, tileSize, tilesOf, visibleRuns } from "./tiles";
import type { View } from "./view";
import type { Steps, Work } from "./work";

const TOLERANCE = 1e-7; // of the mesh's extent, within which lines are straight
export const FAINT = 0.005; // width times opacity below which lines are not seen
const MANY = 3000; // segments that are drawn a pixel wide where pictures follow each other quickly
const MOST = 4096; // the cost of what is drawn at once, so that slices of work are small
/** So many pixels of lines take as long as a triangle: they are blended, and most lines are long. */
const PIXELS = 16;

/** How edges look: of each layer, and of the boundary. */
export interface EdgeLooks {
  layers: LineLook[];
  boundary: number;
}

export class Edges {
  private constructor(
    private readonly mesh: Mesh,
    private readonly inner: Sorted,
    private readonly boundary: Sorted,
    /** (T) the layer of each tile of inner edges. */
    private readonly layers: Int16Array,
    readonly layerCount: number,
  ) {}

  /** The edges of a mesh, or only some of them, made in steps. */
  static *of({ gl, maxTexture }: Programs, mesh: Mesh, only: Uint32Array | null): Steps<Edges> {
    const { edgeLayer, edgeUnit, points, edges } = mesh;
    const curve = curveNumbers(edgeLayer, edgeUnit);
    yield;
    const tolerance = TOLERANCE * extentOf(points);
    yield;
    const chosen = innerEdges(edgeLayer, only);
    const segments = yield* straightened(points, edges, chosen, curve, tolerance);
    const layer = layersOf(segments.edge, edgeLayer);
    const most = layer.reduce((last, each) => Math.max(last, each), -1);
    yield;
    const border = yield* straightened(points, edges, mesh.boundary, null, tolerance);
    const boundary = yield* sorted(gl, border, maxTexture);
    const inner = yield* sorted(gl, segments, maxTexture, layer);
    const { order, first } = inner.tiles;
    const layers = Int16Array.from(first.subarray(0, -1), (begin) => layer[order[begin]!]!);
    inner.tiles.order = boundary.tiles.order = new Uint32Array(); // it is not needed any more
    return new Edges(mesh, inner, boundary, layers, most + 1);
  }

  /** The edges of a mesh that were made ready elsewhere, with a tile for each layer. */
  static prepared(
    { gl, maxTexture }: Programs,
    mesh: Mesh,
    { inner, boundary, box }: Prepared,
  ): Edges {
    const [lines, border] = [inner, boundary].map(({ ends, first, lengths }): Sorted => {
      const boxes = Float32Array.from({ length: 4 * lengths.length }, (_, k) => box[k % 4]!);
      const tiles = { order: new Uint32Array(), first, boxes };
      const many = ends.length > 4 * MANY;
      const texture = many ? new ThinSegments(gl, ends) : new SegmentTexture(gl, ends, maxTexture);
      return { texture, tiles, lengths };
    });
    const layers = Int16Array.from(inner.lengths, (_, layer) => layer);
    return new Edges(mesh, lines!, border!, layers, layers.length);
  }

  /** How edges look in a view in which so much area (in square local units) is seen.
   *
   * layers: the number of layers of the network. */
  looks(view: View, area: number, layers: number): EdgeLooks {
    const { center, scale } = this.mesh;
    const window = view.window(center, scale);
    const pixels = scale / (view.unit * view.ratio); // CSS pixels per local unit
    const length = new Float64Array(Math.max(this.layerCount, 1));
    coveredShares(this.inner.tiles, window).forEach((share, t) => {
      length[this.layers[t]!]! += share * this.inner.lengths[t]!;
    });
    const looks: LineLook[] = [];
    for (let layer = 0, sum = 0; layer < this.layerCount; layer++) {
      sum += length[layer]!;
      looks.push(edgeLook(layer, layers, sum > 0 ? (area / sum) * pixels : 1e6));
    }
    const { tiles, lengths } = this.boundary;
    const shares = coveredShares(tiles, window);
    const curves = shares.reduce((sum, share, t) => sum + share * lengths[t]!, 0);
    const spacing = curves > 0 ? (area / curves) * pixels : 1e6;
    return { layers: looks, boundary: boundaryWidth(spacing) };
  }

  /** Add the drawing of edges to the work; hidden: layers that are not drawn. */
  draw(
    programs: Programs,
    view: View,
    work: Work,
    { looks, ink, hidden, factor }: EdgeStyle,
  ): void {
    const { mesh, inner, layers } = this;
    const window = view.window(mesh.center, mesh.scale, 2 * view.ratio);
    visibleRuns(inner.tiles, window, (from, to) => {
      for (let begin = from, end = from + 1; begin < to; begin = end++) {
        const layer = layers[begin]!;
        while (end < to && layers[end] === layer) end++;
        const look = looks.layers[layer] ?? looks.layers.at(-1)!;
        const [width, opacity] = [look.width * factor, look.opacity];
        if (hidden.has(layer) || width * opacity * view.ratio < FAINT) continue;
        const stroke = { color: ink, opacity, width, caps: false };
        add(inner, [begin, end], { programs, view, mesh, stroke }, work);
      }
    });
  }

  /** Add the drawing of the boundary to the work; rim: the colour of its rim, null for none. */
  drawBoundary(
    programs: Programs,
    view: View,
    work: Work,
    { looks, ink, rim }: { looks: EdgeLooks; ink: Rgb; rim: Rgb | null },
  ): void {
    const { mesh, boundary } = this;
    const window = view.window(mesh.center, mesh.scale, 6 * view.ratio);
    for (const [color, extra] of [
      [rim, RIM],
      [ink, 0],
    ] as const) {
      if (!color) continue;
      const stroke = { color, opacity: 1, width: looks.boundary + extra, caps: true };
      visibleRuns(boundary.tiles, window, (begin, end) => {
        add(boundary, [begin, end], { programs, view, mesh, stroke }, work);
      });
    }
  }

  dispose(): void {
    this.inner.texture.dispose();
    this.boundary.texture.dispose();
  }
}

/** What segments are drawn with. */
interface Drawing {
  programs: Programs;
  view: View;
  mesh: Mesh;
  stroke: Stroke;
}

/** Add the drawing of a run of tiles of segments to the work. */
function add(
  { texture, tiles, lengths }: Sorted,
  [begin, end]: readonly [number, number],
  { programs, view, mesh, stroke }: Drawing,
  work: Work,
): void {
  const { first } = tiles;
  const place = view.place(mesh.center, mesh.scale);
  const window = view.window(mesh.center, mesh.scale);
  const across = Math.max(1, stroke.width * view.ratio) + 1; // with the pixels beside a line
  const costOfLength = ((mesh.scale / view.unit) * across) / PIXELS;
  let from = begin;
  let cost = 0;
  for (let t = begin; t < end; t++) {
    const length = coveredShare(tiles, t, window) * lengths[t]!;
    cost += 3 * (first[t + 1]! - first[t]!) + length * costOfLength;
    if (cost < MOST && t + 1 < end) continue;
    const part = [first[from]!, first[t + 1]!] as const;
    work.add(Math.ceil(cost), () => texture.draw(programs, view, place, stroke, part));
    from = t + 1;
    cost = 0;
  }
}

export interface EdgeStyle {
  looks: EdgeLooks;
  ink: Rgb;
  hidden: ReadonlySet<number>;
  /** A multiple of the usual width. */
  factor: number;
}

/** The edges inside of the domain that layers drew; only: among these. */
function innerEdges(edgeLayer: Int16Array, only: Uint32Array | null): Uint32Array {
  const chosen = new Uint32Array(only ? only.length : edgeLayer.length);
  let count = 0;
  for (let i = 0; i < chosen.length; i++) {
    const edge = only ? only[i]! : i;
    if (edgeLayer[edge]! >= 0) chosen[count++] = edge;
  }
  return chosen.subarray(0, count);
}

/** Segments on the graphics card in the order of their tiles, and the lengths in each tile. */
interface Sorted {
  texture: SegmentTexture | ThinSegments;
  tiles: Tiles;
  lengths: Float32Array;
}

function* sorted(
  gl: GL,
  { ends, edge }: Segments,
  maxTexture: number,
  group?: Int16Array,
): Steps<Sorted> {
  const rectangles = rectanglesAround(ends);
  yield;
  const tiles = yield* tilesOf(rectangles, tileSize(edge.length), group);
  const result = new Float32Array(ends.length);
  const lengths = new Float32Array(tiles.first.length - 1);
  for (let t = 0; t < lengths.length; t += 128) {
    arrange(ends, tiles, [t, Math.min(t + 128, lengths.length)], result, lengths);
    yield;
  }
  return { texture: new SegmentTexture(gl, result, maxTexture), tiles, lengths };
}

// Loops are in functions of their own: browsers do not optimise those of generators while they run.

/** (E) a number for the curve that each edge belongs to: that of a unit of a layer. */
function curveNumbers(layer: Int16Array, unit: Int32Array): Float64Array {
  const curve = new Float64Array(layer.length);
  for (let e = 0; e < curve.length; e++) curve[e] = layer[e]! * 2 ** 32 + unit[e]!;
  return curve;
}

function extentOf(points: Float64Array): number {
  let extent = 0;
  for (let k = 0; k < points.length; k++) extent = Math.max(extent, Math.abs(points[k]!));
  return extent;
}

function layersOf(edge: Uint32Array, edgeLayer: Int16Array): Int16Array {
  const layer = new Int16Array(edge.length);
  for (let s = 0; s < layer.length; s++) layer[s] = edgeLayer[edge[s]!]!;
  return layer;
}

/** (4 S) the rectangles around segments. */
function rectanglesAround(ends: Float32Array): Float32Array {
  const rectangles = new Float32Array(ends.length);
  for (let k = 0; k < ends.length; k += 4) {
    rectangles[k] = Math.min(ends[k]!, ends[k + 2]!);
    rectangles[k + 1] = Math.min(ends[k + 1]!, ends[k + 3]!);
    rectangles[k + 2] = Math.max(ends[k]!, ends[k + 2]!);
    rectangles[k + 3] = Math.max(ends[k + 1]!, ends[k + 3]!);
  }
  return rectangles;
}

/** Write the segments of some tiles in their order, and how long all of a tile are. */
function arrange(
  ends: Float32Array,
  { first, order }: Tiles,
  [begin, end]: readonly [number, number],
  result: Float32Array,
  lengths: Float32Array,
): void {
  for (let t = begin; t < end; t++) {
    let length = 0;
    const last = first[t + 1]!;
    for (let i = first[t]!; i < last; i++) {
      const k = 4 * order[i]!;
      for (let j = 0; j < 4; j++) result[4 * i + j] = ends[k + j]!;
      const dx = ends[k + 2]! - ends[k]!;
      const dy = ends[k + 3]! - ends[k + 1]!;
      length += Math.sqrt(dx * dx + dy * dy);
    }
    lengths[t] = length;
  }
}
