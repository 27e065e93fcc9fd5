// When pictures are drawn: at most once for each frame of the screen, and only if asked for.

const KEPT = 240; // times of pictures that are remembered

export class Clock {
  /** How long drawing took, in milliseconds, of the last pictures. */
  readonly frameTimes: number[] = [];
  private frame = 0;
  private pending = 0;
  private disposed = false;

  constructor(private draw: (now: number) => void) {}

  /** Whether nothing is to be drawn, and no work goes on. */
  get idle(): boolean {
    return this.frame === 0 && this.pending === 0;
  }

  /** Draw with the next frame of the screen. */
  request(): void {
    if (this.frame || this.disposed) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      if (this.disposed) return;
      const start = performance.now();
      this.draw(now);
      this.frameTimes.push(performance.now() - start);
      if (this.frameTimes.length > KEPT) this.frameTimes.shift();
    });
  }

  /** Count work until it ends. */
  track(work: Promise<unknown>): void {
    this.pending++;
    const end = () => {
      this.pending--;
    };
    work.then(end, end);
  }

  dispose(): void {
    this.disposed = true;
    cancelAnimationFrame(this.frame);
  }
}
