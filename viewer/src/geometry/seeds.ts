// A coarse grid over a mesh with a cell for each of its squares, from which walks begin.

import type { Mesh } from "./mesh";

export class Seeds {
  private readonly side: number;
  private readonly low: [number, number];
  private readonly perUnit: [number, number];
  private readonly cells: Int32Array;

  /** One pass over the points and one over edges; squares without a cell get a near one. */
  constructor(mesh: Mesh) {
    const { points, edges, halfedgeCell, cellCount } = mesh;
    const side = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(cellCount) / 3)));
    let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let k = 0; k < points.length; k += 2) {
      const x = points[k]!;
      const y = points[k + 1]!;
      if (x < x0) x0 = x;
      if (x > x1) x1 = x;
      if (y < y0) y0 = y;
      if (y > y1) y1 = y;
    }
    this.side = side;
    this.low = [x0, y0];
    this.perUnit = [side / (x1 - x0 || 1), side / (y1 - y0 || 1)];
    this.cells = new Int32Array(side * side).fill(-1);
    const stride = Math.max(1, Math.floor(edges.length / (8 * side * side)));
    for (let h = 0; h < edges.length; h += stride) {
      const vertex = 2 * edges[h]!;
      const cell = halfedgeCell[h]!;
      if (cell >= 0) this.cells[this.squareOf(points[vertex]!, points[vertex + 1]!)] = cell;
    }
    this.fillEmpty();
  }

  /** A cell near a point. */
  at(x: number, y: number): number {
    return this.cells[this.squareOf(x, y)]!;
  }

  private squareOf(x: number, y: number): number {
    const { side, low, perUnit } = this;
    const column = Math.max(0, Math.min(side - 1, Math.floor((x - low[0]) * perUnit[0])));
    const row = Math.max(0, Math.min(side - 1, Math.floor((y - low[1]) * perUnit[1])));
    return row * side + column;
  }

  /** Empty squares take the cell of the nearest square that has one, wave after wave. */
  private fillEmpty(): void {
    const { side, cells } = this;
    const queue = new Int32Array(cells.length);
    let tail = 0;
    for (let k = 0; k < cells.length; k++) if (cells[k]! >= 0) queue[tail++] = k;
    const spread = (to: number, cell: number) => {
      if (cells[to]! >= 0) return;
      cells[to] = cell;
      queue[tail++] = to;
    };
    for (let head = 0; head < tail; head++) {
      const k = queue[head]!;
      const column = k % side;
      if (column > 0) spread(k - 1, cells[k]!);
      if (column < side - 1) spread(k + 1, cells[k]!);
      if (k >= side) spread(k - side, cells[k]!);
      if (k < cells.length - side) spread(k + side, cells[k]!);
    }
  }
}
