// A mesh drawn by the processor, for a picture that is waited for.
//
// Before a graphics card can draw many cells, the processor sorts them, divides them into triangles
// and joins their edges. It has painted the pixels themselves in half of that time. The graphics card
// draws the later pictures.

import type { Mesh } from "../geometry/mesh";
import { type Paint, placeOf, type Rgb, type ShadedPaint, tableOf } from "./colours";
import { type EdgeLooks, FAINT } from "./edges";
import { type Ramp, Sketchpad } from "./sketchpad";
import { boundaryWidth, edgeLook, RIM } from "./theme";
import type { View } from "./view";

/** How a mesh is sketched. */
export interface SketchLook {
  paper: Rgb;
  ink: Rgb;
  /** Whether edges and the decision boundary are drawn, and the colour of its rim, if any. */
  edges: boolean;
  boundary: boolean;
  rim: Rgb | null;
  hidden: ReadonlySet<number>;
  /** A multiple of the usual width of edges. */
  edgeWidth: number;
  /** The number of layers of the network; 0: as many as the mesh has. */
  layers: number;
}

export interface Sketch {
  /** Bytes of red, green, blue and opacity, row after row from below. */
  pixels: Uint8Array;
  looks: EdgeLooks;
  /** Whether all of the mesh is seen. */
  whole: boolean;
}

/** The picture of a mesh in a view, on a pad of its size. */
export function sketchOf(
  mesh: Mesh,
  paint: Paint,
  view: View,
  look: SketchLook,
  pad = new Sketchpad(view.size),
): Sketch {
  pad.clear(look.paper);
  const { at, whole } = placed(mesh, view);
  const area = paintCells(pad, mesh, paint, at);
  const lengths = lengthsOf(mesh, at, view);
  const looks = looksOf(lengths, area, view.ratio, look.layers);
  if (look.edges) drawEdges(pad, mesh, at, looks, look, view.ratio);
  if (look.boundary) drawBoundary(pad, mesh, at, looks.boundary, look, view.ratio);
  return { pixels: new Uint8Array(pad.pixels.buffer), looks, whole };
}

/** Where vertices are in pixels from the lower left corner: x y of each. */
function placed({ points, center, scale }: Mesh, view: View): { at: Float64Array; whole: boolean } {
  const [width, height] = view.size;
  const [x, y] = view.offset(center);
  const k = scale / view.unit;
  const at = new Float64Array(points.length);
  let whole = true;
  for (let v = 0; v < at.length; v += 2) {
    const px = width / 2 + x + k * points[v]!;
    const py = height / 2 + y + k * points[v + 1]!;
    at[v] = px;
    at[v + 1] = py;
    whole &&= px >= 0 && py >= 0 && px <= width && py <= height;
  }
  return { at, whole };
}

/** Paint the cells; returns how many pixels they have. */
function paintCells(pad: Sketchpad, mesh: Mesh, paint: Paint, at: Float64Array): number {
  const { offsets, edges, corners, cellCount } = mesh;
  const ring = new Uint32Array(corners.length);
  for (let k = 0; k < ring.length; k++) ring[k] = edges[corners[k]!]!;
  const places = paint.kind === "shaded" ? placesOf(paint) : null;
  const ramp =
    paint.kind === "shaded" ? { colors: tableOf(paint), corner: 0, across: 0, up: 0 } : null;
  let painted = 0;
  for (let cell = 0; cell < cellCount; cell++) {
    const begin = offsets[cell]!;
    const end = offsets[cell + 1]!;
    if (ramp && places) aim(ramp, places, at, ring.subarray(begin, end));
    const color = paint.kind === "flat" ? paint.colors[cell]! : 1;
    if (color) painted += pad.polygon(at, ring, begin, end, color, ramp);
  }
  return painted;
}

/** Where the numbers at the vertices are on a scale that is divided into its colours. */
function placesOf({ numbers, scale, rate, table }: ShadedPaint): Float64Array {
  const levels = table.length / 3;
  return Float64Array.from(numbers, (number) => levels * placeOf(number, scale, rate));
}

/** Let a ramp have the places that are given at the corners of a cell, which are affine there. */
function aim(ramp: Ramp, places: Float64Array, at: Float64Array, ring: Uint32Array): void {
  const [first] = ring;
  const [x, y, place] = [at[2 * first!]!, at[2 * first! + 1]!, places[first!]!];
  let widest = 0;
  [ramp.across, ramp.up] = [0, 0];
  for (let k = 2; k < ring.length; k++) {
    const [a, b] = [ring[k - 1]!, ring[k]!];
    const [ax, ay, bx, by] = [
      at[2 * a]! - x,
      at[2 * a + 1]! - y,
      at[2 * b]! - x,
      at[2 * b + 1]! - y,
    ];
    const area = ax * by - bx * ay;
    if (!(area > widest)) continue;
    widest = area;
    const [p, q] = [places[a]! - place, places[b]! - place];
    ramp.across = (p * by - q * ay) / area;
    ramp.up = (q * ax - p * bx) / area;
  }
  ramp.corner = place - ramp.across * x - ramp.up * y;
}

/** The length in pixels that is seen of each layer's edges, and of the boundary at the end. */
function lengthsOf({ edges, edgeLayer, boundary }: Mesh, at: Float64Array, view: View) {
  const [width, height] = view.size;
  const seen = (e: number): number => {
    const a = 2 * edges[2 * e]!;
    const b = 2 * edges[2 * e + 1]!;
    const dx = at[b]! - at[a]!;
    const dy = at[b + 1]! - at[a + 1]!;
    const x = at[a]! + 0.5 * dx;
    const y = at[a + 1]! + 0.5 * dy;
    return x >= 0 && y >= 0 && x <= width && y <= height ? Math.sqrt(dx * dx + dy * dy) : 0;
  };
  let most = -1;
  for (let e = 0; e < edgeLayer.length; e++) if (edgeLayer[e]! > most) most = edgeLayer[e]!;
  const layers = new Float64Array(most + 1);
  for (let e = 0; e < edgeLayer.length; e++) {
    const layer = edgeLayer[e]!;
    if (layer >= 0) layers[layer]! += seen(e);
  }
  let curves = 0;
  for (let k = 0; k < boundary.length; k++) curves += seen(boundary[k]!);
  return { layers, curves };
}

/** How edges look if so many pixels are seen of cells, as `Edges.looks` finds it from tiles. */
function looksOf(
  lengths: ReturnType<typeof lengthsOf>,
  area: number,
  ratio: number,
  layers: number,
): EdgeLooks {
  const spacing = (length: number) => (length > 0 ? area / length / ratio : 1e6);
  let sum = 0;
  const looks = Array.from(lengths.layers, (length, layer) => {
    sum += length;
    return edgeLook(layer, layers || lengths.layers.length, spacing(sum));
  });
  return { layers: looks, boundary: boundaryWidth(spacing(lengths.curves)) };
}

function drawEdges(
  pad: Sketchpad,
  { edges, edgeLayer }: Mesh,
  at: Float64Array,
  { layers }: EdgeLooks,
  { ink, hidden, edgeWidth }: SketchLook,
  ratio: number,
): void {
  const strokes = layers.map(({ width, opacity }, layer) => {
    const drawn = !hidden.has(layer) && width * edgeWidth * opacity * ratio >= FAINT;
    return drawn ? { color: ink, opacity, width: width * edgeWidth * ratio, caps: false } : null;
  });
  let before = -1;
  for (let e = 0; e < edgeLayer.length; e++) {
    const layer = edgeLayer[e]!;
    const stroke = layer >= 0 ? strokes[layer] : null;
    if (!stroke) continue;
    if (layer !== before) pad.setStroke(stroke);
    before = layer;
    const a = 2 * edges[2 * e]!;
    const b = 2 * edges[2 * e + 1]!;
    pad.line(at[a]!, at[a + 1]!, at[b]!, at[b + 1]!);
  }
}

function drawBoundary(
  pad: Sketchpad,
  { edges, boundary }: Mesh,
  at: Float64Array,
  width: number,
  { ink, rim }: SketchLook,
  ratio: number,
): void {
  for (const [color, extra] of [
    [rim, RIM],
    [ink, 0],
  ] as const) {
    if (!color) continue;
    pad.setStroke({ color, opacity: 1, width: (width + extra) * ratio, caps: true });
    for (let k = 0; k < boundary.length; k++) {
      const a = 2 * edges[2 * boundary[k]!]!;
      const b = 2 * edges[2 * boundary[k]! + 1]!;
      pad.line(at[a]!, at[a + 1]!, at[b]!, at[b + 1]!);
    }
  }
}
