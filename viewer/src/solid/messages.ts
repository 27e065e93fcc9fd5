// What the viewer of surfaces asks and what it is answered; `viewer/surfaces.py` answers.
//
// Coordinates in arrays are local: the middle of the box is 0, and its corners are at most 1 away.

import type { Activation } from "../play/network";
import type { LayerHeader } from "../protocol/messages";
import type { Vec3 } from "./vectors";

export type SolidRequest =
  | { ask: "surface"; frame: number }
  /** The answer is a "coloring" by region, where regions are faces. */
  | { ask: "coloring"; frame: number; name: string }
  /** The network, for pages that compute regions by themselves. */
  | { ask: "network"; frame: number }
  /** The regions of a convex polygon of a plane, whose corners are coordinates of the box. */
  | { ask: "section"; frame: number; corners: Vec3[] };

/** The scene. Arrays: corners f4 (K, 3) of the box, edges u4 (E, 2) between them. */
export interface SolidHeader {
  kind: "solid";
  title: string;
  live: boolean;
  /** A label for each surface. */
  frames: string[];
  layers: LayerHeader[];
  colorings: { name: string; label: string }[];
  /** coordinates of the box = center + scale * local. */
  center: Vec3;
  scale: number;
  /** A ball around all surfaces, in local coordinates: its middle and its radius. */
  ball: [number, number, number, number];
  /** The elevation and the azimuth of the eye in degrees, and the axis that points up. */
  view: [number, number];
  up: "x" | "y" | "z";
  /** Whether coordinates are the inputs themselves. */
  plain: boolean;
  state: Record<string, unknown>;
}

/** A surface: polygons, counter-clockwise seen from larger outputs.
 *
 * Arrays: vertices f4 (V, 3); counts u1 or u2 (F) corners of each face; corners u4 (C) their
 * vertices; edgeLayer i2 (C) the layer of the edge after each corner, -1 on a side of the box, -2
 * for an auxiliary edge; gradients f4 (F, 3) and bias f8 (F) of the output on each face, in
 * coordinates of the box; areas f4 (F); region i4 or f8 (F), -1 for a side of the box. */
export interface SurfaceHeader {
  kind: "surface";
  frame: number;
  level: number;
  /** The number of the output, or of two whose difference it is. */
  output: string;
  /** What is known of the whole surface, by name; null: not a number. */
  facts: [string, number | null][];
  unresolved: number;
}

/** Dense layers from coordinates of the box to the output less the level; arrays weight0 f8 (n, m),
 * bias0 f8 (m) and so on. reason: why there are none. */
export interface NetworkHeader {
  kind: "network";
  layers: { inputs: number; units: number; activation: Activation }[];
  reason: string;
}

/** Arrays vertices f4 (V, 3), counts, corners and edgeLayer as of a surface, and values f4 (V) of
 * the output less the level. reason: why there are none, such as "more than 200,000 regions". */
export interface SectionHeader {
  kind: "section";
  frame: number;
  reason: string;
}
