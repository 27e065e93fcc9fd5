// The cells in view as polygons: in one colour each, or in the exact gradient of an output.

import { level, type Paint, placeOf, type ShadedPaint } from "../draw/colours";
import { clippedPolygon } from "../geometry/clip";
import type { Mesh } from "../geometry/mesh";
import type { Box, Pair } from "../protocol/messages";
import { coordinate, ringPath } from "./svg_text";

const MOST_STOPS = 16;
/** A hair around each polygon closes the gaps that smoothing leaves between neighbours. */
const HAIR = 'stroke-width="0.4" stroke-linejoin="round"';

/** Where the vertices of a mesh are on the page. */
export interface Page {
  x(local: number): number;
  y(local: number): number;
  /** What of the page is drawn. */
  box: Box;
}

export interface SvgCells {
  definitions: string;
  body: string;
  /** The area of the cells on the page, in square pixels. */
  area: number;
}

/** Polygons of cells; prefix: begins the names of gradients. */
export function svgCells(
  mesh: Mesh,
  cells: Uint32Array,
  paint: Paint | null,
  page: Page,
  prefix: string,
): SvgCells {
  const byFill = new Map<string, string[]>();
  const definitions: string[] = [];
  let area = 0;
  for (const cell of cells) {
    const whole = mesh.localPolygon(cell).map((x, k) => (k & 1 ? page.y(x) : page.x(x)));
    const ring = clippedPolygon(whole, page.box);
    if (ring.length < 6) continue;
    area += areaOf(ring);
    if (!paint) continue;
    let fill: string | null;
    if (paint.kind === "flat") fill = flatColor(paint.colors[cell]!);
    else {
      const shade = shadeOf(mesh, cell, paint, whole, ring);
      fill = shade.color;
      if (shade.stops) {
        fill = `url(#${prefix}${definitions.length})`;
        definitions.push(`<linearGradient id="${prefix}${definitions.length}" ${shade.stops}`);
      }
    }
    if (!fill) continue;
    const paths = byFill.get(fill);
    if (paths) paths.push(ringPath(ring));
    else byFill.set(fill, [ringPath(ring)]);
  }
  const body = [...byFill].map(
    ([fill, paths]) => `<path fill="${fill}" stroke="${fill}" d="${paths.join("")}"/>`,
  );
  const group = body.length ? `<g ${HAIR}>\n${body.join("\n")}\n</g>` : "";
  return { definitions: definitions.join("\n"), body: group, area };
}

function areaOf(ring: number[]): number {
  let sum = 0;
  for (let k = 0; k < ring.length; k += 2) {
    const next = (k + 2) % ring.length;
    sum += ring[k]! * ring[next + 1]! - ring[next]! * ring[k + 1]!;
  }
  return Math.abs(sum) / 2;
}

function flatColor(packed: number): string | null {
  if (!packed) return null;
  const bytes = [packed & 255, (packed >> 8) & 255, (packed >> 16) & 255];
  return `#${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The colour of a number as the renderer's shader finds it. */
function tableColor({ table, scale, rate }: ShadedPaint, number: number): string | null {
  const place = placeOf(number, scale, rate);
  if (Number.isNaN(place)) return null;
  const at = 3 * level(place);
  return flatColor(table[at]! | (table[at + 1]! << 8) | (table[at + 2]! << 16) | (255 << 24));
}

interface Shade {
  color: string | null;
  /** The rest of a linear gradient's element, where one colour is not enough. */
  stops: string | null;
}

/** The gradient of the numbers on a cell, which are affine there. */
function shadeOf(
  mesh: Mesh,
  cell: number,
  paint: ShadedPaint,
  whole: Float64Array,
  ring: number[],
): Shade {
  const begin = mesh.offsets[cell]!;
  const numbers = Array.from(
    { length: whole.length / 2 },
    (_, k) => paint.numbers[mesh.edges[mesh.corners[begin + k]!]!]!,
  );
  const slope = slopeOf(whole, numbers);
  const steepness = slope[0] ** 2 + slope[1] ** 2;
  const at = (x: number, y: number) =>
    numbers[0]! + slope[0] * (x - whole[0]!) + slope[1] * (y - whole[1]!);
  let [low, high, first] = [Infinity, -Infinity, 0];
  for (let k = 0; k < ring.length; k += 2) {
    const number = at(ring[k]!, ring[k + 1]!);
    if (number < low) [low, first] = [number, k];
    if (number > high) high = number;
  }
  const count = Math.min(MOST_STOPS, Math.ceil(32 * Math.abs(high - low)));
  const colors = Array.from({ length: count + 1 }, (_, k) =>
    tableColor(paint, low + (k / Math.max(1, count)) * (high - low)),
  );
  const middle = tableColor(paint, (low + high) / 2);
  if (!(steepness > 0) || colors.every((color) => color === colors[0])) {
    return { color: middle, stops: null };
  }
  const [x, y] = [ring[first]!, ring[first + 1]!];
  const way = (high - low) / steepness;
  const ends = [x, y, x + way * slope[0], y + way * slope[1]].map(coordinate);
  const names = ["x1", "y1", "x2", "y2"].map((name, k) => `${name}="${ends[k]}"`).join(" ");
  const stops = colors.map(
    (color, k) => `<stop offset="${coordinate(k / count)}" stop-color="${color ?? middle}"/>`,
  );
  const units = 'gradientUnits="userSpaceOnUse"';
  return { color: middle, stops: `${units} ${names}>${stops.join("")}</linearGradient>` };
}

/** How an affine function changes, from its numbers at the corners of a ring. */
function slopeOf(ring: Float64Array, numbers: number[]): Pair {
  const offset = (k: number): Pair => [ring[2 * k]! - ring[0]!, ring[2 * k + 1]! - ring[1]!];
  const cross = (a: Pair, b: Pair) => a[0] * b[1] - a[1] * b[0];
  let [b, c] = [0, 0];
  for (let k = 1; k < numbers.length; k++) {
    if (Math.hypot(...offset(k)) > Math.hypot(...offset(b))) b = k;
  }
  const along = offset(b);
  for (let k = 1; k < numbers.length; k++) {
    if (Math.abs(cross(along, offset(k))) > Math.abs(cross(along, offset(c)))) c = k;
  }
  const beside = offset(c);
  const area = cross(along, beside);
  if (!area) return [0, 0];
  const [toB, toC] = [numbers[b]! - numbers[0]!, numbers[c]! - numbers[0]!];
  return [(toB * beside[1] - toC * along[1]) / area, (toC * along[0] - toB * beside[0]) / area];
}
