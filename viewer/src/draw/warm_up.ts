// Have the programs compiled while the data comes, by drawing nothing with each of them.
//
// Drivers compile a program for good when it is first used, which takes a tenth of a second where the
// processor does the work of the graphics card. The page does not wait for it.

import { attribute, type Programs, textureOf } from "./programs";
import { drawImage } from "./raster";
import { SegmentTexture } from "./segments";
import { INK } from "./theme";
import { View } from "./view";

/** Draw a triangle, a line and an image without extent, as cells, edges and pictures are drawn. */
export function warmUp(programs: Programs): void {
  const { gl } = programs;
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  const corners = attribute(gl, 0, [2, gl.FLOAT, false], new Float32Array(6));
  const paint = attribute(gl, 1, [4, gl.UNSIGNED_BYTE, true], new Uint8Array(12));
  gl.disable(gl.BLEND);
  programs.flat.use({ place: [0, 0, 0, 0] });
  gl.drawArrays(gl.TRIANGLES, 0, 3);
  gl.bindVertexArray(null);
  const segment = new SegmentTexture(gl, new Float32Array(4), programs.maxTexture);
  const view = new View([0, 0], [0, 0], 1, [1, 1], 1);
  const stroke = { color: INK, opacity: 0, width: 0, caps: false };
  segment.draw(programs, view, [0, 0, 0, 0], stroke);
  const texture = textureOf(gl, [1, 1], gl.RGBA8, gl.NEAREST);
  drawImage(programs, texture, [0, 0, 0, 0], { exact: true });
  gl.deleteTexture(texture);
  segment.dispose();
  gl.deleteBuffer(corners);
  gl.deleteBuffer(paint);
  gl.deleteVertexArray(array);
  gl.flush();
}
