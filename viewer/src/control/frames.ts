// The slider: the mesh of a frame, kept for a while, and the next one fetched ahead.

import { askFor } from "./asking";
import type { Colors } from "./colors";
import { Latest, Recent } from "./latest";
import { Level, type PaneView } from "./panes";
import type { Stage } from "./stage";

const KEPT = 6;

/** Loads the frames of one pane. */
export class Frames {
  private levels = new Recent<Promise<Level | null>>(KEPT);
  private wanted = new Latest<number>((frame, outdated) => this.work(frame, outdated));
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

  /** Load the present frame anew: the plane has moved. */
  async reload(): Promise<void> {
    this.wanted.drop();
    this.levels.clear();
    await this.work(this.current, () => false);
  }

  dispose(): void {
    this.wanted.drop();
    this.levels.clear();
  }

  private async work(frame: number, outdated: () => boolean): Promise<void> {
    try {
      const level = await this.level(frame);
      const coloring = level && (await this.colors.of(this.pane, level));
      if (!level || outdated() || this.stage.disposed) return;
      level.coloring = coloring;
      this.current = frame;
      this.pane.setDetail(null);
      this.pane.setRaster(null);
      this.pane.setWhole(level);
      if (coloring && this.pane.index === 0) this.stage.panels.showColoring(coloring);
      this.shown();
      this.prefetch(frame + 1);
    } catch (error) {
      if (!outdated() && !this.stage.disposed) this.stage.report(error);
    }
  }

  private level(frame: number): Promise<Level | null> {
    const key = String(frame);
    const before = this.levels.get(key);
    if (before) return before;
    const request = { ask: "mesh", pane: this.pane.index, frame } as const;
    const level = askFor(this.stage.source, request, "mesh").then(
      (message) => message && new Level(message, this.pane.header, this.stage.store.state.level),
    );
    this.levels.set(key, level);
    const forget = () => this.levels.delete(key);
    level.then((found) => {
      if (!found) forget();
    }, forget);
    return level;
  }

  private prefetch(frame: number): void {
    if (frame >= this.pane.header.frames.length) return;
    this.level(frame)
      .then((level) => level && this.colors.of(this.pane, level))
      .catch(() => {}); // it is asked for again, and reported, when it is wanted
  }
}
