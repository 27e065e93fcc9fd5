// Cut the regions of a mesh along the decision boundary, so that each cell has one class.
//
// The class of a point is its largest output, or with a single output whether that is above a
// level. Outputs are affine on a region, so the part of a region that belongs to a class is convex.

import {
  type Corner,
  changes,
  doubleArea,
  type Functions,
  whereLargest,
  winnerOf,
} from "./envelope";
import { Mesh, type MeshArrays } from "./mesh";

/** Parts of a region smaller than this share of it are left to their neighbours. */
const SMALLEST = 1e-12;
/** Corners closer than this share of a region's extent are one. */
const SAME = 1e-9;
const NONE: readonly number[] = [];
/** The layer of edges that only the decision boundary draws. */
export const BOUNDARY = -2;

/** The same mesh with every region cut into cells of one class each.
 *
 * level: with a single output, class 1 is above it, and class 0 is the rest. */
export function cutByClass(mesh: Mesh, level = 0): Mesh {
  return new Cutting(mesh, functionsOf(mesh, level), level).result();
}

/** The functions of which the largest is the class, at the vertices of a mesh. */
export function functionsOf(mesh: Mesh, level: number): Functions {
  const outputs = mesh.outputs.length;
  const single = outputs === 1;
  const count = single ? 2 : outputs;
  const { preciseValues: given, vertexCount } = mesh;
  const rounding = given instanceof Float32Array ? 2 ** -22 : 2 ** -50;
  const values = new Float64Array(vertexCount * count);
  const slack = new Float64Array(count);
  for (let k = 0; k < outputs; k++) {
    const [column, shift] = single ? [1, -level] : [k, 0];
    let size = Math.abs(shift);
    for (let v = 0; v < vertexCount; v++) {
      const value = given[v * outputs + k]!;
      size = Math.max(size, Math.abs(value));
      values[v * count + column] = value + shift;
    }
    slack[column] = rounding * size + (mesh.header.errors?.[k] ?? 0);
  }
  return { count, values, slack };
}

/** The work of cutting one mesh: what is kept, and what is added to it. */
class Cutting {
  private readonly points: number[] = [];
  private readonly rows: Float64Array[] = [];
  /** Of vertices of the old mesh that were asked for: a view takes long to make. */
  private readonly oldRows = new Map<number, Float64Array>();
  /** The first piece of each old edge among the new ones, (E + 1). */
  private readonly pieces: Uint32Array;
  /** New vertices on old edges, by edge, in the direction of the edge. */
  private readonly onEdge = new Map<number, number[]>();
  private readonly edges: number[] = [];
  private readonly corners: number[] = [];
  private readonly counts: number[] = [];
  private readonly regions: number[] = [];
  private readonly classes: number[] = [];
  private readonly uncut: Uint32Array;
  private readonly uncutClass: Uint32Array;

  constructor(
    private readonly mesh: Mesh,
    private readonly functions: Functions,
    private readonly level: number,
  ) {
    const clear = clearWinners(functions, mesh.vertexCount);
    this.pieces = this.divideEdges(clear);
    this.uncut = new Uint32Array(mesh.cellCount);
    this.uncutClass = new Uint32Array(mesh.cellCount);
    let kept = 0;
    const disputed: number[] = [];
    for (let cell = 0; cell < mesh.cellCount; cell++) {
      const winner = this.winner(cell, clear);
      if (winner < 0) disputed.push(cell);
      else {
        this.uncut[kept] = cell;
        this.uncutClass[kept++] = this.classOf(winner);
      }
    }
    this.uncut = this.uncut.subarray(0, kept);
    this.uncutClass = this.uncutClass.subarray(0, kept);
    for (const cell of disputed) this.divideCell(cell);
  }

  /** The class of a function: its output, of which a large network sends only some. */
  private classOf(winner: number): number {
    return this.mesh.outputs.length === 1 ? winner : this.mesh.outputs[winner]!;
  }

  /** The function that wins in a whole region, or -1. */
  private winner(cell: number, clear: Int32Array): number {
    const { offsets, corners, edges } = this.mesh;
    const begin = offsets[cell]!;
    const end = offsets[cell + 1]!;
    const first = clear[edges[corners[begin]!]!]!;
    let same = first >= 0;
    for (let c = begin + 1; same && c < end; c++) same = clear[edges[corners[c]!]!] === first;
    if (same) return first;
    const vertices = corners.subarray(begin, end).map((half) => edges[half]!);
    return winnerOf(this.functions, vertices);
  }

  /** Find the vertices on edges at which the largest function changes; the first pieces. */
  private divideEdges(clear: Int32Array): Uint32Array {
    const { edges, edgeCount, points } = this.mesh;
    const pieces = new Uint32Array(edgeCount + 1);
    for (let e = 0; e < edgeCount; e++) {
      const a = edges[2 * e]!;
      const b = edges[2 * e + 1]!;
      pieces[e + 1] = pieces[e]! + 1;
      if (clear[a] === clear[b] && clear[a]! >= 0) continue;
      const places = changes(this.functions, a, b);
      if (!places.length) continue;
      pieces[e + 1]! += places.length;
      const vertices = places.map((t) => {
        const x = points[2 * a]! + t * (points[2 * b]! - points[2 * a]!);
        const y = points[2 * a + 1]! + t * (points[2 * b + 1]! - points[2 * a + 1]!);
        return this.added(x, y, this.row(a), this.row(b), t);
      });
      this.onEdge.set(e, vertices);
    }
    return pieces;
  }

  /** The values of all functions at a vertex, also at a new one. */
  private row(vertex: number): Float64Array {
    const { count, values } = this.functions;
    const old = this.mesh.vertexCount;
    if (vertex >= old) return this.rows[vertex - old]!;
    let row = this.oldRows.get(vertex);
    if (!row) {
      row = values.subarray(vertex * count, (vertex + 1) * count);
      this.oldRows.set(vertex, row);
    }
    return row;
  }

  private added(x: number, y: number, a: Float64Array, b: Float64Array, t: number): number {
    this.points.push(x, y);
    this.rows.push(a.map((number, k) => number + t * (b[k]! - number)));
    return this.mesh.vertexCount + this.rows.length - 1;
  }

  /** The half-edges of the pieces of an old half-edge, in its direction. */
  private halves(half: number): number[] {
    const [edge, side] = [half >> 1, half & 1];
    const found: number[] = [];
    for (let piece = this.pieces[edge]!; piece < this.pieces[edge + 1]!; piece++) {
      found.push(2 * piece + side);
    }
    return side ? found.reverse() : found;
  }

  /** The corner at a vertex of the old mesh or on one of its edges. */
  private corner(id: number): Corner {
    const { points, vertexCount } = this.mesh;
    const [place, at] = id < vertexCount ? [points, id] : [this.points, id - vertexCount];
    return { id, x: place[2 * at]!, y: place[2 * at + 1]!, z: this.row(id) };
  }

  /** Cut a region into the parts of its classes. */
  private divideCell(cell: number): void {
    const { region } = this.mesh;
    const { outline, halves } = this.outlineOf(cell);
    const area = doubleArea(outline);
    if (this.halved(cell, outline, halves, area)) return;
    const known = [...outline];
    const reach = SAME * extent(outline);
    const parts: { class: number; ring: number[] }[] = [];
    for (let k = 0; k < this.functions.count; k++) {
      const part = whereLargest(outline, k, this.functions.slack);
      if (!part.length || doubleArea(part) <= SMALLEST * area) continue;
      const ring = part.map((corner) => this.welded(corner, known, reach));
      parts.push({ class: k, ring: ring.filter((id, c) => id !== ring[(c + 1) % ring.length]) });
    }
    const chords: number[] = [];
    for (const part of parts) {
      const ring = this.refined(part.ring, known, reach);
      if (ring.length < 3) continue;
      for (let c = 0; c < ring.length; c++) {
        const id = ring[c]!;
        const next = ring[c + 1 < ring.length ? c + 1 : 0]!;
        const at = outline.findIndex((corner) => corner.id === id);
        const follows = at >= 0 && outline[at + 1 < outline.length ? at + 1 : 0]!.id === next;
        this.corners.push(follows ? halves[at]! : this.chord(id, next, chords));
      }
      this.counts.push(ring.length);
      this.regions.push(region[cell]!);
      this.classes.push(this.classOf(part.class));
    }
  }

  /** Cut a region by one chord if two classes share its outline; false if that is not so.
   *
   * No third class is inside then: along the chord, and so on either side of it, it loses. */
  private halved(cell: number, outline: Corner[], halves: number[], area: number): boolean {
    const winners = outline.map((corner, c) =>
      this.largestBetween(corner.z, outline[c + 1 < outline.length ? c + 1 : 0]!.z),
    );
    const switches: number[] = [];
    for (let c = 0; c < outline.length; c++) {
      if (winners[c] !== winners[c ? c - 1 : outline.length - 1]) switches.push(c);
    }
    if (switches.length !== 2) return false;
    const [first, second] = switches as [number, number];
    const inner = outline.slice(first, second + 1);
    const outer = [...outline.slice(second), ...outline.slice(0, first + 1)];
    if (Math.min(doubleArea(inner), doubleArea(outer)) <= SMALLEST * area) return false;
    const chord = this.chord(outline[second]!.id, outline[first]!.id, []);
    this.corners.push(...halves.slice(first, second), chord);
    this.corners.push(...halves.slice(second), ...halves.slice(0, first), chord ^ 1);
    this.counts.push(inner.length, outer.length);
    this.regions.push(this.mesh.region[cell]!, this.mesh.region[cell]!);
    this.classes.push(this.classOf(winners[first]!), this.classOf(winners[second]!));
    return true;
  }

  /** The function that is the largest half-way between two corners; of equal ones the first. */
  private largestBetween(a: Float64Array, b: Float64Array): number {
    const { slack } = this.functions;
    let best = 0;
    for (let k = 1; k < slack.length; k++) {
      const lead = a[k]! + b[k]! - a[best]! - b[best]!;
      if (lead > 2 * (slack[k]! + slack[best]!)) best = k;
    }
    return best;
  }

  /** The corners of a region and on its edges, and the half-edge that begins at each. */
  private outlineOf(cell: number): { outline: Corner[]; halves: number[] } {
    const { offsets, corners, edges } = this.mesh;
    const outline: Corner[] = [];
    const halves: number[] = [];
    for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
      const half = corners[c]!;
      const inner = this.onEdge.get(half >> 1) ?? NONE;
      const first = this.pieces[half >> 1]!;
      outline.push(this.corner(edges[half]!));
      for (let k = 0; k <= inner.length; k++) {
        const piece = half & 1 ? inner.length - k : k;
        halves.push(2 * (first + piece) + (half & 1));
        if (k < inner.length) outline.push(this.corner(inner[half & 1 ? piece - 1 : k]!));
      }
    }
    return { outline, halves };
  }

  /** The number of a corner: of one that is there already, or a new one. */
  private welded(corner: Corner, known: Corner[], reach: number): number {
    if (corner.id >= 0) return corner.id;
    for (const other of known) {
      if (Math.hypot(corner.x - other.x, corner.y - other.y) <= reach) return other.id;
    }
    const id = this.added(corner.x, corner.y, corner.z, corner.z, 0);
    known.push({ ...corner, id });
    return id;
  }

  /** A ring with the known corners that lie on its sides. */
  private refined(ring: number[], known: Corner[], reach: number): number[] {
    const others = known.filter((corner) => !ring.includes(corner.id));
    if (!others.length) return ring;
    const refined: number[] = [];
    for (let c = 0; c < ring.length; c++) {
      refined.push(ring[c]!);
      const a = this.corner(ring[c]!);
      const b = this.corner(ring[c + 1 < ring.length ? c + 1 : 0]!);
      const dx = b.x - a.x;
      const dy = b.y - a.y;
      const length = Math.sqrt(dx * dx + dy * dy);
      const inside: { id: number; t: number }[] = [];
      for (let k = 0; k < others.length; k++) {
        const px = others[k]!.x - a.x;
        const py = others[k]!.y - a.y;
        const t = (px * dx + py * dy) / length;
        const off = Math.abs(px * dy - py * dx) / length;
        const lies = off <= reach && t > reach && t < length - reach;
        if (lies) inside.push({ id: others[k]!.id, t });
      }
      if (inside.length > 1) inside.sort((p, q) => p.t - q.t);
      for (const each of inside) refined.push(each.id);
    }
    return refined;
  }

  /** The half-edge of a chord of the present region; chords: its ends and itself, one by one. */
  private chord(from: number, to: number, chords: number[]): number {
    for (let k = 0; k < chords.length; k += 3) {
      if (chords[k] === to && chords[k + 1] === from) return chords[k + 2]! ^ 1;
    }
    const half = 2 * (this.pieces[this.mesh.edgeCount]! + this.edges.length / 2);
    this.edges.push(from, to);
    chords.push(from, to, half);
    return half;
  }

  result(): Mesh {
    const mesh = new Mesh(this.mesh.header, this.assembled());
    return mesh.withBoundary(borders(mesh));
  }

  private assembled(): MeshArrays {
    const { mesh, pieces } = this;
    const firstChord = pieces[mesh.edgeCount]!;
    const edgeCount = firstChord + this.edges.length / 2;
    const edges = new Uint32Array(2 * edgeCount);
    const layer = new Int16Array(edgeCount).fill(BOUNDARY);
    const unit = new Int32Array(edgeCount).fill(-1);
    const source = new Int32Array(edgeCount).fill(-1);
    for (let e = 0; e < mesh.edgeCount; e++) {
      const first = pieces[e]!;
      const end = pieces[e + 1]!;
      for (let piece = first; piece < end; piece++) {
        layer[piece] = mesh.edgeLayer[e]!;
        unit[piece] = mesh.edgeUnit[e]!;
        source[piece] = e;
      }
      edges[2 * first] = mesh.edges[2 * e]!;
      edges[2 * end - 1] = mesh.edges[2 * e + 1]!;
      if (end === first + 1) continue;
      this.onEdge.get(e)!.forEach((id, k) => {
        edges[2 * (first + k) + 1] = id;
        edges[2 * (first + k) + 2] = id;
      });
    }
    edges.set(this.edges, 2 * firstChord);
    const { counts, corners } = this.keptCells();
    const all = joined(Uint16Array, counts, this.counts);
    const offsets = new Uint32Array(all.length + 1);
    for (let cell = 0; cell < all.length; cell++) offsets[cell + 1] = offsets[cell]! + all[cell]!;
    const values = this.newValues();
    const kept = this.uncut.map((cell) => mesh.region[cell]!);
    return {
      points: joined(Float64Array, mesh.points, this.points),
      edges,
      corners: joined(Uint32Array, corners, this.corners),
      offsets,
      region: joined(Uint32Array, kept, this.regions),
      cellClass: joined(Uint32Array, this.uncutClass, this.classes),
      regionCorners: mesh.regionCorners ?? counted(mesh),
      edgeLayer: layer,
      edgeUnit: unit,
      boundary: new Uint32Array(),
      values: joined(Float32Array, mesh.values, values),
      preciseValues:
        mesh.preciseValues instanceof Float32Array
          ? joined(Float32Array, mesh.preciseValues, values)
          : joined(Float64Array, mesh.preciseValues, values),
      gradients: mesh.gradients,
      gradientScale: mesh.gradientScale,
      gradientOutput: mesh.gradientOutput,
      sourceEdge: source,
      sourceCell: null,
    };
  }

  /** The corners of the regions that are not cut, by new half-edges. */
  private keptCells(): { counts: Uint16Array; corners: Uint32Array } {
    const { pieces, uncut } = this;
    const { offsets, corners, edgeCount } = this.mesh;
    const counts = new Uint16Array(uncut.length);
    const added = 2 * (pieces[edgeCount]! - edgeCount); // corners, at most
    const kept = new Uint32Array(corners.length + added);
    let at = 0;
    for (let k = 0; k < uncut.length; k++) {
      const [cell, begin] = [uncut[k]!, at];
      for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
        const half = corners[c]!;
        const first = pieces[half >> 1]!;
        if (pieces[(half >> 1) + 1] === first + 1) kept[at++] = 2 * first + (half & 1);
        else for (const piece of this.halves(half)) kept[at++] = piece;
      }
      counts[k] = at - begin;
    }
    return { counts, corners: kept.subarray(0, at) };
  }

  /** The outputs at the new vertices. */
  private newValues(): Float64Array {
    const outputs = this.mesh.outputs.length;
    const found = new Float64Array(this.rows.length * outputs);
    this.rows.forEach((row, v) => {
      // With a single output the second function is the output above the level.
      if (outputs === 1) found[v] = row[1]! + this.level;
      else found.set(row, v * outputs);
    });
    return found;
  }
}

/** The edges between cells of different classes. */
function borders(mesh: Mesh): Uint32Array {
  const beside = mesh.halfedgeCell;
  const found: number[] = [];
  for (let e = 0; e < mesh.edgeCount; e++) {
    const left = beside[2 * e]!;
    const right = beside[2 * e + 1]!;
    if (left < 0 || right < 0) continue;
    if (mesh.cellClass![left] !== mesh.cellClass![right]) found.push(e);
  }
  return Uint32Array.from(found);
}

/** The number of corners of each region of a mesh whose cells are its regions. */
function counted(mesh: Mesh): Uint16Array {
  const counts = new Uint16Array(mesh.regionCount);
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    counts[mesh.region[cell]!] = mesh.offsets[cell + 1]! - mesh.offsets[cell]!;
  }
  return counts;
}

/** The largest function at each vertex, or -1 where another one comes close. */
function clearWinners({ count, values, slack }: Functions, vertices: number): Int32Array {
  const found = new Int32Array(vertices);
  for (let v = 0, row = 0; v < vertices; v++, row += count) {
    let best = 0;
    for (let k = 1; k < count; k++) if (values[row + k]! > values[row + best]!) best = k;
    found[v] = best;
    const limit = values[row + best]! - slack[best]!;
    for (let k = 0; k < count; k++) {
      if (k !== best && values[row + k]! + slack[k]! >= limit) found[v] = -1;
    }
  }
  return found;
}

function extent(corners: Corner[]): number {
  const box = [Infinity, Infinity, -Infinity, -Infinity] as [number, number, number, number];
  for (const { x, y } of corners) {
    box[0] = Math.min(box[0], x);
    box[1] = Math.min(box[1], y);
    box[2] = Math.max(box[2], x);
    box[3] = Math.max(box[3], y);
  }
  return Math.max(box[2] - box[0], box[3] - box[1]);
}

type TypedArray = Float64Array | Float32Array | Uint32Array | Uint16Array | Int32Array;

/** One array of two, of a given type. */
function joined<T extends TypedArray>(
  type: new (length: number) => T,
  first: ArrayLike<number>,
  second: ArrayLike<number>,
): T {
  const both = new type(first.length + second.length);
  both.set(first, 0);
  both.set(second, first.length);
  return both;
}
