// The edges of a mesh by layer, and its decision boundary.

import type { Mesh } from "../geometry/mesh";
import type { Rgb } from "./colours";
import type { GL, Programs } from "./programs";
import { SegmentTexture, type Stroke } from "./segments";
import { type Segments, straightened } from "./straighten";
import { boundaryWidth, edgeLook, type LineLook, PAPER, RIM } from "./theme";
import { coveredShares, type Tiles, tileSize, tilesOf, visibleRuns } from "./tiles";
import type { View } from "./view";
import type { Work } from "./work";

const TOLERANCE = 1e-7; // of the mesh's extent, within which lines are straight
const FAINT = 0.005; // width times opacity below which lines are not seen
const MOST = 8192; // segments that are drawn at once

/** How edges look: of each layer, and of the boundary. */
export interface EdgeLooks {
  layers: LineLook[];
  boundary: number;
}

export class Edges {
  private readonly texture: SegmentTexture;
  private readonly boundary: SegmentTexture | null;
  private readonly boundaryTiles: Tiles;
  private readonly tiles: Tiles;
  /** (T) the layer of each tile's segments. */
  private readonly layers: Int16Array;
  /** The length of each tile's segments, in local units. */
  private readonly lengths: Float32Array;
  private readonly boundaryLengths: Float32Array;
  readonly layerCount: number;

  constructor(
    gl: GL,
    private readonly mesh: Mesh,
    maxTexture: number,
  ) {
    const { edgeLayer, edgeUnit } = mesh;
    const same = (a: number, b: number): boolean =>
      edgeLayer[a] === edgeLayer[b] && edgeUnit[a] === edgeUnit[b];
    const inner = edgesFrom(edgeLayer, 0);
    const segments = this.straightened(inner, same);
    const layer = new Int16Array(segments.edge.length);
    let most = -1;
    for (let s = 0; s < layer.length; s++) {
      layer[s] = edgeLayer[segments.edge[s]!]!;
      if (layer[s]! > most) most = layer[s]!;
    }
    this.layerCount = most + 1;
    const sorted = sort(segments, layer);
    this.tiles = sorted.tiles;
    this.lengths = sorted.lengths;
    this.texture = new SegmentTexture(gl, sorted.ends, maxTexture);
    const { order, first } = this.tiles;
    this.layers = Int16Array.from(first.subarray(0, -1), (begin) => layer[order[begin]!]!);
    const border = sort(this.straightened(mesh.boundary, () => true));
    this.boundaryTiles = border.tiles;
    this.boundaryLengths = border.lengths;
    this.boundary = border.ends.length ? new SegmentTexture(gl, border.ends, maxTexture) : null;
  }

  /** How edges look in a view in which so much area (in square local units) is seen.
   *
   * layers: the number of layers of the network. */
  looks(view: View, area: number, layers: number): EdgeLooks {
    const { center, scale } = this.mesh;
    const window = view.window(center, scale);
    const pixels = scale / (view.unit * view.ratio); // CSS pixels per local unit
    const length = new Float64Array(Math.max(this.layerCount, 1));
    coveredShares(this.tiles, window).forEach((share, t) => {
      length[this.layers[t]!]! += share * this.lengths[t]!;
    });
    const looks: LineLook[] = [];
    for (let layer = 0, sum = 0; layer < this.layerCount; layer++) {
      sum += length[layer]!;
      looks.push(edgeLook(layer, layers, sum > 0 ? (area / sum) * pixels : 1e6));
    }
    const shares = coveredShares(this.boundaryTiles, window);
    const curves = shares.reduce((sum, share, t) => sum + share * this.boundaryLengths[t]!, 0);
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
    const { mesh, tiles, layers } = this;
    const place = view.place(mesh.center, mesh.scale);
    const window = view.window(mesh.center, mesh.scale, 2 * view.ratio);
    visibleRuns(tiles, window, (from, to) => {
      for (let begin = from, end = from + 1; begin < to; begin = end++) {
        const layer = layers[begin]!;
        while (end < to && layers[end] === layer) end++;
        const look = looks.layers[layer] ?? looks.layers.at(-1)!;
        const [width, opacity] = [look.width * factor, look.opacity];
        if (hidden.has(layer) || width * opacity * view.ratio < FAINT) continue;
        const stroke = { color: ink, opacity, width, caps: false };
        this.add(this.texture, programs, view, place, stroke, work, tiles, begin, end);
      }
    });
  }

  /** Add the drawing of the boundary to the work; rim: with a light rim. */
  drawBoundary(
    programs: Programs,
    view: View,
    work: Work,
    { looks, ink, rim }: { looks: EdgeLooks; ink: Rgb; rim: boolean },
  ): void {
    const { mesh, boundary, boundaryTiles: tiles } = this;
    if (!boundary) return;
    const place = view.place(mesh.center, mesh.scale);
    const window = view.window(mesh.center, mesh.scale, 6 * view.ratio);
    for (const [color, extra] of [
      [PAPER, RIM],
      [ink, 0],
    ] as const) {
      if (color === PAPER && !rim) continue;
      const stroke = { color, opacity: 1, width: looks.boundary + extra, caps: true };
      visibleRuns(tiles, window, (begin, end) => {
        this.add(boundary, programs, view, place, stroke, work, tiles, begin, end);
      });
    }
  }

  dispose(): void {
    this.texture.dispose();
    this.boundary?.dispose();
  }

  private add(
    texture: SegmentTexture,
    programs: Programs,
    view: View,
    place: readonly number[],
    stroke: Stroke,
    work: Work,
    { first }: Tiles,
    begin: number,
    end: number,
  ): void {
    for (let k = first[begin]!; k < first[end]!; k += MOST) {
      const last = Math.min(k + MOST, first[end]!);
      work.add(3 * (last - k), () => texture.draw(programs, view, place, stroke, [k, last]));
    }
  }

  private straightened(chosen: Uint32Array, same: (a: number, b: number) => boolean): Segments {
    const { points, edges } = this.mesh;
    let extent = 0;
    for (let k = 0; k < points.length; k++) extent = Math.max(extent, Math.abs(points[k]!));
    return straightened(points, edges, chosen, same, TOLERANCE * extent);
  }
}

export interface EdgeStyle {
  looks: EdgeLooks;
  ink: Rgb;
  hidden: ReadonlySet<number>;
  /** A multiple of the usual width. */
  factor: number;
}

/** The edges of a layer and those after it. */
function edgesFrom(edgeLayer: Int16Array, least: number): Uint32Array {
  const chosen = new Uint32Array(edgeLayer.length);
  let count = 0;
  for (let e = 0; e < edgeLayer.length; e++) if (edgeLayer[e]! >= least) chosen[count++] = e;
  return chosen.subarray(0, count);
}

/** Segments in the order of their tiles, and the length of the segments in each tile. */
function sort(
  { ends, edge }: Segments,
  group?: Int16Array,
): { ends: Float32Array; tiles: Tiles; lengths: Float32Array } {
  const rectangles = new Float32Array(ends.length);
  for (let k = 0; k < ends.length; k += 4) {
    rectangles[k] = Math.min(ends[k]!, ends[k + 2]!);
    rectangles[k + 1] = Math.min(ends[k + 1]!, ends[k + 3]!);
    rectangles[k + 2] = Math.max(ends[k]!, ends[k + 2]!);
    rectangles[k + 3] = Math.max(ends[k + 1]!, ends[k + 3]!);
  }
  const tiles = tilesOf(rectangles, tileSize(edge.length), group);
  const result = new Float32Array(ends.length);
  const lengths = new Float32Array(tiles.first.length - 1);
  for (let t = 0; t < lengths.length; t++) {
    for (let i = tiles.first[t]!; i < tiles.first[t + 1]!; i++) {
      const k = 4 * tiles.order[i]!;
      for (let j = 0; j < 4; j++) result[4 * i + j] = ends[k + j]!;
      lengths[t]! += Math.hypot(ends[k + 2]! - ends[k]!, ends[k + 3]! - ends[k + 1]!);
    }
  }
  return { ends: result, tiles, lengths };
}
