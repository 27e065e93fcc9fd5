// A picture that is being drawn, in steps.

import type { Box, Pair } from "../protocol/messages";
import { clear, type Picture } from "./picture";
import type { Programs } from "./programs";
import { drawImage } from "./raster";
import type { Looks, Scene } from "./scene";
import type { View } from "./view";
import { Work } from "./work";

// Parts of a pixel by which cells are moved, to smooth their borders.
const SHIFTS: readonly Pair[] = [
  [0.125, 0.375],
  [0.375, -0.125],
  [-0.125, -0.375],
  [-0.375, 0.125],
];

type Rectangle = [number, number, number, number];

export class Job {
  private readonly work = new Work();
  /** The rectangle that is drawn: left, low, width and height in pixels; null: all. */
  private clip: Rectangle | null = null;
  /** What is drawn into before it is copied into the picture. */
  private aside: Picture | null = null;
  private aiming = false;
  private cost = 0;

  private constructor(
    private readonly programs: Programs,
    readonly picture: Picture,
  ) {}

  /** Draw all of a scene. */
  static whole(programs: Programs, picture: Picture, scene: Scene, view: View, looks: Looks): Job {
    const job = new Job(programs, picture);
    job.work.add(0, () => clear(programs.gl, scene.paper));
    scene.draw(view, job.work, looks);
    return job.counted();
  }

  /** Move what a picture shows by (-x, -y) pixels, and draw the strips that came into sight. */
  static shifted(
    programs: Programs,
    picture: Picture,
    scene: Scene,
    view: View,
    { from, by: [x, y] }: { from: Picture; by: Pair },
  ): Job {
    const { gl } = programs;
    const job = new Job(programs, picture);
    const [width, height] = view.size;
    const [left, low] = [Math.max(0, x), Math.max(0, y)];
    const [w, h] = [width - Math.abs(x), height - Math.abs(y)];
    gl.bindFramebuffer(gl.FRAMEBUFFER, from.frame);
    gl.bindTexture(gl.TEXTURE_2D, picture.texture);
    gl.copyTexSubImage2D(gl.TEXTURE_2D, 0, left - x, low - y, left, low, w, h);
    const strips: Rectangle[] = [];
    if (x) strips.push([x > 0 ? w : 0, 0, Math.abs(x), height]);
    if (y) strips.push([x > 0 ? 0 : -x, y > 0 ? h : 0, w, Math.abs(y)]);
    for (const strip of strips) {
      const [x0, y0] = [strip[0] - width / 2, strip[1] - height / 2];
      const part: Box = [x0, y0, x0 + strip[2], y0 + strip[3]];
      job.work.add(0, () => {
        job.clip = strip;
        job.aim();
        clear(gl, scene.paper);
      });
      scene.draw(view.limited(part), job.work, from.looks);
    }
    return job.counted();
  }

  /** Draw a scene with cells that are averaged over pictures moved by parts of a pixel.
   *
   * Lines are smooth already. aside: a picture that is needed meanwhile. Null if the scene has more
   * than one mesh, or if the cells cost more than is allowed. */
  static smooth(
    programs: Programs,
    scene: Scene,
    view: View,
    looks: Looks,
    allowed: number,
    pictures: () => [Picture, Picture],
  ): Job | null {
    const { gl } = programs;
    const { parts } = scene;
    const cells = new Work();
    parts?.cells(view, cells);
    if (!parts || !cells.left || SHIFTS.length * cells.left > allowed) return null;
    const [picture, aside] = pictures();
    const job = new Job(programs, picture);
    const { work } = job;
    job.aside = aside;
    SHIFTS.forEach((shift, k) => {
      work.add(0, () => {
        job.aiming = true;
        job.aim();
        clear(gl, scene.paper);
      });
      parts.cells(view.shifted(shift), work);
      work.add(1000, () => {
        job.aiming = false;
        job.aim();
        drawImage(programs, aside.texture, [-1, -1, 1, 1], { opacity: 1 / (k + 1), exact: true });
      });
    });
    work.add(0, () => job.putAside());
    parts.lines(view, work, looks);
    return job.counted();
  }

  get done(): boolean {
    return this.work.done;
  }

  /** The share of the work that is left. */
  get left(): number {
    return this.work.left / Math.max(1, this.cost);
  }

  /** Draw for as much as is allowed; returns what it cost. */
  run(allowed: number): number {
    this.aim();
    return this.work.run(allowed);
  }

  /** Free what is needed only while it is drawn. */
  putAside(): void {
    this.aside?.dispose();
    this.aside = null;
    this.aiming = false;
  }

  private counted(): this {
    this.cost = this.work.left;
    return this;
  }

  /** Draw into the right picture and into the right part of it from now on. */
  private aim(): void {
    const { gl } = this.programs;
    const { frame, size } = (this.aiming && this.aside) || this.picture;
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.viewport(0, 0, size[0], size[1]);
    if (!this.clip) {
      gl.disable(gl.SCISSOR_TEST);
      return;
    }
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(...this.clip);
  }
}
