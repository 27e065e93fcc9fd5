// Refine a subdivision by one function after the other: slower than the kernel, but robust.
//
// Signs belong to vertices: whether a function is below, at or above zero is decided once for each,
// so that all faces around it agree. A face is cut from one place where the function is zero to the
// other. Whatever rounding does, the result is a subdivision. The kernel gives up where features lie
// too close together (lines through one point, a unit twice); those layers come here.

import type { FlatMesh } from "./kernel";

const [EPS, SAFETY] = [2 ** -52, 8]; // as in _util/tolerances.py
export const UV_ERROR = 2 * EPS;

/** New vertices: each lies at a fraction t of the way from vertex p to vertex q. */
export interface Between {
  p: number[];
  q: number[];
  t: number[];
}

export interface Inserted {
  mesh: FlatMesh;
  added: Between;
  /** Places that rounding leaves undecided: x y of each. */
  unresolved: number[];
  /** Whether it was ended because there are too many faces. */
  tooMany: boolean;
}

/** Refine a mesh by functions (V, m) with rounding errors (m); unitOf: the unit of each function. */
export function insertOneByOne(
  mesh: FlatMesh,
  values: Float64Array,
  error: Float64Array,
  unitOf: ArrayLike<number>,
  layer: number,
  maxFaces: number,
): Inserted {
  const work = new Insertion(mesh, values, error, layer);
  for (let j = 0; j < error.length; j++) {
    work.insert(j, unitOf[j]!);
    if (work.faces.length > maxFaces) break;
  }
  return work.result(work.faces.length > maxFaces);
}

class Insertion {
  private readonly points: number[];
  private readonly edges: number[];
  private readonly edgeLayer: number[];
  private readonly edgeUnit: number[];
  private readonly vertexLayer: number[];
  /** How far off the line of an edge may be, and a new vertex; old ones are where they are. */
  private readonly edgeError: number[];
  private readonly reach: number[];
  readonly faces: number[][] = [];
  private readonly rows: Float64Array[] = [];
  private readonly steepness: Float64Array;
  private readonly added: Between = { p: [], q: [], t: [] };
  private readonly unresolved: number[] = [];
  private readonly known: number;

  constructor(
    mesh: FlatMesh,
    values: Float64Array,
    private readonly error: Float64Array,
    private readonly layer: number,
  ) {
    this.points = Array.from(mesh.points);
    this.edges = Array.from(mesh.edges);
    this.edgeLayer = Array.from(mesh.edgeLayer);
    this.edgeUnit = Array.from(mesh.edgeUnit);
    this.vertexLayer = Array.from(mesh.vertexLayer);
    this.edgeError = this.edgeLayer.map(() => 0);
    this.reach = this.vertexLayer.map(() => 0);
    this.known = this.vertexLayer.length;
    for (let f = 0; f + 1 < mesh.offsets.length; f++) {
      this.faces.push(Array.from(mesh.corners.subarray(mesh.offsets[f]!, mesh.offsets[f + 1]!)));
    }
    const m = error.length;
    for (let v = 0; v < this.known; v++) this.rows.push(values.slice(v * m, (v + 1) * m));
    this.steepness = this.slopes();
  }

  /** A bound on the slope of each function, from its change along the edges. */
  private slopes(): Float64Array {
    const found = new Float64Array(this.error.length);
    for (let e = 0; 2 * e < this.edges.length; e++) {
      const a = this.rows[this.edges[2 * e]!]!;
      const b = this.rows[this.edges[2 * e + 1]!]!;
      const length = this.length(e);
      if (length < 1e-9) continue;
      for (let j = 0; j < found.length; j++) {
        found[j] = Math.max(found[j]!, (2 * Math.abs(a[j]! - b[j]!)) / length);
      }
    }
    return found;
  }

  private length(edge: number): number {
    const [a, b] = [2 * this.edges[2 * edge]!, 2 * this.edges[2 * edge + 1]!];
    const { points } = this;
    return Math.hypot(points[a]! - points[b]!, points[a + 1]! - points[b + 1]!);
  }

  /** Cut all faces along the zero set of a function. */
  insert(j: number, unit: number): void {
    const sign = this.signs(j);
    if (!sign) return;
    const second = this.divideEdges(j, sign);
    const count = this.faces.length;
    for (let f = 0; f < count; f++) {
      const face = this.withPieces(this.faces[f]!, second);
      this.faces[f] = face;
      let [above, below] = [false, false];
      for (const half of face) {
        const s = sign[this.edges[half]!]; // none at new vertices, where the function is zero
        above ||= s === 1;
        below ||= s === -1;
      }
      if (above && below) this.cut(f, j, unit, sign);
    }
  }

  /** The sign of a function at every vertex; null if it does not change. */
  private signs(j: number): Int8Array | null {
    const [e, slope] = [this.error[j]!, this.steepness[j]!];
    const sign = new Int8Array(this.rows.length);
    let [above, below] = [false, false];
    const unclear: number[] = [];
    for (let v = 0; v < sign.length; v++) {
      const value = this.rows[v]![j]!;
      const own = e + slope * this.reach[v]!;
      if (Math.abs(value) <= SAFETY * own) {
        if (Math.abs(value) > own) unclear.push(v);
      } else {
        sign[v] = value > 0 ? 1 : -1;
        above ||= value > 0;
        below ||= value < 0;
      }
    }
    if (!above || !below) return null;
    for (const v of unclear) this.report(v);
    this.snap(j, sign);
    return sign;
  }

  /** Where a sign change lies too close to an end of an edge, the function is zero at that end. */
  private snap(j: number, sign: Int8Array): void {
    for (let again = true; again; ) {
      again = false;
      for (let e = 0; 2 * e < this.edges.length; e++) {
        const [a, b] = [this.edges[2 * e]!, this.edges[2 * e + 1]!];
        if (sign[a]! * sign[b]! >= 0) continue;
        const { t, own } = this.crossing(e, j);
        const nearest = Math.min(t, 1 - t) * this.length(e);
        if (nearest > SAFETY * own) continue;
        const end = t < 0.5 ? a : b;
        sign[end] = 0;
        if (nearest > own) this.report(end);
        again = true;
      }
    }
  }

  /** Where a function is zero on an edge, and how far off that may be. */
  private crossing(edge: number, j: number): { t: number; own: number } {
    const from = this.rows[this.edges[2 * edge]!]![j]!;
    const change = from - this.rows[this.edges[2 * edge + 1]!]![j]!;
    const error = this.error[j]! + this.steepness[j]! * this.edgeError[edge]!;
    const own = (error / Math.abs(change)) * this.length(edge) + UV_ERROR;
    return { t: from / change, own };
  }

  /** Divide the edges along which the sign changes; returns the second piece of each edge, or 0. */
  private divideEdges(j: number, sign: Int8Array): Int32Array {
    const count = this.edges.length / 2;
    const second = new Int32Array(count);
    for (let e = 0; e < count; e++) {
      const [a, b] = [this.edges[2 * e]!, this.edges[2 * e + 1]!];
      if (sign[a]! * sign[b]! >= 0) continue;
      const { t, own } = this.crossing(e, j);
      const v = this.addVertex(a, b, t, own + this.edgeError[e]!);
      this.rows[v]![j] = 0;
      this.edges[2 * e + 1] = v;
      second[e] = this.addEdge(v, b, this.edgeLayer[e]!, this.edgeUnit[e]!, this.edgeError[e]!);
    }
    return second;
  }

  private addVertex(a: number, b: number, t: number, reach: number): number {
    const { points } = this;
    const mix = (x: number, y: number) => (t < 0.5 ? x + t * (y - x) : y - (1 - t) * (y - x));
    points.push(mix(points[2 * a]!, points[2 * b]!), mix(points[2 * a + 1]!, points[2 * b + 1]!));
    const [p, q] = [this.rows[a]!, this.rows[b]!];
    this.rows.push(p.map((value, k) => mix(value, q[k]!)));
    this.reach.push(reach);
    this.vertexLayer.push(this.layer);
    this.added.p.push(a);
    this.added.q.push(b);
    this.added.t.push(t);
    return this.rows.length - 1;
  }

  private addEdge(a: number, b: number, layer: number, unit: number, error: number): number {
    this.edges.push(a, b);
    this.edgeLayer.push(layer);
    this.edgeUnit.push(unit);
    this.edgeError.push(error);
    return this.edgeLayer.length - 1;
  }

  private withPieces(face: number[], second: Int32Array): number[] {
    if (!face.some((half) => second[half >> 1])) return face;
    const divided: number[] = [];
    for (const half of face) {
      const piece = second[half >> 1]!;
      if (!piece) divided.push(half);
      else if (half & 1) divided.push(2 * piece + 1, half);
      else divided.push(half, 2 * piece);
    }
    return divided;
  }

  /** Cut a face between the two places where a function is zero. */
  private cut(f: number, j: number, unit: number, sign: Int8Array): void {
    const face = this.faces[f]!;
    const size = face.length;
    const at = (k: number) => sign[this.edges[face[k]!]!] ?? 0;
    // Of the corners where it is zero, those that come first after a corner where it is not, and
    // are followed by the other sign.
    const ends: number[] = [];
    for (let k = 0; k < size; k++) {
      if (at(k) !== 0 || at((k + size - 1) % size) === 0) continue;
      let next = (k + 1) % size;
      while (at(next) === 0) next = (next + 1) % size;
      if (at(next) === -at((k + size - 1) % size)) ends.push(k);
    }
    const [p, q] = ends as [number, number];
    if (ends.length !== 2) {
      this.report(this.edges[face[0]!]!);
      return;
    }
    if (q - p < 2 || q - p > size - 2) return;
    const [a, b] = [this.edges[face[p]!]!, this.edges[face[q]!]!];
    const edge = this.addEdge(a, b, this.layer, unit, this.lineError(face, j, a, b));
    if (this.length(edge) <= UV_ERROR) this.report(a);
    this.faces[f] = [...face.slice(p, q), 2 * edge + 1];
    this.faces.push([...face.slice(q), ...face.slice(0, p), 2 * edge]);
  }

  /** How far a chord may be off its line: the error of the function by its slope. */
  private lineError(face: number[], j: number, a: number, b: number): number {
    let [low, high, extent] = [Infinity, -Infinity, 0];
    const { points } = this;
    for (const half of face) {
      const v = this.edges[half]!;
      low = Math.min(low, this.rows[v]![j]!);
      high = Math.max(high, this.rows[v]![j]!);
      const dx = points[2 * v]! - points[2 * a]!;
      const dy = points[2 * v + 1]! - points[2 * a + 1]!;
      extent = Math.max(extent, Math.hypot(dx, dy));
    }
    const off = Math.max(Math.abs(this.rows[a]![j]!), Math.abs(this.rows[b]![j]!));
    return ((this.error[j]! + off) * 2 * extent) / (high - low) + UV_ERROR;
  }

  private report(vertex: number): void {
    this.unresolved.push(this.points[2 * vertex]!, this.points[2 * vertex + 1]!);
  }

  result(tooMany: boolean): Inserted {
    const offsets = new Uint32Array(this.faces.length + 1);
    this.faces.forEach((face, f) => {
      offsets[f + 1] = offsets[f]! + face.length;
    });
    const mesh = {
      points: Float64Array.from(this.points),
      edges: Uint32Array.from(this.edges),
      offsets,
      corners: Uint32Array.from(this.faces.flat()),
      edgeLayer: Int32Array.from(this.edgeLayer),
      edgeUnit: Int32Array.from(this.edgeUnit),
      vertexLayer: Int32Array.from(this.vertexLayer),
    };
    return { mesh, added: this.added, unresolved: this.unresolved, tooMany };
  }
}

/** A table (V, width) with the rows of new vertices. */
export function extended(table: Float64Array, width: number, { p, q, t }: Between): Float64Array {
  const known = table.length / width;
  const all = new Float64Array((known + t.length) * width);
  all.set(table);
  for (let i = 0; i < t.length; i++) {
    const [a, b, s, at] = [p[i]! * width, q[i]! * width, t[i]!, (known + i) * width];
    for (let k = 0; k < width; k++) {
      const rise = all[b + k]! - all[a + k]!;
      all[at + k] = s < 0.5 ? all[a + k]! + s * rise : all[b + k]! - (1 - s) * rise;
    }
  }
  return all;
}
