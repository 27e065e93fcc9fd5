// Going deeper: asks Python for the partition of the window that one looks at.

import type { Camera } from "../geometry/camera";
import type { Box } from "../protocol/messages";
import { askFor, isMesh } from "./asking";
import type { Colors } from "./colors";
import { contains, enlarged, intersection, knownWell, narrowest } from "./depth";
import { sentenceOf } from "./failure";
import { Latest } from "./latest";
import { Level, type PaneView } from "./panes";
import type { Stage } from "./stage";

/** How much more than the picture is asked for, so that one can move a little. */
const MARGIN = 1.4;
/** A window that is this much larger than the picture is too coarse to wait for. */
const TOO_LARGE = 4;
const TOO_LARGE_RASTER = 1.5;
/** If answers take longer than this, questions wait until the camera rests; milliseconds. */
const QUICK = 120;
const REST = 90;

interface Question {
  window: Box;
  /** What is seen of it: asked for alone if the window has too many regions. */
  seen: Box;
  pixels: number;
  frame: number;
}

/** Asks for the windows of one pane: one question at a time, of which only the newest matters. */
export class Deeper {
  private questions = new Latest<Question>((question, outdated) => this.work(question, outdated));
  /** Why the window that was asked for last cannot be shown; null if it can. */
  problem: string | null = null;
  private asked: Question | null = null;
  private answeredByRaster = false;
  private duration = 0;
  private timer = 0;

  constructor(
    private stage: Stage,
    private colors: Colors,
    private pane: PaneView,
    private frame: () => number,
    private shown: () => void,
  ) {}

  get busy(): boolean {
    return this.questions.busy || this.timer !== 0;
  }

  /** Ask if what is loaded does not show the camera's window well; called for each picture. */
  look(camera: Camera, moving: boolean): void {
    const window = this.pane.seen(camera);
    if (!window || this.pane.isShownWell(camera) || this.isAsked(window)) return;
    if (this.beginsAt) {
      this.begin(this.beginsAt, camera);
      return;
    }
    clearTimeout(this.timer);
    this.timer = 0;
    if (moving && this.duration > QUICK) {
      this.timer = setTimeout(() => {
        this.timer = 0;
        this.ask(camera, window, true);
      }, REST) as unknown as number;
    } else {
      this.ask(camera, window, !moving);
    }
  }

  /** Forget what was asked: the frame or the plane has changed. */
  reset(): void {
    clearTimeout(this.timer);
    this.timer = 0;
    this.questions.drop();
    this.asked = null;
    this.answeredByRaster = false;
    this.problem = null;
  }

  dispose(): void {
    this.reset();
  }

  /** What a file says where it is looked at more closely than it is precise; else null. */
  limitOf(camera: Camera): number | null {
    const level = this.pane.shown(camera);
    if (!level || knownWell(level.mesh.scale, level.precise, camera)) return null;
    return narrowest(level.mesh.scale, level.precise, camera.pixels[0]);
  }

  /** The window to begin with, if all regions are too many and nothing has been asked yet. */
  private get beginsAt(): Box | null {
    return this.asked || this.pane.whole ? null : this.pane.header.start;
  }

  private begin(window: Box, camera: Camera): void {
    this.push({ window, seen: window, pixels: this.pixels(window, camera), frame: this.frame() });
  }

  /** Ask; urgent: the camera rests, so that an older question is not waited for. */
  private push(question: Question, urgent = false): void {
    this.asked = question;
    this.answeredByRaster = false;
    this.problem = null;
    this.questions.push(question, urgent && this.questions.busy);
  }

  private pixels(window: Box, camera: Camera): number {
    const across = (window[2] - window[0]) / camera.unitsPerPixel;
    return Math.max(1, Math.round(across * (globalThis.devicePixelRatio || 1)));
  }

  private isAsked(window: Box): boolean {
    if (!this.asked || this.asked.frame !== this.frame()) return false;
    const factor = this.answeredByRaster ? TOO_LARGE_RASTER : TOO_LARGE;
    const [width, asked] = [window[2] - window[0], this.asked.window[2] - this.asked.window[0]];
    return contains(this.asked.window, window) && asked < factor * width;
  }

  private ask(camera: Camera, window: Box, urgent: boolean): void {
    const wanted = intersection(enlarged(camera.window, MARGIN), this.pane.domain) ?? window;
    const pixels = this.pixels(wanted, camera);
    this.push({ window: wanted, seen: window, pixels, frame: this.frame() }, urgent);
  }

  private async work(question: Question, outdated: () => boolean): Promise<void> {
    const { pane, stage } = this;
    const start = performance.now();
    try {
      const { window, pixels, frame } = question;
      const request = { ask: "window", pane: pane.index, frame, window, pixels } as const;
      const message = await askFor(stage.source, request, "mesh", "raster");
      if (!message || outdated() || stage.disposed) return;
      if (!isMesh(message)) {
        pane.setRaster(message);
        this.answeredByRaster = this.asked === question;
        if (this.answeredByRaster && question.seen !== question.window) {
          this.push({ ...question, window: question.seen });
        }
      } else {
        const level = new Level(message, pane.header, stage.store.state.level);
        const guess = this.colors.guess(pane, level);
        level.coloring = guess ?? (await this.colors.of(pane, level));
        if (outdated() || stage.disposed) return;
        pane.setDetail(level);
        if (guess) stage.track(this.colors.confirm(pane, level));
        if (level.coloring && !pane.whole) this.colors.tell(pane, level.coloring);
      }
      this.shown();
    } catch (error) {
      if (outdated() || stage.disposed) return;
      this.problem = sentenceOf(error);
      this.shown();
    } finally {
      this.duration = performance.now() - start;
    }
  }
}
