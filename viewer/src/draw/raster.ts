// Pixels of the model's decision where regions are too many, and any other texture on a rectangle.

import type { Box, Message, RasterHeader } from "../protocol/messages";
import { type GL, type Programs, textureOf } from "./programs";
import type { View } from "./view";

/** Draw a part of a texture, from its lower left to its upper right corner, on clip space. */
export function drawImage(
  programs: Programs,
  texture: WebGLTexture | null,
  rectangle: Box,
  { opacity = 1, part = [0, 0, 1, 1] as Box, exact = false } = {},
): void {
  const { gl, image } = programs;
  gl.bindTexture(gl.TEXTURE_2D, texture);
  const filter = exact ? gl.NEAREST : gl.LINEAR;
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
  image.use({ rectangle, part, opacity });
  if (opacity < 1) gl.enable(gl.BLEND);
  else gl.disable(gl.BLEND);
  gl.bindVertexArray(programs.quads);
  gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
}

/** A raster on the graphics card. */
export class Raster {
  private readonly texture: WebGLTexture;
  private readonly window: Box;

  constructor(
    private readonly gl: GL,
    { header, arrays }: Message<RasterHeader>,
    maxTexture: number,
  ) {
    const pixels = arrays.pixels;
    const [h = 0, w = 0] = pixels?.shape ?? [];
    if (!pixels || !(h > 0 && w > 0) || pixels.data.length !== 3 * w * h) {
      throw new Error("The coarse picture is damaged. Load the page again.");
    }
    this.window = header.window;
    const step = Math.ceil(Math.max(w, h) / maxTexture);
    const [width, height] = [Math.floor(w / step) || 1, Math.floor(h / step) || 1];
    const bytes = new Uint8Array(3 * width * height);
    for (let k = 0; k < width * height; k++) {
      const from = 3 * (Math.floor(k / width) * step * w + (k % width) * step);
      for (let j = 0; j < 3; j++) bytes[3 * k + j] = pixels.data[from + j]!;
    }
    this.texture = textureOf(gl, [width, height], gl.RGB8, gl.LINEAR);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, width, height, gl.RGB, gl.UNSIGNED_BYTE, bytes);
  }

  draw(programs: Programs, view: View): void {
    drawImage(programs, this.texture, view.rectangle(this.window));
  }

  dispose(): void {
    this.gl.deleteTexture(this.texture);
  }
}
