// Pictures of the cells that are kept while one moves.
//
// Cells are drawn into a texture. While the camera moves, the last finished picture is shown where it
// belongs, and the next one is drawn in slices that leave the page responsive. If the camera moved
// without zooming, the picture is shifted and only what came into sight is drawn.

import type { Box, Pair } from "../protocol/messages";
import type { Rgb } from "./colours";
import type { EdgeLooks } from "./edges";
import { type GL, type Programs, textureOf } from "./programs";
import { drawImage } from "./raster";
import type { View } from "./view";
import { Pace, Work } from "./work";

const [MOVING, STILL] = [6, 40]; // milliseconds of work in a frame
const FADE = 150; // milliseconds in which a picture replaces one that shows something else
const PIXELS = 120; // so many pixels of a picture cost as much to show as a triangle to draw

/** What pictures are made of. */
export interface Scene {
  /** Pictures with the same version show the same. */
  version: number;
  /** Whether there is nothing but paper. */
  empty: boolean;
  /** Whether something is not ready to be shown at all. */
  waiting: boolean;
  paper: Rgb;
  looks(view: View): Map<string, EdgeLooks>;
  draw(view: View, work: Work, looks: Map<string, EdgeLooks>): void;
}

/** A texture to draw into. */
class Picture {
  readonly texture: WebGLTexture;
  readonly frame: WebGLFramebuffer;
  view: View | null = null;
  version = -1;
  looks: Map<string, EdgeLooks> = new Map();
  /** Whether the looks fit the view: they are kept while one moves without zooming. */
  fresh = true;

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

/** A picture that is being drawn. */
interface Job {
  picture: Picture;
  work: Work;
  cost: number;
  /** The rectangle that is drawn: left, low, width and height in pixels; null: all. */
  clip: [number, number, number, number] | null;
}

/** What became of a frame: whether more is wanted, and whether the canvas was drawn on. */
interface Drawn {
  more: boolean;
  shown: boolean;
}

export class Pictures {
  private readonly gl: GL;
  private readonly pace: Pace;
  private front: Picture | null = null;
  private spare: Picture | null = null;
  private job: Job | null = null;
  /** How many pictures were finished, and which of them the canvas shows where. */
  private count = 0;
  private shown: { count: number; view: View } | null = null;
  /** Whether the first picture was drawn directly. */
  private begun = false;
  /** The picture that fades, and since when. */
  private fading: { picture: Picture; since: number } | null = null;

  constructor(private readonly programs: Programs) {
    this.gl = programs.gl;
    this.pace = new Pace(programs.gl);
  }

  /** The view whose pixels are those of the picture that is kept, at most half a pixel away. */
  aligned(view: View): View {
    return this.front?.view ? view.alignedWith(this.front.view) : view;
  }

  /** Draw for as long as a frame may take, and show what there is on the canvas.
   *
   * again: show it also if the canvas shows it already. */
  draw(scene: Scene, view: View, moving: boolean, again: boolean): Drawn {
    if (scene.waiting && this.front) return { more: true, shown: this.show(scene, view, again) };
    if (scene.empty) {
      toCanvas(this.gl, view);
      clear(this.gl, scene.paper);
      this.shown = null;
      return { more: false, shown: true };
    }
    const few = (view.size[0] * view.size[1]) / PIXELS;
    if (moving && this.drawDirectly(scene, view, few)) return { more: true, shown: true };
    // The first picture is drawn directly if it is small, since it is seen earlier.
    const some = STILL * this.pace.rate;
    if (!this.front && !this.begun && this.drawDirectly(scene, view, some)) {
      this.begun = true;
      return { more: true, shown: true };
    }
    const unfinished = this.advance(scene, view, moving);
    if (!this.front && this.begun && this.drawDirectly(scene, view, some)) {
      return { more: true, shown: true };
    }
    const shown = this.show(scene, view, again);
    return { more: unfinished || this.fading !== null, shown };
  }

  /** Draw all of the picture now, into the framebuffer that is bound. */
  static drawNow(programs: Programs, scene: Scene, view: View): void {
    const { gl } = programs;
    gl.disable(gl.SCISSOR_TEST);
    gl.viewport(0, 0, view.size[0], view.size[1]);
    clear(gl, scene.paper);
    const work = new Work();
    scene.draw(view, work, scene.looks(view));
    work.run(Number.POSITIVE_INFINITY);
  }

  dispose(): void {
    const { front, spare, job, fading } = this;
    for (const each of [front, spare, job?.picture, fading?.picture]) each?.dispose();
    this.front = null;
    this.spare = null;
    this.job = null;
    this.fading = null;
  }

  /** Draw on the canvas without a picture, if that costs little; returns whether it did. */
  private drawDirectly(scene: Scene, view: View, most: number): boolean {
    const { front, gl, pace } = this;
    if (front?.version === scene.version && isSame(front.view, view)) return false;
    const work = new Work();
    scene.draw(view, work, scene.looks(view));
    if (work.left > Math.max(most, 3 * pace.rate)) return false;
    toCanvas(gl, view);
    clear(gl, scene.paper);
    this.shown = null;
    work.run(Number.POSITIVE_INFINITY);
    return true;
  }

  /** Draw for as long as a frame may take; returns whether the picture is not finished. */
  private advance(scene: Scene, view: View, moving: boolean): boolean {
    if (this.pace.isBusy(moving)) return true;
    let allowed = this.pace.rate * (moving ? MOVING : STILL);
    const before = allowed;
    if (this.job && this.outdated(this.job, scene, view, moving)) this.abandon();
    for (;;) {
      this.job ??= this.next(scene, view, moving);
      if (!this.job || allowed <= 0) break;
      allowed -= this.run(this.job, allowed);
      if (!this.job.work.done) break;
      this.finish(this.job, moving);
    }
    this.pace.began(before - allowed, before);
    return this.job !== null;
  }

  /** Show the picture, or as much of it as there is, on the canvas; returns whether it did. */
  private show(scene: Scene, view: View, again: boolean): boolean {
    const { gl, front, fading, shown } = this;
    if (!again && front && !fading && shown?.count === this.count && isSame(shown.view, view)) {
      return false;
    }
    toCanvas(gl, view);
    this.shown = front && { count: this.count, view };
    const picture = front ?? this.job?.picture;
    if (!picture?.view) {
      clear(gl, scene.paper);
      return true;
    }
    const share = fading ? (performance.now() - fading.since) / FADE : 1;
    if (share >= 1) this.endFading();
    if (fading && share < 1) this.showPicture(fading.picture, scene, view, 1);
    this.showPicture(picture, scene, view, Math.min(share, 1));
    return true;
  }

  private showPicture(picture: Picture, scene: Scene, view: View, opacity: number): void {
    const place = view.covered(picture.view!);
    const exact = isWhole(place, view.size);
    if (!exact && opacity === 1) clear(this.gl, scene.paper);
    const rectangle: Box = exact ? [-1, -1, 1, 1] : place;
    drawImage(this.programs, picture.texture, rectangle, { exact, opacity });
  }

  private endFading(): void {
    if (!this.fading) return;
    if (this.spare) this.fading.picture.dispose();
    else this.spare = this.fading.picture;
    this.fading = null;
  }

  private outdated(
    { picture, work, cost }: Job,
    scene: Scene,
    view: View,
    moving: boolean,
  ): boolean {
    if (picture.version !== scene.version) return true;
    return !moving && !isSame(picture.view, view) && work.left > cost / 2;
  }

  private abandon(): void {
    this.spare?.dispose();
    this.spare = this.job?.picture ?? null;
    this.job = null;
  }

  /** The next picture to draw; null if the one that is there is right. */
  private next(scene: Scene, view: View, moving: boolean): Job | null {
    const { front } = this;
    const current = front?.version === scene.version;
    if (current && isSame(front.view, view)) {
      if (front.fresh || moving) return null;
      const looks = scene.looks(view);
      front.fresh = alike(front.looks, looks);
      return front.fresh ? null : this.whole(scene, view, looks);
    }
    const shift = current && front.view && view.isShiftOf(front.view) && view.from(front.view);
    if (shift && isWholeNumber(shift)) {
      const [x, y] = shift.map(Math.round) as Pair;
      const [width, height] = view.size;
      const seen = (width - Math.abs(x)) * (height - Math.abs(y));
      if (Math.abs(x) < width && Math.abs(y) < height && seen > 0.3 * width * height) {
        return this.shifted(scene, view, front, [x, y]);
      }
    }
    return this.whole(scene, view, scene.looks(view));
  }

  private whole(scene: Scene, view: View, looks: Map<string, EdgeLooks>): Job {
    const picture = this.picture(scene, view, looks);
    const work = new Work();
    const job: Job = { picture, work, cost: 0, clip: null };
    work.add(0, () => clear(this.gl, scene.paper));
    scene.draw(view, work, looks);
    job.cost = work.left;
    return job;
  }

  /** The picture in front moved by (-x, -y) pixels, and the strips that came into sight. */
  private shifted(scene: Scene, view: View, front: Picture, [x, y]: Pair): Job {
    const { gl } = this;
    const picture = this.picture(scene, view, front.looks);
    picture.fresh = false;
    const [width, height] = view.size;
    const [left, low] = [Math.max(0, x), Math.max(0, y)];
    const [w, h] = [width - Math.abs(x), height - Math.abs(y)];
    gl.bindFramebuffer(gl.FRAMEBUFFER, front.frame);
    gl.bindTexture(gl.TEXTURE_2D, picture.texture);
    gl.copyTexSubImage2D(gl.TEXTURE_2D, 0, left - x, low - y, left, low, w, h);
    const work = new Work();
    const job: Job = { picture, work, cost: 0, clip: [0, 0, 0, 0] };
    const strips: [number, number, number, number][] = [];
    if (x) strips.push([x > 0 ? w : 0, 0, Math.abs(x), height]);
    if (y) strips.push([x > 0 ? 0 : -x, y > 0 ? h : 0, w, Math.abs(y)]);
    for (const strip of strips) {
      const [x0, y0] = [strip[0] - width / 2, strip[1] - height / 2];
      const part: Box = [x0, y0, x0 + strip[2], y0 + strip[3]];
      work.add(0, () => {
        job.clip = strip;
        gl.scissor(...strip);
        clear(gl, scene.paper);
      });
      scene.draw(view.limited(part), work, front.looks);
    }
    job.cost = work.left;
    return job;
  }

  private run(job: Job, allowed: number): number {
    const { gl } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, job.picture.frame);
    gl.viewport(0, 0, job.picture.size[0], job.picture.size[1]);
    if (job.clip) {
      gl.enable(gl.SCISSOR_TEST);
      gl.scissor(...job.clip);
    } else {
      gl.disable(gl.SCISSOR_TEST);
    }
    return job.work.run(allowed);
  }

  private finish({ picture }: Job, moving: boolean): void {
    this.endFading();
    this.count++;
    const old = this.front;
    this.front = picture;
    this.job = null;
    if (old && !moving && old.version !== picture.version && isSame(old.view, picture.view!)) {
      this.fading = { picture: old, since: performance.now() };
    } else {
      this.spare?.dispose();
      this.spare = old;
    }
  }

  /** A picture to draw into. */
  private picture(scene: Scene, view: View, looks: Map<string, EdgeLooks>): Picture {
    let picture = this.spare;
    this.spare = null;
    const [width, height] = view.size;
    if (!picture || picture.size[0] !== width || picture.size[1] !== height) {
      picture?.dispose();
      picture = new Picture(this.gl, view.size);
    }
    return Object.assign(picture, { view, version: scene.version, looks, fresh: true });
  }
}

/** Draw on all of the canvas from now on. */
function toCanvas(gl: GL, { size }: View): void {
  gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  gl.disable(gl.SCISSOR_TEST);
  gl.viewport(0, 0, size[0], size[1]);
}

function clear(gl: GL, paper: Rgb): void {
  gl.clearColor(paper[0], paper[1], paper[2], 1);
  gl.clear(gl.COLOR_BUFFER_BIT);
}

function isSame(a: View | null, b: View): boolean {
  if (!a || !b.isShiftOf(a)) return false;
  const [x, y] = b.from(a);
  return Math.abs(x) < 1e-3 && Math.abs(y) < 1e-3;
}

function isWholeNumber(shift: Readonly<Pair>): boolean {
  return shift.every((x) => Math.abs(x - Math.round(x)) < 0.01);
}

/** Whether a rectangle is clip space, to a hundredth of a pixel. */
function isWhole(place: Box, size: Readonly<Pair>): boolean {
  return place.every((x, k) => Math.abs(x - (k < 2 ? -1 : 1)) * size[k % 2]! < 0.02);
}

function alike(a: Map<string, EdgeLooks>, b: Map<string, EdgeLooks>): boolean {
  const near = (x: number, y: number): boolean => Math.abs(x - y) <= 0.1 * Math.max(x, y);
  for (const [name, { layers, boundary }] of b) {
    const other = a.get(name);
    if (!other || !near(other.boundary, boundary)) return false;
    for (let k = 0; k < layers.length; k++) {
      const [one, two] = [layers[k]!, other.layers[k]!];
      if (!near(one.width, two.width) || !near(one.opacity, two.opacity)) return false;
    }
  }
  return true;
}
