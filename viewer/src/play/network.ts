// Networks of dense layers, and what their activations do.

/** What follows a dense layer. A maximum takes the larger of every two units that follow each other. */
export type Activation =
  | { name: "linear" | "relu" | "abs" | "maxout" | "tanh" | "gelu" }
  | { name: "leaky"; slope: number }
  | { name: "clip"; low: number; high: number };

/** output = activation(input @ weight + bias); weight is (inputs, units), row after row. */
export interface Layer {
  inputs: number;
  units: number;
  weight: Float64Array;
  bias: Float64Array;
  activation: Activation;
}

export interface Network {
  layers: Layer[];
}

/** The numbers that an activation gives for so many. */
export function widthAfter({ units, activation }: Layer): number {
  return activation.name === "maxout" ? units / 2 : units;
}

/** Whether an activation has straight pieces, so that there are exact regions. */
export function isPiecewise({ name }: Activation): boolean {
  return name !== "tanh" && name !== "gelu";
}

/** The values at which the slope changes, and the slopes before, between and after them. */
export function knotsOf(activation: Activation): { levels: number[]; slopes: number[] } {
  switch (activation.name) {
    case "relu":
      return { levels: [0], slopes: [0, 1] };
    case "leaky":
      return { levels: [0], slopes: [activation.slope, 1] };
    case "abs":
      return { levels: [0], slopes: [-1, 1] };
    case "clip":
      return { levels: [activation.low, activation.high], slopes: [0, 1, 0] };
    default:
      return { levels: [], slopes: [1] };
  }
}

const [SQRT_HALF, NORMAL] = [Math.SQRT1_2, 1 / Math.sqrt(2 * Math.PI)];

/** The function of an activation of one unit. */
export function functionOf(activation: Activation): (x: number) => number {
  switch (activation.name) {
    case "relu":
      return (x) => Math.max(x, 0);
    case "leaky": {
      const { slope } = activation;
      return (x) => (x > 0 ? x : slope * x);
    }
    case "abs":
      return Math.abs;
    case "clip": {
      const { low, high } = activation;
      return (x) => (x < low ? low : Math.min(x, high));
    }
    case "tanh":
      return Math.tanh;
    case "gelu":
      return (x) => 0.5 * x * (1 + erf(x * SQRT_HALF));
    default:
      return (x) => x;
  }
}

/** Its derivative; at a knot that of the piece below. */
export function slopeOf(activation: Activation): (x: number) => number {
  if (activation.name === "tanh") return (x) => 1 - Math.tanh(x) ** 2;
  if (activation.name === "gelu") {
    return (x) => 0.5 * (1 + erf(x * SQRT_HALF)) + x * NORMAL * Math.exp(-0.5 * x * x);
  }
  const { levels, slopes } = knotsOf(activation);
  const [level, before, after] = [levels[0]!, slopes[0]!, slopes[1]!];
  if (levels.length === 1) return (x) => (x > level ? after : before);
  return (x) => {
    let piece = 0;
    while (piece < levels.length && x > levels[piece]!) piece++;
    return slopes[piece]!;
  };
}

/** The error function by its series, and by a continued fraction where that is better. */
function erf(x: number): number {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z > 2.5) {
    let fraction = z;
    for (let k = 40; k > 0; k--) fraction = z + k / 2 / fraction;
    return Math.sign(x) * (1 - Math.exp(-z * z) / (Math.sqrt(Math.PI) * fraction));
  }
  let [sum, term] = [x, x];
  for (let k = 1; k < 60; k++) {
    term *= (-x * x) / k;
    sum += term / (2 * k + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

/** Apply the activation of a layer to rows of its units; the result has `widthAfter` columns. */
export function activate(layer: Layer, z: Float64Array, rows: number, out: Float64Array): void {
  const { units, activation } = layer;
  if (activation.name === "maxout") {
    for (let k = 0; 2 * k < rows * units; k++) out[k] = Math.max(z[2 * k]!, z[2 * k + 1]!);
    return;
  }
  if (activation.name === "relu") {
    for (let k = 0; k < rows * units; k++) out[k] = Math.max(z[k]!, 0);
    return;
  }
  const apply = functionOf(activation);
  for (let k = 0; k < rows * units; k++) out[k] = apply(z[k]!);
}

/** The outputs at rows of inputs. */
export function evaluate({ layers }: Network, x: Float64Array): Float64Array {
  let table = x;
  for (const layer of layers) {
    const { inputs, units, weight, bias } = layer;
    const rows = table.length / inputs;
    const z = new Float64Array(rows * units);
    for (let i = 0; i < rows; i++) {
      for (let k = 0; k < units; k++) z[i * units + k] = bias[k]!;
      for (let j = 0; j < inputs; j++) {
        const value = table[i * inputs + j]!;
        if (value === 0) continue;
        for (let k = 0; k < units; k++) z[i * units + k]! += value * weight[j * units + k]!;
      }
    }
    table = new Float64Array(rows * widthAfter(layer));
    activate(layer, z, rows, table);
  }
  return table;
}

/** Call for every row of inputs and every hidden unit that is active there: above zero, or where a
 * clip is not flat; of the pairs of a maximum those whose first unit wins. */
export function visitActive(
  { layers }: Network,
  x: Float64Array,
  visit: (row: number, layer: number, unit: number) => void,
): void {
  let table = x;
  for (const [index, layer] of layers.slice(0, -1).entries()) {
    const { activation, units } = layer;
    const linear = { ...layer, activation: { name: "linear" } } as const;
    const z = evaluate({ layers: [linear] }, table);
    const pairs = activation.name === "maxout" ? 2 : 1;
    const [low, high] =
      activation.name === "clip"
        ? [activation.low, activation.high]
        : [0, Number.POSITIVE_INFINITY];
    for (let k = 0; k < z.length; k += pairs) {
      const on = pairs === 2 ? z[k]! > z[k + 1]! : z[k]! > low && z[k]! < high;
      if (on) visit(Math.floor(k / units), index, (k % units) / pairs);
    }
    const rows = z.length / units;
    table = new Float64Array(rows * widthAfter(layer));
    activate(layer, z, rows, table);
  }
}

/** The network on a plane: input = origin + u * basis[0] + v * basis[1]. */
export function onPlane(
  { layers }: Network,
  origin: ArrayLike<number>,
  basis: readonly [ArrayLike<number>, ArrayLike<number>],
): Network {
  const [first, ...rest] = layers;
  const { inputs, units, weight, bias, activation } = first!;
  const moved = Float64Array.from(bias);
  const columns = new Float64Array(2 * units);
  for (let j = 0; j < inputs; j++) {
    for (let k = 0; k < units; k++) {
      const w = weight[j * units + k]!;
      moved[k]! += w * origin[j]!;
      columns[k]! += w * basis[0][j]!;
      columns[units + k]! += w * basis[1][j]!;
    }
  }
  return { layers: [{ inputs: 2, units, weight: columns, bias: moved, activation }, ...rest] };
}

/** A matrix with so many rows, the other way round. */
export function transposed(matrix: Float64Array, rows: number): Float64Array {
  const columns = matrix.length / rows;
  const result = new Float64Array(matrix.length);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) result[j * rows + i] = matrix[i * columns + j]!;
  }
  return result;
}
