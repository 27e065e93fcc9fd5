// The compiled kernel as WebAssembly: its memory, and its functions on arrays.

/** A subdivision as plain arrays; half-edges as in `geometry/mesh.ts`. */
export interface FlatMesh {
  points: Float64Array;
  edges: Int32Array;
  offsets: Int32Array;
  corners: Int32Array;
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
  page_take(vertices: number, edges: number, faces: number, corners: number): number;
  page_refine(
    units: number,
    z: number,
    positive: number,
    error: number,
    layer: number,
    maxFaces: number,
  ): number;
  page_extend(known: number, width: number, table: number): void;
  page_dense(
    rows: number,
    n: number,
    m: number,
    rectified: number,
    table: number,
    weight: number,
    bias: number,
    beside: number,
    out: number,
  ): void;
  page_signs(
    rows: number,
    m: number,
    z: number,
    tolerance: number,
    positive: number,
    range: number,
  ): number;
}

interface State {
  vertices: number;
  edges: number;
  faces: number;
  corners: number;
  added: number;
  /** The addresses of the arrays, in the order of `FlatMesh`. */
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
    const words = new Int32Array(this.wasm.memory.buffer, this.wasm.page_state(), 13);
    const [vertices, edges, faces, corners, points, crossings] = words;
    const added = points! + crossings!;
    return {
      vertices: vertices!,
      edges: edges!,
      faces: faces!,
      corners: corners!,
      added,
      at: words.slice(6),
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

  /** A copy of the subdivision. */
  mesh(): FlatMesh {
    const { vertices, edges, faces, corners, at } = this.state();
    const { buffer } = this.wasm.memory;
    const integers = (k: number, count: number): Int32Array => {
      const words = new Int32Array(buffer, at[k]!, 2 * count);
      const array = new Int32Array(count);
      for (let i = 0; i < count; i++) array[i] = words[2 * i]!;
      return array;
    };
    return {
      points: new Float64Array(buffer, at[0]!, 2 * vertices).slice(),
      edges: integers(1, 2 * edges),
      offsets: integers(2, faces + 1),
      corners: integers(3, corners),
      edgeLayer: integers(4, edges),
      edgeUnit: integers(5, edges),
      vertexLayer: integers(6, vertices),
    };
  }

  /** The table (rows, n) of a name times weight (n, m), plus bias, as the table of another name.
   *
   * rectified: take the positive part of the table. */
  dense(
    from: string,
    rectified: boolean,
    rows: number,
    { weight, bias }: { weight: Float64Array; bias: Float64Array },
    to: string,
  ): void {
    const m = bias.length;
    const n = weight.length / m;
    const places = [this.put("weight", weight), this.put("bias", bias)] as const;
    const beside = this.address("beside", 8 * 72 * n);
    const out = this.address(to, 8 * rows * m);
    const table = this.address(from, 0);
    this.wasm.page_dense(rows, n, m, Number(rectified), table, ...places, beside, out);
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

  /** Whether one of the functions counts as zero at a vertex; and the range (2, m) of each. */
  signs(
    from: string,
    rows: number,
    tolerance: Float64Array,
  ): { zeros: boolean; range: Float64Array } {
    const m = tolerance.length;
    const positive = this.address("positive", 8 * rows * Math.ceil(m / 64));
    const at = this.put("tolerance", tolerance);
    const range = this.address("range", 16 * m);
    const zeros = this.wasm.page_signs(rows, m, this.address(from, 0), at, positive, range);
    return { zeros: zeros !== 0, range: this.numbers("range", 2 * m).slice() };
  }

  /** Refine the subdivision by the functions of a name, after their signs; returns the status. */
  refine(from: string, error: Float64Array, layer: number, maxFaces: number): number {
    const [z, positive] = [this.address(from, 0), this.address("positive", 0)];
    const at = this.put("error", error);
    const status = this.wasm.page_refine(error.length, z, positive, at, layer, maxFaces);
    if (status < 0) throw outOfMemory();
    return status;
  }

  /** Add the rows of the new vertices to the table of a name, which has so many columns. */
  extend(name: string, known: number, width: number): void {
    const rows = known + this.state().added;
    this.grow(name, 8 * rows * width);
    this.wasm.page_extend(known, width, this.address(name, 0));
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

function outOfMemory(): Error {
  return new Error("There is not enough memory for these regions. Take fewer or smaller layers.");
}
