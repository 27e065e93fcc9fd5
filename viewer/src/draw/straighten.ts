// Chains of edges as few long segments.
//
// The curve of a unit is straight where it crosses curves of its own or of later layers, so that most
// of its edges continue each other. Drawing them as one segment is a third of the work or less, and
// leaves no joints. No vertex on the way is farther from its segment than a tolerance.

import type { Steps } from "./work";

const NONE = 0xffffffff;
const BLOCK = 1 << 16; // vertices or edges between two moments at which work can be interrupted

export interface Segments {
  /** (4 S) x0 y0 x1 y1 of each segment, in the coordinates of the points. */
  ends: Float32Array;
  /** (S) an edge of each segment. */
  edge: Uint32Array;
}

/** Segments that cover the chosen edges, made in steps.
 *
 * curve: (E) a number of the curve that each edge belongs to; null: all edges are of one. */
export function* straightened(
  points: Float64Array,
  edges: Uint32Array,
  chosen: Uint32Array,
  curve: Float64Array | null,
  tolerance: number,
): Steps<Segments> {
  const next = yield* continuations(edges, chosen, points.length / 2, curve);
  const walk = new Walk(points, edges, next, chosen.length, tolerance);
  for (let i = 0; i < chosen.length; i += BLOCK) {
    walk.followOpen(chosen.subarray(i, i + BLOCK));
    yield;
  }
  walk.followAll(chosen); // closed curves
  return walk.result();
}

/** (2E) for each half-edge the other one of its curve that starts where it starts, or NONE.
 *
 * Where more than two edges of a curve meet, it ends. */
function* continuations(
  edges: Uint32Array,
  chosen: Uint32Array,
  vertices: number,
  curve: Float64Array | null,
): Steps<Uint32Array> {
  const first = countedEnds(edges, chosen, vertices);
  yield;
  const around = new Uint32Array(2 * chosen.length);
  for (let i = 0; i < chosen.length; i += BLOCK) {
    collect(edges, chosen.subarray(i, i + BLOCK), first, around);
    yield;
  }
  const next = new Uint32Array(edges.length).fill(NONE);
  yield;
  for (let v = 0; v < vertices; v += BLOCK) {
    link(first.subarray(v, Math.min(v + BLOCK, vertices) + 1), around, curve, next);
    yield;
  }
  return next;
}

// Loops are in functions of their own: browsers do not optimise those of generators while they run.

/** (V + 1) where the half-edges that start at each vertex end among those of all. */
function countedEnds(edges: Uint32Array, chosen: Uint32Array, vertices: number): Uint32Array {
  const first = new Uint32Array(vertices + 1);
  for (let i = 0; i < chosen.length; i++) {
    const h = 2 * chosen[i]!;
    first[edges[h]!]!++;
    first[edges[h + 1]!]!++;
  }
  for (let v = 0, sum = 0; v <= vertices; v++) {
    sum += first[v]!;
    first[v] = sum;
  }
  return first;
}

/** Put the half-edges of some edges to those that start at the same vertex. */
function collect(
  edges: Uint32Array,
  chosen: Uint32Array,
  first: Uint32Array,
  around: Uint32Array,
): void {
  for (let i = 0; i < chosen.length; i++) {
    const h = 2 * chosen[i]!;
    around[--first[edges[h]!]!] = h;
    around[--first[edges[h + 1]!]!] = h + 1;
  }
}

/** Link half-edges that continue each other at some vertices. */
function link(
  first: Uint32Array,
  around: Uint32Array,
  curve: Float64Array | null,
  next: Uint32Array,
): void {
  for (let v = 0; v + 1 < first.length; v++) {
    const begin = first[v]!;
    const end = first[v + 1]!;
    for (let i = begin; i < end; i++) {
      const h = around[i]!;
      if (next[h] !== NONE) continue;
      let found = NONE;
      for (let j = begin; j < end; j++) {
        const other = around[j]!;
        if (j === i || (curve && curve[h >> 1] !== curve[other >> 1])) continue;
        found = found === NONE ? other : h;
      }
      if (found === NONE || found === h) continue;
      next[h] = found;
      next[found] = h;
    }
  }
}

/** A walk along curves that passes every edge once.
 *
 * From the start of a segment, all directions are kept in which a line passes near enough to the
 * vertices so far; the segment ends where the next vertex is in none of them. */
class Walk {
  private readonly ends: Float32Array;
  private readonly edge: Uint32Array;
  private readonly done: Uint8Array;
  private count = 0;
  private x = 0;
  private y = 0;
  // The directions are those from low to high; any: all of them.
  private any = true;
  private lowX = 0;
  private lowY = 0;
  private highX = 0;
  private highY = 0;

  constructor(
    private readonly points: Float64Array,
    private readonly edges: Uint32Array,
    private readonly next: Uint32Array,
    edgeCount: number,
    private readonly tolerance: number,
  ) {
    this.ends = new Float32Array(4 * edgeCount);
    this.edge = new Uint32Array(edgeCount);
    this.done = new Uint8Array(edges.length / 2);
  }

  result(): Segments {
    return { ends: this.ends.slice(0, 4 * this.count), edge: this.edge.slice(0, this.count) };
  }

  /** Follow the curves that begin with some edges. */
  followOpen(chosen: Uint32Array): void {
    for (let i = 0; i < chosen.length; i++) {
      const h = 2 * chosen[i]!;
      if (this.next[h] === NONE) this.follow(h);
      else if (this.next[h + 1] === NONE) this.follow(h + 1);
    }
  }

  /** Follow the curves of some edges that were not passed yet. */
  followAll(chosen: Uint32Array): void {
    for (let i = 0; i < chosen.length; i++) this.follow(2 * chosen[i]!);
  }

  /** Follow a curve from a half-edge to its end. */
  follow(begin: number): void {
    const { points, edges, next, done } = this;
    if (done[begin >> 1]) return;
    this.start(edges[begin]!);
    let h = begin;
    for (;;) {
      done[h >> 1] = 1;
      const to = edges[h ^ 1]!;
      this.passed(points[2 * to]!, points[2 * to + 1]!);
      const onward = next[h ^ 1]!;
      if (onward === NONE || done[onward >> 1]) {
        this.emit(to, h >> 1);
        return;
      }
      const after = edges[onward ^ 1]!;
      if (!this.leadsTo(points[2 * after]!, points[2 * after + 1]!)) {
        this.emit(to, h >> 1);
        this.start(to);
      }
      h = onward;
    }
  }

  private start(vertex: number): void {
    this.x = this.points[2 * vertex]!;
    this.y = this.points[2 * vertex + 1]!;
    this.any = true;
  }

  private emit(to: number, edge: number): void {
    const k = 4 * this.count;
    this.ends[k] = this.x;
    this.ends[k + 1] = this.y;
    this.ends[k + 2] = this.points[2 * to]!;
    this.ends[k + 3] = this.points[2 * to + 1]!;
    this.edge[this.count++] = edge;
  }

  private passed(x: number, y: number): void {
    const dx = x - this.x;
    const dy = y - this.y;
    const length = Math.sqrt(dx * dx + dy * dy);
    if (length <= this.tolerance) return;
    const sine = this.tolerance / length;
    const cosine = Math.sqrt(1 - sine * sine);
    const lowX = dx * cosine + dy * sine;
    const lowY = dy * cosine - dx * sine;
    const highX = dx * cosine - dy * sine;
    const highY = dy * cosine + dx * sine;
    if (this.any || this.lowX * lowY - this.lowY * lowX > 0) {
      this.lowX = lowX;
      this.lowY = lowY;
    }
    if (this.any || this.highX * highY - this.highY * highX < 0) {
      this.highX = highX;
      this.highY = highY;
    }
    this.any = false;
  }

  private leadsTo(x: number, y: number): boolean {
    if (this.any) return true;
    const { lowX, lowY, highX, highY } = this;
    const dx = x - this.x;
    const dy = y - this.y;
    const ahead = dx * (lowX + highX) + dy * (lowY + highY) > 0;
    return ahead && lowX * dy - lowY * dx >= 0 && dx * highY - dy * highX >= 0;
  }
}
