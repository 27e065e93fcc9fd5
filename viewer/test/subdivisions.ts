// Subdivisions for tests: a square divided by lines and chords, and grids of any size.

import { Mesh } from "../src/geometry/mesh";
import type { MeshHeader, Message, NumberArray, Pair } from "../src/protocol/messages";

/** Numbers from 0 to 1 that are the same in every run. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Convex polygons that share vertices; edges that were made by a cut have its number. */
export class Subdivision {
  points: Pair[];
  cells: number[][];
  layerOf = new Map<string, number>();

  constructor(corners: Pair[]) {
    this.points = [...corners];
    this.cells = [corners.map((_, k) => k)];
  }

  /** Divide every cell along the line a u + b v = c. */
  cutAll(a: number, b: number, c: number, layer = 0): this {
    const side = (vertex: number) => {
      const [u, v] = this.points[vertex]!;
      return a * u + b * v - c;
    };
    const made = new Map<string, number>();
    for (const cell of this.cells) this.splitEdges(cell, side, made, layer);
    const cells: number[][] = [];
    for (const cell of this.cells) {
      const on = cell.filter((vertex) => made.has(`on ${vertex}`) || side(vertex) === 0);
      if (on.length === 2 && cell.some((k) => !on.includes(k) && side(k) > 0)) {
        cells.push(...this.divided(cell, on[0]!, on[1]!, layer));
      } else cells.push(cell);
    }
    this.cells = cells;
    return this;
  }

  /** Divide one cell by a chord between points of two of its edges. */
  cutOne(cell: number, random: () => number, layer = 0): this {
    const ring = this.cells[cell]!;
    const i = Math.floor(random() * ring.length);
    const j = (i + 1 + Math.floor(random() * (ring.length - 1))) % ring.length;
    const ends = [i, j].map((k) => [ring[k]!, ring[(k + 1) % ring.length]!] as Pair);
    const [p, q] = ends.map(([a, b]) => this.inserted(a, b, 0.2 + 0.6 * random()));
    const [one, two] = this.divided(this.cells[cell]!, p!, q!, layer);
    if (one!.length < 3 || two!.length < 3) return this;
    this.cells[cell] = one!;
    this.cells.push(two!);
    return this;
  }

  private splitEdges(
    cell: number[],
    side: (vertex: number) => number,
    made: Map<string, number>,
    layer: number,
  ): void {
    for (let k = 0; k < cell.length; k++) {
      const [p, q] = [cell[k]!, cell[(k + 1) % cell.length]!];
      const [at, next] = [side(p), side(q)];
      if (made.has(`on ${p}`) || made.has(`on ${q}`) || !(at * next < 0)) continue;
      const key = nameOf(p, q);
      let middle = made.get(key);
      if (middle === undefined) {
        const [a, b] = p < q ? [p, q] : [q, p];
        const t = side(a) / (side(a) - side(b));
        middle = this.between(a, b, t);
        this.inherit(p, q, middle);
        made.set(key, middle);
        made.set(`on ${middle}`, layer);
      }
      cell.splice(k + 1, 0, middle);
    }
  }

  /** A new vertex on the edge from p to q, in all cells that have the edge. */
  private inserted(p: number, q: number, t: number): number {
    const middle = this.between(p, q, t);
    this.inherit(p, q, middle);
    for (const cell of this.cells) {
      const k = cell.findIndex((vertex, at) => {
        const next = cell[(at + 1) % cell.length];
        return (vertex === p && next === q) || (vertex === q && next === p);
      });
      if (k >= 0) cell.splice(k + 1, 0, middle);
    }
    return middle;
  }

  private between(a: number, b: number, t: number): number {
    const [p, q] = [this.points[a]!, this.points[b]!];
    this.points.push([p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])]);
    return this.points.length - 1;
  }

  private inherit(p: number, q: number, middle: number): void {
    const layer = this.layerOf.get(nameOf(p, q));
    if (layer === undefined) return;
    this.layerOf.set(nameOf(p, middle), layer);
    this.layerOf.set(nameOf(middle, q), layer);
  }

  private divided(cell: number[], p: number, q: number, layer: number): number[][] {
    const turned = [...cell.slice(cell.indexOf(p)), ...cell.slice(0, cell.indexOf(p))];
    const at = turned.indexOf(q);
    this.layerOf.set(nameOf(p, q), layer);
    return [turned.slice(0, at + 1), [...turned.slice(at), p]];
  }

  /** The message of the mesh; outputs: the values at a vertex; region: of each cell. */
  message(outputs: (uv: Pair) => number[] = () => [], more: Partial<MeshHeader> = {}) {
    return meshMessage(this.points, this.cells, outputs, more, this.layerOf);
  }

  mesh(outputs: (uv: Pair) => number[] = () => [], more: Partial<MeshHeader> = {}): Mesh {
    return Mesh.of(this.message(outputs, more));
  }
}

function nameOf(p: number, q: number): string {
  return p < q ? `${p},${q}` : `${q},${p}`;
}

export function square(side = 1): Subdivision {
  return new Subdivision([
    [-side, -side],
    [side, -side],
    [side, side],
    [-side, side],
  ]);
}

/** A square with random lines through all of it, and random chords through single cells. */
export function randomSubdivision(seed: number, lines: number, chords: number): Subdivision {
  const random = randomNumbers(seed);
  const made = square();
  for (let k = 0; k < lines; k++) {
    const angle = 2 * Math.PI * random();
    made.cutAll(Math.cos(angle), Math.sin(angle), 1.2 * random() - 0.6, k);
  }
  for (let k = 0; k < chords; k++) {
    made.cutOne(Math.floor(random() * made.cells.length), random, lines + k);
  }
  return made;
}

export function meshMessage(
  points: Pair[],
  cells: number[][],
  outputs: (uv: Pair) => number[],
  more: Partial<MeshHeader> = {},
  layerOf = new Map<string, number>(),
): Message<MeshHeader> {
  const known = new Map<string, number>();
  const edges: number[] = [];
  const corners: number[] = [];
  const layers: number[] = [];
  for (const cell of cells) {
    cell.forEach((p, k) => {
      const q = cell[(k + 1) % cell.length]!;
      const name = nameOf(p, q);
      let edge = known.get(name);
      if (edge === undefined) {
        edge = edges.length / 2;
        known.set(name, edge);
        edges.push(p, q);
        layers.push(layerOf.get(name) ?? -1);
      }
      corners.push(2 * edge + (edges[2 * edge] === p ? 0 : 1));
    });
  }
  const { center, scale } = { center: [0, 0] as Pair, scale: 1, ...more };
  const values = points.map((at) => outputs(at));
  const local = points.flatMap(([u, v]) => [(u - center[0]) / scale, (v - center[1]) / scale]);
  return {
    header: headerOf(cells.length, values[0]!.length, more),
    arrays: {
      points: array(Float64Array.from(local), 2),
      edges: array(Uint32Array.from(edges), 2),
      corners: array(Uint32Array.from(corners)),
      counts: array(Uint16Array.from(cells, (cell) => cell.length)),
      edgeLayer: array(Int16Array.from(layers)),
      edgeUnit: array(Int32Array.from(layers, (layer) => (layer < 0 ? -1 : layer % 3))),
      boundary: array(new Uint32Array()),
      values: array(Float32Array.from(values.flat()), values[0]!.length),
    },
  };
}

export function headerOf(regions: number, outputs: number, more: Partial<MeshHeader> = {}) {
  const header: MeshHeader = {
    kind: "mesh",
    id: "0/0",
    pane: 0,
    frame: 0,
    center: [0, 0],
    scale: 1,
    window: null,
    regionCount: regions,
    outputs: Array.from({ length: outputs }, (_, k) => k),
    ranges: Array.from({ length: outputs }, () => [0, 1] as Pair),
    unresolved: 0,
    ...more,
  };
  return header;
}

function array(data: NumberArray, columns = 0): { data: NumberArray; shape: number[] } {
  const shape = columns ? [data.length / columns, columns] : [data.length];
  return { data, shape };
}

/** A grid of n times n cells on the square from -1 to 1 whose inner vertices are moved a little. */
export function gridMesh(n: number, seed = 1, outputs: (uv: Pair) => number[] = () => []): Mesh {
  const random = randomNumbers(seed);
  const wide = n + 1;
  const points = new Float64Array(2 * wide * wide);
  for (let row = 0; row < wide; row++) {
    for (let column = 0; column < wide; column++) {
      const inner = row > 0 && row < n && column > 0 && column < n ? 0.4 / n : 0;
      const at = 2 * (row * wide + column);
      points[at] = (2 * column) / n - 1 + inner * (random() - 0.5);
      points[at + 1] = (2 * row) / n - 1 + inner * (random() - 0.5);
    }
  }
  const across = n * wide; // edges to the right come first, then edges upwards
  const edges = new Uint32Array(4 * across);
  for (let row = 0; row < wide; row++) {
    for (let column = 0; column < n; column++) {
      const right = 2 * (row * n + column);
      edges[right] = row * wide + column;
      edges[right + 1] = row * wide + column + 1;
      const up = 2 * (across + column * wide + row);
      edges[up] = column * wide + row;
      edges[up + 1] = (column + 1) * wide + row;
    }
  }
  const corners = new Uint32Array(4 * n * n);
  for (let row = 0, k = 0; row < n; row++) {
    for (let column = 0; column < n; column++, k += 4) {
      corners[k] = 2 * (row * n + column);
      corners[k + 1] = 2 * (across + row * wide + column + 1);
      corners[k + 2] = 2 * ((row + 1) * n + column) + 1;
      corners[k + 3] = 2 * (across + row * wide + column) + 1;
    }
  }
  const width = outputs([0, 0]).length;
  const values = new Float32Array(width * wide * wide);
  for (let k = 0; k < wide * wide; k++) {
    values.set(outputs([points[2 * k]!, points[2 * k + 1]!]), k * width);
  }
  return Mesh.of({
    header: headerOf(n * n, width),
    arrays: {
      points: array(points, 2),
      edges: array(edges, 2),
      corners: array(corners),
      counts: array(new Uint8Array(n * n).fill(4)),
      edgeLayer: array(new Int16Array(2 * across)),
      edgeUnit: array(Int32Array.from({ length: 2 * across }, (_, k) => k % 100)),
      boundary: array(new Uint32Array()),
      values: array(values, width),
    },
  });
}
