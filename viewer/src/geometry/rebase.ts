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
      const [px, py] = [mesh.points[2 * old]! - x, mesh.points[2 * old + 1]! - y];
      vertex = builder.vertex(px * factor, py * factor, old, old, 0);
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
        const [a, b] = [mesh.edges[h & ~1]!, mesh.edges[h | 1]!];
        edge = builder.edge(vertexOf(a), vertexOf(b), h >> 1);
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
  const { points, edges, corners, offsets } = mesh;
  const beyond = (vertex: number) => sign * points[2 * vertex + axis]! - REACH;
  let cut = false;
  for (let vertex = 0; vertex < mesh.vertexCount && !cut; vertex++) cut = beyond(vertex) > 0;
  if (!cut) return mesh;
  const builder = new Builder(mesh);
  const kept = new Int32Array(mesh.vertexCount).fill(-1);
  for (let vertex = 0; vertex < kept.length; vertex++) {
    if (beyond(vertex) > 0) continue;
    kept[vertex] = builder.vertex(points[2 * vertex]!, points[2 * vertex + 1]!, vertex, vertex, 0);
  }
  /** The new vertex where an edge crosses the line, or -1. */
  const crossing = (a: number, b: number): number => {
    const [from, to] = [beyond(a), beyond(b)];
    if (!((from < 0 && to > 0) || (from > 0 && to < 0))) return -1;
    const t = from / (from - to);
    const at = [0, 1].map((k) => (1 - t) * points[2 * a + k]! + t * points[2 * b + k]!);
    at[axis] = sign * REACH;
    return builder.vertex(at[0]!, at[1]!, a, b, t);
  };
  const newEdge = new Int32Array(mesh.edgeCount).fill(-1);
  const crossed = new Int32Array(mesh.edgeCount).fill(-1);
  for (let edge = 0; edge < newEdge.length; edge++) {
    const [a, b] = [edges[2 * edge]!, edges[2 * edge + 1]!];
    crossed[edge] = crossing(a, b);
    const [start, end] = [kept[a]!, kept[b]!].map((k) => (k < 0 ? crossed[edge]! : k));
    if (start! >= 0 && end! >= 0) newEdge[edge] = builder.edge(start!, end!, edge);
  }
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const ring = corners.subarray(offsets[cell]!, offsets[cell + 1]!);
    const first = ring.findIndex((h) => beyond(edges[h]!) < 0);
    if (first < 0) continue;
    let exit = -1; // the vertex at which the ring left the half-plane
    for (let turn = 0; turn < ring.length; turn++) {
      const h = ring[(first + turn) % ring.length]!;
      const [a, b] = [kept[edges[h]!]!, kept[edges[h ^ 1]!]!];
      const [edge, middle] = [newEdge[h >> 1]!, crossed[h >> 1]!];
      if (a < 0 && b >= 0) {
        const entry = middle >= 0 ? middle : b;
        if (exit !== entry) builder.corner(2 * builder.edge(exit, entry, -1));
      }
      if (edge >= 0) builder.corner(2 * edge + (h & 1));
      if (a >= 0 && b < 0) exit = middle >= 0 ? middle : a;
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
      const [from, to] = [preciseValues[a * width + k]!, preciseValues[b * width + k]!];
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
    const preciseValues = precise.from(this.values);
    const boundary: number[] = [];
    edgeSource.forEach((edge, k) => {
      if (edge >= 0 && source.onBoundary[edge]) boundary.push(k);
    });
    const arrays: MeshArrays = {
      points: Float64Array.from(this.points),
      edges: Uint32Array.from(this.edges),
      corners: Uint32Array.from(this.corners),
      offsets: Uint32Array.from(this.offsets),
      region: Uint32Array.from(cells, (cell) => source.region[cell]!),
      cellClass: source.cellClass && Uint32Array.from(cells, (cell) => source.cellClass![cell]!),
      edgeLayer: Int16Array.from(edgeSource, (edge) => (edge < 0 ? -2 : source.edgeLayer[edge]!)),
      edgeUnit: Int32Array.from(edgeSource, (edge) => (edge < 0 ? -1 : source.edgeUnit[edge]!)),
      boundary: Uint32Array.from(boundary),
      values:
        preciseValues instanceof Float32Array ? preciseValues : new Float32Array(preciseValues),
      preciseValues,
      regionCorners: source.regionCorners,
      gradients: source.gradients,
      gradientScale: source.gradientScale,
      sourceEdge: Int32Array.from(edgeSource, (edge) => source.sourceEdge?.[edge] ?? edge),
      sourceCell: Uint32Array.from(cells, (cell) => source.sourceCell?.[cell] ?? cell),
    };
    return new Mesh(header, arrays);
  }
}
