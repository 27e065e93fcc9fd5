// The colours of regions, as the viewer takes them.

import { rgb } from "../draw/colours";
import { classColors } from "../geometry/class_colors";
import type { Mesh } from "../geometry/mesh";
import type { ColoringHeader, Message } from "../protocol/messages";
import { CHOICES } from "./experiment";

/** The colours of classes, as in plot/palette.py. */
export const CLASSES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
export const PALETTE = CLASSES.map((color) => rgb(color).map((x) => 255 * x));
const SEQUENTIAL = table(["#f4f7fa", "#b9d5e8", "#6aa9d1", "#2173ad", "#08306b"]);
const CODES = table(
  ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#0072B2"].map(
    (color) => `#${[1, 3, 5].map((k) => paled(color.slice(k, k + 2))).join("")}`,
  ),
);
export const DIVERGING = table(["#0072B2", "#8fc0e0", "#ffffff", "#f0b48a", "#D55E00"]);

/** Half-way to white, so that lines are seen on it. */
function paled(part: string): string {
  return Math.round(127 + Number.parseInt(part, 16) / 2)
    .toString(16)
    .padStart(2, "0");
}

/** Colours between some, as 256 of three bytes. */
function table(colors: readonly string[]): Uint8Array {
  const stops = colors.map(rgb);
  const lut = new Uint8Array(768);
  for (let k = 0; k < 256; k++) {
    const at = (k / 255) * (stops.length - 1);
    const first = Math.min(stops.length - 2, Math.floor(at));
    for (let j = 0; j < 3; j++) {
      const [a, b] = [stops[first]![j]!, stops[first + 1]![j]!];
      lut[3 * k + j] = Math.round(255 * (a + (at - first) * (b - a)));
    }
  }
  return lut;
}

/** The colours of a mesh; numbers: of its regions, by colour; lead: of the largest output in each
 * cell; classes: whether its outputs tell classes apart. */
export function coloringOf(
  mesh: Mesh,
  numbers: Record<string, Float32Array>,
  lead: Float64Array,
  { classes, color }: { classes: boolean; color: string },
): Message<ColoringHeader> {
  const common = { kind: "coloring" as const, mesh: mesh.id, output: null, legend: [] };
  if (color === "output" || (color === "class" && !classes)) {
    const [low, high] = mesh.header.ranges[0]!;
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const scale = { type: "centered", low: -most, center: 0, high: most } as const;
    const header = { ...common, name: "output", label: "Output", by: "output" as const, output: 0 };
    const lut = { data: DIVERGING.slice(), shape: [256, 3] };
    return { header: { ...header, scale: { ...scale, extend: "neither" } }, arrays: { lut } };
  }
  if (color === "class") {
    const typical = typicalLead(mesh);
    const data = classColors(mesh, PALETTE, typical, lead);
    const header = { ...common, name: "class", label: "Class", by: "class" as const };
    const arrays = { colors: { data, shape: [mesh.cellCount, 3] } };
    return { header: { ...header, scale: null, palette: PALETTE, typical }, arrays };
  }
  const data = numbers[color]!;
  let [low, high] = [Infinity, -Infinity];
  for (let k = 0; k < data.length; k++) {
    const x = data[k]!;
    if (x > 0 || color === "active" || color === "layer") low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (!(low < high)) low = high / 2;
  if (color === "code") [low, high] = [0, 1];
  const logarithmic = color === "slope" || color === "area";
  if (logarithmic) {
    low = Math.max(low, 1e-4 * high);
    for (let k = 0; k < data.length; k++) data[k] = Math.max(data[k]!, low);
  }
  const type = logarithmic ? ("log" as const) : ("linear" as const);
  const scale = { type, low, center: low, high, extend: "neither" as const };
  const label = CHOICES.color.find(([name]) => name === color)?.[1] ?? color;
  const header = { ...common, name: color, label, by: "region" as const, scale };
  const lut = { data: (color === "code" ? CODES : SEQUENTIAL).slice(), shape: [256, 3] };
  return { header, arrays: { numbers: { data, shape: [data.length] }, lut } };
}

/** The lead at which a class has half of its colour: the middle one of those at vertices. */
function typicalLead(mesh: Mesh): number {
  const { preciseValues: values, vertexCount } = mesh;
  const count = mesh.outputs.length;
  const step = Math.max(1, Math.floor(vertexCount / 500));
  const leads = new Float64Array(Math.ceil(vertexCount / step));
  for (let v = 0, at = 0; v < vertexCount; v += step) {
    let [first, second] = [Number.NEGATIVE_INFINITY, count === 1 ? 0 : Number.NEGATIVE_INFINITY];
    for (let k = v * count; k < (v + 1) * count; k++) {
      const value = values[k]!;
      if (value > first) {
        if (count > 1) second = first;
        first = value;
      } else if (value > second) second = value;
    }
    leads[at++] = Math.abs(first - second);
  }
  return leads.sort()[leads.length >> 1] ?? 1;
}
