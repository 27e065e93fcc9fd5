// The worker: it trains, keeps what has been, and computes the regions of every frame.

import code from "../../kernel/kernel.wasm";
import type { Box } from "../protocol/messages";
import { type Task, taskOf } from "./data";
import type { Experiment } from "./experiment";
import { Kernel } from "./kernel";
import { type Network, onPlane } from "./network";
import { outputsAt } from "./partition";
import { type Pixels, pixelsOf, type Snapshot, SQUARE, snapshotOf } from "./snapshot";
import { networkOf, Trainer } from "./training";

export type Ask =
  | { ask: "begin"; experiment: Experiment }
  /** Colour regions by other numbers. */
  | { ask: "color"; color: string; window: Box | null }
  | { ask: "open"; network: Network }
  /** Train so many steps, and show what is then; window: a part of the square that is looked at;
   * more: whether the next steps follow at once, and whether a graphics card draws them. */
  | { ask: "run"; steps: number; window: Box | null; more?: { card: boolean } }
  /** Go to a moment of the run; training goes on from there. */
  | { ask: "back"; moment: number; window: Box | null }
  /** Look at another plane of the network of a file. */
  | { ask: "slice"; origin: number[]; basis: [number[], number[]]; window: Box | null };

/** The curves over time, a number for each moment that is kept. */
export interface History {
  step: number[];
  loss: number[];
  regions: number[];
  boundary: number[];
  slope: number[];
}

export interface Answer {
  /** What changes little from frame to frame is sent a few times a second; null: not this time. */
  network: Network | null;
  history: History | null;
  step: number;
  moment: number;
  snapshot: Snapshot | null;
  pixels: Pixels | null;
  /** How long the regions took, in milliseconds. */
  took: number;
  problem: string | null;
}

const SELDOM = 180; // milliseconds between what is shown beside the picture
/** Moments, and numbers in all of them; when there are more, every second one is forgotten. */
const [KEPT, ROOM] = [1200, 2 ** 24];

class Session {
  private task: Task | null = null;
  private trainer: Trainer | null = null;
  private file: Network | null = null;
  private network: Network = { layers: [] };
  private saved: Float64Array[][] = [];
  private every = 1;
  private color = "class";
  private runs = 0;
  private moment = -1;
  private history = emptyHistory();
  /** When all was sent. */
  private sent = 0;

  constructor(private readonly kernel: Kernel) {}

  answer(ask: Ask): Answer {
    let window: Box | null = null;
    if (ask.ask === "begin") {
      this.color = ask.experiment.color;
      this.task = taskOf(ask.experiment);
      this.network = networkOf(ask.experiment, this.task.outputs);
      this.trainer = new Trainer(this.kernel, this.network, this.task, ask.experiment);
      this.forget();
    } else if (ask.ask === "open") {
      [this.trainer, this.task, this.file] = [null, null, ask.network];
      this.network = ask.network;
      this.forget();
      const inputs = ask.network.layers[0]!.inputs;
      const axis = (k: number) => Array.from({ length: inputs }, (_, j) => Number(j === k));
      this.network = onPlane(ask.network, new Array(inputs).fill(0), [axis(0), axis(1)]);
    } else if (ask.ask === "color") {
      [this.color, window] = [ask.color, ask.window];
    } else if (ask.ask === "slice") {
      if (this.file) this.network = onPlane(this.file, ask.origin, ask.basis);
      window = ask.window;
    } else if (ask.ask === "back") {
      this.goTo(ask.moment);
      window = ask.window;
    } else {
      window = ask.window;
      for (let k = 0; k < ask.steps; k++) this.trainer?.learn();
      if (ask.steps) this.cutAfter(this.moment);
    }
    const keep = ask.ask === "begin" || (ask.ask === "run" && ask.steps > 0);
    return this.shown(window, keep, (ask.ask === "run" && ask.more) || null);
  }

  private forget(): void {
    [this.saved, this.every, this.runs, this.moment] = [[], 1, 0, -1];
    this.history = emptyHistory();
  }

  /** Forget what came after a moment. */
  private cutAfter(moment: number): void {
    this.saved.length = moment + 1;
    for (const curve of Object.values(this.history) as number[][]) curve.length = moment + 1;
  }

  private goTo(moment: number): void {
    const saved = this.saved[moment];
    if (!this.trainer || !saved) return;
    this.trainer.restore(saved, this.history.step[moment]!);
    this.moment = moment;
  }

  /** What is shown now; keep: whether it is a moment that one can come back to; more: whether
   * others follow at once, so that not all need be sent, and whether a graphics card draws them. */
  private shown(window: Box | null, keep: boolean, more: { card: boolean } | null): Answer {
    const begun = performance.now();
    const due = !more || begun - this.sent > SELDOM;
    if (due) this.sent = begun;
    const wanted = { classes: this.task?.kind !== "numbers", color: this.color, more };
    const whole = snapshotOf(this.kernel, this.network, SQUARE, wanted);
    const took = performance.now() - begun;
    if (keep && this.trainer) this.keep(whole);
    const exact = window && whole ? snapshotOf(this.kernel, this.network, window, wanted) : whole;
    return {
      network: due ? this.network : null,
      history: due ? this.history : null,
      step: this.trainer?.step ?? 0,
      moment: this.moment,
      snapshot: exact,
      pixels: exact ? null : pixelsOf(this.network, window ?? SQUARE),
      took,
      problem: null,
    };
  }

  private keep(whole: Snapshot | null): void {
    const { trainer, history, saved } = this;
    this.runs += 1;
    if (this.runs % this.every && this.moment >= 0) {
      // The last moment is always there.
      saved.pop();
      for (const curve of Object.values(history) as number[][]) curve.pop();
    }
    const state = trainer!.save();
    saved.push(state);
    history.step.push(trainer!.step);
    history.loss.push(trainer!.loss(outputsAt(this.kernel, this.network, this.task!.points)));
    history.regions.push(whole?.regions ?? 0);
    history.boundary.push(whole?.boundaryLength ?? 0);
    history.slope.push(whole?.largestSlope ?? 0);
    const numbers = state.reduce((sum, { length }) => sum + length, 0);
    if (saved.length > Math.min(KEPT, Math.max(16, ROOM / numbers))) this.thin();
    this.moment = saved.length - 1;
  }

  private thin(): void {
    this.every *= 2;
    this.saved = this.saved.filter((_, k) => k % 2 === 0);
    for (const name of Object.keys(this.history) as (keyof History)[]) {
      this.history[name] = this.history[name].filter((_, k) => k % 2 === 0);
    }
  }
}

function emptyHistory(): History {
  return { step: [], loss: [], regions: [], boundary: [], slope: [] };
}

/** The memory of arrays, which is sent without a copy. */
function buffersIn(value: unknown, found = new Set<ArrayBuffer>()): Set<ArrayBuffer> {
  if (ArrayBuffer.isView(value)) found.add(value.buffer as ArrayBuffer);
  else if (value && typeof value === "object") {
    for (const part of Object.values(value)) buffersIn(part, found);
  }
  return found;
}

let session: Promise<Session> | null = null;

self.onmessage = async ({ data }: MessageEvent<Ask>) => {
  session ??= Kernel.of(code).then((kernel) => new Session(kernel));
  try {
    const answer = (await session).answer(data);
    const { snapshot, pixels } = answer;
    const { arrays, prepared, coloring, level } = snapshot ?? {};
    const moved = [...buffersIn([arrays, prepared, coloring?.arrays, level, pixels])];
    self.postMessage(answer, { transfer: moved });
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    self.postMessage({ problem } as Answer);
  }
};
