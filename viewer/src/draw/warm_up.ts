// Have the programs compiled before they are needed, by drawing nothing with each of them.
//
// Drivers compile a program for good when it is first used, which takes a tenth of a second where the
// processor does the work of the graphics card. The page does not wait for it.

import { Picture } from "./picture";
import { attribute, type Programs } from "./programs";
import { drawImage } from "./raster";
import { SegmentTexture } from "./segments";
import { INK } from "./theme";
import { View } from "./view";

/** Compile what the first picture needs, which is a sketch, while the data comes. */
export function warmUp(programs: Programs): void {
  drawPicture(programs, 1);
  drawEdge(programs);
  programs.gl.flush();
}

/** Compile what is needed when one moves or points; something was drawn on the canvas before. */
export function warmUpRest(programs: Programs): void {
  const { gl } = programs;
  drawPicture(programs, 0.5);
  drawCell(programs);
  drawTriangle(programs, () => {
    gl.enable(gl.BLEND);
    programs.plain.use({ place: [0, 0, 0, 0], color: [0, 0, 0, 0] });
    return undefined;
  });
  gl.flush();
}

function drawPicture(programs: Programs, opacity: number): void {
  const { gl } = programs;
  const picture = new Picture(gl, [1, 1]);
  gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  drawImage(programs, picture.texture, [0, 0, 0, 0], { exact: true, opacity });
  picture.dispose();
}

function drawCell(programs: Programs): void {
  const { gl } = programs;
  drawTriangle(programs, () => {
    gl.disable(gl.BLEND);
    programs.flat.use({ place: [0, 0, 0, 0] });
    return attribute(gl, 1, [4, gl.UNSIGNED_BYTE, true], new Uint8Array(12));
  });
}

function drawTriangle({ gl }: Programs, prepare: () => WebGLBuffer | undefined): void {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  const corners = attribute(gl, 0, [2, gl.FLOAT, false], new Float32Array(6));
  const other = prepare();
  gl.drawArrays(gl.TRIANGLES, 0, 3);
  gl.bindVertexArray(null);
  gl.deleteBuffer(corners);
  if (other) gl.deleteBuffer(other);
  gl.deleteVertexArray(array);
}

function drawEdge(programs: Programs): void {
  const segment = new SegmentTexture(programs.gl, new Float32Array(4), programs.maxTexture);
  const view = new View([0, 0], [0, 0], 1, [1, 1], 1);
  const stroke = { color: INK, opacity: 0, width: 0, caps: false };
  segment.draw(programs, view, [0, 0, 0, 0], stroke);
  segment.dispose();
}
