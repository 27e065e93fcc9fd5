// Colours of cells: numbers to colours as matplotlib does it, and what the graphics card is given.

import type { Mesh } from "../geometry/mesh";
import type { ColoringHeader, ColorScale, Message } from "../protocol/messages";

export type Rgb = readonly [number, number, number];

const LEVELS = 256;

/** Red, green and blue, from 0 to 1, of a colour such as "#16202c" or "#fff". */
export function rgb(color: string): Rgb {
  const digits = color.replace("#", "");
  const step = digits.length < 6 ? 1 : 2;
  const part = (k: number): number => {
    const value = Number.parseInt(digits.slice(k * step, (k + 1) * step).padStart(1, "0"), 16);
    return (Number.isFinite(value) ? value : 0) / (step === 1 ? 15 : 255);
  };
  return [part(0), part(1), part(2)];
}

/** Where a number is on a scale, 0 at its lower and 1 at its upper end; NaN if it has no place.
 *
 * These are matplotlib's Normalize, LogNorm and TwoSlopeNorm. */
export function normalized(value: number, scale: ColorScale): number {
  const { type, low, high, center } = scale;
  if (type === "log") return value > 0 ? logShare(value / low, high / low) : Number.NaN;
  if (type === "linear") return high > low ? (value - low) / (high - low) : 0;
  const side = value < center ? center - low : high - center;
  return side > 0 ? 0.5 + (0.5 * (value - center)) / side : value < center ? 0 : 0.5;
}

function logShare(ratio: number, whole: number): number {
  return whole > 1 ? Math.log(ratio) / Math.log(whole) : 0;
}

/** The entry of a table of 256 colours for a place on the scale. */
export function level(place: number): number {
  return Math.min(LEVELS - 1, Math.max(0, Math.floor(place * LEVELS)));
}

/** Cells of one colour each: (C, 4) bytes, with opacity 0 for cells without a number. */
export interface FlatPaint {
  kind: "flat";
  colors: Uint32Array;
  opaque: boolean;
}

/** Numbers at vertices (V), in the form that the shader expects, and the table of colours. */
export interface ShadedPaint {
  kind: "shaded";
  numbers: Float32Array;
  scale: 0 | 1 | 2;
  rate: number;
  table: Uint8Array;
}

export type Paint = FlatPaint | ShadedPaint;

/** What the cells of a mesh are painted with; an Error says what is missing in the message. */
export function paintOf(mesh: Mesh, { header, arrays }: Message<ColoringHeader>): Paint {
  const table = arrays.lut?.data;
  if (header.by === "output") {
    if (!table || !header.scale) throw damaged("it has no table of colours");
    return shaded(mesh, header.output ?? mesh.outputs[0] ?? 0, header.scale, bytes(table));
  }
  const index = header.by === "region" ? mesh.region : mesh.sourceCell;
  const colors = arrays.colors?.data;
  if (colors) return fromColors(mesh, index, bytes(colors));
  const numbers = arrays.numbers?.data;
  if (!numbers || !table || !header.scale) throw damaged("it has neither colours nor numbers");
  return fromNumbers(mesh, index, numbers, header.scale, bytes(table));
}

function damaged(what: string): Error {
  return new Error(`The colours are damaged: ${what}. Choose other colours, or load them again.`);
}

function bytes(data: ArrayLike<number>): Uint8Array {
  return data instanceof Uint8Array ? data : Uint8Array.from(data);
}

type Index = Uint32Array | null;

/** A colour as one number, whose bytes are red, green, blue and opacity. */
function packed(colors: Uint8Array, k: number): number {
  return colors[3 * k]! | (colors[3 * k + 1]! << 8) | (colors[3 * k + 2]! << 16) | (255 << 24);
}

/** The index, which is looked at: regions, cells of the whole mesh, or null for the cells. */
function checked(mesh: Mesh, index: Index, entries: number): Index {
  let most = index ? -1 : mesh.cellCount - 1;
  for (let c = 0; index && c < index.length; c++) if (index[c]! > most) most = index[c]!;
  if (most >= entries) throw damaged(`it has ${entries} colours, and number ${most} is needed`);
  return index;
}

function fromColors(mesh: Mesh, index: Index, colors: Uint8Array): FlatPaint {
  const own = checked(mesh, index, colors.length / 3);
  const result = new Uint32Array(mesh.cellCount);
  for (let c = 0; c < result.length; c++) result[c] = packed(colors, own ? own[c]! : c);
  return { kind: "flat", colors: result, opaque: true };
}

function fromNumbers(
  mesh: Mesh,
  index: Index,
  numbers: ArrayLike<number>,
  scale: ColorScale,
  table: Uint8Array,
): FlatPaint {
  const own = checked(mesh, index, numbers.length);
  const result = new Uint32Array(mesh.cellCount);
  let opaque = true;
  for (let c = 0; c < result.length; c++) {
    const place = normalized(numbers[own ? own[c]! : c]!, scale);
    if (!Number.isNaN(place)) result[c] = packed(table, level(place));
    else opaque = false;
  }
  return { kind: "flat", colors: result, opaque };
}

function shaded(mesh: Mesh, output: number, scale: ColorScale, table: Uint8Array): ShadedPaint {
  const column = mesh.outputs.indexOf(output);
  if (column < 0) throw damaged(`the mesh has no output ${output}`);
  const { low, high, center, type } = scale;
  const above = high - center || center - low || 1;
  const [origin, unit, rate] =
    type === "log"
      ? [0, low, high > low ? 1 / Math.log(high / low) : 0]
      : type === "linear"
        ? [low, high - low || 1, 0]
        : [center, above, center > low ? above / (center - low) : 0];
  const { preciseValues: values } = mesh;
  const count = mesh.outputs.length;
  const numbers = new Float32Array(mesh.vertexCount);
  for (let v = 0; v < numbers.length; v++)
    numbers[v] = (values[v * count + column]! - origin) / unit;
  const kind = type === "log" ? 1 : type === "linear" ? 0 : 2;
  return { kind: "shaded", numbers, scale: kind, rate, table };
}

/** How bright cells are on average, from 0 to 1; tables of colours count as bright. */
export function brightness(paint: Paint): number {
  if (paint.kind === "shaded") return 1;
  const { colors } = paint;
  const step = Math.max(1, Math.floor(colors.length / 4096));
  let [sum, count] = [0, 0];
  for (let c = 0; c < colors.length; c += step) {
    const color = colors[c]!;
    if (!color) continue;
    const green = (color >> 8) & 255;
    sum += 0.299 * (color & 255) + 0.587 * green + 0.114 * ((color >> 16) & 255);
    count++;
  }
  return count ? sum / count / 255 : 1;
}
