// A texture to draw cells into, and what it shows.

import type { Pair } from "../protocol/messages";
import type { Rgb } from "./colours";
import { type GL, textureOf } from "./programs";
import type { Looks } from "./scene";
import type { View } from "./view";

/** A texture to draw into. */
export class Picture {
  readonly texture: WebGLTexture;
  readonly frame: WebGLFramebuffer;
  view: View | null = null;
  version = -1;
  looks: Looks = new Map();
  /** Whether the looks fit the view: they are kept while one moves without zooming. */
  fresh = true;
  /** Whether all of the scene is in it. */
  whole = false;
  /** Whether borders of cells are smooth. */
  smooth = false;

  constructor(
    private readonly gl: GL,
    readonly size: Readonly<Pair>,
  ) {
    this.texture = textureOf(gl, [size[0], size[1]], gl.RGBA8, gl.LINEAR);
    this.frame = gl.createFramebuffer();
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.frame);
    const attached = gl.COLOR_ATTACHMENT0;
    gl.framebufferTexture2D(gl.FRAMEBUFFER, attached, gl.TEXTURE_2D, this.texture, 0);
  }

  dispose(): void {
    this.gl.deleteFramebuffer(this.frame);
    this.gl.deleteTexture(this.texture);
  }
}

/** Fill what is drawn on with a colour. */
export function clear(gl: GL, paper: Rgb): void {
  gl.clearColor(paper[0], paper[1], paper[2], 1);
  gl.clear(gl.COLOR_BUFFER_BIT);
}
