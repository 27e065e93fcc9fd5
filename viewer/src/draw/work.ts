// Work in small steps, so that it can be spread over frames.

/** Work that can be interrupted wherever it yields, and its result. */
export type Steps<Result> = Generator<void, Result, void>;

/** Do steps until a moment (of performance.now); returns whether they are all done. */
export function stepUntil(steps: Steps<void>, moment: number): boolean {
  do {
    if (steps.next().done) return true;
  } while (performance.now() < moment);
  return false;
}

/** Steps of drawing with their costs: one for each triangle, or for what takes as long. */
export class Work {
  private readonly steps: { cost: number; run: () => void }[] = [];
  private next = 0;
  /** What all steps that are left cost. */
  left = 0;

  add(cost: number, run: () => void): void {
    this.steps.push({ cost, run });
    this.left += cost;
  }

  get done(): boolean {
    return this.next === this.steps.length;
  }

  /** Run steps until they cost as much as is allowed, at least one; returns what they cost. */
  run(allowed: number): number {
    let cost = 0;
    while (!this.done) {
      const step = this.steps[this.next]!;
      if (cost > 0 && cost + step.cost > allowed) break;
      step.run();
      this.next++;
      cost += step.cost;
    }
    this.left -= cost;
    return cost;
  }
}

/** Learns how much work a frame can bear, by asking when the graphics card has done it. */
export class Pace {
  /** Cost per millisecond; at first that of a processor that does the graphics card's work. */
  rate = 1500;
  private pending: { fence: WebGLSync; since: number } | null = null;

  constructor(private readonly gl: WebGL2RenderingContext) {}

  /** Whether the work that was begun last is not done.
   *
   * moving: whether frames are to come quickly. */
  isBusy(moving: boolean): boolean {
    const { gl, pending } = this;
    if (!pending) return false;
    const status = gl.getSyncParameter(pending.fence, gl.SYNC_STATUS);
    const took = performance.now() - pending.since;
    if (status !== gl.SIGNALED && took < 2000) return true;
    gl.deleteSync(pending.fence);
    this.pending = null;
    const [soon, late] = moving ? [10, 18] : [40, 70];
    if (took < soon) this.rate = Math.min(1e7, this.rate * (took < 20 ? 1.6 : 1.2));
    else if (took > late) this.rate = Math.max(1000, this.rate * 0.8);
    return false;
  }

  /** Note that work of a cost was begun; only full slices tell how much a frame can bear. */
  began(cost: number, allowed: number): void {
    if (this.pending || cost < allowed / 2) return;
    const fence = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    if (!fence) return;
    this.gl.flush();
    this.pending = { fence, since: performance.now() };
  }
}
