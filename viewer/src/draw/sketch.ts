// A mesh drawn by the processor, for a picture that is waited for.
//
// Before a graphics card can draw many cells, the processor sorts them, divides them into triangles
// and joins their edges. It has painted the pixels themselves in half of that time. The graphics card
// draws the later pictures.

import type { Mesh } from "../geometry/mesh";
import type { FlatPaint, Rgb } from "./colours";
import { type EdgeLooks, FAINT } from "./edges";
import { Sketchpad } from "./sketchpad";
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

/** The picture of a mesh in a view. */
export function sketchOf(mesh: Mesh, paint: FlatPaint, view: View, look: SketchLook): Sketch {
  const pad = new Sketchpad(view.size);
  pad.clear(look.paper);
  const { at, whole } = placed(mesh, view);
  const area = paintCells(pad, mesh, paint.colors, at);
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
function paintCells(pad: Sketchpad, mesh: Mesh, colors: Uint32Array, at: Float64Array): number {
  const { offsets, edges, corners, cellCount } = mesh;
  const ring = new Uint32Array(corners.length);
  for (let k = 0; k < ring.length; k++) ring[k] = edges[corners[k]!]!;
  let painted = 0;
  for (let cell = 0; cell < cellCount; cell++) {
    const color = colors[cell]!;
    if (color) painted += pad.polygon(at, ring, offsets[cell]!, offsets[cell + 1]!, color);
  }
  return painted;
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
