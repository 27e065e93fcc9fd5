// The slider: the mesh of a frame, kept for a while, and the next one fetched ahead.

import type { Message, RasterHeader } from "../protocol/messages";
import { askFor, isMesh } from "./asking";
import type { Colors } from "./colors";
import { Latest, Recent } from "./latest";
import { Level, type PaneView } from "./panes";
import type { Stage } from "./stage";

const KEPT = 6;

/** The mesh of a frame, or pixels if it has too many regions. */
type Whole = Level | Message<RasterHeader>;

/** Loads the frames of one pane. */
export class Frames {
  private loaded = new Recent<Promise<Whole | null>>(KEPT);
  private wanted = new Latest<number>((frame, outdated) => this.work(frame, outdated));
  /** How often the plane was moved. */
  private moves = 0;
  /** The frame that is shown. */
  current = 0;

  constructor(
    private stage: Stage,
    private colors: Colors,
    private pane: PaneView,
    private shown: () => void,
  ) {}

  get busy(): boolean {
    return this.wanted.busy;
  }

  /** Show a frame; a pane that has fewer stays at its last one. */
  show(frame: number): void {
    this.wanted.push(Math.max(0, Math.min(frame, this.pane.header.frames.length - 1)));
  }

  /** Forget frames whose labels are others now: a run was continued from an earlier step. */
  relabel(labels: readonly string[]): void {
    const before = this.pane.header.frames;
    for (const [k, label] of before.entries()) {
      if (labels[k] !== label) this.loaded.delete(String(k));
    }
    this.pane.header = { ...this.pane.header, frames: [...labels] };
    if (labels[this.current] !== before[this.current]) this.show(this.current);
  }

  /** Ask for the present frame anew, because the plane moves; resolves when `reload` can show it. */
  refetch(): Promise<unknown> {
    this.moves++;
    this.wanted.drop();
    this.loaded.clear();
    return this.load(this.current).catch(() => {}); // reported where it is shown
  }

  /** Show the present frame after the plane has moved. */
  async reload(): Promise<void> {
    await this.work(this.current, () => false, true);
  }

  dispose(): void {
    this.wanted.drop();
    this.loaded.clear();
  }

  private async work(frame: number, outdated: () => boolean, abrupt = false): Promise<void> {
    try {
      const whole = await this.load(frame);
      const level = whole instanceof Level ? whole : null;
      const guess = level && abrupt ? this.colors.guess(this.pane, level) : null;
      const coloring = guess ?? (level && (await this.colors.of(this.pane, level)));
      if (!whole || outdated() || this.stage.disposed) return;
      if (level) level.coloring = coloring;
      this.current = frame;
      this.pane.setDetail(null);
      this.pane.setRaster(null);
      this.pane.setWhole(whole, abrupt);
      if (coloring && !guess) this.colors.tell(this.pane, coloring);
      this.shown();
      const { moves } = this;
      const moved = () => moves !== this.moves;
      if (guess && level) this.stage.track(this.colors.confirm(this.pane, level, moved));
      this.prefetch(frame + 1);
    } catch (error) {
      if (!outdated() && !this.stage.disposed) this.stage.report(error);
    }
  }

  private load(frame: number): Promise<Whole | null> {
    const key = String(frame);
    const before = this.loaded.get(key);
    if (before) return before;
    const request = { ask: "mesh", pane: this.pane.index, frame } as const;
    const { moves } = this;
    const whole = askFor(this.stage.source, request, "mesh", "raster").then((message) => {
      if (moves !== this.moves) return null; // of a plane that nobody waits for any more
      return message && isMesh(message)
        ? new Level(message, this.pane.header, this.stage.store.state.level)
        : (message as Message<RasterHeader> | null);
    });
    this.loaded.set(key, whole);
    const forget = () => {
      if (this.loaded.get(key) === whole) this.loaded.delete(key);
    };
    whole.then((found) => {
      if (!found) forget();
    }, forget);
    return whole;
  }

  private prefetch(frame: number): void {
    if (frame >= this.pane.header.frames.length) return;
    this.load(frame)
      .then((whole) => (whole instanceof Level ? this.colors.of(this.pane, whole) : null))
      .catch(() => {}); // it is asked for again, and reported, when it is wanted
  }
}
