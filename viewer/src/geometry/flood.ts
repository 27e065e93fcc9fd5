// Cells reached from a cell by crossing edges, nearest first.

import type { Mesh } from "./mesh";

/** Which cells were reached, and whether these are all. */
export interface Reached {
  cells: Uint32Array;
  complete: boolean;
}

export class Flood {
  private readonly stamps: Uint32Array;
  private stamp = 0;

  constructor(private readonly mesh: Mesh) {
    this.stamps = new Uint32Array(mesh.cellCount);
  }

  /** At most `limit` cells that are reached from `start` by crossing edges for which `crosses`. */
  from(start: number, limit: number, crosses: (edge: number) => boolean): Reached {
    const { stamps } = this;
    const { corners, offsets, halfedgeCell } = this.mesh;
    const stamp = ++this.stamp;
    const queue = [start];
    stamps[start] = stamp;
    for (let head = 0; head < queue.length; head++) {
      const cell = queue[head]!;
      for (let k = offsets[cell]!; k < offsets[cell + 1]!; k++) {
        const h = corners[k]!;
        const next = halfedgeCell[h ^ 1]!;
        if (next < 0 || stamps[next] === stamp || !crosses(h >> 1)) continue;
        if (queue.length >= limit) return { cells: Uint32Array.from(queue), complete: false };
        stamps[next] = stamp;
        queue.push(next);
      }
    }
    return { cells: Uint32Array.from(queue), complete: true };
  }
}
