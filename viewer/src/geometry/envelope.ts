// The largest of several functions that are affine on a convex polygon: where each of them wins.

/** Functions at vertices: `count` numbers a vertex, and how far rounding may move each of them. */
export interface Functions {
  count: number;
  /** The values of vertex v are at v * count to (v + 1) * count. */
  values: Float64Array;
  slack: Float64Array;
}

/** A vertex of a polygon that is clipped: its number, or -1 for a new one, place and values. */
export interface Corner {
  id: number;
  x: number;
  y: number;
  z: Float64Array;
}

/** The places in (0, 1) on an edge from a to b where the largest function changes, ascending. */
export function changes(functions: Functions, a: number, b: number): number[] {
  const { count, values, slack } = functions;
  const [from, to] = [a * count, b * count];
  const best = largest(functions, b);
  let current = departing(functions, a, b);
  const found: number[] = [];
  let reached = 0;
  for (let round = 0; round < count; round++) {
    if (values[to + current]! >= values[to + best]! - slack[current]! - slack[best]!) break;
    let next = -1;
    let nearest = Number.POSITIVE_INFINITY;
    for (let k = 0; k < count; k++) {
      const end = values[to + current]! - values[to + k]!;
      if (k === current || end >= -(slack[current]! + slack[k]!)) continue;
      const start = Math.max(0, values[from + current]! - values[from + k]!);
      const t = Math.max(reached, start / (start - end));
      if (t < nearest || (t === nearest && values[to + k]! > values[to + next]!)) {
        nearest = t;
        next = k;
      }
    }
    if (next < 0) break;
    if (nearest > Math.max(reached, CLOSE) && nearest < 1 - CLOSE) found.push(nearest);
    reached = nearest;
    current = next;
  }
  return found;
}

/** Share of an edge below which a change belongs to its end. */
const CLOSE = 1e-9;

/** The number of the largest function at a vertex; of equal ones the first. */
export function largest({ count, values, slack }: Functions, vertex: number): number {
  const row = vertex * count;
  let best = 0;
  for (let k = 1; k < count; k++) {
    if (values[row + k]! > values[row + best]! + slack[k]! + slack[best]!) best = k;
  }
  return best;
}

/** The function that wins on an edge just after its first end: of those that tie there. */
function departing(functions: Functions, a: number, b: number): number {
  const { count, values, slack } = functions;
  const [from, to] = [a * count, b * count];
  const best = largest(functions, a);
  let found = best;
  for (let k = 0; k < count; k++) {
    const ties = values[from + k]! >= values[from + best]! - slack[k]! - slack[best]!;
    if (ties && values[to + k]! > values[to + found]! + slack[k]! + slack[found]!) found = k;
  }
  return found;
}

/** The function that wins everywhere on a polygon, or -1; of functions that tie, the first.
 *
 * size: how many of the vertices there are. */
export function winnerOf(functions: Functions, vertices: readonly number[], size: number): number {
  const { count, values, slack } = functions;
  for (let k = 0; k < count; k++) {
    let wins = true;
    for (let c = 0; wins && c < size; c++) {
      const row = vertices[c]! * count;
      const own = values[row + k]! + slack[k]!;
      for (let j = 0; j < count && wins; j++) wins = j === k || values[row + j]! - slack[j]! <= own;
    }
    if (wins) return k;
  }
  return -1;
}

/** The part of a convex polygon on which function k is the largest; empty if it is nowhere. */
export function whereLargest(polygon: Corner[], k: number, slack: Float64Array): Corner[] {
  let part = polygon;
  for (let j = 0; j < slack.length && part.length > 2; j++) {
    if (j !== k) part = above(part, k, j, slack[k]! + slack[j]!);
  }
  return part.length > 2 ? part : [];
}

/** The part of a convex polygon on which function k is at least function j. */
function above(polygon: Corner[], k: number, j: number, slack: number): Corner[] {
  let positive = false;
  let negative = false;
  for (let c = 0; c < polygon.length; c++) {
    const number = polygon[c]!.z[k]! - polygon[c]!.z[j]!;
    positive ||= number > slack;
    negative ||= number < -slack;
  }
  if (!negative) return positive || k < j ? polygon : [];
  if (!positive) return [];
  const lead = polygon.map((corner) => corner.z[k]! - corner.z[j]!);
  const sign = lead.map((number) => (number > slack ? 1 : number < -slack ? -1 : 0));
  const part: Corner[] = [];
  for (let c = 0; c < polygon.length; c++) {
    const n = (c + 1) % polygon.length;
    if (sign[c]! >= 0) part.push(polygon[c]!);
    if (sign[c]! * sign[n]! < 0) part.push(between(polygon[c]!, polygon[n]!, lead[c]!, lead[n]!));
  }
  return part;
}

/** The corner between two others at which a function that is p and q at them is zero. */
function between(a: Corner, b: Corner, p: number, q: number): Corner {
  const t = p / (p - q);
  const z = a.z.map((number, k) => number + t * (b.z[k]! - number));
  return { id: -1, x: a.x + t * (b.x - a.x), y: a.y + t * (b.y - a.y), z };
}

/** Twice the signed area of a polygon. */
export function doubleArea(polygon: readonly { x: number; y: number }[]): number {
  const [o] = polygon;
  let sum = 0;
  for (let c = 1; c + 1 < polygon.length; c++) {
    const [p, q] = [polygon[c]!, polygon[c + 1]!];
    sum += (p.x - o!.x) * (q.y - o!.y) - (q.x - o!.x) * (p.y - o!.y);
  }
  return sum;
}
