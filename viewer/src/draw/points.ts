// Data points: discs with a rim in the colours of their classes.

import { clippedPoints, tooFine } from "./clip";
import { attribute, type Programs } from "./programs";
import type { Samples } from "./samples";
import { PAPER, POINT } from "./theme";
import type { View } from "./view";

const MANY = 200; // points from which on they are smaller
const HOLLOW = 1.2 * POINT; // the width of hollow points' rims, in CSS pixels

/** Points on the graphics card. */
export class Points {
  private array: WebGLVertexArrayObject | null = null;
  private buffers: WebGLBuffer[] = [];

  constructor(private readonly samples: Samples) {}

  draw(programs: Programs, view: View): void {
    const { gl, points } = programs;
    const { at: data, colors } = this.samples;
    const local = { data, center: [0, 0] as const, scale: 1 };
    const fine = tooFine(local, view);
    let count = data.length / 2;
    if (fine) {
      const { at, kept } = clippedPoints(local, view);
      this.forget(gl);
      const chosen = kept.flatMap((k) => [...colors.subarray(4 * k, 4 * k + 4)]);
      this.write(programs, at, Uint8Array.from(chosen));
      count = kept.length;
    } else if (!this.array) {
      this.write(programs, Float32Array.from(data), colors);
    }
    const many = data.length / 2 > MANY;
    points.use({
      place: fine ? [2 / view.size[0], 2 / view.size[1], 0, 0] : view.place([0, 0], 1),
      size: Math.sqrt(many ? 12 : 26) * POINT * view.ratio,
      rims: [(many ? 0.6 : 0.9) * POINT * view.ratio, HOLLOW * view.ratio],
      paper: PAPER,
    });
    gl.bindVertexArray(this.array);
    gl.enable(gl.BLEND);
    gl.drawArrays(gl.POINTS, 0, count);
    gl.bindVertexArray(null);
    if (fine) this.forget(gl);
  }

  /** Free what is on the graphics card; drawing makes it anew. */
  forget(gl?: WebGL2RenderingContext): void {
    for (const buffer of this.buffers) gl?.deleteBuffer(buffer);
    gl?.deleteVertexArray(this.array);
    this.buffers = [];
    this.array = null;
  }

  private write({ gl }: Programs, at: Float32Array, colors: Uint8Array): void {
    this.array = gl.createVertexArray();
    gl.bindVertexArray(this.array);
    this.buffers = [
      attribute(gl, 0, [2, gl.FLOAT, false], at),
      attribute(gl, 1, [4, gl.UNSIGNED_BYTE, true], colors),
    ];
  }
}
