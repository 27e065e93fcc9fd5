// The affine map of a region, from the outputs at three of its vertices that are far apart.

import type { Pair, PaneHeader } from "../protocol/messages";
import { neighbours, outlineOf } from "./curves";
import type { Mesh } from "./mesh";
import type { RegionInfo } from "./region_info";

/** output = value + weight · (local - anchor), for each output of a mesh. */
export interface LocalMap {
  /** The vertex at which the value is known best, and its coordinates. */
  anchor: Pair;
  values: Float64Array;
  weights: Pair[];
  /** How far each weight can be off because values are rounded. */
  errors: Float64Array;
}

/** The map of the region of a cell, in local coordinates.
 *
 * Of the region's vertices, the first is farthest from the cell's first corner, the second is
 * farthest from it, and the third is farthest from their line. A region that is no wider than
 * rounding has a map that is constant across it. */
export function localMap(mesh: Mesh, cell: number): LocalMap {
  const { points } = mesh;
  const vertices = verticesOf(mesh, cell);
  const distance = (p: number, q: number) =>
    Math.hypot(points[2 * p]! - points[2 * q]!, points[2 * p + 1]! - points[2 * q + 1]!);
  const a = farthest(vertices, (vertex) => distance(vertex, vertices[0]!));
  const b = farthest(vertices, (vertex) => distance(vertex, a));
  const anchor: Pair = [points[2 * a]!, points[2 * a + 1]!];
  const offset = (vertex: number): Pair => [
    points[2 * vertex]! - anchor[0],
    points[2 * vertex + 1]! - anchor[1],
  ];
  const along = offset(b);
  const c = farthest(vertices, (vertex) => Math.abs(cross(along, offset(vertex))));
  const beside = offset(c);
  const length = Math.hypot(...along);
  const area = cross(along, beside);
  const height = Math.abs(area) / length;
  const rounding = 2 ** -50 * Math.max(Math.abs(anchor[0]), Math.abs(anchor[1]), length);
  const flat = !(height > rounding);
  const width = mesh.outputs.length;
  const epsilon = mesh.preciseValues instanceof Float64Array ? 2 ** -50 : 2 ** -23;
  const map: LocalMap = {
    anchor,
    values: new Float64Array(width),
    weights: [],
    errors: new Float64Array(width),
  };
  for (let k = 0; k < width; k++) {
    const [va, vb, vc] = [a, b, c].map((vertex) => mesh.preciseValues[vertex * width + k]!);
    const [toB, toC] = [vb! - va!, vc! - va!];
    map.values[k] = va!;
    map.weights.push(
      flat
        ? [(toB * along[0]) / (length * length || 1), (toB * along[1]) / (length * length || 1)]
        : [(toB * beside[1] - toC * along[1]) / area, (toC * along[0] - toB * beside[0]) / area],
    );
    const size = Math.max(Math.abs(va!), Math.abs(vb!), Math.abs(vc!));
    const slope = Math.hypot(...map.weights[k]!);
    const moved = flat ? Number.POSITIVE_INFINITY : (slope * rounding) / height;
    map.errors[k] = (2 * epsilon * size) / (flat ? length || 1 : height) + moved;
  }
  return map;
}

/** The outputs at a place of a cell, from the affine map of its region. */
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
  const weights = map.weights.map(([u, v]): Pair => [u / mesh.scale, v / mesh.scale]);
  const anchor = mesh.toPlane(map.anchor);
  const outline = outlineOf(mesh, region);
  return {
    pane: mesh.pane,
    frame: mesh.frame,
    mesh: mesh.id,
    region,
    cell,
    at,
    winner: pane.classes && mesh.cellClass ? mesh.cellClass[cell]! : null,
    outputs: mesh.outputs,
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
  return values.map((value, k) => value + dot(weights[k]!, [x - anchor[0], y - anchor[1]]));
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

function farthest(vertices: number[], distance: (vertex: number) => number): number {
  let [best, most] = [vertices[0]!, -1];
  for (const vertex of vertices) {
    const far = distance(vertex);
    if (far > most) [best, most] = [vertex, far];
  }
  return best;
}

function cross(a: Pair, b: Pair): number {
  return a[0] * b[1] - a[1] * b[0];
}

function dot(a: Pair, b: Pair): number {
  return a[0] * b[0] + a[1] * b[1];
}
