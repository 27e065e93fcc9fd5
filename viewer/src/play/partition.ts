// The exact linear regions of a network on a convex polygon, layer by layer.
//
// As in Python (engine/step.py): a layer is evaluated at all vertices of the mesh so far; where its
// units change sign the mesh is refined, by the compiled kernel or, where something is too close to
// something else, one function after the other; and values at new vertices are interpolated.

import { extended, insertOneByOne } from "./insertion";
import { type Bounds, DEGENERATE, DONE, type FlatMesh, type Kernel, TOO_MANY } from "./kernel";
import { activate, knotsOf, type Layer, type Network, widthAfter } from "./network";

const [EPS, SAFETY] = [2 ** -52, 8]; // as in _util/tolerances.py

/** What was found, in the kernel's memory: to be read before it computes anything else. */
export interface Partition {
  mesh: FlatMesh;
  /** (V, K) the outputs at the vertices. */
  values: Float64Array;
  /** (K) their rounding errors. */
  errors: Float64Array;
  /** Places that rounding leaves undecided: x y of each. */
  unresolved: number[];
}

/** The partition of a polygon with counter-clockwise corners (x y of each); null if it has more
 * regions than `maxRegions`. */
export function partition(
  kernel: Kernel,
  network: Network,
  corners: Float64Array,
  maxRegions = 1_000_000,
): Partition | null {
  kernel.take(polygon(corners));
  kernel.numbers("table", corners.length).set(corners);
  let bounds = sizesOf(corners, 2);
  let from: Inputs = { name: "table", rectified: false, rows: corners.length / 2 };
  const unresolved: number[] = [];
  for (const [index, layer] of network.layers.entries()) {
    const rows = kernel.state().vertices;
    const name = index % 2 ? "even" : "odd"; // the layer before is read while this one is written
    bounds = kernel.dense(from.name, from.rectified, from.rows, layer, name, bounds);
    let known = rows;
    if (layer.activation.name !== "linear") {
      const found = refine(kernel, layer, { index, name, rows }, bounds, maxRegions);
      if (!found) return null;
      known = found.known;
      unresolved.push(...found.unresolved);
      bounds = throughActivation(layer, bounds, found.low, found.high);
    }
    from = activated(kernel, layer, name, known);
  }
  const { vertices } = kernel.state();
  const outputs = widthAfter(network.layers.at(-1)!);
  const mesh = kernel.mesh();
  const values = kernel.numbers(from.name, vertices * outputs);
  return { mesh, values, errors: bounds.error, unresolved };
}

/** Where a layer finds its inputs: the name of a table, whether a ReLU is applied to it when it is
 * read, and how many rows it has. Vertices after these lie on lines between them. */
interface Inputs {
  name: string;
  rectified: boolean;
  rows: number;
}

function activated(kernel: Kernel, layer: Layer, name: string, rows: number): Inputs {
  if (layer.activation.name === "linear") return { name, rectified: false, rows };
  if (layer.activation.name === "relu") return { name, rectified: true, rows };
  kernel.numbers("table", rows * widthAfter(layer)); // may move the memory
  const z = kernel.numbers(name, rows * layer.units);
  activate(layer, z, rows, kernel.numbers("table", rows * widthAfter(layer)));
  return { name: "table", rectified: false, rows };
}

/** The outputs at inputs (N, n), row after row. */
export function outputsAt(kernel: Kernel, { layers }: Network, inputs: Float64Array): Float64Array {
  const rows = inputs.length / layers[0]!.inputs;
  kernel.numbers("table", inputs.length).set(inputs);
  let from: Inputs = { name: "table", rectified: false, rows };
  for (const [index, layer] of layers.entries()) {
    const name = index % 2 ? "even" : "odd";
    kernel.dense(from.name, from.rectified, rows, layer, name);
    from = activated(kernel, layer, name, rows);
  }
  return kernel.numbers(from.name, rows * widthAfter(layers.at(-1)!)).slice();
}

/** A mesh of one face. */
function polygon(corners: Float64Array): FlatMesh {
  const count = corners.length / 2;
  const border = () => new Int32Array(count).fill(-1);
  return {
    points: corners,
    edges: Uint32Array.from({ length: 2 * count }, (_, k) => ((k + 1) >> 1) % count),
    offsets: Uint32Array.of(0, count),
    corners: Uint32Array.from({ length: count }, (_, k) => 2 * k),
    edgeLayer: border(),
    edgeUnit: border(),
    vertexLayer: border(),
  };
}

function sizesOf(table: Float64Array, width: number): Bounds {
  const size = new Float64Array(width);
  for (let k = 0; k < table.length; k++) {
    size[k % width] = Math.max(size[k % width]!, Math.abs(table[k]!));
  }
  return { size, error: size.map((x) => EPS * x) };
}

/** What a unit can be after the activation; a flat piece has no error. */
function throughActivation(
  { units, activation }: Layer,
  { size, error }: Bounds,
  low: Float64Array,
  high: Float64Array,
): Bounds {
  const passed = error.map((e, k) => e + EPS * size[k]!); // new vertices are interpolated
  const most = low.map((x, k) => Math.max(Math.abs(x), Math.abs(high[k]!)));
  if (activation.name === "maxout") {
    const larger = (x: Float64Array) =>
      Float64Array.from({ length: units / 2 }, (_, k) => Math.max(x[2 * k]!, x[2 * k + 1]!));
    return { size: larger(most), error: larger(passed) };
  }
  const { levels, slopes } = knotsOf(activation);
  const steepest = (k: number): number => {
    let found = 0;
    for (let piece = 0; piece < slopes.length; piece++) {
      const begins = piece ? levels[piece - 1]! : -Infinity;
      const ends = piece < levels.length ? levels[piece]! : Infinity;
      const reached = high[k]! >= begins && low[k]! <= ends;
      if (reached) found = Math.max(found, Math.abs(slopes[piece]!));
    }
    return found;
  };
  const reach = (k: number): number => {
    if (activation.name === "relu") return Math.max(0, high[k]!);
    if (activation.name === "clip") {
      return Math.min(most[k]!, Math.max(Math.abs(activation.low), Math.abs(activation.high)));
    }
    return most[k]!;
  };
  return { size: most.map((_, k) => reach(k)), error: passed.map((e, k) => e * steepest(k)) };
}

interface Cuts {
  unresolved: number[];
  /** How many vertices have values; those after them lie on lines between them. */
  known: number;
  /** (units) the range of each. */
  low: Float64Array;
  high: Float64Array;
}

/** The values of a layer: its number, the name of their table, and how many rows that has. */
interface Values {
  index: number;
  name: string;
  rows: number;
}

/** Cut the mesh where a layer has knots; its values get rows for the new vertices. */
function refine(
  kernel: Kernel,
  layer: Layer,
  { index, name, rows }: Values,
  { size, error }: Bounds,
  maxRegions: number,
): Cuts | null {
  const { units } = layer;
  const { low, high } = kernel.range(units);
  const functions = functionsOf(kernel, layer, name, rows, { size, error });
  const { name: from, error: errors, unitOf } = functions;
  if (from !== name)
    kernel.signs(
      from,
      rows,
      errors.map((e) => SAFETY * e),
    );
  const unresolved: number[] = [];
  const { levels, slopes } = knotsOf(layer.activation);
  const bend = levels.length === 1 ? slopes[1]! - slopes[0]! : 0; // 0: values are interpolated
  const status = kernel.refine(from, errors, bend, index, maxRegions);
  if (status === TOO_MANY) return null;
  if (status === DONE && !bend) kernel.extend(name, rows, units);
  if (status === DEGENERATE) {
    const values = kernel.numbers(from, rows * errors.length).slice();
    const mesh = kernel.mesh();
    const made = insertOneByOne(mesh, values, errors, unitOf, index, maxRegions);
    if (made.tooMany) return null;
    const table = extended(kernel.numbers(name, rows * units).slice(), units, made.added);
    kernel.take(made.mesh);
    kernel.numbers(name, table.length).set(table);
    unresolved.push(...made.unresolved);
  }
  const known = status === DONE && bend ? rows : kernel.state().vertices;
  return { unresolved, known, low, high };
}

interface Functions {
  /** The name of their table. */
  name: string;
  error: Float64Array;
  /** The unit whose border each one draws. */
  unitOf: ArrayLike<number>;
}

/** The functions that are zero where the layer has borders: units less their knots, or differences. */
function functionsOf(
  kernel: Kernel,
  { units, activation }: Layer,
  name: string,
  rows: number,
  { size, error }: Bounds,
): Functions {
  const { levels } = knotsOf(activation);
  const every = Array.from({ length: units }, (_, k) => k);
  if (levels.length === 1 && levels[0] === 0) return { name, error, unitOf: every };
  if (activation.name === "maxout") {
    const pairs = units / 2;
    kernel.numbers("f", rows * pairs);
    const z = kernel.numbers(name, rows * units);
    const f = kernel.numbers("f", rows * pairs);
    for (let k = 0; k < f.length; k++) f[k] = z[2 * k]! - z[2 * k + 1]!;
    const both = Float64Array.from({ length: pairs }, (_, k) => {
      const rounding = EPS * Math.max(size[2 * k]!, size[2 * k + 1]!);
      return error[2 * k]! + error[2 * k + 1]! + rounding;
    });
    return { name: "f", error: both, unitOf: every.slice(0, pairs) };
  }
  const count = units * levels.length;
  kernel.numbers("f", rows * count);
  const z = kernel.numbers(name, rows * units);
  const f = kernel.numbers("f", rows * count);
  for (let row = 0, at = 0; row < rows; row++) {
    for (const level of levels) {
      for (let k = 0; k < units; k++) f[at++] = z[row * units + k]! - level;
    }
  }
  const errors = new Float64Array(count);
  levels.forEach((level, i) => {
    for (let k = 0; k < units; k++) errors[i * units + k] = error[k]! + EPS * Math.abs(level);
  });
  return { name: "f", error: errors, unitOf: levels.flatMap(() => every) };
}
