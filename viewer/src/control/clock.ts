// When pictures are drawn: at most once for each frame of the screen, and only if asked for.

const KEPT = 240; // times of pictures that are remembered

export class Clock {
  /** How long drawing took, in milliseconds, of the last pictures. */
  readonly frameTimes: number[] = [];
  private frame = 0;
  private pending = 0;
  private disposed = false;

  /** When the first complete picture was there: the next frame begins after it is drawn. */
  firstComplete: number | null = null;
  /** Whether something has changed since the last picture. */
  changed = true;

  /** draw: returns whether the picture is complete. */
  constructor(private draw: (now: number) => boolean) {}

  /** Whether nothing is to be drawn, and no work goes on. */
  get idle(): boolean {
    return this.frame === 0 && this.pending === 0;
  }

  /** Draw with the next frame of the screen; changed: not only to go on with what was begun. */
  request(changed = true): void {
    this.changed ||= changed;
    if (this.frame || this.disposed) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      if (!this.disposed) this.drawAt(now);
    });
  }

  /** Draw at once. */
  drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.disposed) this.drawAt(performance.now());
  }

  private drawAt(now: number): void {
    const start = performance.now();
    this.changed = false;
    const complete = this.draw(now);
    const end = performance.now();
    if (complete && this.firstComplete === null) {
      requestAnimationFrame(() => {
        this.firstComplete ??= performance.now();
      });
    }
    this.frameTimes.push(end - start);
    if (this.frameTimes.length > KEPT) this.frameTimes.shift();
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
