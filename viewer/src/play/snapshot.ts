// What a page shows of a network: its regions, cut along the decision boundary, and their numbers.

import { type Prepared, prepared } from "../draw/prepared";
import { cutByClass } from "../geometry/classes";
import { levelSet } from "../geometry/level_sets";
import { Mesh, type MeshArrays } from "../geometry/mesh";
import type { Box, ColoringHeader, MeshHeader, Message, Pair } from "../protocol/messages";
import { coloringOf, type RegionNumbers } from "./colorings";
import type { Kernel } from "./kernel";
import { evaluate, isPiecewise, type Network, onPlane, visitActive, widthAfter } from "./network";
import { partition } from "./partition";

/** Regions of a picture, at most. */
const MOST = 200_000;
const PIXELS = 96; // of the raster where there are no regions

export const SQUARE: Box = [-1, -1, 1, 1];

export interface Snapshot {
  header: MeshHeader;
  arrays: MeshArrays;
  /** Of a frame that others follow; null if the page's processor sketches it sooner. */
  prepared: Prepared | null;
  coloring: Message<ColoringHeader>;
  /** Where a network of numbers is zero, in local coordinates. */
  level: Float64Array | null;
  regions: number;
  boundaryLength: number;
  largestSlope: number;
  unresolved: Pair[];
}

/** Outputs on a grid of pixels, row after row from below, where a network has no regions. */
export interface Pixels {
  size: number;
  window: Box;
  outputs: Float64Array;
}

let count = 0;

/** What a picture needs: whether there are classes, by what regions are coloured, and whether other
 * pictures follow at once, drawn by a graphics card or by the processor in its place. */
export interface Wanted {
  classes: boolean;
  color: string;
  more: { card: boolean } | null;
}

/** The regions of a network in a rectangle; null if there are too many, or none are exact. */
export function snapshotOf(
  kernel: Kernel,
  network: Network,
  window: Box,
  { classes, color, more }: Wanted,
): Snapshot | null {
  if (!network.layers.every(({ activation }) => isPiecewise(activation))) return null;
  const [u0, v0, u1, v1] = window;
  const center: Pair = [(u0 + u1) / 2, (v0 + v1) / 2];
  const scale = Math.max(u1 - u0, v1 - v0) / 2;
  const local = onPlane(network, center, [
    [scale, 0],
    [0, scale],
  ]);
  const [w, h] = [(u1 - u0) / 2 / scale, (v1 - v0) / 2 / scale];
  const found = partition(kernel, local, Float64Array.of(-w, -h, w, -h, w, h, -w, h), MOST);
  if (!found) return null;
  const { mesh: flat, values, errors } = found;
  const outputs = widthAfter(network.layers.at(-1)!);
  const regions = flat.offsets.length - 1;
  count += 1;
  const header: MeshHeader = {
    kind: "mesh",
    id: `page-${count}`,
    pane: 0,
    frame: 0,
    center,
    scale,
    window: u1 - u0 < 2 ? window : null,
    regionCount: regions,
    outputs: Array.from({ length: outputs }, (_, k) => k),
    errors: Array.from(errors),
    ranges: rangesOf(values, outputs),
    unresolved: found.unresolved.length / 2,
  };
  const region = new Uint32Array(regions);
  for (let k = 0; k < regions; k++) region[k] = k;
  const whole = new Mesh(header, {
    points: flat.points,
    edges: new Uint32Array(flat.edges.buffer),
    corners: new Uint32Array(flat.corners.buffer),
    offsets: new Uint32Array(flat.offsets.buffer),
    region,
    cellClass: null,
    edgeLayer: new Int16Array(flat.edgeLayer),
    edgeUnit: flat.edgeUnit,
    boundary: new Uint32Array(),
    values: new Float32Array(values),
    preciseValues: values,
    regionCorners: null,
    complete: null,
    gradients: null,
    gradientScale: null,
    gradientOutput: null,
    sourceEdge: null,
    sourceCell: null,
  });
  const numbers = numbersOf(whole);
  if (color === "active") {
    visitActive(network, middlesOf(whole), (region) => {
      numbers.active[region]! += 1;
    });
  } else if (color === "code") {
    visitActive(network, middlesOf(whole), (region, layer, unit) => {
      numbers.code[region] = (numbers.code[region]! + share(layer, unit)) % 1;
    });
  }
  const shown = classes ? cutByClass(whole) : whole;
  const level = classes ? null : levelSet(whole, 0, 0);
  const coloring = coloringOf(shown, numbers, { classes, color });
  return {
    header,
    arrays: plain(shown),
    prepared: more?.card ? prepared(shown) : null,
    coloring,
    level,
    regions,
    boundaryLength: scale * (level ? lengthOfSegments(level) : lengthOf(shown)),
    largestSlope: numbers.slope.reduce((most, slope) => Math.max(most, slope), 0),
    unresolved: pairsOf(found.unresolved).map(([x, y]) => [
      center[0] + scale * x,
      center[1] + scale * y,
    ]),
  };
}

/** A number below 1 for a unit; the sum of those of its active units tells a region's code. */
function share(layer: number, unit: number): number {
  return (0.6180339887 * (unit + 1) + 0.7548776662 * (layer + 1) * (layer + 1)) % 1;
}

function pairsOf(flat: readonly number[]): Pair[] {
  return Array.from({ length: flat.length / 2 }, (_, k) => [flat[2 * k]!, flat[2 * k + 1]!]);
}

function rangesOf(values: Float64Array, outputs: number): Pair[] {
  const ranges = Array.from({ length: outputs }, (): Pair => [Infinity, -Infinity]);
  for (let k = 0; k < values.length; k++) {
    const range = ranges[k % outputs]!;
    range[0] = Math.min(range[0], values[k]!);
    range[1] = Math.max(range[1], values[k]!);
  }
  return ranges;
}

/** The arrays of a mesh without what it computes, so that they can be sent. */
function plain(mesh: Mesh): MeshArrays {
  const { points, edges, corners, offsets, region, cellClass, edgeLayer, edgeUnit } = mesh;
  const { boundary, values, preciseValues, regionCorners } = mesh;
  const none = { complete: null, gradients: null, gradientScale: null, gradientOutput: null };
  const own = { points, edges, corners, offsets, region, cellClass, edgeLayer, edgeUnit };
  const rest = { boundary, values, preciseValues, regionCorners };
  return { ...own, ...rest, ...none, sourceEdge: null, sourceCell: null };
}

function lengthOf({ boundary, edges, points }: Mesh): number {
  let sum = 0;
  for (const edge of boundary) {
    const [a, b] = [2 * edges[2 * edge]!, 2 * edges[2 * edge + 1]!];
    sum += Math.hypot(points[a]! - points[b]!, points[a + 1]! - points[b + 1]!);
  }
  return sum;
}

function lengthOfSegments(ends: Float64Array): number {
  let sum = 0;
  for (let k = 0; k < ends.length; k += 4) {
    sum += Math.hypot(ends[k]! - ends[k + 2]!, ends[k + 1]! - ends[k + 3]!);
  }
  return sum;
}

/** Areas, slopes and last layers of the regions. */
function numbersOf(mesh: Mesh): RegionNumbers {
  const { cellCount, offsets, corners, edges, points, edgeLayer, scale } = mesh;
  const values = mesh.preciseValues as Float64Array;
  const make = () => new Float32Array(cellCount);
  const names = { slope: make(), area: make(), active: make(), layer: make() };
  const numbers = { ...names, code: make() };
  const outputs = mesh.outputs.length;
  for (let cell = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const end = offsets[cell + 1]!;
    const first = edges[corners[begin]!]!;
    const x0 = points[2 * first]!;
    const y0 = points[2 * first + 1]!;
    let last = Math.max(edgeLayer[corners[begin]! >> 1]!, edgeLayer[corners[end - 1]! >> 1]!);
    let area = 0;
    let widest = 0;
    let second = first;
    let third = first;
    for (let k = begin + 1; k + 1 < end; k++) {
      last = Math.max(last, edgeLayer[corners[k]! >> 1]!);
      const vertex = edges[corners[k]!]!;
      const next = edges[corners[k + 1]!]!;
      const size =
        (points[2 * vertex]! - x0) * (points[2 * next + 1]! - y0) -
        (points[2 * next]! - x0) * (points[2 * vertex + 1]! - y0);
      area += size / 2;
      if (size <= widest) continue;
      widest = size;
      second = vertex;
      third = next;
    }
    numbers.area[cell] = area * scale * scale;
    numbers.layer[cell] = last + 1;
    if (!(widest > 0)) continue;
    // The slope of the output that is largest there, or of a single one.
    let best = 0;
    let most = Number.NEGATIVE_INFINITY;
    for (let k = 0; k < outputs; k++) {
      const sum = values[first * outputs + k]! + values[second * outputs + k]!;
      const all = sum + values[third * outputs + k]!;
      if (all > most) {
        best = k;
        most = all;
      }
    }
    const value = values[first * outputs + best]!;
    const p = values[second * outputs + best]! - value;
    const q = values[third * outputs + best]! - value;
    const x = p * (points[2 * third + 1]! - y0) - q * (points[2 * second + 1]! - y0);
    const y = q * (points[2 * second]! - x0) - p * (points[2 * third]! - x0);
    numbers.slope[cell] = Math.sqrt(x * x + y * y) / widest / scale;
  }
  return numbers;
}

/** A place in the middle of each region. */
function middlesOf(mesh: Mesh): Float64Array {
  const middles = new Float64Array(2 * mesh.cellCount);
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const ring = mesh.polygon(cell);
    for (let k = 0; k < ring.length; k++)
      middles[2 * cell + (k & 1)]! += (2 * ring[k]!) / ring.length;
  }
  return middles;
}

/** Outputs on a grid, for networks that are not piecewise linear. */
export function pixelsOf(network: Network, window: Box): Pixels {
  const places = new Float64Array(2 * PIXELS * PIXELS);
  for (let k = 0; k < PIXELS * PIXELS; k++) {
    places[2 * k] = window[0] + ((window[2] - window[0]) * ((k % PIXELS) + 0.5)) / PIXELS;
    const row = Math.floor(k / PIXELS) + 0.5;
    places[2 * k + 1] = window[1] + ((window[3] - window[1]) * row) / PIXELS;
  }
  return { size: PIXELS, window, outputs: evaluate(network, places) };
}
