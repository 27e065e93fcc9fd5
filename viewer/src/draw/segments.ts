// Segments on the graphics card. Their ends are in a texture, since drawing them as instances of a
// quad is fifteen times as slow where the processor does the work of the graphics card.

import type { Rgb } from "./colours";
import { attribute, type GL, type Programs, QUADS, textureOf } from "./programs";
import type { View } from "./view";

const ROW = 2048; // texels; the shader knows this number

export interface Stroke {
  color: Rgb;
  opacity: number;
  /** In CSS pixels. */
  width: number;
  /** Round ends; transparent lines are better without. */
  caps: boolean;
  /** Length of a dash and of a dash with its gap, in CSS pixels. */
  dash?: readonly [number, number];
}

export class SegmentTexture {
  readonly count: number;
  private readonly texture: WebGLTexture;

  /** ends: (4 S) x0 y0 x1 y1 of each segment. */
  constructor(
    private readonly gl: GL,
    ends: Float32Array,
    maxTexture: number,
  ) {
    const rows = Math.min(maxTexture, Math.max(1, Math.ceil(ends.length / 4 / ROW)));
    this.count = Math.min(ends.length / 4, rows * ROW);
    this.texture = textureOf(gl, [Math.min(ROW, maxTexture), rows], gl.RGBA32F, gl.NEAREST);
    const whole = Math.floor(this.count / ROW);
    if (whole) this.write(0, ROW, whole, ends);
    const left = this.count - whole * ROW;
    if (left) this.write(whole, left, 1, ends.subarray(4 * whole * ROW));
  }

  /** Draw segments from `begin` to before `end`; `place` maps their coordinates to clip space. */
  draw(
    programs: Programs,
    view: View,
    place: readonly number[],
    stroke: Stroke,
    [begin, end]: readonly [number, number] = [0, this.count],
  ): void {
    const { gl } = this;
    const { color, opacity: a, ratio } = { ...stroke, ratio: view.ratio };
    const halfSize = [view.size[0] / 2, view.size[1] / 2];
    const width = stroke.width * ratio;
    const { dash } = stroke;
    const program = dash ? programs.dashes : programs.lines;
    program.use({ place, halfSize, width });
    if (dash) program.set("dash", [dash[0] * ratio, dash[1] * ratio]);
    program.set("caps", stroke.caps ? 1 : 0);
    program.set("color", [a * color[0], a * color[1], a * color[2], a]);
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.bindVertexArray(programs.quads);
    gl.enable(gl.BLEND);
    const last = Math.min(end, this.count);
    for (let first = begin; first < last; first += QUADS) {
      program.setInteger("first", first);
      const count = Math.min(QUADS, last - first);
      gl.drawElements(gl.TRIANGLES, 6 * count, gl.UNSIGNED_SHORT, 0);
    }
  }

  dispose(): void {
    this.gl.deleteTexture(this.texture);
  }

  private write(row: number, width: number, rows: number, ends: Float32Array): void {
    const { gl } = this;
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, row, width, rows, gl.RGBA, gl.FLOAT, ends);
  }
}

/** Segments a pixel wide, without smooth sides: a fifth of the work, for pictures that follow each
 * other quickly. */
export class ThinSegments {
  private readonly array: WebGLVertexArrayObject;
  private readonly buffer: WebGLBuffer;

  /** ends: (4 S) x0 y0 x1 y1 of each segment. */
  constructor(
    private readonly gl: GL,
    private readonly ends: Float32Array,
  ) {
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    this.buffer = attribute(gl, 0, [2, gl.FLOAT, false], ends);
    gl.bindVertexArray(null);
  }

  draw(
    programs: Programs,
    { ratio }: View,
    place: readonly number[],
    { color, opacity, width }: Stroke,
    [begin, end]: readonly [number, number] = [0, this.ends.length / 4],
  ): void {
    const { gl } = this;
    const a = Math.min(1, opacity * width * ratio);
    programs.plain.use({ place }).set("color", [a * color[0], a * color[1], a * color[2], a]);
    gl.bindVertexArray(this.array);
    gl.enable(gl.BLEND);
    gl.drawArrays(gl.LINES, 2 * begin, 2 * (end - begin));
    gl.bindVertexArray(null);
  }

  dispose(): void {
    this.gl.deleteBuffer(this.buffer);
    this.gl.deleteVertexArray(this.array);
  }
}
