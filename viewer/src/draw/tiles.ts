// Items of the plane in an order in which neighbours are near each other, cut into tiles.
//
// Items are sorted along Morton's curve by counting, in time proportional to their number. A tile is
// a run of items with the rectangle around them, so that only what meets the window is drawn, and
// tiles are small where items are dense.

import type { Box } from "../protocol/messages";
import type { Steps } from "./work";

const BITS = 11; // of each coordinate, so that two passes of counting sort the curve's numbers
const CELLS = 1 << BITS;

export interface Tiles {
  /** The items in their order. */
  order: Uint32Array;
  /** (T + 1) where each tile begins in that order. */
  first: Uint32Array;
  /** (4 T) left, lower, right and upper side of each tile. */
  boxes: Float32Array;
}

/** Tiles of items that have rectangles (4 n), made in steps.
 *
 * group: items of a tile belong to the same group. */
export function* tilesOf(rectangles: Float32Array, size: number, group?: Int16Array): Steps<Tiles> {
  const numbers = mortonNumbers(rectangles);
  yield;
  let order = sorted(null, numbers, 0);
  yield;
  order = sorted(order, numbers, BITS);
  yield;
  if (group) {
    order = byGroup(order, group);
    yield;
  }
  const first = tileStarts(order, size, group);
  yield;
  return { order, first, boxes: tileBoxes(rectangles, order, first) };
}

/** Where tiles begin among ordered items: after so many of them, and where the group changes. */
function tileStarts(order: Uint32Array, size: number, group?: Int16Array): Uint32Array {
  const starts: number[] = [];
  for (let k = 0, begin = 0; k < order.length; k++) {
    const apart = group && k > 0 && group[order[k]!] !== group[order[k - 1]!];
    if (k === 0 || apart || k - begin === size) {
      starts.push(k);
      begin = k;
    }
  }
  return Uint32Array.from([...starts, order.length]);
}

/** How many items are in a tile if there are so many of them. */
export function tileSize(items: number): number {
  return Math.min(512, Math.max(32, Math.round(Math.sqrt(items) / 2)));
}

/** Call back for runs of tiles, from `begin` to before `end`, that meet a rectangle. */
export function visibleRuns(
  { first, boxes }: Tiles,
  [x0, y0, x1, y1]: Box,
  found: (begin: number, end: number) => void,
): void {
  let begin = -1;
  const count = first.length - 1;
  for (let t = 0; t <= count; t++) {
    const k = 4 * t;
    const seen =
      t < count &&
      boxes[k]! <= x1 &&
      boxes[k + 2]! >= x0 &&
      boxes[k + 1]! <= y1 &&
      boxes[k + 3]! >= y0;
    if (seen && begin < 0) begin = t;
    if (!seen && begin >= 0) {
      found(begin, t);
      begin = -1;
    }
  }
}

/** The share of each tile (T) that a rectangle covers. */
export function coveredShares(tiles: Tiles, window: Box): Float32Array {
  const shares = new Float32Array(tiles.first.length - 1);
  for (let t = 0; t < shares.length; t++) shares[t] = coveredShare(tiles, t, window);
  return shares;
}

/** The share of one tile that a rectangle covers. */
export function coveredShare({ boxes }: Tiles, tile: number, [x0, y0, x1, y1]: Box): number {
  const k = 4 * tile;
  const x = share(boxes[k]!, boxes[k + 2]!, x0, x1);
  return x && x * share(boxes[k + 1]!, boxes[k + 3]!, y0, y1);
}

function share(low: number, high: number, from: number, to: number): number {
  if (high < from || low > to) return 0;
  const length = high - low;
  return length > 0 ? (Math.min(high, to) - Math.max(low, from)) / length : 1;
}

/** (n) the numbers of the rectangles' middles along Morton's curve. */
function mortonNumbers(rectangles: Float32Array): Uint32Array {
  const [x0, y0, x1, y1] = boxAround(rectangles);
  const across = CELLS / Math.max(x1 - x0, Number.MIN_VALUE) / 2;
  const up = CELLS / Math.max(y1 - y0, Number.MIN_VALUE) / 2;
  const numbers = new Uint32Array(rectangles.length / 4);
  for (let i = 0, k = 0; i < numbers.length; i++, k += 4) {
    const x = Math.min(CELLS - 1, (rectangles[k]! + rectangles[k + 2]! - 2 * x0) * across);
    const y = Math.min(CELLS - 1, (rectangles[k + 1]! + rectangles[k + 3]! - 2 * y0) * up);
    numbers[i] = spread(x) | (spread(y) << 1);
  }
  return numbers;
}

/** The rectangle around rectangles (4 n). */
export function boxAround(rectangles: Float32Array): Box {
  let x0 = Infinity;
  let y0 = Infinity;
  let x1 = -Infinity;
  let y1 = -Infinity;
  for (let k = 0; k < rectangles.length; k += 4) {
    x0 = Math.min(x0, rectangles[k]!);
    y0 = Math.min(y0, rectangles[k + 1]!);
    x1 = Math.max(x1, rectangles[k + 2]!);
    y1 = Math.max(y1, rectangles[k + 3]!);
  }
  return [x0, y0, x1, y1];
}

/** The bits of a number with a gap before each. */
function spread(x: number): number {
  let bits = x & (CELLS - 1);
  bits = (bits | (bits << 8)) & 0x00ff00ff;
  bits = (bits | (bits << 4)) & 0x0f0f0f0f;
  bits = (bits | (bits << 2)) & 0x33333333;
  return (bits | (bits << 1)) & 0x55555555;
}

/** Items in the order of BITS bits of their numbers, otherwise in the order they had. */
function sorted(before: Uint32Array | null, numbers: Uint32Array, shift: number): Uint32Array {
  const next = new Uint32Array(CELLS + 1);
  for (let i = 0; i < numbers.length; i++) next[((numbers[i]! >> shift) & (CELLS - 1)) + 1]!++;
  for (let c = 0; c < CELLS; c++) next[c + 1]! += next[c]!;
  const order = new Uint32Array(numbers.length);
  for (let k = 0; k < numbers.length; k++) {
    const item = before ? before[k]! : k;
    order[next[(numbers[item]! >> shift) & (CELLS - 1)]!++] = item;
  }
  return order;
}

function byGroup(order: Uint32Array, group: Int16Array): Uint32Array {
  let least = 0;
  let most = 0;
  for (let i = 0; i < group.length; i++) {
    if (group[i]! < least) least = group[i]!;
    if (group[i]! > most) most = group[i]!;
  }
  const next = new Uint32Array(most - least + 2);
  for (let i = 0; i < group.length; i++) next[group[i]! - least + 1]!++;
  for (let g = 1; g < next.length; g++) next[g]! += next[g - 1]!;
  const result = new Uint32Array(order.length);
  for (let k = 0; k < order.length; k++) {
    const item = order[k]!;
    result[next[group[item]! - least]!++] = item;
  }
  return result;
}

function tileBoxes(rectangles: Float32Array, order: Uint32Array, first: Uint32Array): Float32Array {
  const boxes = new Float32Array(4 * (first.length - 1));
  for (let t = 0; t < first.length - 1; t++) {
    let x0 = Infinity;
    let y0 = Infinity;
    let x1 = -Infinity;
    let y1 = -Infinity;
    for (let i = first[t]!; i < first[t + 1]!; i++) {
      const k = 4 * order[i]!;
      x0 = Math.min(x0, rectangles[k]!);
      y0 = Math.min(y0, rectangles[k + 1]!);
      x1 = Math.max(x1, rectangles[k + 2]!);
      y1 = Math.max(y1, rectangles[k + 3]!);
    }
    boxes.set([x0, y0, x1, y1], 4 * t);
  }
  return boxes;
}
