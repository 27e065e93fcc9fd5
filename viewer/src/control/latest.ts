// Requests of which only the newest matters.

/** Runs one task at a time; of those that come meanwhile, only the newest is run. */
export class Latest<T> {
  private running = 0;
  private waiting: { item: T } | null = null;
  private generation = 0;

  /** work: does the task, and asks `outdated()` before it shows what came out. */
  constructor(private work: (item: T, outdated: () => boolean) => Promise<void>) {}

  get busy(): boolean {
    return this.running > 0;
  }

  /** Add a task; urgent: it does not wait for the one that runs, which is outdated then. */
  push(item: T, urgent = false): void {
    this.waiting = { item };
    if (urgent) this.generation++;
    if (!this.running || urgent) void this.run();
  }

  /** Forget what waits, and declare outdated what runs. */
  drop(): void {
    this.waiting = null;
    this.generation++;
  }

  private async run(): Promise<void> {
    this.running++;
    try {
      while (this.waiting) {
        const { item } = this.waiting;
        this.waiting = null;
        const generation = this.generation;
        await this.work(item, () => generation !== this.generation);
      }
    } finally {
      this.running--;
    }
  }
}

/** The newest few of what was computed or loaded. */
export class Recent<T> {
  private entries = new Map<string, T>();

  /** dropped: called with what is forgotten. */
  constructor(
    private limit: number,
    private dropped: (value: T) => void = () => {},
  ) {}

  get(key: string): T | undefined {
    const value = this.entries.get(key);
    if (value !== undefined) {
      this.entries.delete(key);
      this.entries.set(key, value);
    }
    return value;
  }

  set(key: string, value: T): void {
    this.delete(key);
    this.entries.set(key, value);
    for (const [oldest] of this.entries) {
      if (this.entries.size <= this.limit) break;
      this.delete(oldest);
    }
  }

  delete(key: string): void {
    const value = this.entries.get(key);
    if (value === undefined) return;
    this.entries.delete(key);
    this.dropped(value);
  }

  clear(): void {
    for (const key of [...this.entries.keys()]) this.delete(key);
  }
}
