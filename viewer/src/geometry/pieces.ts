// The vertices and edges of a mesh whose edges are cut, and what is added to them.

import { type Corner, changes, type Functions } from "./envelope";
import type { Mesh, MeshArrays } from "./mesh";

/** The layer of edges that only the decision boundary draws. */
const BOUNDARY = -2;

/** The pieces of a mesh's edges between the vertices at which the largest function changes.
 *
 * An edge keeps its number for its first piece, so that most cells keep theirs: the other pieces
 * come after all edges, in the order of the new vertices at which they begin, then the chords. */
export class Pieces {
  /** Coordinates of the vertices of the mesh, then of new ones, with some room; so are functions. */
  points: Float64Array;
  private vertexCount: number;
  /** (E + 1) how many new vertices are on the edges before each old one. */
  readonly before: Uint32Array;
  /** (E) 1 for edges that no single function clearly wins at both ends; all others stay whole. */
  readonly mixed: Uint8Array;
  /** The edges that have several pieces. */
  private readonly divided: number[] = [];
  /** The ends of the chords. */
  private readonly chords: number[] = [];

  /** clear: (V) the largest function where no other one comes close, else -1. */
  constructor(
    private readonly mesh: Mesh,
    private readonly functions: Functions,
    clear: Int32Array,
  ) {
    this.points = mesh.points;
    this.vertexCount = mesh.vertexCount;
    this.mixed = new Uint8Array(mesh.edgeCount);
    this.before = this.divideEdges(clear);
  }

  /** A new vertex on an old edge, counted in its direction. */
  onEdge(edge: number, k: number): number {
    return this.mesh.vertexCount + this.before[edge]! + k;
  }

  /** A piece of an old edge, counted in its direction. */
  piece(edge: number, k: number): number {
    return k ? this.mesh.edgeCount + this.before[edge]! + k - 1 : edge;
  }

  /** Add a vertex inside of a region; returns its number. */
  addCorner({ x, y, z }: Corner): number {
    this.reserve();
    const id = this.vertexCount++;
    this.points[2 * id] = x;
    this.points[2 * id + 1] = y;
    this.functions.values.set(z, id * z.length);
    return id;
  }

  /** A vertex with what is known there. */
  corner(id: number): Corner {
    const { points } = this;
    const { count, values } = this.functions;
    const z = values.subarray(id * count, (id + 1) * count);
    return { id, x: points[2 * id]!, y: points[2 * id + 1]!, z };
  }

  /** Add a chord; returns its half-edge from its first end. */
  addChord(from: number, to: number): number {
    const { edgeCount } = this.mesh;
    const half = 2 * (edgeCount + this.before[edgeCount]!) + this.chords.length;
    this.chords.push(from, to);
    return half;
  }

  /** All vertices, and all edges with the ones they were cut from. */
  assembled(): Pick<MeshArrays, "points" | "edges" | "edgeLayer" | "edgeUnit" | "sourceEdge"> {
    const { mesh, before } = this;
    const firstChord = mesh.edgeCount + before[mesh.edgeCount]!;
    const edgeCount = firstChord + this.chords.length / 2;
    const edges = new Uint32Array(2 * edgeCount);
    const layer = new Int16Array(edgeCount).fill(BOUNDARY, firstChord);
    const unit = new Int32Array(edgeCount).fill(-1, firstChord);
    const source = new Int32Array(edgeCount).fill(-1, firstChord);
    edges.set(mesh.edges);
    layer.set(mesh.edgeLayer);
    unit.set(mesh.edgeUnit);
    for (let e = 0; e < mesh.edgeCount; e++) source[e] = e;
    for (const e of this.divided) {
      const last = before[e + 1]! - before[e]!;
      for (let k = 1; k <= last; k++) {
        const piece = this.piece(e, k);
        layer[piece] = mesh.edgeLayer[e]!;
        unit[piece] = mesh.edgeUnit[e]!;
        source[piece] = e;
        edges[2 * piece] = this.onEdge(e, k - 1);
        edges[2 * this.piece(e, k - 1) + 1] = this.onEdge(e, k - 1);
      }
      edges[2 * this.piece(e, last) + 1] = mesh.edges[2 * e + 1]!;
    }
    edges.set(this.chords, 2 * firstChord);
    const points = this.points.subarray(0, 2 * this.vertexCount);
    return { points, edges, edgeLayer: layer, edgeUnit: unit, sourceEdge: source };
  }

  /** The corners of the cells that are kept, by new half-edges, and where those of each begin.
   *
   * winners: (C) below zero for cells that are not kept; mixed: those with mixed edges. */
  keptCells(winners: Int32Array, mixed: readonly number[]) {
    const { before } = this;
    const { offsets, corners, edgeCount, cellCount } = this.mesh;
    const kept = new Uint32Array(corners.length + 2 * before[edgeCount]!); // at most so many
    const begins = new Uint32Array(cellCount + 1);
    let [at, count, done] = [0, 0, 0];
    const copyUntil = (cell: number): void => {
      const shift = at - offsets[done]!;
      kept.set(corners.subarray(offsets[done]!, offsets[cell]!), at);
      for (let k = done + 1; k <= cell; k++) begins[++count] = offsets[k]! + shift;
      at = offsets[cell]! + shift;
    };
    for (const cell of mixed) {
      copyUntil(cell);
      done = cell + 1;
      if (winners[cell]! < 0) continue;
      for (let c = offsets[cell]!; c < offsets[done]!; c++) {
        const edge = corners[c]! >> 1;
        const side = corners[c]! & 1;
        const inner = before[edge + 1]! - before[edge]!;
        for (let i = 0; i <= inner; i++) {
          kept[at++] = 2 * this.piece(edge, side ? inner - i : i) + side;
        }
      }
      begins[++count] = at;
    }
    copyUntil(cellCount);
    return { corners: kept.subarray(0, at), begins: begins.subarray(0, count + 1) };
  }

  /** The outputs at the new vertices. */
  newValues(level: number): Float64Array {
    const { count, values } = this.functions;
    const rows = values.subarray(this.mesh.vertexCount * count, this.vertexCount * count);
    // With a single output the second function is the output above the level.
    if (this.mesh.outputs.length > 1) return rows;
    return Float64Array.from({ length: rows.length / 2 }, (_, v) => rows[2 * v + 1]! + level);
  }

  /** Find the vertices on edges at which the largest function changes; returns `before`. */
  private divideEdges(clear: Int32Array): Uint32Array {
    const { edges, edgeCount } = this.mesh;
    const before = new Uint32Array(edgeCount + 1);
    let count = 0;
    for (let e = 0; e < edgeCount; e++) {
      before[e] = count;
      const a = edges[2 * e]!;
      const b = edges[2 * e + 1]!;
      if (clear[a] === clear[b] && clear[a]! >= 0) continue;
      this.mixed[e] = 1;
      const places = changes(this.functions, a, b);
      for (let k = 0; k < places.length; k++) this.addBetween(a, b, places[k]!);
      if (places.length) this.divided.push(e);
      count += places.length;
    }
    before[edgeCount] = count;
    return before;
  }

  /** Make room for one more vertex. */
  private reserve(): void {
    const { functions } = this;
    const needed = this.vertexCount + 1;
    if (2 * needed <= this.points.length) return;
    const room = needed + 1000 + Math.floor(needed / 4);
    this.points = lengthened(this.points, 2 * room);
    functions.values = lengthened(functions.values, functions.count * room);
  }

  /** Add a vertex between two others; returns its number. */
  private addBetween(a: number, b: number, t: number): number {
    this.reserve();
    const { points, functions, vertexCount: id } = this;
    const { count, values } = functions;
    for (let k = 0; k < 2; k++) {
      points[2 * id + k] = points[2 * a + k]! + t * (points[2 * b + k]! - points[2 * a + k]!);
    }
    for (let k = 0; k < count; k++) {
      const start = values[a * count + k]!;
      values[id * count + k] = start + t * (values[b * count + k]! - start);
    }
    return this.vertexCount++;
  }
}

/** The same numbers with room for more. */
function lengthened(numbers: Float64Array, length: number): Float64Array {
  const longer = new Float64Array(length);
  longer.set(numbers);
  return longer;
}
