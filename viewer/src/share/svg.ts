// What one sees as the text of an SVG file: cells, edges by layer, boundary, lines, points, legend.

import type { Local } from "../draw/clip";
import { brightness, paintOf, type Theme } from "../draw/colours";
import { HATCHING, type Polygons } from "../draw/hatching";
import { type HighlightStyle, outlineOf } from "../draw/highlight";
import { haloOf, type LineStyle } from "../draw/lines";
import {
  BORDER,
  boundaryWidth,
  DARK_PAPER,
  edgeLook,
  INK,
  INK_ON_DARK,
  inkOn,
  PAPER,
  RIM,
  rimOn,
} from "../draw/theme";
import type { Camera } from "../geometry/camera";
import { clippedPolygon, clippedSegment } from "../geometry/clip";
import { chained, segmentsOf } from "../geometry/curves";
import type { Mesh } from "../geometry/mesh";
import type { Picker } from "../geometry/picking";
import { visibleCells } from "../geometry/visible";
import type { LegendContent } from "../panels/legend";
import type { ColoringHeader, Message } from "../protocol/messages";
import type { ViewState } from "../state";
import { type Page, svgCells } from "./svg_cells";
import { svgLegend } from "./svg_legend";
import { coordinate, escaped, hexOf, ringPath, safeColor } from "./svg_text";

/** Cells in view, at most. */
export const MOST_CELLS = 50_000;
const [BEYOND, GAP] = [8, 12]; // pixels: drawn beyond the picture; between pictures

export interface SvgPane {
  camera: Camera;
  mesh: Mesh;
  picker: Picker;
  coloring: Message<ColoringHeader> | null;
  /** The number of layers of the network. */
  layers: number;
  /** Cells that are marked, from below. */
  highlights?: readonly { cells: Uint32Array; style: HighlightStyle }[];
  /** Lines over the cells: level sets, curves of units. */
  lines?: readonly { segments: Local; style: LineStyle }[];
  /** Where no class is certain. */
  band?: Polygons | null;
  /** Data points, u v u v and so on, with the colour of each. */
  points?: { at: ArrayLike<number>; color: (point: number) => string } | null;
}

export interface SvgPicture {
  title: string;
  panes: readonly SvgPane[];
  state: Pick<ViewState, "edges" | "hiddenLayers" | "edgeWidth" | "boundary">;
  theme: Theme;
  legend: LegendContent | null;
}

/** The text of the file; an Error says if there are too many cells in view. */
export function svgOf({ title, panes, state, theme, legend }: SvgPicture): string {
  const height = Math.max(...panes.map(({ camera }) => camera.pixels[1]));
  const width = panes.reduce((sum, { camera }) => sum + camera.pixels[0] + GAP, -GAP);
  const below = svgLegend(legend, width);
  const [paper, ink] = theme === "dark" ? [DARK_PAPER, INK_ON_DARK] : [PAPER, INK];
  const drawn: string[] = [];
  let left = 0;
  panes.forEach((pane, k) => {
    drawn.push(paneOf(pane, state, theme, { name: `p${k}`, left }));
    left += pane.camera.pixels[0] + GAP;
  });
  const size = `width="${coordinate(width)}" height="${coordinate(height + below.height)}"`;
  const box = `viewBox="0 0 ${coordinate(width)} ${coordinate(height + below.height)}"`;
  const font = 'font-family="system-ui, sans-serif" font-size="12"';
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${box}>`,
    `<title>${escaped(title)}</title>`,
    `<defs>${below.definitions}</defs>`,
    `<rect width="100%" height="100%" fill="${hexOf(paper)}"/>`,
    ...drawn,
    `<g transform="translate(0 ${coordinate(height)})" ${font} fill="${hexOf(ink)}">`,
    below.body,
    "</g>",
    "</svg>",
    "",
  ].join("\n");
}

function paneOf(
  pane: SvgPane,
  state: SvgPicture["state"],
  theme: Theme,
  { name, left }: { name: string; left: number },
): string {
  const { camera, mesh, coloring } = pane;
  const { cells, complete } = visibleCells(mesh, pane.picker, camera.window, MOST_CELLS);
  if (!complete) {
    const count = MOST_CELLS.toLocaleString("en");
    throw new Error(`More than ${count} regions are in view. Zoom in, or save a PNG.`);
  }
  const page = pageOf(camera, mesh);
  const paint = coloring && paintOf(mesh, coloring, theme);
  const fills = svgCells(mesh, cells, paint, page, `${name}-`);
  const ink = paint ? inkOn(brightness(paint)) : theme === "dark" ? INK_ON_DARK : INK;
  const lineInk = hexOf(ink);
  const rim = coloring?.header.name !== "class" && paint ? hexOf(rimOn(ink)) : null;
  const [w, h] = camera.pixels.map(coordinate);
  return [
    `<defs><clipPath id="${name}"><rect width="${w}" height="${h}"/></clipPath>`,
    `${fills.definitions}${pane.band ? hatch(`${name}-band`, lineInk) : ""}</defs>`,
    `<g transform="translate(${coordinate(left)} 0)"><g clip-path="url(#${name})">`,
    fills.body,
    ...edgesOf(pane, cells, page, fills.area, { state, ink: lineInk, rim }),
    pane.band ? bandOf(pane.band, pageOf(camera, pane.band), `${name}-band`) : "",
    ...marksOf(pane, page),
    "</g></g>",
  ].join("\n");
}

/** Where things are on the page; in double precision, from the camera's centre. */
function pageOf(camera: Camera, { center, scale }: Pick<Local, "center" | "scale">): Page {
  const { pixels, unitsPerPixel: unit } = camera;
  const [du, dv] = camera.offset(center);
  return {
    x: (local) => pixels[0] / 2 + (du + scale * local) / unit,
    y: (local) => pixels[1] / 2 - (dv + scale * local) / unit,
    box: [-BEYOND, -BEYOND, pixels[0] + BEYOND, pixels[1] + BEYOND],
  };
}

/** The parts of polylines on the page as a path, and their length. */
function linesOf(lines: Iterable<ArrayLike<number>>, { x, y, box }: Page) {
  let [path, length, last] = ["", 0, ""];
  for (const line of lines) {
    for (let k = 0; k + 3 < line.length; k += 2) {
      const [x0, y0] = [x(line[k]!), y(line[k + 1]!)];
      const seen = clippedSegment(x0, y0, x(line[k + 2]!), y(line[k + 3]!), box);
      if (!seen) continue;
      length += Math.hypot(seen[2] - seen[0], seen[3] - seen[1]);
      const [a, b, c, d] = seen.map(coordinate);
      path += k > 0 && last === `${a} ${b}` ? `L${c} ${d}` : `M${a} ${b}L${c} ${d}`;
      last = `${c} ${d}`;
    }
  }
  return { path, length };
}

/** The segments of edges as polylines of two points each. */
function* linesOfEdges(mesh: Mesh, edges: number[]): Generator<ArrayLike<number>> {
  const segments = segmentsOf(mesh, edges);
  for (let k = 0; k < segments.length; k += 4) yield segments.subarray(k, k + 4);
}

function edgesOf(
  { mesh, layers }: SvgPane,
  cells: Uint32Array,
  page: Page,
  area: number,
  { state, ink, rim }: { state: SvgPicture["state"]; ink: string; rim: string | null },
): string[] {
  const byLayer = new Map<number, number[]>();
  const boundary: number[] = [];
  for (const edge of edgesAround(mesh, cells)) {
    const layer = mesh.edgeLayer[edge]!;
    const group = byLayer.get(layer);
    if (group) group.push(edge);
    else byLayer.set(layer, [edge]);
    if (mesh.onBoundary[edge]) boundary.push(edge);
  }
  const spacing = (length: number) => (length > 0 ? area / length : 1e6);
  const parts: string[] = [];
  let sum = 0;
  for (const layer of [...byLayer.keys()].sort((a, b) => a - b)) {
    if (layer === -2) continue;
    const { path, length } = linesOf(linesOfEdges(mesh, byLayer.get(layer)!), page);
    if (layer >= 0) sum += length;
    if (!path) continue;
    const look =
      layer < 0
        ? { width: BORDER, opacity: 1 }
        : edgeLook(layer, Math.max(layers, layer + 1), spacing(sum));
    const hidden = layer >= 0 && (!state.edges || state.hiddenLayers.includes(layer));
    const width = look.width * (layer < 0 ? 1 : state.edgeWidth);
    if (hidden || width * look.opacity < 0.005) continue;
    parts.push(strokeOf(path, { color: ink, width, opacity: look.opacity }, "butt"));
  }
  if (state.boundary && boundary.length) {
    const { path, length } = linesOf(chained(segmentsOf(mesh, boundary)), page);
    const width = boundaryWidth(spacing(length));
    if (rim && path) parts.push(strokeOf(path, { color: rim, width: width + RIM }));
    if (path) parts.push(strokeOf(path, { color: ink, width }));
  }
  return parts;
}

function edgesAround(mesh: Mesh, cells: Uint32Array): Set<number> {
  const edges = new Set<number>();
  for (const cell of cells) {
    for (let k = mesh.offsets[cell]!; k < mesh.offsets[cell + 1]!; k++) {
      edges.add(mesh.corners[k]! >> 1);
    }
  }
  return edges;
}

function strokeOf(path: string, { color, width, opacity, dash }: LineStyle, cap = "round"): string {
  const attributes = [
    `stroke="${safeColor(color)}" stroke-width="${Number(width.toFixed(3))}"`,
    `stroke-linecap="${dash ? "butt" : cap}" stroke-linejoin="round"`,
    opacity !== undefined && opacity < 1 ? `stroke-opacity="${Number(opacity.toFixed(3))}"` : "",
    dash ? `stroke-dasharray="${dash[0]} ${dash[1] - dash[0]}"` : "",
  ];
  return `<path fill="none" ${attributes.filter(Boolean).join(" ")} d="${path}"/>`;
}

/** A pattern of lines on a veil. */
function hatch(name: string, ink: string): string {
  const { veil, lines, width, period } = HATCHING;
  const size = `width="${period}" height="${period}" patternUnits="userSpaceOnUse"`;
  return [
    `<pattern id="${name}" ${size} patternTransform="rotate(45)">`,
    `<rect width="${period}" height="${period}" fill="${ink}" fill-opacity="${veil}"/>`,
    `<rect width="${width}" height="${period}" fill="${ink}" fill-opacity="${lines}"/>`,
    "</pattern>",
  ].join("");
}

function bandOf({ data, counts }: Polygons, { x, y, box }: Page, fill: string): string {
  let path = "";
  for (let p = 0, begin = 0; p < counts.length; p++) {
    const ring = data.subarray(begin, begin + 2 * counts[p]!);
    path += ringPath(
      clippedPolygon(
        ring.map((z, k) => (k & 1 ? y(z) : x(z))),
        box,
      ),
    );
    begin += ring.length;
  }
  return `<path fill="url(#${fill})" d="${path}"/>`;
}

function marksOf(pane: SvgPane, page: Page): string[] {
  const { mesh, camera, highlights = [], lines = [], points = null } = pane;
  const parts: string[] = [];
  const outlines = highlights.flatMap(({ cells, style }) =>
    style.outline ? [{ segments: outlineOf(mesh, cells), style: style.outline }] : [],
  );
  for (const { cells, style } of highlights) {
    const paths = Array.from(cells, (cell) => {
      const ring = mesh.localPolygon(cell).map((x, k) => (k & 1 ? page.y(x) : page.x(x)));
      return ringPath(clippedPolygon(ring, page.box));
    });
    const path = paths.join("");
    const opacity = `fill-opacity="${style.opacity}"`;
    if (path) parts.push(`<path fill="${safeColor(style.color)}" ${opacity} d="${path}"/>`);
  }
  for (const { segments, style } of [...lines, ...outlines]) {
    const { path } = linesOf(chained(segments.data), pageOf(camera, segments));
    if (!path) continue;
    const halo = haloOf(style);
    if (halo) parts.push(strokeOf(path, halo));
    parts.push(strokeOf(path, style));
  }
  if (points) parts.push(...circles(points, camera, page));
  return parts;
}

function circles(
  { at, color }: NonNullable<SvgPane["points"]>,
  camera: Camera,
  { box }: Page,
): string[] {
  const parts: string[] = [];
  for (let k = 0; 2 * k < at.length; k++) {
    const [x, y] = camera.toScreen([at[2 * k]!, at[2 * k + 1]!]);
    if (!(x > box[0] && x < box[2] && y > box[1] && y < box[3])) continue;
    const place = `cx="${coordinate(x)}" cy="${coordinate(y)}" r="3"`;
    parts.push(`<circle ${place} fill="${safeColor(color(k))}" stroke="#ffffff"/>`);
  }
  return parts;
}
