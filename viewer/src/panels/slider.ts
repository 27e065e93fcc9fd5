// The frames of a run: a slider over epochs or checkpoints, which can play and follow the run.

import type { PaneHeader } from "../protocol/messages";
import type { Store } from "../state";
import { box, element, show, text } from "./dom";
import { iconButton, setIcon } from "./icons";

const PERIOD = 700; // milliseconds between frames while playing

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

  constructor(private readonly store: Store) {
    this.following.textContent = "following";
    this.bar = box("sc-frames", this.play, this.input, this.label, this.following);
    show(this.bar, false);
    store.listen((_, changed) => {
      if (changed.has("frame")) this.update();
    });
  }

  get last(): number {
    return this.labels.length - 1;
  }

  showPanes(panes: readonly PaneHeader[]): void {
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

  stop(): void {
    window.clearInterval(this.timer);
    this.timer = 0;
    this.update();
  }

  private next(): void {
    if (this.store.state.frame >= this.last && !this.grows) this.stop();
    else this.go(this.store.state.frame + 1);
  }

  private follow(on: boolean): void {
    const jump = on && !this.follows;
    this.follows = on;
    show(this.following, this.grows);
    this.following.setAttribute("aria-pressed", String(on));
    if (jump) this.store.set({ frame: Math.max(0, this.last) });
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
