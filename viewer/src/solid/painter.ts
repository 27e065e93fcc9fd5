// Draws polygons in space, on a canvas.

import { type Rgb, rgb, type Theme } from "../draw/colours";
import { attribute, type GL, Program, textureOf } from "../draw/programs";
import { edgeLook } from "../draw/theme";
import type { Eye } from "./eye";
import type { Half, Polygons } from "./polygons";
import { FACETS, WIRE } from "./shaders";

/** From the first layer to the last, on light and on dark faces. */
const LAYERS = {
  light: ["#1d1a5c", "#5a1d8c", "#a3296f", "#d5523f", "#e8912d"],
  dark: ["#0d1030", "#2b1557", "#6b1d5e", "#a8323f", "#d9772b"],
};
const LOOKS = {
  light: {
    plain: "#bccbdc",
    back: "#d9b79b",
    wire: [0.09, 0.13, 0.17, 0.2],
    below: "#2f7fb8",
    above: "#d9944f",
    paper: "#ffffff",
    level: "#16202c",
    picked: "#ffd60a",
  },
  dark: {
    plain: "#93a7bd",
    back: "#8f6f57",
    wire: [0.9, 0.92, 0.95, 0.2],
    below: "#3d97d6",
    above: "#c9772f",
    paper: "#161c24",
    level: "#ffffff",
    picked: "#ffd60a",
  },
} as const;

/** The colour of the faces where there is no other. */
export function plainColor(theme: Theme): Rgb {
  return rgb(LOOKS[theme].plain);
}

/** The colour of the lines of a layer. */
export function layerColor(layer: number, layers: number, theme: Theme): Rgb {
  const stops = LAYERS[theme];
  const at = (Math.max(0, layer) / Math.max(1, layers - 1)) * (stops.length - 1);
  const k = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [rgb(stops[k]!), rgb(stops[k + 1]!)];
  return [0, 1, 2].map((j) => a[j]! + (at - k) * (b[j]! - a[j]!)) as unknown as Rgb;
}

/** Polygons on the graphics card. */
export class Sent {
  readonly range: readonly [number, number];
  readonly indices: number;
  readonly shape: WebGLVertexArrayObject;
  readonly lines: WebGLTexture;
  private readonly buffers: WebGLBuffer[];
  private readonly colors: WebGLBuffer;
  private readonly spacing: { area: number; upTo: number[] };

  /** values: at the vertices, of a plane; null: of a surface. */
  constructor(
    readonly gl: GL,
    readonly polygons: Polygons,
    readonly layers: number,
    readonly values: Float32Array | null,
  ) {
    const { place, kind, size, index, owner } = verticesOf(polygons, values);
    this.indices = index.length;
    this.range = extremes(values ?? [0]);
    const lengths = polygons.lengths(layers);
    let sum = 0;
    const upTo = Array.from(lengths.lengths, (each) => {
      sum += each;
      return sum;
    });
    this.spacing = { area: lengths.area, upTo };
    this.shape = gl.createVertexArray();
    gl.bindVertexArray(this.shape);
    this.colors = attribute(gl, 3, [3, gl.UNSIGNED_BYTE, true], new Uint8Array(3 * owner.length));
    const numbers = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, numbers);
    gl.bufferData(gl.ARRAY_BUFFER, owner, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(4);
    gl.vertexAttribIPointer(4, 1, gl.UNSIGNED_INT, 0, 0);
    const order = gl.createBuffer();
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, order);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, index, gl.STATIC_DRAW);
    this.buffers = [
      attribute(gl, 0, [4, gl.FLOAT, false], place),
      attribute(gl, 1, [2, gl.UNSIGNED_BYTE, false], kind),
      attribute(gl, 2, [1, gl.FLOAT, false], size),
      this.colors,
      numbers,
      order,
    ];
    gl.bindVertexArray(null);
    this.lines = textureOf(gl, [layers + 2, 2], gl.RGBA32F, gl.NEAREST);
  }

  /** Colour the faces: red, green and blue bytes of each, or one colour. */
  paint(colors: ArrayLike<number> | Rgb): void {
    const { gl, polygons } = this;
    const { count, face } = polygons;
    const bytes = new Uint8Array(3 * (count + face.length));
    const one = colors.length === 3 && count !== 1;
    for (let at = 0; at < count + face.length; at++) {
      const k = at < count ? at : face[at - count]!;
      for (let j = 0; j < 3; j++) bytes[3 * at + j] = one ? 255 * colors[j]! : colors[3 * k + j]!;
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colors);
    gl.bufferSubData(gl.ARRAY_BUFFER, 0, bytes);
  }

  /** Choose the look of the lines; unit: the pixels of a length of 1 in the middle. */
  rule(look: Look, unit: number): void {
    const { gl, layers, spacing } = this;
    const numbers = new Float32Array(8 * (layers + 2));
    const second = 4 * (layers + 2);
    for (let layer = -1; layer < layers; layer++) {
      const at = 4 * (layer + 2);
      const border = layer < 0;
      const far = border ? 1e3 : (unit * spacing.area) / Math.max(spacing.upTo[layer]!, 1e-12);
      const line = border
        ? { width: 2.4, opacity: 0.8 }
        : edgeLook(layer, layers, Math.max(far, 6));
      const shown = look.edges && !look.hidden.has(layer);
      const color = border ? rgb(LOOKS[look.theme].level) : layerColor(layer, layers, look.theme);
      const opacity = Math.min(1, 1.45 * line.opacity) * Math.min(1, 0.3 + far / 12);
      numbers.set([...color, shown ? opacity : 0], at);
      const late = border ? 0 : layer / Math.max(1, layers - 1);
      const width = (1.15 * line.width * look.pixelRatio * look.edgeWidth) / 2;
      numbers.set([width, border ? 0 : 0.35 + 0.65 * late, 0, 0], second + at);
    }
    gl.bindTexture(gl.TEXTURE_2D, this.lines);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, layers + 2, 2, gl.RGBA, gl.FLOAT, numbers);
  }

  dispose(): void {
    for (const each of this.buffers) this.gl.deleteBuffer(each);
    this.gl.deleteTexture(this.lines);
    this.gl.deleteVertexArray(this.shape);
  }
}

export interface Look {
  theme: Theme;
  edges: boolean;
  hidden: ReadonlySet<number>;
  edgeWidth: number;
  pixelRatio: number;
}

/** What a picture shows. */
export interface Shown {
  eye: Eye;
  look: Look;
  surface: Sent | null;
  plane: Sent | null;
  /** What is kept of the surface. */
  cut: Half | null;
  /** The face of the surface or of the plane that is pointed at, -1 for none. */
  picked: { surface: number; plane: number };
}

export class Painter {
  private readonly gl: GL;
  private readonly facets: Program;
  private readonly wire: Program;
  private readonly lines: WebGLVertexArrayObject;
  private lineEnds = 0;

  constructor(readonly canvas: HTMLCanvasElement) {
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: true });
    if (!gl) throw new Error("This browser has no WebGL2, with which the surface is drawn.");
    this.gl = gl;
    this.facets = new Program(gl, FACETS);
    this.wire = new Program(gl, WIRE);
    this.lines = gl.createVertexArray();
    gl.enable(gl.DEPTH_TEST);
    gl.frontFace(gl.CW); // the last vertex of a triangle is where its edge begins
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  send(polygons: Polygons, layers: number, values: Float32Array | null = null): Sent {
    return new Sent(this.gl, polygons, layers, values);
  }

  /** Set the lines that are drawn of the box: x y z of the ends of each. */
  frame(ends: Float32Array): void {
    const { gl } = this;
    gl.bindVertexArray(this.lines);
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, ends, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 3, gl.FLOAT, false, 0, 0);
    gl.bindVertexArray(null);
    this.lineEnds = ends.length / 3;
  }

  draw({ eye, look, surface, plane, cut, picked }: Shown): void {
    const { gl, canvas } = this;
    const [w, h] = eye.pixels.map((size) => Math.max(1, Math.round(size * look.pixelRatio)));
    if (canvas.width !== w) canvas.width = w!;
    if (canvas.height !== h) canvas.height = h!;
    gl.viewport(0, 0, w!, h!);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const matrix = [...eye.matrix];
    const ink = LOOKS[look.theme].wire;
    gl.enable(gl.BLEND);
    gl.bindVertexArray(this.lines);
    this.wire.use({ u_matrix: matrix, u_ink: ink });
    gl.drawArrays(gl.LINES, 0, this.lineEnds);
    for (const [sent, face] of [
      [surface, picked.surface],
      [plane, picked.plane],
    ] as const) {
      if (sent?.indices) this.facetsOf(sent, { eye, look, cut, face, matrix });
    }
    gl.bindVertexArray(null);
  }

  private facetsOf(
    sent: Sent,
    shown: { eye: Eye; look: Look; cut: Half | null; face: number; matrix: number[] },
  ): void {
    const { gl } = this;
    const { eye, look, cut, face, matrix } = shown;
    const colors = LOOKS[look.theme];
    const unit = 1 / eye.unitsPerPixel;
    sent.rule(look, unit);
    const [right, up, back] = eye.frame;
    const turn = [0, 1, 2].flatMap((k) => [right[k]!, up[k]!, back[k]!, 0]);
    const program = this.facets.use({
      u_matrix: matrix,
      u_turn: [...turn, 0, 0, 0, 1],
      u_eye: eye.place,
      u_focus: unit * eye.distance,
      u_cut: cut ? [...cut.normal, cut.offset] : [0, 0, 0, 0],
      u_picked: [face, ...rgb(colors.picked)],
      u_flat: Number(sent.values !== null),
      u_range: sent.range,
      u_below: rgb(colors.below),
      u_above: rgb(colors.above),
      u_paper: rgb(colors.paper),
      u_level: [...rgb(colors.level), 1.3 * look.pixelRatio],
      u_back: rgb(colors.back),
    });
    program.setInteger("u_lines", 0);
    gl.bindVertexArray(sent.shape);
    gl.drawElements(gl.TRIANGLES, sent.indices, gl.UNSIGNED_INT, 0);
  }
}

/** The vertices that draw polygons: first the middle of each face, then each corner. */
function verticesOf(polygons: Polygons, values: Float32Array | null) {
  const { count, vertices, middles, offsets, corners, face, layer } = polygons;
  const total = count + corners.length;
  const place = new Float32Array(4 * total);
  const kind = new Uint8Array(2 * total);
  const size = new Float32Array(total);
  const owner = new Uint32Array(total);
  const index = new Uint32Array(3 * corners.length);
  for (let k = 0; k < count; k++) {
    place.set(middles.subarray(3 * k, 3 * k + 3), 4 * k);
    kind[2 * k] = 1;
    size[k] = Math.sqrt(polygons.area[k]!);
    owner[k] = k;
  }
  for (let c = 0; c < corners.length; c++) {
    const [k, v, at] = [face[c]!, corners[c]!, count + c];
    const [first, end] = [offsets[k]!, offsets[k + 1]!];
    place.set(vertices.subarray(3 * v, 3 * v + 3), 4 * at);
    if (values) {
      place[4 * at + 3] = values[v]!;
      place[4 * k + 3]! += values[v]! / (end - first);
    }
    kind[2 * at + 1] = Math.min(255, layer[c]! + 2);
    size[at] = size[k]!;
    owner[at] = k;
    index.set([k, count + (c + 1 < end ? c + 1 : first), at], 3 * c);
  }
  return { place, kind, size, owner, index };
}

function extremes(values: ArrayLike<number>): [number, number] {
  let [low, high] = [0, 0];
  for (let k = 0; k < values.length; k++) {
    low = Math.min(low, values[k]!);
    high = Math.max(high, values[k]!);
  }
  return [low, high];
}
