// Colours of cells: numbers to colours as matplotlib does it, and what the graphics card is given.

import type { Mesh } from "../geometry/mesh";
import type { ColoringHeader, ColorScale, Message, PaneHeader } from "../protocol/messages";

export type Rgb = readonly [number, number, number];

export type Theme = "light" | "dark";

const LEVELS = 256;
/** What white and black become in the dark scheme, so low that light lines are seen on both. */
const [FROM_WHITE, FROM_BLACK] = [24, 205];
/** The share of its colour that a class keeps there, for the same reason. */
const KEPT = 0.75;
const DARKEST = 85; // how bright a class is at least, from 0 to 255

/** The colours of classes: red, green and blue, from 0 to 255. */
export type Palette = readonly (readonly number[])[];

/** The colours of the classes of a pane. */
export function paletteOf({ classes }: Pick<PaneHeader, "classes">): number[][] | undefined {
  return classes?.map(({ color }) => rgb(color).map((part) => 255 * part));
}

/** How colours lie in bytes, and what they are shades of. */
interface Shades {
  palette?: Palette | undefined;
  winner?: ArrayLike<number> | null;
  step?: number;
}

/** Colours in a scheme: red, green and blue bytes, with opacities between them if step is 4.
 *
 * In the dark one, lightness is turned around while hue and colourfulness stay: what is pale on white
 * is dark, and what is far along a scale is bright. Classes are known by their colours: these stay,
 * and fade into the dark as they fade into white. palette: those of classes, if colours are such;
 * winner: the class of a colour, by default the one whose colour it can be. */
export function inTheme(
  colors: Uint8Array,
  theme: Theme,
  { palette, winner, step = 3 }: Shades = {},
): Uint8Array {
  if (theme === "light") return colors;
  const result = Uint8Array.from(colors);
  const classes = palette?.map(fading);
  const rate = (FROM_BLACK - FROM_WHITE) / 255;
  for (let k = 0, at = 0; at + 2 < colors.length; k++, at += step) {
    const r = colors[at]!;
    const g = colors[at + 1]!;
    const b = colors[at + 2]!;
    if (classes) {
      const number = winner ? winner[k]! % classes.length : paledFrom(classes, r, g, b);
      const { span, ink } = classes[number]!;
      const share =
        KEPT * Math.min(1, (765 - r - g - b) / Math.max(1, ink[0]! + ink[1]! + ink[2]!));
      for (let j = 0; j < 3; j++) result[at + j] = FROM_WHITE + share * span[j]! + 0.5;
    } else {
      const shift = 255 - Math.max(r, g, b) - Math.min(r, g, b);
      result[at] = FROM_WHITE + rate * (r + shift) + 0.5;
      result[at + 1] = FROM_WHITE + rate * (g + shift) + 0.5;
      result[at + 2] = FROM_WHITE + rate * (b + shift) + 0.5;
    }
  }
  return result;
}

/** How the colour of a class fades: what it takes away from white, and what it adds to the dark. */
interface Fading {
  ink: number[];
  /** The length of `ink`. */
  length: number;
  span: number[];
}

function fading(own: readonly number[]): Fading {
  const lift = Math.max(0, DARKEST - 255 * luma(own[0]!, own[1]!, own[2]!));
  const ink = own.map((part) => 255 - part);
  return {
    ink,
    length: Math.hypot(...ink) || 1,
    span: own.map((part) => part + lift - FROM_WHITE),
  };
}

/** The class that a colour is a paler shade of: both take the same from white. */
function paledFrom(classes: readonly Fading[], r: number, g: number, b: number): number {
  let best = 0;
  let nearest = -1;
  for (let k = 0; k < classes.length; k++) {
    const { ink, length } = classes[k]!;
    const along = ((255 - r) * ink[0]! + (255 - g) * ink[1]! + (255 - b) * ink[2]!) / length;
    if (along <= nearest) continue;
    best = k;
    nearest = along;
  }
  return best;
}

/** A colour such as "#16202c" in a scheme. */
export function hexInTheme(color: string, theme: Theme, palette?: Palette): string {
  if (theme === "light") return color;
  const bytes = Uint8Array.from(rgb(color), (part) => 255 * part + 0.5);
  const dark = inTheme(bytes, theme, { palette });
  return `#${[...dark].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

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
export function paintOf(
  mesh: Mesh,
  { header, arrays }: Message<ColoringHeader>,
  theme: Theme = "light",
): Paint {
  const table = arrays.lut && inTheme(bytes(arrays.lut.data), theme);
  if (header.by === "output") {
    if (!table || !header.scale) throw damaged("it has no table of colours");
    return shaded(mesh, header.output ?? mesh.outputs[0] ?? 0, header.scale, table);
  }
  const index = header.by === "region" ? mesh.region : mesh.sourceCell;
  const colors = arrays.colors?.data;
  if (colors) {
    const paint = fromColors(mesh, index, bytes(colors));
    const own = { palette: header.palette, winner: mesh.cellClass, step: 4 };
    const shown = inTheme(new Uint8Array(paint.colors.buffer), theme, own);
    return { ...paint, colors: new Uint32Array(shown.buffer) };
  }
  const numbers = arrays.numbers?.data;
  if (!numbers || !table || !header.scale) throw damaged("it has neither colours nor numbers");
  return fromNumbers(mesh, index, numbers, header.scale, table);
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

/** The same with one colour for each cell: that of the number in its middle. */
export function flatOf({ cellCount, offsets, edges, corners }: Mesh, paint: Paint): FlatPaint {
  if (paint.kind === "flat") return paint;
  const { numbers, table, scale, rate } = paint;
  const colors = new Uint32Array(cellCount);
  for (let c = 0; c < cellCount; c++) {
    let sum = 0;
    for (let k = offsets[c]!; k < offsets[c + 1]!; k++) sum += numbers[edges[corners[k]!]!]!;
    const place = placeOf(sum / (offsets[c + 1]! - offsets[c]!), scale, rate);
    if (!Number.isNaN(place)) colors[c] = packed(table, level(place));
  }
  return { kind: "flat", colors, opaque: false };
}

/** Where a number of a shaded paint is on its scale, as the graphics card finds it. */
export function placeOf(number: number, scale: ShadedPaint["scale"], rate: number): number {
  if (scale === 1) return number > 0 ? Math.log(number) * rate : Number.NaN;
  return scale === 2 ? 0.5 + 0.5 * number * (number < 0 ? rate : 1) : number;
}

/** The colours of a table, each as one number. */
export function tableOf({ table }: ShadedPaint): Uint32Array {
  return Uint32Array.from({ length: LEVELS }, (_, k) => packed(table, k));
}

/** Whether the colours of a paint change evenly on every cell. */
export function isEven(paint: Paint): boolean {
  return paint.kind === "flat" || paint.scale === 0 || (paint.scale === 2 && paint.rate === 1);
}

/** How bright cells are on average, from 0 to 1. */
export function brightness(paint: Paint): number {
  const colors = paint.kind === "flat" ? paint.colors : tableOf(paint);
  const step = Math.max(1, Math.floor(colors.length / 4096));
  let [sum, count] = [0, 0];
  for (let c = 0; c < colors.length; c += step) {
    const color = colors[c]!;
    if (!color) continue;
    sum += luma(color & 255, (color >> 8) & 255, (color >> 16) & 255);
    count++;
  }
  return count ? sum / count : 1;
}

/** How bright a colour of bytes is, from 0 to 1. */
function luma(r: number, g: number, b: number): number {
  return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
}
