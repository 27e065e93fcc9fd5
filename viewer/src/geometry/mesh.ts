// A subdivision of the plane into convex cells, as flat arrays of half-edges.
//
// Half-edge h belongs to edge h >> 1, starts at vertex edges[h] and ends at vertex edges[h ^ 1];
// h ^ 1 is the same edge in the cell on its other side. Coordinates of points are local:
// plane = center + scale * local.

import type { MeshHeader, Message, NumberArray, Pair } from "../protocol/messages";

export interface MeshArrays {
  points: Float64Array;
  /** (2E) the start of every half-edge. */
  edges: Uint32Array;
  /** (H) half-edges around each cell, counter-clockwise, cell after cell. */
  corners: Uint32Array;
  /** (C + 1) where each cell's half-edges begin. */
  offsets: Uint32Array;
  /** (C) the region of each cell. */
  region: Uint32Array;
  cellClass: Uint32Array | null;
  edgeLayer: Int16Array;
  edgeUnit: Int32Array;
  /** The edges of the decision boundary. */
  boundary: Uint32Array;
  /** (V, K) outputs at vertices, row after row. */
  values: Float32Array;
  /** The same with the precision in which they came; at deep zoom they come in 64 bits. */
  preciseValues: Float32Array | Float64Array;
  /** (F) the number of corners of each region, or null where regions are cells. */
  regionCorners: Uint8Array | Uint16Array | null;
  /** (F) 0 for settled regions, which are no linear regions; null where there are none. */
  complete: Uint8Array | null;
  /** (F, D) gradients of the winning outputs as multiples of gradientScale (F), in files. */
  gradients: Int8Array | null;
  gradientScale: Float32Array | null;
  /** (F) which outputs these are. */
  gradientOutput: Uint32Array | null;
  /** (E) for a mesh that was cut: the edge of the partition of which each is a piece, or -1. */
  sourceEdge: Int32Array | null;
  /** (C) for a piece of a mesh: the cells of the whole mesh that its cells are. */
  sourceCell: Uint32Array | null;
}

/** The arrays of a mesh with what follows from them, computed when it is first asked for. */
export class Mesh implements Readonly<MeshArrays> {
  readonly points: Float64Array;
  readonly edges: Uint32Array;
  readonly corners: Uint32Array;
  readonly offsets: Uint32Array;
  readonly region: Uint32Array;
  readonly cellClass: Uint32Array | null;
  readonly edgeLayer: Int16Array;
  readonly edgeUnit: Int32Array;
  readonly boundary: Uint32Array;
  readonly values: Float32Array;
  readonly preciseValues: Float32Array | Float64Array;
  readonly regionCorners: Uint8Array | Uint16Array | null;
  readonly complete: Uint8Array | null;
  readonly gradients: Int8Array | null;
  readonly gradientScale: Float32Array | null;
  readonly gradientOutput: Uint32Array | null;
  readonly sourceEdge: Int32Array | null;
  readonly sourceCell: Uint32Array | null;
  private twins: Int32Array | null = null;
  private boundaryMarks: Uint8Array | null = null;
  private cellsByRegion: { first: Uint32Array; cells: Uint32Array } | null = null;

  constructor(
    readonly header: MeshHeader,
    arrays: MeshArrays,
  ) {
    this.points = arrays.points;
    this.edges = arrays.edges;
    this.corners = arrays.corners;
    this.offsets = arrays.offsets;
    this.region = arrays.region;
    this.cellClass = arrays.cellClass;
    this.edgeLayer = arrays.edgeLayer;
    this.edgeUnit = arrays.edgeUnit;
    this.boundary = arrays.boundary;
    this.values = arrays.values;
    this.preciseValues = arrays.preciseValues;
    this.regionCorners = arrays.regionCorners;
    this.complete = arrays.complete;
    this.gradients = arrays.gradients;
    this.gradientScale = arrays.gradientScale;
    this.gradientOutput = arrays.gradientOutput;
    this.sourceEdge = arrays.sourceEdge;
    this.sourceCell = arrays.sourceCell;
  }

  /** The mesh of a message; an Error says which arrays contradict each other. */
  static of(message: Message<MeshHeader>): Mesh {
    const mesh = new Mesh(message.header, arraysOf(message));
    checkNumbers(mesh);
    mesh.twins = linkedRings(mesh);
    return mesh;
  }

  get id(): string {
    return this.header.id;
  }

  get pane(): number {
    return this.header.pane;
  }

  get frame(): number {
    return this.header.frame;
  }

  get center(): Pair {
    return this.header.center;
  }

  get scale(): number {
    return this.header.scale;
  }

  /** Which outputs of the network `values` holds. */
  get outputs(): number[] {
    return this.header.outputs;
  }

  get cellCount(): number {
    return this.offsets.length - 1;
  }

  get edgeCount(): number {
    return this.edges.length / 2;
  }

  get vertexCount(): number {
    return this.points.length / 2;
  }

  get regionCount(): number {
    return this.header.regionCount;
  }

  /** (2E) the cell to the left of every half-edge, -1 outside. */
  get halfedgeCell(): Int32Array {
    if (this.twins) return this.twins;
    const { corners, offsets } = this;
    const cells = new Int32Array(this.edges.length).fill(-1);
    for (let cell = 0; cell < this.cellCount; cell++) {
      for (let k = offsets[cell]!; k < offsets[cell + 1]!; k++) cells[corners[k]!] = cell;
    }
    this.twins = cells;
    return cells;
  }

  /** The same mesh with another decision boundary. */
  withBoundary(boundary: Uint32Array): Mesh {
    const mesh = new Mesh(this.header, { ...this, boundary });
    mesh.twins = this.twins;
    return mesh;
  }

  /** (E) 1 for edges of the decision boundary. */
  get onBoundary(): Uint8Array {
    if (this.boundaryMarks) return this.boundaryMarks;
    const marks = new Uint8Array(this.edgeCount);
    for (const edge of this.boundary) marks[edge] = 1;
    this.boundaryMarks = marks;
    return marks;
  }

  /** The cells of a region. */
  cellsOf(region: number): Uint32Array {
    this.cellsByRegion ??= grouped(this.region, this.regionCount);
    const { first, cells } = this.cellsByRegion;
    return cells.subarray(first[region] ?? 0, first[region + 1] ?? 0);
  }

  /** Whether the region of a cell is not divided: outputs are not affine on it. */
  isSettled(cell: number): boolean {
    return this.complete !== null && this.complete[this.region[cell]!] === 0;
  }

  /** The corners of a cell in plane coordinates, u v u v and so on, counter-clockwise. */
  polygon(cell: number): Float64Array {
    const ring = this.localPolygon(cell);
    return ring.map((x, k) => this.center[k & 1]! + this.scale * x);
  }

  /** The same in local coordinates. */
  localPolygon(cell: number): Float64Array {
    const begin = this.offsets[cell]!;
    const ring = new Float64Array(2 * (this.offsets[cell + 1]! - begin));
    for (let k = 0; k < ring.length; k += 2) {
      const vertex = this.edges[this.corners[begin + k / 2]!]!;
      ring[k] = this.points[2 * vertex]!;
      ring[k + 1] = this.points[2 * vertex + 1]!;
    }
    return ring;
  }

  toLocal(uv: Readonly<Pair>): Pair {
    const { center, scale } = this;
    return [(uv[0] - center[0]) / scale, (uv[1] - center[1]) / scale];
  }

  toPlane(local: Readonly<Pair>): Pair {
    const { center, scale } = this;
    return [center[0] + scale * local[0], center[1] + scale * local[1]];
  }
}

/** The numbers 0, 1, ... in groups: those of group g are cells[first[g]] to cells[first[g + 1]]. */
function grouped(group: Uint32Array, count: number): { first: Uint32Array; cells: Uint32Array } {
  const first = new Uint32Array(count + 1);
  for (let k = 0; k < group.length; k++) first[group[k]! + 1]!++;
  for (let g = 0; g < count; g++) first[g + 1]! += first[g]!;
  const next = first.slice();
  const cells = new Uint32Array(group.length);
  for (let k = 0; k < group.length; k++) cells[next[group[k]!]!++] = k;
  return { first, cells };
}

function contradiction(what: string): Error {
  return new Error(`The mesh is damaged: ${what}. Load it again, or write it anew.`);
}

/** The arrays of a message in the types of a mesh, of lengths that fit each other. */
function arraysOf({ header, arrays }: Message<MeshHeader>): MeshArrays {
  const find = (name: string): NumberArray | null => arrays[name]?.data ?? null;
  const need = (name: string): NumberArray => {
    const data = find(name);
    if (!data) throw contradiction(`it has no array "${name}"`);
    return data;
  };
  const counts = need("counts");
  const offsets = offsetsOf(counts);
  const values = find("values") ?? new Float32Array();
  const cells = counts.length;
  const result: MeshArrays = {
    points: as(Float64Array, need("points")),
    edges: as(Uint32Array, need("edges")),
    corners: as(Uint32Array, need("corners")),
    offsets,
    region: find("region") ? as(Uint32Array, need("region")) : counting(cells),
    cellClass: find("cellClass") && as(Uint32Array, need("cellClass")),
    edgeLayer: as(Int16Array, need("edgeLayer")),
    edgeUnit: as(Int32Array, need("edgeUnit")),
    boundary: as(Uint32Array, find("boundary") ?? new Uint32Array()),
    values: as(Float32Array, values),
    preciseValues: values instanceof Float64Array ? values : as(Float32Array, values),
    regionCorners: (find("regionCorners") as Uint8Array | Uint16Array | null) ?? null,
    complete: find("complete") && as(Uint8Array, need("complete")),
    gradients: find("gradients") as Int8Array | null,
    gradientScale: find("gradientScale") as Float32Array | null,
    gradientOutput: find("gradientOutput") && as(Uint32Array, need("gradientOutput")),
    sourceEdge: null,
    sourceCell: null,
  };
  checkLengths(header, result);
  return result;
}

/** 0, 1, 2, and so on. */
function counting(length: number): Uint32Array {
  const numbers = new Uint32Array(length);
  for (let k = 0; k < length; k++) numbers[k] = k;
  return numbers;
}

/** An array in another type; the same array if it has the type already. */
function as<T extends NumberArray>(
  type: { new (data: ArrayLike<number>): T },
  data: NumberArray,
): T {
  return data instanceof type ? data : new type(data);
}

function offsetsOf(counts: NumberArray): Uint32Array {
  const offsets = new Uint32Array(counts.length + 1);
  let sum = 0;
  for (let cell = 0; cell < counts.length; cell++) {
    const count = counts[cell]!;
    if (!(count >= 3)) throw contradiction(`cell ${cell} has ${count} corners`);
    sum += count;
    offsets[cell + 1] = sum;
  }
  return offsets;
}

function checkLengths(header: MeshHeader, arrays: MeshArrays): void {
  const [cells, edges] = [arrays.offsets.length - 1, arrays.edges.length / 2];
  const vertices = arrays.points.length / 2;
  const regions = header.regionCount;
  const [u, v] = header.center;
  if (![u, v, header.scale].every(Number.isFinite) || !(header.scale > 0)) {
    throw contradiction("its centre and its scale are not numbers");
  }
  const lengths: [string, { length: number } | null, number][] = [
    ["corners", arrays.corners, arrays.offsets[cells]!],
    ["points", arrays.points, 2 * Math.floor(vertices)],
    ["edges", arrays.edges, 2 * Math.floor(edges)],
    ["region", arrays.region, cells],
    ["cellClass", arrays.cellClass, cells],
    ["edgeLayer", arrays.edgeLayer, edges],
    ["edgeUnit", arrays.edgeUnit, edges],
    ["values", arrays.values, vertices * header.outputs.length],
    ["regionCorners", arrays.regionCorners, regions],
    ["complete", arrays.complete, regions],
    ["gradientScale", arrays.gradientScale, regions],
    ["gradientOutput", arrays.gradientOutput, regions],
  ];
  for (const [name, array, length] of lengths) {
    if (array && array.length !== length) {
      throw contradiction(`"${name}" has ${array.length} numbers in place of ${length}`);
    }
  }
  if (arrays.gradients && (!arrays.gradientScale || arrays.gradients.length % (regions || 1))) {
    throw contradiction('"gradients" does not have a row for each region');
  }
}

/** Look at every number that is used as an index, and at every coordinate. */
function checkNumbers(mesh: Mesh): void {
  const { points, edges, vertexCount, edgeCount } = mesh;
  checkBelow("edges", edges, vertexCount);
  checkBelow("corners", mesh.corners, edges.length);
  checkBelow("region", mesh.region, mesh.regionCount);
  checkBelow("boundary", mesh.boundary, edgeCount);
  for (let k = 0; k < points.length; k++) {
    if (!Number.isFinite(points[k]!)) throw contradiction("a coordinate is not a number");
  }
}

/** The cell of every half-edge, after a check that the half-edges of each cell form a ring. */
function linkedRings({ edges, corners, offsets, cellCount }: Mesh): Int32Array {
  const cells = new Int32Array(edges.length).fill(-1);
  for (let cell = 0, k = 0; cell < cellCount; cell++) {
    const end = offsets[cell + 1]!;
    let vertex = edges[corners[end - 1]! ^ 1]!;
    for (; k < end; k++) {
      const h = corners[k]!;
      if (edges[h] !== vertex || cells[h]! >= 0) {
        throw contradiction(`the edges of cell ${cell} do not form a ring`);
      }
      cells[h] = cell;
      vertex = edges[h ^ 1]!;
    }
  }
  return cells;
}

function checkBelow(name: string, indices: Uint32Array, bound: number): void {
  let largest = -1;
  for (let k = 0; k < indices.length; k++) if (indices[k]! > largest) largest = indices[k]!;
  if (largest >= bound) throw contradiction(`"${name}" has the number ${largest} of ${bound}`);
}
