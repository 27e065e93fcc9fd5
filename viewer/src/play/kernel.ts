// The compiled kernel as WebAssembly: its memory, and its functions on arrays.

import type { Layer } from "./network";

/** A subdivision as plain arrays; half-edges as in `geometry/mesh.ts`. */
export interface FlatMesh {
  points: Float64Array;
  edges: Uint32Array;
  offsets: Uint32Array;
  corners: Uint32Array;
  edgeLayer: Int32Array;
  edgeUnit: Int32Array;
  vertexLayer: Int32Array;
}

/** What a refinement came to, as `sc_status` of kernel.h names it. */
export const [DONE, UNCHANGED, DEGENERATE, TOO_MANY] = [0, 1, 2, 3];

interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  page_malloc(bytes: number): number;
  page_free(address: number): void;
  page_state(): number;
  page_narrow(count: number, from: number, to: number): void;
  page_take(vertices: number, edges: number, faces: number, corners: number): number;
  page_signs(rows: number, units: number, z: number, tolerance: number): number;
  page_refine(z: number, error: number, bend: number, layer: number, maxFaces: number): number;
  page_extend(known: number, width: number, table: number): number;
  page_dense(
    known: number,
    n: number,
    m: number,
    rectified: number,
    vertices: number,
    z: number,
    weight: number,
    factor: number,
    bounds: number,
    out: number,
  ): number;
}

/** Sizes and rounding errors of the units of a table. */
export interface Bounds {
  size: Float64Array;
  error: Float64Array;
}

interface State {
  vertices: number;
  edges: number;
  faces: number;
  corners: number;
  added: number;
  /** The addresses of the arrays, in the order of `FlatMesh`, and of the range of functions. */
  at: Int32Array;
}

/** Room in the kernel's memory that grows. */
interface Room {
  address: number;
  bytes: number;
}

export class Kernel {
  private rooms = new Map<string, Room>();

  private constructor(private readonly wasm: Exports) {
    wasm._initialize();
  }

  static async of(code: BufferSource): Promise<Kernel> {
    const { instance } = await WebAssembly.instantiate(code, {});
    return new Kernel(instance.exports as unknown as Exports);
  }

  /** Numbers under a name, which keep their place until more are asked for under it. */
  numbers(name: string, count: number): Float64Array {
    const address = this.address(name, 8 * count); // which may move the memory
    return new Float64Array(this.wasm.memory.buffer, address, count);
  }

  /** The subdivision that is refined now. */
  state(): State {
    const words = new Int32Array(this.wasm.memory.buffer, this.wasm.page_state(), 15);
    const [vertices, edges, faces, corners, points, crossings] = words;
    const added = points! + crossings!;
    return {
      vertices: vertices!,
      edges: edges!,
      faces: faces!,
      corners: corners!,
      added,
      at: words.slice(7),
    };
  }

  /** Go on from a subdivision. */
  take(mesh: FlatMesh): void {
    const { points, edges, offsets, corners, edgeLayer, edgeUnit, vertexLayer } = mesh;
    const sizes = [points.length / 2, edges.length / 2, offsets.length - 1, corners.length];
    if (!this.wasm.page_take(sizes[0]!, sizes[1]!, sizes[2]!, sizes[3]!)) throw outOfMemory();
    const { at } = this.state();
    new Float64Array(this.wasm.memory.buffer, at[0]!, points.length).set(points);
    [edges, offsets, corners, edgeLayer, edgeUnit, vertexLayer].forEach((array, k) => {
      const words = new Int32Array(this.wasm.memory.buffer, at[k + 1]!, 2 * array.length);
      for (let i = 0; i < array.length; i++) {
        words[2 * i] = array[i]!;
        words[2 * i + 1] = array[i]! >> 31;
      }
    });
  }

  /** The subdivision, in the kernel's memory: to be read before anything else is computed. */
  mesh(): FlatMesh {
    const { vertices, edges, faces, corners, at } = this.state();
    const counts = [2 * edges, faces + 1, corners, edges, edges, vertices];
    const places = counts.map((count, k) => {
      const to = this.address(`integers ${k}`, 4 * count);
      this.wasm.page_narrow(count, at[k + 1]!, to);
      return to;
    });
    const { buffer } = this.wasm.memory;
    const indices = (k: number) => new Uint32Array(buffer, places[k]!, counts[k]!);
    const labels = (k: number) => new Int32Array(buffer, places[k]!, counts[k]!);
    return {
      points: new Float64Array(buffer, at[0]!, 2 * vertices),
      edges: indices(0),
      offsets: indices(1),
      corners: indices(2),
      edgeLayer: labels(3),
      edgeUnit: labels(4),
      vertexLayer: labels(5),
    };
  }

  /** The table (rows, n) of a name, or its positive part, times weight (n, m), plus bias, as the
   * table of another name.
   *
   * bounds: those of a table that has the first vertices of the subdivision. Then values are found at
   * all of them, with their signs if a layer has knots; returns their bounds. */
  dense(
    from: string,
    rectified: boolean,
    rows: number,
    { weight, bias, activation }: Pick<Layer, "weight" | "bias"> & Partial<Layer>,
    to: string,
    bounds: Bounds | null = null,
  ): Bounds {
    const m = bias.length;
    const n = weight.length / m;
    this.numbers("weight", weight.length + m).set(weight);
    this.numbers("weight", weight.length + m).set(bias, weight.length);
    const factor = this.numbers("factor", 2 * n).fill(1);
    if (bounds) factor.set(bounds.size);
    if (bounds) factor.set(bounds.error, n);
    const made = bounds ? this.state().vertices : rows;
    const places = [this.address("bounds", 40 * m), this.address(to, 8 * made * m)] as const;
    const [z, w, f] = [from, "weight", "factor"].map((name) => this.address(name, 0));
    const signs = activation?.name !== "linear";
    const how = [Number(rectified), Number(bounds !== null) + Number(bounds && signs)] as const;
    checked(this.wasm.page_dense(rows, n, m, ...how, z!, w!, f!, ...places));
    const found = this.numbers("bounds", 2 * m);
    return { size: found.slice(0, m), error: found.slice(m) };
  }

  /** A table, row after row, times weight (n, m), plus bias. */
  product(
    table: Float64Array,
    layer: { weight: Float64Array; bias: Float64Array },
  ): Float64Array<ArrayBuffer> {
    const [m, all] = [layer.bias.length, layer.weight.length];
    const rows = (table.length * m) / all;
    this.put("left", table);
    this.dense("left", false, rows, layer, "product");
    return this.numbers("product", rows * m).slice();
  }

  /** The least and the largest values of the functions whose signs were found last. */
  range(units: number): { low: Float64Array; high: Float64Array } {
    const range = new Float64Array(this.wasm.memory.buffer, this.state().at[7]!, 2 * units);
    return { low: range.slice(0, units), high: range.slice(units) };
  }

  /** Find the signs of the functions of a name. */
  signs(from: string, rows: number, tolerance: Float64Array): void {
    const at = this.put("tolerance", tolerance);
    checked(this.wasm.page_signs(rows, tolerance.length, this.address(from, 0), at));
  }

  /** Refine the subdivision by the functions of a name, after their signs; returns the status.
   *
   * bend: by how much slopes change where a function is zero. */
  refine(from: string, error: Float64Array, bend: number, layer: number, most: number): number {
    const at = this.put("error", error);
    const bends = this.put("bend", new Float64Array(error.length).fill(bend));
    return checked(this.wasm.page_refine(this.address(from, 0), at, bends, layer, most));
  }

  /** Add the rows of the new vertices to the table of a name, which has so many columns. */
  extend(name: string, known: number, width: number): void {
    this.grow(name, 8 * (known + this.state().added) * width);
    checked(this.wasm.page_extend(known, width, this.address(name, 0)));
  }

  /** Make more room under a name; what is there stays. */
  private grow(name: string, bytes: number): void {
    const before = this.rooms.get(name);
    if (!before || before.bytes >= bytes) return;
    this.rooms.delete(name);
    const address = this.address(name, bytes);
    const { buffer } = this.wasm.memory;
    new Uint8Array(buffer, address, before.bytes).set(
      new Uint8Array(buffer, before.address, before.bytes),
    );
    this.wasm.page_free(before.address);
  }

  private put(name: string, numbers: Float64Array): number {
    this.numbers(name, numbers.length).set(numbers);
    return this.address(name, 0);
  }

  private address(name: string, bytes: number): number {
    const room = this.rooms.get(name);
    if (room && room.bytes >= bytes) return room.address;
    if (room) this.wasm.page_free(room.address);
    const most = Math.max(1024, Math.ceil(1.5 * bytes));
    const address = this.wasm.page_malloc(most);
    if (!address) throw outOfMemory();
    this.rooms.set(name, { address, bytes: most });
    return address;
  }
}

/** The status of a function of the kernel; an Error if it failed. */
function checked(status: number): number {
  if (status < 0) throw outOfMemory();
  return status;
}

function outOfMemory(): Error {
  return new Error("There is not enough memory for these regions. Take fewer or smaller layers.");
}
