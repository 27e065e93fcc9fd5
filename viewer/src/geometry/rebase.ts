// A piece of a mesh with an origin of its own, for windows that are too small for 32 bits.

import type { Pair } from "../protocol/messages";
import { Mesh, type MeshArrays } from "./mesh";

/** How far a rebased mesh reaches from its centre, as a multiple of its scale. */
export const REACH = 8;

/** Some cells of a mesh as a mesh whose local coordinates are (plane - center) / scale.
 *
 * The subtraction is done in double precision. What is farther from the centre than `REACH` times
 * the scale is cut off, so that 32 bits hold the rest to a ten-millionth. Regions, classes, layers
 * and units keep their numbers; `sourceCell` says which cell of `mesh` each cell is (or, if `mesh`
 * is such a piece itself, which cell of the whole). Edges along the cut have the layer -2. */
export function rebased(
  mesh: Mesh,
  cells: Uint32Array,
  center: Readonly<Pair>,
  scale: number,
): Mesh {
  let piece = extracted(mesh, cells, center, scale);
  for (const axis of [0, 1] as const) {
    for (const sign of [-1, 1] as const) piece = halved(piece, axis, sign);
  }
  return piece;
}

function extracted(mesh: Mesh, cells: Uint32Array, center: Readonly<Pair>, scale: number): Mesh {
  const builder = new Builder(mesh);
  const [x, y] = mesh.toLocal(center);
  const factor = mesh.scale / scale;
  const vertices = new Map<number, number>();
  const vertexOf = (old: number): number => {
    let vertex = vertices.get(old);
    if (vertex === undefined) {
      const px = (mesh.points[2 * old]! - x) * factor;
      const py = (mesh.points[2 * old + 1]! - y) * factor;
      vertex = builder.vertex(px, py, old, old, 0);
      vertices.set(old, vertex);
    }
    return vertex;
  };
  const edges = new Map<number, number>();
  for (const cell of cells) {
    for (let k = mesh.offsets[cell]!; k < mesh.offsets[cell + 1]!; k++) {
      const h = mesh.corners[k]!;
      let edge = edges.get(h >> 1);
      if (edge === undefined) {
        edge = builder.edge(vertexOf(mesh.edges[h & ~1]!), vertexOf(mesh.edges[h | 1]!), h >> 1);
        edges.set(h >> 1, edge);
      }
      builder.corner(2 * edge + (h & 1));
    }
    builder.endCell(cell);
  }
  return builder.mesh({ ...mesh.header, center: [center[0], center[1]], scale });
}

/** The part of a mesh where sign * coordinate <= REACH. */
function halved(mesh: Mesh, axis: 0 | 1, sign: 1 | -1): Mesh {
  const { points, edges, corners, offsets, vertexCount } = mesh;
  const beyond = new Float64Array(vertexCount); // by how much a vertex is beyond the line
  let most = 0;
  for (let vertex = 0; vertex < vertexCount; vertex++) {
    beyond[vertex] = sign * points[2 * vertex + axis]! - REACH;
    if (beyond[vertex]! > most) most = beyond[vertex]!;
  }
  if (most <= 0) return mesh;
  const builder = new Builder(mesh);
  const kept = new Int32Array(vertexCount).fill(-1);
  for (let vertex = 0; vertex < vertexCount; vertex++) {
    if (beyond[vertex]! > 0) continue;
    kept[vertex] = builder.vertex(points[2 * vertex]!, points[2 * vertex + 1]!, vertex, vertex, 0);
  }
  const newEdge = new Int32Array(mesh.edgeCount).fill(-1);
  const crossing = new Int32Array(mesh.edgeCount).fill(-1); // the vertex on the line
  for (let edge = 0; edge < newEdge.length; edge++) {
    const a = edges[2 * edge]!;
    const b = edges[2 * edge + 1]!;
    if (beyond[a]! * beyond[b]! < 0) {
      const t = beyond[a]! / (beyond[a]! - beyond[b]!);
      const along = (1 - t) * points[2 * a + 1 - axis]! + t * points[2 * b + 1 - axis]!;
      const [x, y] = axis === 0 ? [sign * REACH, along] : [along, sign * REACH];
      crossing[edge] = builder.vertex(x, y, a, b, t);
    }
    const start = kept[a]! < 0 ? crossing[edge]! : kept[a]!;
    const end = kept[b]! < 0 ? crossing[edge]! : kept[b]!;
    if (start >= 0 && end >= 0) newEdge[edge] = builder.edge(start, end, edge);
  }
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const begin = offsets[cell]!;
    const count = offsets[cell + 1]! - begin;
    let first = 0; // a corner that is not beyond and not on the line
    while (first < count && beyond[edges[corners[begin + first]!]!]! >= 0) first++;
    if (first === count) continue;
    let exit = -1; // the vertex at which the ring went beyond the line
    for (let turn = first; turn < first + count; turn++) {
      const h = corners[begin + (turn < count ? turn : turn - count)]!;
      const edge = h >> 1;
      const a = kept[edges[h]!]!;
      const b = kept[edges[h ^ 1]!]!;
      if (a < 0 && b >= 0) {
        const entry = crossing[edge]! >= 0 ? crossing[edge]! : b;
        if (exit !== entry) builder.corner(2 * builder.edge(exit, entry, -1));
      }
      if (newEdge[edge]! >= 0) builder.corner(2 * newEdge[edge]! + (h & 1));
      if (a >= 0 && b < 0) exit = crossing[edge]! >= 0 ? crossing[edge]! : a;
    }
    builder.endCell(cell);
  }
  return builder.mesh(mesh.header);
}

/** Collects vertices, edges and cells that come from those of another mesh. */
class Builder {
  private readonly points: number[] = [];
  private readonly values: number[] = [];
  private readonly edges: number[] = [];
  private readonly edgeSource: number[] = [];
  private readonly corners: number[] = [];
  private readonly offsets: number[] = [0];
  private readonly cells: number[] = [];

  constructor(private readonly source: Mesh) {}

  /** A vertex whose values are those between the old vertices a and b at the fraction t. */
  vertex(x: number, y: number, a: number, b: number, t: number): number {
    this.points.push(x, y);
    const { preciseValues, outputs } = this.source;
    const width = outputs.length;
    for (let k = 0; k < width; k++) {
      const from = preciseValues[a * width + k]!;
      const to = preciseValues[b * width + k]!;
      this.values.push(t === 0 ? from : (1 - t) * from + t * to);
    }
    return this.points.length / 2 - 1;
  }

  edge(start: number, end: number, source: number): number {
    this.edges.push(start, end);
    return this.edgeSource.push(source) - 1;
  }

  corner(halfedge: number): void {
    this.corners.push(halfedge);
  }

  /** End the cell of which the corners were given; fewer than three corners are no cell. */
  endCell(source: number): void {
    const begin = this.offsets[this.offsets.length - 1]!;
    if (this.corners.length - begin < 3) {
      this.corners.length = begin;
      return;
    }
    this.offsets.push(this.corners.length);
    this.cells.push(source);
  }

  mesh(header: Mesh["header"]): Mesh {
    const { source, cells, edgeSource } = this;
    const precise = source.preciseValues instanceof Float64Array ? Float64Array : Float32Array;
    const preciseValues = new precise(this.values);
    const edgeLayer = new Int16Array(edgeSource.length).fill(-2);
    const edgeUnit = new Int32Array(edgeSource.length).fill(-1);
    const sourceEdge = new Int32Array(edgeSource);
    const boundary: number[] = [];
    for (let k = 0; k < edgeSource.length; k++) {
      const edge = edgeSource[k]!;
      if (edge < 0) continue;
      edgeLayer[k] = source.edgeLayer[edge]!;
      edgeUnit[k] = source.edgeUnit[edge]!;
      if (source.sourceEdge) sourceEdge[k] = source.sourceEdge[edge]!;
      if (source.onBoundary[edge]) boundary.push(k);
    }
    const sources = new Uint32Array(cells);
    const arrays: MeshArrays = {
      points: new Float64Array(this.points),
      edges: new Uint32Array(this.edges),
      corners: new Uint32Array(this.corners),
      offsets: new Uint32Array(this.offsets),
      region: sources.map((cell) => source.region[cell]!),
      cellClass: source.cellClass && sources.map((cell) => source.cellClass![cell]!),
      edgeLayer,
      edgeUnit,
      boundary: new Uint32Array(boundary),
      values:
        preciseValues instanceof Float32Array ? preciseValues : new Float32Array(preciseValues),
      preciseValues,
      regionCorners: source.regionCorners,
      complete: source.complete,
      gradients: source.gradients,
      gradientScale: source.gradientScale,
      gradientOutput: source.gradientOutput,
      sourceEdge,
      sourceCell: source.sourceCell ? sources.map((cell) => source.sourceCell![cell]!) : sources,
    };
    return new Mesh(header, arrays);
  }
}
