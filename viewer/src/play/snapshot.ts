// What a page shows of a network: its regions, cut along the decision boundary, and their numbers.

import { type Prepared, prepared } from "../draw/prepared";
import { cutByClass } from "../geometry/classes";
import { levelSet } from "../geometry/level_sets";
import { Mesh, type MeshArrays } from "../geometry/mesh";
import type { Box, ColoringHeader, MeshHeader, Message, Pair } from "../protocol/messages";
import { coloringOf } from "./colorings";
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
    edges: flat.edges,
    corners: flat.corners,
    offsets: flat.offsets,
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
  const shown = classes ? cutByClass(whole) : whole;
  const level = classes ? null : levelSet(whole, 0, 0);
  const { slope, area, lead } = measuresOf(shown);
  const largestSlope = slope.reduce((most, each) => Math.max(most, each), 0);
  const numbers = { slope, area, ...countsOf(whole, network, color) };
  const coloring = coloringOf(shown, numbers, lead, { classes, color });
  return {
    header,
    arrays: ownArrays(shown, values.buffer),
    prepared: more?.card ? prepared(shown) : null,
    coloring,
    level,
    regions,
    boundaryLength: scale * (level ? lengthOfSegments(level) : lengthOf(shown)),
    largestSlope,
    unresolved: pairsOf(found.unresolved).map(([x, y]) => [
      center[0] + scale * x,
      center[1] + scale * y,
    ]),
  };
}

function pairsOf(flat: readonly number[]): Pair[] {
  return Array.from({ length: flat.length / 2 }, (_, k) => [flat[2 * k]!, flat[2 * k + 1]!]);
}

function rangesOf(values: Float64Array, outputs: number): Pair[] {
  return Array.from({ length: outputs }, (_, output) => {
    let low = Number.POSITIVE_INFINITY;
    let high = Number.NEGATIVE_INFINITY;
    for (let k = output; k < values.length; k += outputs) {
      low = Math.min(low, values[k]!);
      high = Math.max(high, values[k]!);
    }
    return [low, high];
  });
}

/** The arrays of a mesh, which can be sent; those in the kernel's memory are copied. */
function ownArrays(mesh: Mesh, memory: ArrayBufferLike): MeshArrays {
  const { points, edges, corners, offsets, region, cellClass, edgeLayer, edgeUnit } = mesh;
  const { boundary, values, preciseValues, regionCorners } = mesh;
  const own = <T extends Float64Array | Float32Array | Uint32Array | Int32Array>(array: T) =>
    (array.buffer === memory ? array.slice() : array) as T;
  return {
    points: own(points),
    edges: own(edges),
    corners: own(corners),
    offsets: own(offsets),
    region,
    cellClass,
    edgeLayer,
    edgeUnit: own(edgeUnit),
    boundary,
    values,
    preciseValues: own(preciseValues),
    regionCorners,
    ...{ complete: null, gradients: null, gradientScale: null, gradientOutput: null },
    ...{ sourceEdge: null, sourceCell: null },
  };
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

/** The area of each region, and how steep its largest output is; lead: by how much that leads in
 * each cell, on average over its corners.
 *
 * As Green says, a gradient times an area is an integral over the outline. Vertices are scattered
 * over the memory, so that all is found in one walk. */
function measuresOf(mesh: Mesh) {
  const { cellCount, region, offsets, corners, edges, points, regionCount, scale } = mesh;
  const values = mesh.preciseValues as Float64Array;
  const outputs = mesh.outputs.length;
  const lead = new Float64Array(cellCount);
  const slope = new Float32Array(regionCount);
  const area = new Float32Array(regionCount);
  const ring: number[] = [];
  for (let cell = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const size = offsets[cell + 1]! - begin;
    for (let c = 0; c < size; c++) ring[c] = edges[corners[begin + c]!]!;
    let best = 0;
    let first = Number.NEGATIVE_INFINITY;
    let second = outputs > 1 ? first : 0;
    for (let k = 0; k < outputs; k++) {
      let sum = 0;
      for (let c = 0; c < size; c++) sum += values[ring[c]! * outputs + k]!;
      if (sum > first) {
        if (k > 0) second = first;
        first = sum;
        best = k;
      } else if (sum > second) second = sum;
    }
    lead[cell] = Math.abs(first - second) / size;
    const x0 = points[2 * ring[0]!]!;
    const y0 = points[2 * ring[0]! + 1]!;
    const z0 = values[ring[0]! * outputs + best]!;
    let x = 0; // and so on, from the first corner
    let y = 0;
    let z = 0;
    let twice = 0; // the area
    let across = 0;
    let up = 0;
    for (let c = 1; c <= size; c++) {
      const vertex = ring[c < size ? c : 0]!;
      const nextX = points[2 * vertex]! - x0;
      const nextY = points[2 * vertex + 1]! - y0;
      const nextZ = values[vertex * outputs + best]! - z0;
      twice += x * nextY - nextX * y;
      across += (z + nextZ) * (nextY - y);
      up += (z + nextZ) * (x - nextX);
      x = nextX;
      y = nextY;
      z = nextZ;
    }
    const own = (twice / 2) * scale * scale;
    const at = region[cell]!;
    // Of a region that is cut by class, the larger part tells the slope.
    if (own > area[at]!) slope[at] = Math.sqrt(across * across + up * up) / twice / scale;
    area[at]! += own;
  }
  return { slope, area, lead };
}

/** Other numbers of the regions, if these are the colour. */
function countsOf(mesh: Mesh, network: Network, color: string): Record<string, Float32Array> {
  if (color !== "layer" && color !== "active" && color !== "code") return {};
  const { cellCount, offsets, corners, edgeLayer } = mesh;
  const numbers = new Float32Array(cellCount);
  if (color === "active") {
    visitActive(network, middlesOf(mesh), (region) => {
      numbers[region]! += 1;
    });
  } else if (color === "code") {
    // A number below 1 for a unit; the sum of those of the active units tells the code.
    visitActive(network, middlesOf(mesh), (region, layer, unit) => {
      const share = 0.6180339887 * (unit + 1) + 0.7548776662 * (layer + 1) * (layer + 1);
      numbers[region] = (numbers[region]! + (share % 1)) % 1;
    });
  } else {
    for (let cell = 0; cell < cellCount; cell++) {
      for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
        numbers[cell] = Math.max(numbers[cell]!, edgeLayer[corners[c]! >> 1]! + 1);
      }
    }
  }
  return { [color]: numbers };
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
