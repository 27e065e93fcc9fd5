// Cut the regions of a mesh along the decision boundary, so that each cell has one class.
//
// The class of a point is its largest output, or with a single output whether that is above a
// level. Outputs are affine on a region, so the part of a region that belongs to a class is convex.

import { type Corner, doubleArea, type Functions, whereLargest, winnerOf } from "./envelope";
import { Mesh, type MeshArrays } from "./mesh";
import { Pieces } from "./pieces";

/** Parts of a region smaller than this share of it are left to their neighbours. */
const SMALLEST = 1e-12;
/** Corners closer than this share of a region's extent are one. */
const SAME = 1e-9;

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

/** The work of cutting one mesh: what is kept, and what is added to it.
 *
 * Thousands of regions are cut whenever a plane moves, so that nearly all of them, which have two
 * classes, are cut without making objects: collecting these would take longer than the cuts. */
class Cutting {
  private readonly pieces: Pieces;
  /** (V) the largest function, or -1 where another one comes close. */
  private readonly clear: Int32Array;
  private readonly corners: number[] = [];
  private readonly counts: number[] = [];
  private readonly regions: number[] = [];
  private readonly classes: number[] = [];
  /** (C) the function that wins in a whole cell, or -1. */
  private readonly winners: Int32Array;
  /** The cells with mixed edges; in all others one function clearly wins at all corners. */
  private readonly mixed: number[] = [];
  // Of the present region: its vertices and those on its edges, the half-edge that begins at each,
  // and the largest function on it.
  private readonly ids: number[] = [];
  private readonly halves: number[] = [];
  private readonly largest: number[] = [];
  /** How many of each there are; the arrays keep their room. */
  private size = 0;

  constructor(
    private readonly mesh: Mesh,
    private readonly functions: Functions,
    private readonly level: number,
  ) {
    this.clear = clearWinners(functions, mesh.vertexCount);
    this.pieces = new Pieces(mesh, functions, this.clear);
    this.winners = this.findWinners();
    for (const cell of this.mixed) {
      if (this.winners[cell]! >= 0) continue;
      this.outline(cell);
      if (!this.halved(cell)) this.divide(cell);
    }
  }

  /** The class of a function: its output, of which a large network sends only some. */
  private classOf(winner: number): number {
    return this.mesh.outputs.length === 1 ? winner : this.mesh.outputs[winner]!;
  }

  private findWinners(): Int32Array {
    const { clear } = this;
    const { offsets, corners, edges, cellCount } = this.mesh;
    const { mixed } = this.pieces;
    const winners = new Int32Array(cellCount);
    for (let cell = 0, c = 0; cell < cellCount; cell++) {
      const begin = offsets[cell]!;
      const end = offsets[cell + 1]!;
      for (c = begin; c < end && !mixed[corners[c]! >> 1]; c++);
      if (c === end) {
        winners[cell] = clear[edges[corners[begin]!]!]!;
        continue;
      }
      this.mixed.push(cell);
      for (c = begin; c < end; c++) this.ids[c - begin] = edges[corners[c]!]!;
      winners[cell] = winnerOf(this.functions, this.ids, end - begin);
    }
    return winners;
  }

  /** Collect the vertices of a region and on its edges, and the half-edge that begins at each. */
  private outline(cell: number): void {
    const { offsets, corners, edges } = this.mesh;
    const { pieces, ids, halves } = this;
    const { before } = pieces;
    let size = 0;
    for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
      const half = corners[c]!;
      const edge = half >> 1;
      const side = half & 1;
      const inner = before[edge + 1]! - before[edge]!; // vertices on the edge
      for (let k = 0; k <= inner; k++) {
        const piece = side ? inner - k : k;
        ids[size] = k ? pieces.onEdge(edge, side ? piece : k - 1) : edges[half]!;
        halves[size++] = 2 * pieces.piece(edge, piece) + side;
      }
    }
    this.size = size;
  }

  /** Twice the area of some corners of the present region, one after the other. */
  private doubleArea(begin: number, count: number): number {
    const { ids, size } = this;
    const { points } = this.pieces;
    const at = (k: number): number => 2 * ids[begin + k < size ? begin + k : begin + k - size]!;
    const o = at(0);
    let sum = 0;
    for (let k = 1; k + 1 < count; k++) {
      const p = at(k);
      const q = at(k + 1);
      const first = (points[p]! - points[o]!) * (points[q + 1]! - points[o + 1]!);
      sum += first - (points[q]! - points[o]!) * (points[p + 1]! - points[o + 1]!);
    }
    return sum;
  }

  /** Cut the present region by one chord if two classes share its outline; else returns false.
   *
   * No third class is inside then: along the chord, and so on either side of it, it loses. */
  private halved(cell: number): boolean {
    const { ids, halves, largest, corners, size: count } = this;
    for (let c = 0; c < count; c++) {
      largest[c] = this.largestBetween(ids[c]!, ids[c + 1 < count ? c + 1 : 0]!);
    }
    let first = -1;
    let second = -1;
    for (let c = 0; c < count; c++) {
      if (largest[c] === largest[c ? c - 1 : count - 1]) continue;
      if (second >= 0) return false;
      if (first < 0) first = c;
      else second = c;
    }
    if (second < 0) return false;
    const inner = second - first + 1;
    const outer = count - second + first + 1;
    const smaller = Math.min(this.doubleArea(first, inner), this.doubleArea(second, outer));
    if (smaller <= SMALLEST * this.doubleArea(0, count)) return false;
    const chord = this.pieces.addChord(ids[second]!, ids[first]!);
    for (let c = first; c < second; c++) corners.push(halves[c]!);
    corners.push(chord);
    for (let c = second; c < count; c++) corners.push(halves[c]!);
    for (let c = 0; c < first; c++) corners.push(halves[c]!);
    corners.push(chord ^ 1);
    this.counts.push(inner, outer);
    this.regions.push(this.mesh.region[cell]!, this.mesh.region[cell]!);
    this.classes.push(this.classOf(largest[first]!), this.classOf(largest[second]!));
    return true;
  }

  /** Cut the present region into the parts of its classes, of which there may be many. */
  private divide(cell: number): void {
    const { region } = this.mesh;
    const outline = this.ids.slice(0, this.size).map((id) => this.pieces.corner(id));
    const area = doubleArea(outline);
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
        this.corners.push(follows ? this.halves[at]! : this.chord(id, next, chords));
      }
      this.counts.push(ring.length);
      this.regions.push(region[cell]!);
      this.classes.push(this.classOf(part.class));
    }
  }

  /** The function that is the largest half-way between two vertices; of equal ones the first. */
  private largestBetween(a: number, b: number): number {
    const { count, values, slack } = this.functions;
    const from = a * count;
    const to = b * count;
    let best = 0;
    for (let k = 1; k < count; k++) {
      const lead = values[from + k]! + values[to + k]! - values[from + best]! - values[to + best]!;
      if (lead > 2 * (slack[k]! + slack[best]!)) best = k;
    }
    return best;
  }

  /** The number of a corner: of one that is there already, or a new one. */
  private welded(corner: Corner, known: Corner[], reach: number): number {
    if (corner.id >= 0) return corner.id;
    for (const other of known) {
      if (Math.hypot(corner.x - other.x, corner.y - other.y) <= reach) return other.id;
    }
    const id = this.pieces.addCorner(corner);
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
      const a = this.pieces.corner(ring[c]!);
      const b = this.pieces.corner(ring[c + 1 < ring.length ? c + 1 : 0]!);
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
    const half = this.pieces.addChord(from, to);
    chords.push(from, to, half);
    return half;
  }

  result(): Mesh {
    const mesh = new Mesh(this.mesh.header, this.assembled());
    return mesh.withBoundary(this.borders(mesh));
  }

  private assembled(): MeshArrays {
    const { mesh, pieces, winners } = this;
    const { corners, begins } = pieces.keptCells(winners, this.mixed);
    const kept = begins.length - 1;
    const offsets = joined(Uint32Array, begins, this.counts);
    for (let cell = kept; cell + 1 < offsets.length; cell++) offsets[cell + 1]! += offsets[cell]!;
    const region = new Uint32Array(kept + this.counts.length);
    const cellClass = new Uint32Array(region.length);
    for (let cell = 0, k = 0; cell < winners.length; cell++) {
      if (winners[cell]! < 0) continue;
      region[k] = mesh.region[cell]!;
      cellClass[k++] = this.classOf(winners[cell]!);
    }
    region.set(this.regions, kept);
    cellClass.set(this.classes, kept);
    const values = pieces.newValues(this.level);
    return {
      ...pieces.assembled(),
      corners: joined(Uint32Array, corners, this.corners),
      offsets,
      region,
      cellClass,
      regionCorners: mesh.regionCorners ?? counted(mesh),
      boundary: new Uint32Array(),
      values: joined(Float32Array, mesh.values, values),
      preciseValues:
        mesh.preciseValues instanceof Float32Array
          ? joined(Float32Array, mesh.preciseValues, values)
          : joined(Float64Array, mesh.preciseValues, values),
      complete: mesh.complete,
      gradients: mesh.gradients,
      gradientScale: mesh.gradientScale,
      gradientOutput: mesh.gradientOutput,
      sourceCell: null,
    };
  }

  /** The edges between cells of different classes: one of both has mixed edges, or was cut. */
  private borders({ edges, corners, offsets, cellClass, cellCount }: Mesh): Uint32Array {
    const cells: number[] = [];
    let gone = 0;
    for (const cell of this.mixed) {
      if (this.winners[cell]! < 0) gone++;
      else cells.push(cell - gone);
    }
    for (let cell = cellCount - this.counts.length; cell < cellCount; cell++) cells.push(cell);
    const classes = new Int32Array(edges.length); // at half-edges of these cells, plus one
    for (const cell of cells) {
      for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
        classes[corners[c]!] = cellClass![cell]! + 1;
      }
    }
    const found: number[] = [];
    for (const cell of cells) {
      for (let c = offsets[cell]!; c < offsets[cell + 1]!; c++) {
        const [half, other] = [corners[c]!, corners[c]! ^ 1];
        if (classes[other] && half & 1) continue; // found from there
        const own = cellClass![cell]!;
        const differs = classes[other] ? classes[other] !== own + 1 : this.endsAt(half, own);
        if (differs) found.push(half >> 1);
      }
    }
    return Uint32Array.from(found).sort();
  }

  /** Whether a class ends at a half-edge, beyond which is a cell without mixed edges, or nothing. */
  private endsAt(half: number, own: number): boolean {
    const { mesh, pieces, clear } = this;
    if (half >= mesh.edges.length || pieces.mixed[half >> 1]) return false;
    if (this.classOf(clear[mesh.edges[half]!]!) === own) return false;
    return mesh.halfedgeCell[half ^ 1]! >= 0;
  }
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
