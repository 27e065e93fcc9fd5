// The frames of a run: a slider over epochs or checkpoints, which can play and follow the run.

import type { PaneHeader } from "../protocol/messages";
import type { Store } from "../state";
import { box, element, show, text } from "./dom";
import { iconButton, setIcon } from "./icons";

const PERIOD = 700; // milliseconds between frames while playing
/** A run that is quiet for so many milliseconds, and for so many times its longest pause, rests. */
const [QUIET, PAUSES] = [15_000, 3];

/** How long a run goes on after its last frame, at most, in milliseconds.
 *
 * times: when the page was opened, and when each frame came. */
export function patience(times: readonly number[]): number {
  const pauses = times.slice(1).map((time, k) => time - times[k]!);
  return Math.max(QUIET, PAUSES * Math.max(0, ...pauses));
}

export class FrameSlider {
  readonly bar: HTMLElement;
  private readonly play = iconButton("play", "Play", () => this.togglePlay());
  private readonly label = text("sc-frame-label", "");
  private readonly following = element("button", {
    class: "sc-chip",
    title: "Show new frames as they come",
    type: "button",
    click: () => this.follow(!this.follows),
  });
  private readonly input = element("input", {
    class: "sc-range",
    type: "range",
    min: "0",
    step: "1",
    "aria-label": "Frame",
    input: () => this.go(this.input.valueAsNumber),
  });
  private labels: string[] = [];
  private panes: string[][] = [];
  private grows = false;
  private follows = false;
  private timer = 0;
  /** When the page was opened, and when frames came. */
  private times = [performance.now()];
  private resting = 0;

  constructor(private readonly store: Store) {
    this.following.textContent = "following";
    this.bar = box("sc-frames", this.play, this.input, this.label, this.following);
    show(this.following, false);
    show(this.bar, false);
    store.listen((_, changed) => {
      if (changed.has("frame")) this.update();
    });
  }

  get last(): number {
    return this.labels.length - 1;
  }

  showPanes(panes: readonly Pick<PaneHeader, "frames" | "grows">[]): void {
    this.panes = panes.map((pane) => [...pane.frames]);
    this.grows = panes.some((pane) => pane.grows);
    this.relabel();
    const { frame } = this.store.state;
    this.follow(this.grows && (frame === 0 || frame >= this.last));
  }

  /** Show the frames of a pane after some were added; go to the last one if this is followed. */
  showFrames(pane: number, frames: readonly string[]): void {
    this.panes[pane] = [...frames];
    this.relabel();
    this.came();
    if (this.follows) this.store.set({ frame: this.last });
  }

  /** Go to a frame, or to the next one after the end: the first. */
  go(frame: number): void {
    const last = this.last;
    this.follow(this.grows && frame >= last);
    this.store.set({ frame: Math.max(0, Math.min(frame, last)) });
  }

  step(by: number): void {
    if (this.labels.length > 1) this.go(this.store.state.frame + by);
  }

  togglePlay(): void {
    if (this.timer) this.stop();
    else if (this.labels.length > 1) {
      if (this.store.state.frame >= this.last) this.store.set({ frame: 0 });
      this.timer = window.setInterval(() => this.next(), PERIOD);
    }
    this.update();
  }

  dispose(): void {
    window.clearTimeout(this.resting);
    this.stop();
  }

  private stop(): void {
    window.clearInterval(this.timer);
    this.timer = 0;
    this.update();
  }

  private next(): void {
    if (this.store.state.frame >= this.last) this.stop();
    else this.go(this.store.state.frame + 1);
  }

  private follow(on: boolean): void {
    const jump = on && !this.follows;
    this.follows = on;
    this.following.setAttribute("aria-pressed", String(on));
    if (jump) this.store.set({ frame: Math.max(0, this.last) });
  }

  /** A frame came: say that frames are followed until the run has ended, as far as one can tell. */
  private came(): void {
    this.times = [...this.times.slice(-8), performance.now()];
    show(this.following, this.grows);
    window.clearTimeout(this.resting);
    this.resting = window.setTimeout(() => show(this.following, false), patience(this.times));
  }

  /** Take the labels of the pane with the most frames. */
  private relabel(): void {
    this.labels = this.panes.reduce((a, b) => (b.length > a.length ? b : a), []);
    show(this.bar, this.labels.length > 1 || this.grows);
    this.update();
  }

  private update(): void {
    const frame = Math.max(0, Math.min(this.store.state.frame, this.last));
    const label = this.labels[frame] ?? "";
    this.input.max = String(Math.max(0, this.last));
    this.input.disabled = this.last < 1;
    this.input.value = String(frame);
    this.input.style.setProperty("--sc-filled", `${(100 * frame) / Math.max(1, this.last)}%`);
    this.input.setAttribute("aria-valuetext", label);
    this.label.textContent = label;
    this.label.title = label;
    const [name, words] = this.timer ? (["pause", "Pause"] as const) : (["play", "Play"] as const);
    if (this.play.title !== words) setIcon(this.play, name, words);
  }
}
