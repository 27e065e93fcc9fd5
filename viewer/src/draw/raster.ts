// Pixels of the model's decision where regions are too many, and any other texture on a rectangle.

import type { Box, Message, RasterHeader } from "../protocol/messages";
import { inTheme, type Theme } from "./colours";
import { type GL, type Programs, textureOf } from "./programs";
import type { View } from "./view";

/** Draw a part of a texture, from its lower left to its upper right corner, on clip space. */
export function drawImage(
  programs: Programs,
  texture: WebGLTexture | null,
  rectangle: Box,
  { opacity = 1, part = [0, 0, 1, 1] as Box, exact = false, blended = false } = {},
): void {
  const { gl, image } = programs;
  gl.bindTexture(gl.TEXTURE_2D, texture);
  const filter = exact ? gl.NEAREST : gl.LINEAR;
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
  image.use({ rectangle, part, opacity });
  if (blended || opacity < 1) gl.enable(gl.BLEND);
  else gl.disable(gl.BLEND);
  gl.bindVertexArray(programs.quads);
  gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
}

/** A raster on the graphics card. */
export class Raster {
  private readonly texture: WebGLTexture;
  private readonly window: Box;
  /** Whether the pixels outside of the domain are transparent. */
  private readonly blended: boolean;

  private readonly gl: GL;

  constructor(
    { gl, maxTexture }: Programs,
    { header, arrays }: Message<RasterHeader>,
    theme: Theme,
  ) {
    this.gl = gl;
    const pixels = arrays.pixels;
    const [h = 0, w = 0, channels = 0] = pixels?.shape ?? [];
    const complete = pixels?.data.length === channels * w * h && (channels === 3 || channels === 4);
    if (!pixels || !(h > 0 && w > 0) || !complete) {
      throw new Error("The coarse picture is damaged. Load the page again.");
    }
    this.window = header.window;
    this.blended = channels === 4;
    const step = Math.ceil(Math.max(w, h) / maxTexture);
    const [width, height] = [Math.floor(w / step) || 1, Math.floor(h / step) || 1];
    const bytes = new Uint8Array(4 * width * height);
    for (let k = 0; k < width * height; k++) {
      const from = channels * (Math.floor(k / width) * step * w + (k % width) * step);
      const alpha = this.blended ? pixels.data[from + 3]! : 255;
      for (let j = 0; j < 3; j++) bytes[4 * k + j] = pixels.data[from + j]!;
      bytes[4 * k + 3] = alpha;
    }
    const shown = inTheme(bytes, theme, { palette: header.palette, step: 4 });
    for (let k = 0; k < shown.length; k++) {
      if (k % 4 < 3) shown[k] = (shown[k]! * bytes[k | 3]!) / 255;
    }
    this.texture = textureOf(gl, [width, height], gl.RGBA8, gl.LINEAR);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, shown);
  }

  draw(programs: Programs, view: View): void {
    const { blended } = this;
    drawImage(programs, this.texture, view.rectangle(this.window), { blended });
  }

  dispose(): void {
    this.gl.deleteTexture(this.texture);
  }
}
