// Cells reached from a cell by crossing edges, nearest first.

import type { Mesh } from "./mesh";

/** Which cells were reached, and whether these are all. */
export interface Reached {
  cells: Uint32Array;
  complete: boolean;
}

const NEARBY = 300; // cells

export class Flood {
  private readonly stamps: Uint32Array;
  private stamp = 0;
  /** The cells that `spreadNear` has reached. */
  readonly near = new Uint32Array(NEARBY);
  /** Whether the last flood has reached all that it could. */
  private complete = true;

  constructor(private readonly mesh: Mesh) {
    this.stamps = new Uint32Array(mesh.cellCount);
  }

  /** At most `limit` cells that are reached from `start` by crossing edges for which `crosses`. */
  from(start: number, limit: number, crosses: (edge: number) => boolean): Reached {
    const queue = new Uint32Array(Math.min(limit, this.mesh.cellCount));
    const cells = queue.slice(0, this.spread(queue, start, crosses));
    return { cells, complete: this.complete };
  }

  /** Write the first few hundred of them into `near`; returns how many cells these are.
   *
   * One points often, and whatever is made anew each time is collected some time, which takes
   * milliseconds. */
  spreadNear(start: number, crosses: (edge: number) => boolean): number {
    return this.spread(this.near, start, crosses);
  }

  /** Write what is reached into a queue, as far as it has room; returns how many cells these are. */
  private spread(queue: Uint32Array, start: number, crosses: (edge: number) => boolean): number {
    const { stamps } = this;
    const { corners, offsets, halfedgeCell } = this.mesh;
    const stamp = ++this.stamp;
    let count = 1;
    queue[0] = start;
    stamps[start] = stamp;
    this.complete = true;
    for (let head = 0; head < count; head++) {
      const cell = queue[head]!;
      const end = offsets[cell + 1]!;
      for (let k = offsets[cell]!; k < end; k++) {
        const h = corners[k]!;
        const next = halfedgeCell[h ^ 1]!;
        if (next < 0 || stamps[next] === stamp || !crosses(h >> 1)) continue;
        if (count >= queue.length) {
          this.complete = false;
          return count;
        }
        stamps[next] = stamp;
        queue[count++] = next;
      }
    }
    return count;
  }
}
