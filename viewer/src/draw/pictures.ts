// Pictures of the cells that are kept while one moves.
//
// Cells are drawn into a texture. While the camera moves, the last finished picture is shown where it
// belongs, and the next one is drawn in slices that leave the page responsive. If the camera moved
// without zooming, the picture is shifted and only what came into sight is drawn.

import type { Box, Pair } from "../protocol/messages";
import { Job } from "./job";
import { clear, Picture } from "./picture";
import type { GL, Programs } from "./programs";
import { drawImage } from "./raster";
import { alike, type Looks, type Scene } from "./scene";
import type { Sketch } from "./sketch";
import type { View } from "./view";
import { Pace, Work } from "./work";

/** Milliseconds of work in a frame: while one moves, while nothing does, and where a picture is
 * waited for, because there is none or the plane has moved. */
const [MOVING, STILL, AWAITED] = [4, 40, 150];
const FADE = 150; // milliseconds in which a picture replaces one that shows something else
const SMOOTHING = 400; // milliseconds that smoothing the borders of cells may take
const FINER = 2; // pictures that much finer than the screen flicker and are not shown on others
const PIXELS = 120; // so many pixels of a picture cost as much to show as a triangle to draw

/** What became of a frame: whether more is wanted, whether the canvas was drawn on, and whether it
 * shows all of the scene, though perhaps not smoothed yet. */
interface Drawn {
  more: boolean;
  shown: boolean;
  current: boolean;
}

/** How a frame is drawn. */
interface Pass {
  moving: boolean;
  again: boolean;
  calm: boolean;
  covered: boolean;
}

export class Pictures {
  private readonly gl: GL;
  private readonly pace: Pace;
  private front: Picture | null = null;
  private spare: Picture | null = null;
  private job: Job | null = null;
  /** A picture of everything, which is shown around others until they are drawn. */
  private overview: Picture | null = null;
  /** How many pictures were finished, and which of them the canvas shows where. */
  private count = 0;
  private shown: { count: number; view: View } | null = null;
  /** Whether the first picture was drawn directly. */
  private begun = false;
  /** Whether pictures replace each other at once, and not by fading. */
  abrupt = false;
  /** What the canvas shows without a picture. */
  private direct: { version: number; view: View } | null = null;
  /** The picture that fades, and since when. */
  private fading: { picture: Picture; since: number } | null = null;

  constructor(private readonly programs: Programs) {
    this.gl = programs.gl;
    this.pace = new Pace(programs.gl);
  }

  /** Whether nothing was drawn yet. */
  get blank(): boolean {
    return !this.front && !this.begun;
  }

  /** The view whose pixels are those of the picture that is kept, at most half a pixel away. */
  aligned(view: View): View {
    return this.front?.view ? view.alignedWith(this.front.view) : view;
  }

  /** Draw for as long as a frame may take, and show what there is on the canvas.
   *
   * again: show it also if the canvas shows it already. calm: no other scene is about to come, so
   * that finishing touches are worth it. covered: the scene is seen elsewhere until it is complete. */
  draw(scene: Scene, view: View, { moving, again, calm, covered }: Pass): Drawn {
    const { direct } = this;
    if (!calm && !again && direct?.version === scene.version && view.isAt(direct.view)) {
      return { more: false, shown: false, current: true };
    }
    if (scene.waiting && this.front) {
      // It may be a sketch of what is waited for.
      const current = this.front.version === scene.version && view.isAt(this.front.view);
      return { more: calm || !current, shown: this.show(scene, view, again), current };
    }
    if (scene.empty) {
      toCanvas(this.gl, view);
      clear(this.gl, scene.paper);
      this.shown = null;
      return { more: false, shown: true, current: true };
    }
    const few = (view.size[0] * view.size[1]) / PIXELS;
    if (moving && this.drawDirectly(scene, view, few))
      return { more: true, shown: true, current: true };
    // The first picture is drawn directly if it is small, since it is seen earlier, and so is one
    // that is waited for. One that the next one replaces would never be finished in slices.
    const some = calm ? AWAITED * this.pace.rate : Number.POSITIVE_INFINITY;
    const awaited = this.front ? this.abrupt : !this.begun;
    if (awaited && this.drawDirectly(scene, view, some)) {
      this.begun = true;
      return { more: true, shown: true, current: true };
    }
    const unfinished = this.advance(scene, view, moving, calm);
    if (!this.front && this.begun && this.drawDirectly(scene, view, some)) {
      return { more: true, shown: true, current: true };
    }
    const shown = (this.front !== null || !covered) && this.show(scene, view, again);
    const { front, fading } = this;
    const current = front?.version === scene.version && view.isAt(front.view) && !fading;
    return { more: unfinished || fading !== null, shown, current };
  }

  /** Show a picture that the processor has drawn, in place of all before it. */
  take(scene: Scene, view: View, { pixels, whole }: Sketch, looks: Looks): void {
    const { gl } = this;
    if (this.job) this.abandon(this.job);
    this.endFading();
    this.reuse(this.overview);
    this.overview = null;
    this.reuse(this.front);
    this.front = Object.assign(this.picture(scene, view, looks), { whole });
    const [width, height] = view.size;
    gl.bindTexture(gl.TEXTURE_2D, this.front.texture);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    this.count++;
    this.begun = true;
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
    const { front, spare, job, fading, overview } = this;
    job?.putAside();
    const drawn = job?.picture === overview ? null : job?.picture;
    for (const each of [front, spare, drawn, fading?.picture, overview]) each?.dispose();
    this.overview = null;
    this.front = null;
    this.spare = null;
    this.job = null;
    this.fading = null;
  }

  /** Draw on the canvas without a picture, if that costs little; returns whether it did. */
  private drawDirectly(scene: Scene, view: View, most: number): boolean {
    const { front, gl, pace } = this;
    if (front?.version === scene.version && view.isAt(front.view)) return false;
    const work = new Work();
    scene.draw(view, work, scene.looks(view));
    if (work.left > Math.max(most, 3 * pace.rate)) return false;
    toCanvas(gl, view);
    clear(gl, scene.paper);
    this.shown = null;
    this.direct = { version: scene.version, view };
    work.run(Number.POSITIVE_INFINITY);
    return true;
  }

  /** Draw for as long as a frame may take; returns whether the picture is not finished. */
  private advance(scene: Scene, view: View, moving: boolean, calm: boolean): boolean {
    if (this.pace.isBusy(moving)) return true;
    let allowed = this.pace.rate * (moving ? MOVING : STILL);
    const before = allowed;
    if (this.job && this.outdated(this.job, scene, view, moving)) this.abandon(this.job);
    for (;;) {
      this.job ??= this.next(scene, view, moving || !calm);
      if (!this.job || allowed <= 0) break;
      allowed -= this.job.run(allowed);
      if (!this.job.done) break;
      this.finish(this.job, moving);
    }
    this.pace.began(before - allowed, before);
    return this.job !== null;
  }

  /** Show the picture, or as much of it as there is, on the canvas; returns whether it did. */
  private show(scene: Scene, view: View, again: boolean): boolean {
    const { gl, front, fading, shown } = this;
    if (!again && front && !fading && shown?.count === this.count && view.isAt(shown.view)) {
      return false;
    }
    toCanvas(gl, view);
    this.direct = null;
    this.shown = front && { count: this.count, view };
    const picture = front ?? this.job?.picture;
    if (!picture?.view) {
      clear(gl, scene.paper);
      return true;
    }
    const share = fading ? Math.min((performance.now() - fading.since) / FADE, 1) : 1;
    if (share === 1) this.endFading();
    const overview = this.overview === this.job?.picture ? null : this.overview;
    if (overview && view.unit > FINER * picture.view.unit) {
      clear(gl, scene.paper);
      this.showPicture(overview, view, 1);
      return true;
    }
    for (const strip of outside(view.covered(picture.view), view.size)) {
      gl.enable(gl.SCISSOR_TEST);
      gl.scissor(...strip);
      clear(gl, scene.paper);
      if (overview) this.showPicture(overview, view, 1);
      gl.disable(gl.SCISSOR_TEST);
    }
    if (this.fading) this.showPicture(this.fading.picture, view, 1);
    this.showPicture(picture, view, share);
    return true;
  }

  private showPicture({ texture, view: own }: Picture, view: View, opacity: number): void {
    const exact = own !== null && view.isShiftOf(own) && isWholeNumber(view.from(own));
    drawImage(this.programs, texture, view.covered(own!), { exact, opacity });
  }

  private endFading(): void {
    if (!this.fading) return;
    this.reuse(this.fading.picture);
    this.fading = null;
  }

  private outdated({ picture, left }: Job, scene: Scene, view: View, moving: boolean): boolean {
    if (picture.version !== scene.version) return true;
    if (picture === this.overview) return !view.isAt(this.front?.view ?? null);
    return !moving && !view.isAt(picture.view) && left > 0.5;
  }

  private abandon(job: Job): void {
    job.putAside();
    if (job.picture === this.overview) this.overview = null;
    this.reuse(job.picture);
    this.job = null;
  }

  /** The next picture to draw; null if the one that is there is right, or right for now. */
  private next(scene: Scene, view: View, rough: boolean): Job | null {
    const { front } = this;
    const current = front?.version === scene.version;
    if (current && view.isAt(front.view)) {
      if (rough) return null;
      const looks = front.fresh ? front.looks : scene.looks(view);
      front.fresh ||= alike(front.looks, looks);
      if (!front.fresh) return this.whole(scene, view, looks);
      return this.smoothed(scene, view, front) ?? this.everything(scene, view, front);
    }
    const shift = current && front.view && view.isShiftOf(front.view) && view.from(front.view);
    if (shift && isWholeNumber(shift)) {
      const [x, y] = shift.map(Math.round) as Pair;
      const [width, height] = view.size;
      const seen = (width - Math.abs(x)) * (height - Math.abs(y));
      if (Math.abs(x) < width && Math.abs(y) < height && seen > 0.3 * width * height) {
        const picture = this.picture(scene, view, front.looks);
        picture.fresh = false;
        return Job.shifted(this.programs, picture, scene, view, { from: front, by: [x, y] });
      }
    }
    return this.whole(scene, view, scene.looks(view));
  }

  private whole(scene: Scene, view: View, looks: Looks): Job {
    return Job.whole(this.programs, this.picture(scene, view, looks), scene, view, looks);
  }

  /** The same picture with smooth borders of cells; null if it is smooth, or would take long. */
  private smoothed(scene: Scene, view: View, front: Picture): Job | null {
    if (front.smooth) return null;
    front.smooth = true;
    const { programs, gl } = this;
    const allowed = SMOOTHING * this.pace.rate;
    return Job.smooth(programs, scene, view, front.looks, allowed, () => {
      const picture = this.picture(scene, view, front.looks);
      picture.smooth = true;
      return [picture, new Picture(gl, view.size)];
    });
  }

  /** A picture of everything, if there is none. */
  private everything(scene: Scene, view: View, front: Picture): Job | null {
    if (this.overview || front.whole || !scene.box) return null;
    const fit = view.fitting(scene.box);
    const job = this.whole(scene, fit, scene.looks(fit));
    this.overview = job.picture;
    return job;
  }

  private finish({ picture }: Job, moving: boolean): void {
    if (picture === this.overview) {
      this.job = null;
      return;
    }
    this.endFading();
    this.count++;
    const old = this.front;
    const fades = !moving && !this.abrupt;
    this.front = picture;
    this.job = null;
    if (old?.whole && !picture.whole) {
      this.reuse(this.overview);
      this.overview = old;
    } else if (old && fades && old.version !== picture.version && picture.view?.isAt(old.view)) {
      this.fading = { picture: old, since: performance.now() };
    } else {
      this.reuse(old);
    }
    if (!picture.whole) return;
    this.reuse(this.overview);
    this.overview = null;
  }

  /** Keep a picture that is not needed, to draw into it. */
  private reuse(picture: Picture | null): void {
    if (!picture) return;
    this.spare?.dispose();
    this.spare = picture;
  }

  /** A picture to draw into. */
  private picture(scene: Scene, view: View, looks: Looks): Picture {
    let picture = this.spare;
    this.spare = null;
    const [width, height] = view.size;
    if (!picture || picture.size[0] !== width || picture.size[1] !== height) {
      picture?.dispose();
      picture = new Picture(this.gl, view.size);
    }
    const whole = scene.box !== null && isInside(view.rectangle(scene.box));
    const { version } = scene;
    return Object.assign(picture, { view, version, looks, fresh: true, smooth: false, whole });
  }
}

/** Draw on all of the canvas from now on. */
export function toCanvas(gl: GL, { size }: View): void {
  gl.bindFramebuffer(gl.FRAMEBUFFER, null);
  gl.disable(gl.SCISSOR_TEST);
  gl.viewport(0, 0, size[0], size[1]);
}

function isWholeNumber(shift: Readonly<Pair>): boolean {
  return shift.every((x) => Math.abs(x - Math.round(x)) < 0.01);
}

function isInside([x0, y0, x1, y1]: Box): boolean {
  return x0 >= -1 && y0 >= -1 && x1 <= 1 && y1 <= 1;
}

/** The parts of a canvas that a rectangle in clip space leaves free.
 *
 * Each is left, low, width and height in pixels. */
export function outside(
  place: Box,
  [width, height]: Readonly<Pair>,
): [number, number, number, number][] {
  const [left, low, right, top] = place.map((x, k) => {
    const size = k % 2 ? height : width;
    const at = ((x + 1) / 2) * size;
    const whole = Math.abs(at - Math.round(at)) < 0.02 ? Math.round(at) : at;
    return Math.min(Math.max(k < 2 ? Math.ceil(whole) : Math.floor(whole), 0), size);
  }) as Box;
  if (right <= left || top <= low) return [[0, 0, width, height]];
  const parts: [number, number, number, number][] = [
    [0, 0, left, height],
    [right, 0, width - right, height],
    [left, 0, right - left, low],
    [left, top, right - left, height - top],
  ];
  return parts.filter(([, , w, h]) => w > 0 && h > 0);
}
