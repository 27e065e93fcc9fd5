// Drawing as a list of small steps, so that it can be spread over frames.

/** Steps of drawing, with what they cost: one for each triangle. */
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
  private pending: { fence: WebGLSync; cost: number; since: number } | null = null;

  constructor(private readonly gl: WebGL2RenderingContext) {}

  /** Whether the work that was begun last is not done. */
  get busy(): boolean {
    const { gl, pending } = this;
    if (!pending) return false;
    const status = gl.getSyncParameter(pending.fence, gl.SYNC_STATUS);
    const took = performance.now() - pending.since;
    if (status !== gl.SIGNALED && took < 2000) return true;
    gl.deleteSync(pending.fence);
    this.pending = null;
    // What was done by the next frame may have been done long before it.
    if (took < 24) this.rate = Math.max(this.rate, Math.min((2 * pending.cost) / took, 1e7));
    else this.rate = Math.max(500, Math.min(this.rate, (pending.cost + 2000) / took));
    return false;
  }

  /** Note that work of a cost was begun. */
  began(cost: number): void {
    if (this.pending || cost < 1000) return;
    const fence = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    if (!fence) return;
    this.gl.flush();
    this.pending = { fence, cost, since: performance.now() };
  }
}
