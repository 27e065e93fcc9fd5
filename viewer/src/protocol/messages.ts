// What the viewer asks and what it is answered. `README.md` beside this folder describes the bytes.
//
// Python answers in `src/splinecam/viewer/`; a file on disk holds the answers to the requests that
// need no computation. Arrays travel beside these headers, under the names in the comments.

import type {
  NetworkHeader,
  SectionHeader,
  SolidHeader,
  SolidRequest,
  SurfaceHeader,
} from "../solid/messages";

export type Pair = [number, number];
/** Opposite corners of a rectangle in plane coordinates: u0, v0, u1, v1. */
export type Box = [number, number, number, number];

export type Request =
  | { ask: "scene" }
  | { ask: "mesh"; pane: number; frame: number }
  /** The exact partition of a window of the plane; pixels: the width of the picture on screen. */
  | { ask: "window"; pane: number; frame: number; window: Box; pixels: number }
  | { ask: "coloring"; mesh: string; name: string; output: number | null }
  /** Where no class is certain; level: that of a single output, null for that of the scene. */
  | { ask: "band"; pane: number; mesh: string; level: number | null }
  /** The derivative of an output (null: the winning one) in input space, on a region. */
  | { ask: "gradient"; mesh: string; region: number; output: number | null }
  | PlaneRequest
  | SelectRequest
  | SolidRequest
  /** Tell Python how the view is: the whole state, some time after it changed; the answer is "ok". */
  | { ask: "state"; state: Record<string, unknown> };

/** Move the plane of a pane; the answer is a "plane", after which its meshes are asked for anew. */
export interface PlaneRequest {
  ask: "plane";
  pane: number;
  /** The three anchors: plane coordinates of the present plane, or the number of a data point. */
  anchors?: (Pair | number)[];
  /** Angles in radians by which the plane is turned towards each of the pane's directions. */
  turn?: number[];
  /** Lengths by which the plane is shifted along each of the pane's directions. */
  shift?: number[];
  /** Go back to the plane as it was at first. */
  reset?: true;
}

/** Tell Python what is selected; the answer is "ok". */
export interface SelectRequest {
  ask: "select";
  pane: number;
  frame: number;
  mesh: string;
  region: number | null;
  compared: number | null;
  /** The mesh of the compared region, where it is another one (another pane or frame). */
  comparedMesh?: string;
  /** The place that was clicked. */
  at: Pair | null;
  /** The layer and the unit of the edge that was clicked. */
  unit: [number, number] | null;
}

export interface SceneHeader {
  kind: "scene";
  title: string;
  /** Whether Python answers while one looks; of what it can compute, each pane tells. */
  live: boolean;
  panes: PaneHeader[];
  /** The initial state, as far as it was given. */
  state: Record<string, unknown>;
  /** A line of Python that names what is shown, for "copy Python". */
  python: string;
}

/** Arrays, with the prefix "0/" for pane 0: origin (D), basis (2, D), f8 or f4; see the comments. */
export interface PaneHeader {
  title: string;
  /** A label for each frame (epoch, checkpoint); at least one. */
  frames: string[];
  /** Whether frames may be added while one looks. */
  grows: boolean;
  /** Whether Python has the network: windows, planes, gradients. */
  live: boolean;
  domain: DomainHeader;
  layers: LayerHeader[];
  /** The number of outputs of the network, and the names of the first 1,000; `MeshHeader.outputNames`
   * has those of the outputs that a mesh holds. */
  outputCount: number;
  outputs: string[];
  /** The classes with their colours as in the static pictures; null where there are none. */
  classes: { name: string; color: string }[] | null;
  colorings: ColoringChoice[];
  /** Data points: arrays points f8 (N, 2), number u4 (N) (as they were given to Python, by which
   * an anchor is put on one), off u1 (N) (1: off the plane, drawn hollow), where given
   * label i2 or i4 (N) (-1: none, grey), and thumbnails u1 (n, h, w, 4) of the first n <= 64 points,
   * of size thumbnail = [h, w]. labels and colors: the name and the colour of each label. */
  points: {
    count: number;
    thumbnail: Pair | null;
    labels: string[];
    colors?: string[];
  } | null;
  /** The anchors of the plane, in plane coordinates; array anchors u1 (3, h, w, 4) if images. */
  anchors: { at: Pair[]; thumbnail: Pair | null } | null;
  /** Directions in which the plane can be turned and shifted. */
  directions: { name: string; turn: boolean; reach: number }[];
  /** The window that is shown first if the partition of the domain is too large, else null. */
  start: Box | null;
  /** Sentences to show, such as how many data points are left out. */
  notes?: string[];
}

export interface DomainHeader {
  corners: Pair[];
  inputShape: number[];
  /** How an input is an image, or null: it is drawn from origin and basis. */
  image: { height: number; width: number; channels: number; low: number; high: number } | null;
  /** The names of the plane's axes, such as x₁ and x₂. */
  axes: [string, string];
}

export interface LayerHeader {
  name: string;
  units: number;
}

export interface ColoringChoice {
  /** The name to ask by, such as "class" or the name of a column of the table. */
  name: string;
  label: string;
  /** Whether it depends on a chosen output. */
  byOutput: boolean;
}

/** The partition: a subdivision into convex regions. The viewer cuts it along the decision boundary.
 *
 * Arrays: points f8 or f4 (V, 2) local coordinates, plane = center + scale * local;
 * edges u4 (E, 2) end vertices; corners u4 (H) half-edges around each region, counter-clockwise,
 * region after region: half-edge h belongs to edge h >> 1 and starts at its end h & 1; counts u1 or
 * u2 (F) corners of each region; edgeLayer i2 (E) the layer that drew an edge, -1 on the border of
 * the domain; edgeUnit i4 (E) its unit, -1 as above; values f8 or f4 (V, K) the outputs at the
 * vertices, K = outputs.length; gradients i1 (F, D) and gradientScale f4 (F) of the output
 * that wins in the middle of each region, gradientOutput u4 (F), in files only; regionBounds f4 (F, K)
 * how far the outputs of a model with smooth functions are from those of each region, at most;
 * complete u1 (F) 0 for regions that are settled: they are not divided, and have no affine map.
 * Their values have the same answer to what was asked as the outputs. None if all are complete. */
export interface MeshHeader {
  kind: "mesh";
  id: string;
  pane: number;
  frame: number;
  center: Pair;
  scale: number;
  /** The rectangle that was asked for, null for the whole domain. */
  window: Box | null;
  regionCount: number;
  /** Which outputs `values` holds (of very many those that win somewhere or come close), by name. */
  outputs: number[];
  outputNames?: string[];
  /** The rounding error of each of them, of which smaller differences are ties. */
  errors?: number[];
  /** Smallest and largest value of each of them. */
  ranges: Pair[];
  unresolved: number;
  /** How near a model with smooth functions is: "within 0.01 of the model"; none if it is exact. */
  within?: string;
  /** What is known of settled regions, in a sentence; and the level above which a single output has
   * class 1, as classes at other levels are not known. None if all regions are complete. */
  settled?: string;
  level?: number;
}

/** Convex polygons on which no class is certain. Arrays: points f8 (N, 2) in local coordinates,
 * polygon after polygon, counter-clockwise; counts u2 (P) the corners of each. */
export interface BandHeader {
  kind: "band";
  mesh: string;
  center: Pair;
  scale: number;
  /** The share of the domain that they cover, from 0 to 1. */
  share: number;
}

/** Colours of a mesh. By region: arrays colors u1 (F, 3), or numbers f4 (F) and lut u1 (256, 3). By
 * output: lut; the numbers are the values of an output, linear on every region. By class: no array;
 * the colours follow from the classes and their leads. A number that is NaN has no colour.
 * Where edges u4 (n) is given, only these edges of the mesh are drawn (before it is cut). */
export interface ColoringHeader {
  kind: "coloring";
  mesh: string;
  name: string;
  label: string;
  by: "class" | "region" | "output";
  output: number | null;
  /** The lead at which a class has half of its colour. */
  typical?: number;
  /** The colours of all classes, which the viewer adds: red, green and blue from 0 to 255. */
  palette?: number[][] | undefined;
  scale: ColorScale | null;
  legend: { name: string; color: string }[];
}

export interface ColorScale {
  type: "linear" | "log" | "centered";
  low: number;
  /** The number at the middle colour, for "centered". */
  center: number;
  high: number;
  extend: "neither" | "min" | "max" | "both";
}

/** Where too many regions are in a window, or in the whole domain: pixels of the model's decision.
 * Array pixels u1 (h, w, 3), or (h, w, 4) where a part is outside of the domain; the first row is at
 * v0. */
export interface RasterHeader {
  kind: "raster";
  pane: number;
  frame: number;
  window: Box;
  /** Why: such as "more than 200,000 regions". */
  reason: string;
  /** The colours of all classes, which the viewer adds. */
  palette?: number[][] | undefined;
}

/** Array gradient f4 (D). */
export interface GradientHeader {
  kind: "gradient";
  mesh: string;
  region: number;
  output: number;
}

/** Arrays as of a pane, with the prefix "0/". */
export interface PlaneHeader {
  kind: "plane";
  pane: number;
  header: PaneHeader;
}

export interface OkHeader {
  kind: "ok";
}

/** A newer request of the same kind for the same pane came before this one was begun: a "mesh", a
 * "window" or a "plane". Nothing is wrong, and nothing is to be shown. */
export interface DroppedHeader {
  kind: "dropped";
}

export interface ErrorHeader {
  kind: "error";
  message: string;
}

/** Sent without having been asked: frames were added, or Python sets the state. */
export type Notice =
  | { kind: "frames"; pane: number; frames: string[] }
  | { kind: "state"; state: Record<string, unknown> };

export type Header =
  | SceneHeader
  | MeshHeader
  | ColoringHeader
  | RasterHeader
  | GradientHeader
  | BandHeader
  | PlaneHeader
  | SolidHeader
  | SurfaceHeader
  | NetworkHeader
  | SectionHeader
  | OkHeader
  | DroppedHeader
  | ErrorHeader
  | Notice;

export type NumberArray =
  | Float64Array
  | Float32Array
  | Uint32Array
  | Int32Array
  | Uint16Array
  | Int16Array
  | Uint8Array
  | Int8Array;

/** A message: its header and its arrays. */
export interface Message<H extends Header = Header> {
  header: H;
  arrays: Record<string, { data: NumberArray; shape: number[] }>;
}

/** Where answers come from: Python through a socket or a notebook, or this very file. */
export interface Source {
  /** The answer; an error message of the other side becomes an Error. */
  ask(request: Request): Promise<Message>;
  /** Call back for each notice. */
  listen(callback: (notice: Message<Notice>) => void): void;
  /** Call back with a sentence when answers stop coming, and with null when they come again. */
  onInterruption(callback: (sentence: string | null) => void): void;
  close(): void;
}
