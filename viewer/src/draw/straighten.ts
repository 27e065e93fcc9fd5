// Chains of edges as few long segments.
//
// The curve of a unit is straight where it crosses curves of its own or of later layers, so that most
// of its edges continue each other. Drawing them as one segment halves the work or better, and
// leaves no joints. No vertex on the way is farther from its segment than a tolerance.

const NONE = 0xffffffff;

export interface Segments {
  /** (4 S) x0 y0 x1 y1 of each segment, in the coordinates of the points. */
  ends: Float32Array;
  /** (S) an edge of each segment. */
  edge: Uint32Array;
}

/** Segments that cover the chosen edges.
 *
 * same: whether two edges may belong to the same curve. */
export function straightened(
  points: Float64Array,
  edges: Uint32Array,
  chosen: Uint32Array,
  same: (a: number, b: number) => boolean,
  tolerance: number,
): Segments {
  const next = continuations(edges, chosen, points.length / 2, same);
  const ends = new Float32Array(4 * chosen.length);
  const edge = new Uint32Array(chosen.length);
  const done = new Uint8Array(edges.length / 2);
  const sleeve = new Sleeve(tolerance);
  let count = 0;
  const emit = (from: number, to: number, of: number): void => {
    ends[4 * count] = points[2 * from]!;
    ends[4 * count + 1] = points[2 * from + 1]!;
    ends[4 * count + 2] = points[2 * to]!;
    ends[4 * count + 3] = points[2 * to + 1]!;
    edge[count++] = of;
  };
  /** Follow a curve from a half-edge to its end. */
  const follow = (begin: number): void => {
    let h = begin;
    let from = edges[h]!;
    sleeve.begin(points[2 * from]!, points[2 * from + 1]!);
    while (h !== NONE && !done[h >> 1]) {
      done[h >> 1] = 1;
      const to = edges[h ^ 1]!;
      const onward = next[h ^ 1]!;
      sleeve.passed(points[2 * to]!, points[2 * to + 1]!);
      if (onward === NONE || done[onward >> 1]) {
        emit(from, to, h >> 1);
      } else {
        const after = edges[onward ^ 1]!;
        if (!sleeve.contains(points[2 * after]!, points[2 * after + 1]!)) {
          emit(from, to, h >> 1);
          from = to;
          sleeve.begin(points[2 * from]!, points[2 * from + 1]!);
        }
      }
      h = onward;
    }
  };
  for (const e of chosen) {
    if (done[e]) continue;
    if (next[2 * e] === NONE) follow(2 * e);
    else if (next[2 * e + 1] === NONE) follow(2 * e + 1);
  }
  for (const e of chosen) if (!done[e]) follow(2 * e); // closed curves
  return { ends: ends.slice(0, 4 * count), edge: edge.slice(0, count) };
}

/** (2E) for each half-edge the one that continues its curve backwards from its start, or NONE. */
function continuations(
  edges: Uint32Array,
  chosen: Uint32Array,
  vertices: number,
  same: (a: number, b: number) => boolean,
): Uint32Array {
  const first = new Uint32Array(vertices + 1);
  for (const e of chosen) {
    first[edges[2 * e]!]!++;
    first[edges[2 * e + 1]!]!++;
  }
  for (let v = 0, sum = 0; v <= vertices; v++) {
    sum += first[v]!;
    first[v] = sum;
  }
  const around = new Uint32Array(2 * chosen.length);
  for (const e of chosen) {
    around[--first[edges[2 * e]!]!] = 2 * e;
    around[--first[edges[2 * e + 1]!]!] = 2 * e + 1;
  }
  const next = new Uint32Array(edges.length).fill(NONE);
  for (let v = 0; v < vertices; v++) {
    const end = first[v + 1]!;
    for (let i = first[v]!; i < end; i++) {
      const h = around[i]!;
      if (next[h] !== NONE) continue;
      let found = NONE;
      for (let j = first[v]!; j < end; j++) {
        const other = around[j]!;
        if (j === i || !same(h >> 1, other >> 1)) continue;
        found = found === NONE ? other : h; // more than one: the curve ends here
      }
      if (found === NONE || found === h) continue;
      next[h] = found;
      next[found] = h;
    }
  }
  return next;
}

/** The directions from a point in which a line passes all points near enough. */
class Sleeve {
  private x = 0;
  private y = 0;
  private any = true;
  private low: [number, number] = [0, 0];
  private high: [number, number] = [0, 0];

  constructor(private tolerance: number) {}

  begin(x: number, y: number): void {
    this.x = x;
    this.y = y;
    this.any = true;
  }

  passed(x: number, y: number): void {
    const [dx, dy] = [x - this.x, y - this.y];
    const length = Math.hypot(dx, dy);
    if (length <= this.tolerance) return;
    const sine = this.tolerance / length;
    const cosine = Math.sqrt(1 - sine * sine);
    const low: [number, number] = [dx * cosine + dy * sine, dy * cosine - dx * sine];
    const high: [number, number] = [dx * cosine - dy * sine, dy * cosine + dx * sine];
    if (this.any || cross(this.low, low) > 0) this.low = low;
    if (this.any || cross(this.high, high) < 0) this.high = high;
    this.any = false;
  }

  contains(x: number, y: number): boolean {
    const to: [number, number] = [x - this.x, y - this.y];
    if (this.any) return true;
    const ahead = to[0] * (this.low[0] + this.high[0]) + to[1] * (this.low[1] + this.high[1]) > 0;
    return ahead && cross(this.low, to) >= 0 && cross(to, this.high) >= 0;
  }
}

function cross(a: readonly [number, number], b: readonly [number, number]): number {
  return a[0] * b[1] - a[1] * b[0];
}
