// The affine map of a region, from the outputs at three of its vertices that are far apart.

import type { Pair, PaneHeader } from "../protocol/messages";
import { neighbours, outlineOf } from "./curves";
import type { Mesh } from "./mesh";
import type { RegionInfo } from "./region_info";

/** output = value + weight · (local - anchor), for each output of a mesh. */
interface LocalMap {
  /** The vertex at which the value is known best, and its coordinates. */
  anchor: Pair;
  values: Float64Array;
  /** (2 K) the two weights of each output. */
  weights: Float64Array;
  /** How far each weight can be off because values are rounded. */
  errors: Float64Array;
}

/** The map of a region that is settled: no output has one. */
const NO_MAP: LocalMap = {
  anchor: [0, 0],
  values: new Float64Array(),
  weights: new Float64Array(),
  errors: new Float64Array(),
};

/** The map of the region of a cell, in local coordinates.
 *
 * Of the region's vertices, the first is farthest from the cell's first corner, the second is
 * farthest from it, and the third is farthest from their line. A region that is no wider than
 * rounding has a map that is constant across it. One points often, so that little is made that has
 * to be collected later. */
function localMap(mesh: Mesh, cell: number): LocalMap {
  if (mesh.isSettled(cell)) return NO_MAP;
  const { points, preciseValues } = mesh;
  const vertices = verticesOf(mesh, cell);
  const a = farthest(points, vertices, vertices[0]!);
  const b = farthest(points, vertices, a);
  const c = farthestFromLine(points, vertices, a, b);
  const ax = points[2 * a]!;
  const ay = points[2 * a + 1]!;
  const alongX = points[2 * b]! - ax;
  const alongY = points[2 * b + 1]! - ay;
  const besideX = points[2 * c]! - ax;
  const besideY = points[2 * c + 1]! - ay;
  const square = alongX * alongX + alongY * alongY;
  const length = Math.sqrt(square);
  const area = alongX * besideY - alongY * besideX;
  const height = Math.abs(area) / length;
  const rounding = 2 ** -50 * Math.max(Math.abs(ax), Math.abs(ay), length);
  const flat = !(height > rounding);
  const width = mesh.outputs.length;
  const epsilon = preciseValues instanceof Float64Array ? 2 ** -50 : 2 ** -23;
  const values = new Float64Array(width);
  const weights = new Float64Array(2 * width);
  const errors = new Float64Array(width);
  for (let k = 0; k < width; k++) {
    const va = preciseValues[a * width + k]!;
    const vb = preciseValues[b * width + k]!;
    const vc = preciseValues[c * width + k]!;
    const toB = vb - va;
    const toC = vc - va;
    values[k] = va;
    const x = flat ? (toB * alongX) / (square || 1) : (toB * besideY - toC * alongY) / area;
    const y = flat ? (toB * alongY) / (square || 1) : (toC * alongX - toB * besideX) / area;
    weights[2 * k] = x;
    weights[2 * k + 1] = y;
    const size = Math.max(Math.abs(va), Math.abs(vb), Math.abs(vc));
    const moved = flat ? Infinity : (Math.sqrt(x * x + y * y) * rounding) / height;
    errors[k] = (2 * epsilon * size) / (flat ? length || 1 : height) + moved;
  }
  return { anchor: [ax, ay], values, weights, errors };
}

/** The outputs at a place of a cell, from the affine map of its region; none if it is settled. */
export function outputsAt(mesh: Mesh, cell: number, uv: Readonly<Pair>): Float64Array {
  return valuesAt(localMap(mesh, cell), mesh.toLocal(uv));
}

/** All that the viewer knows of the region of a cell, at a place in it.
 *
 * pane: says whether the network has classes. */
export function regionInfo(
  mesh: Mesh,
  cell: number,
  uv: Readonly<Pair>,
  pane: Pick<PaneHeader, "classes">,
): RegionInfo {
  const region = mesh.region[cell]!;
  const map = localMap(mesh, cell);
  const at: Pair = [uv[0], uv[1]];
  const weights = Array.from(
    map.values,
    (_, k): Pair => [map.weights[2 * k]! / mesh.scale, map.weights[2 * k + 1]! / mesh.scale],
  );
  const anchor = mesh.toPlane(map.anchor);
  const outline = outlineOf(mesh, region);
  const settled = mesh.isSettled(cell);
  return {
    pane: mesh.pane,
    frame: mesh.frame,
    mesh: mesh.id,
    region,
    cell,
    at,
    winner: pane.classes && mesh.cellClass ? mesh.cellClass[cell]! : null,
    settled: settled ? (mesh.header.settled ?? "Not divided.") : null,
    outputs: settled ? [] : mesh.outputs,
    values: valuesAt(map, mesh.toLocal(uv)),
    weights,
    biases: map.values.map((value, k) => value - dot(weights[k]!, anchor)),
    weightErrors: map.errors.map((error) => error / mesh.scale),
    area: areaOf(mesh, region),
    corners: mesh.regionCorners?.[region] ?? outline.length,
    layer: outline.reduce((last, h) => Math.max(last, mesh.edgeLayer[h >> 1]!), -1),
    neighbours: neighbours(mesh, region).length,
    cutOff: outline.some((h) => mesh.edgeLayer[h >> 1] === -1 && isOnWindow(mesh, h >> 1)),
  };
}

/** Whether an edge lies on a side of the window that a mesh is of. */
function isOnWindow(mesh: Mesh, edge: number): boolean {
  const { window } = mesh.header;
  if (!window) return false;
  const { center, edges, points, scale } = mesh;
  const rounding = (2 ** -50 * Math.max(Math.abs(center[0]), Math.abs(center[1]))) / scale;
  const near = Math.max(2 ** -20, rounding);
  return window.some((side, k) => {
    const place = (side - center[k % 2]!) / scale;
    const vertices = [edges[2 * edge]!, edges[2 * edge + 1]!];
    return vertices.every((vertex) => Math.abs(points[2 * vertex + (k % 2)]! - place) < near);
  });
}

/** The area of a region, in plane units. */
export function areaOf(mesh: Mesh, region: number): number {
  let sum = 0;
  for (const cell of mesh.cellsOf(region)) {
    const ring = mesh.localPolygon(cell);
    const [x, y] = [ring[0]!, ring[1]!];
    for (let k = 2; k + 3 < ring.length; k += 2) {
      sum += (ring[k]! - x) * (ring[k + 3]! - y) - (ring[k + 2]! - x) * (ring[k + 1]! - y);
    }
  }
  return (sum / 2) * mesh.scale ** 2;
}

function valuesAt({ anchor, values, weights }: LocalMap, [x, y]: Pair): Float64Array {
  const dx = x - anchor[0];
  const dy = y - anchor[1];
  const found = new Float64Array(values.length);
  for (let k = 0; k < found.length; k++) {
    found[k] = values[k]! + (weights[2 * k]! * dx + weights[2 * k + 1]! * dy);
  }
  return found;
}

function verticesOf(mesh: Mesh, cell: number): number[] {
  const vertices: number[] = [];
  for (const each of mesh.cellsOf(mesh.region[cell]!)) {
    for (let k = mesh.offsets[each]!; k < mesh.offsets[each + 1]!; k++) {
      vertices.push(mesh.edges[mesh.corners[k]!]!);
    }
  }
  return vertices;
}

/** The vertex that is farthest from one of them. */
function farthest(points: Float64Array, vertices: readonly number[], from: number): number {
  const x = points[2 * from]!;
  const y = points[2 * from + 1]!;
  let best = vertices[0]!;
  let most = -1;
  for (let k = 0; k < vertices.length; k++) {
    const dx = points[2 * vertices[k]!]! - x;
    const dy = points[2 * vertices[k]! + 1]! - y;
    const far = dx * dx + dy * dy;
    if (!(far > most)) continue;
    best = vertices[k]!;
    most = far;
  }
  return best;
}

/** The vertex that is farthest from the line through two of them. */
function farthestFromLine(
  points: Float64Array,
  vertices: readonly number[],
  a: number,
  b: number,
): number {
  const ax = points[2 * a]!;
  const ay = points[2 * a + 1]!;
  const alongX = points[2 * b]! - ax;
  const alongY = points[2 * b + 1]! - ay;
  let best = vertices[0]!;
  let most = -1;
  for (let k = 0; k < vertices.length; k++) {
    const dx = points[2 * vertices[k]!]! - ax;
    const dy = points[2 * vertices[k]! + 1]! - ay;
    const far = Math.abs(alongX * dy - alongY * dx);
    if (!(far > most)) continue;
    best = vertices[k]!;
    most = far;
  }
  return best;
}

function dot(a: Pair, b: Pair): number {
  return a[0] * b[0] + a[1] * b[1];
}
