// A small network that learns, in double precision.

import { Random, type Task } from "./data";
import { activationOf, type Experiment } from "./experiment";
import type { Kernel } from "./kernel";
import {
  activate,
  evaluate,
  type Layer,
  type Network,
  slopeOf,
  transposed,
  widthAfter,
} from "./network";

/** The weights and biases of a network, one array after the other. */
export function parametersOf({ layers }: Network): Float64Array[] {
  return layers.flatMap(({ weight, bias }) => [weight, bias]);
}

export function networkOf(experiment: Experiment, outputs: number): Network {
  const { activation: name, init, layers: widths, seed } = experiment;
  const random = new Random(seed);
  const layers: Layer[] = [];
  let inputs = 2;
  for (const [k, width] of [...widths, outputs].entries()) {
    const last = k === widths.length;
    const activation = last ? ({ name: "linear" } as const) : activationOf(name);
    const units = activation.name === "maxout" ? 2 * width : width;
    const draw = (): number => {
      if (init === "xavier") {
        return Math.sqrt(6 / (inputs + units)) * (2 * random.uniform() - 1);
      }
      if (init === "pytorch") return (2 * random.uniform() - 1) / Math.sqrt(inputs);
      return Math.sqrt((last ? 1 : 2) / inputs) * random.normal();
    };
    const bias = (): number => {
      if (init === "zero-bias") return 0;
      return (2 * random.uniform() - 1) / Math.sqrt(inputs);
    };
    const weight = Float64Array.from({ length: inputs * units }, draw);
    layers.push({
      inputs,
      units,
      weight,
      bias: Float64Array.from({ length: units }, bias),
      activation,
    });
    inputs = width;
  }
  return { layers };
}

/** The values of a batch on its way through a layer, row after row. */
interface Trace {
  input: Float64Array;
  z: Float64Array;
}

export class Trainer {
  step = 0;
  private readonly slopes: ((x: number) => number)[];
  private readonly gradients: Float64Array[];
  private first: Float64Array[];
  private second: Float64Array[];
  private random: Random;
  private order: number[] = [];

  constructor(
    private readonly kernel: Kernel,
    readonly network: Network,
    private readonly task: Task,
    private readonly experiment: Experiment,
  ) {
    this.slopes = network.layers.map(({ activation }) => slopeOf(activation));
    const zeros = () => parametersOf(network).map((array) => new Float64Array(array.length));
    [this.gradients, this.first, this.second] = [zeros(), zeros(), zeros()];
    this.random = new Random(experiment.seed + 99);
  }

  /** The state from which training can go on. */
  save(): Float64Array[] {
    return [...parametersOf(this.network), ...this.first, ...this.second].map((a) => a.slice());
  }

  /** Go back to a state; the batches after it are drawn anew. */
  restore(saved: readonly Float64Array[], step: number): void {
    [...parametersOf(this.network), ...this.first, ...this.second].forEach((array, k) => {
      array.set(saved[k]!);
    });
    this.step = step;
    this.random = new Random(this.experiment.seed + 99 + step);
    this.order = [];
  }

  /** Learn from one batch. */
  learn(): void {
    const { points, targets } = this.task;
    const count = targets.length;
    if (!count) return;
    const batch = Math.min(this.experiment.batch, count);
    const chosen = Array.from({ length: batch }, () => this.draw(count));
    const input = new Float64Array(2 * batch);
    chosen.forEach((at, k) => {
      input.set(points.subarray(2 * at, 2 * at + 2), 2 * k);
    });
    const { traces, output } = this.forward(input);
    const width = output.length / batch;
    const byOutput = new Float64Array(output.length);
    chosen.forEach((at, k) => {
      const [begin, end] = [k * width, (k + 1) * width];
      this.lossSlope(output.subarray(begin, end), targets[at]!, byOutput.subarray(begin, end));
    });
    this.backward(traces, byOutput);
    this.step++;
    this.move(1 / batch);
  }

  /** The next point: every one comes once before any comes again. */
  private draw(count: number): number {
    if (!this.order.length) {
      this.order = Array.from({ length: count }, (_, k) => k);
      for (let k = count - 1; k > 0; k--) {
        const j = this.random.below(k + 1);
        [this.order[k], this.order[j]] = [this.order[j]!, this.order[k]!];
      }
    }
    return this.order.pop()!;
  }

  /** The mean loss of all points, from the outputs there. */
  loss(outputs = evaluate(this.network, this.task.points)): number {
    const { targets, outputs: width } = this.task;
    let sum = 0;
    for (let k = 0; k < targets.length; k++) {
      sum += this.lossAt(outputs.subarray(k * width, (k + 1) * width), targets[k]!);
    }
    return targets.length ? sum / targets.length : 0;
  }

  private forward(points: Float64Array): { traces: Trace[]; output: Float64Array } {
    let input = points;
    const traces = this.network.layers.map((layer): Trace => {
      const z = this.kernel.product(input, layer);
      const trace = { input, z };
      const rows = z.length / layer.units;
      input = new Float64Array(rows * widthAfter(layer));
      activate(layer, z, rows, input);
      return trace;
    });
    return { traces, output: input };
  }

  private lossAt(outputs: Float64Array, target: number): number {
    if (this.task.kind === "numbers") return (outputs[0]! - target) ** 2;
    if (outputs.length === 1) {
      const lead = target > 0.5 ? outputs[0]! : -outputs[0]!;
      return lead > 0 ? Math.log1p(Math.exp(-lead)) : Math.log1p(Math.exp(lead)) - lead;
    }
    const most = Math.max(...outputs);
    const sum = outputs.reduce((total, x) => total + Math.exp(x - most), 0);
    return Math.log(sum) + most - outputs[target]!;
  }

  /** The derivatives of the loss of one point by the outputs there. */
  private lossSlope(output: Float64Array, target: number, result: Float64Array): void {
    if (this.task.kind === "numbers") result[0] = 2 * (output[0]! - target);
    else if (output.length === 1) result[0] = 1 / (1 + Math.exp(-output[0]!)) - target;
    else {
      const most = Math.max(...output);
      const shares = output.map((x) => Math.exp(x - most));
      const sum = shares.reduce((a, b) => a + b, 0);
      shares.forEach((share, k) => {
        result[k] = share / sum - (k === target ? 1 : 0);
      });
    }
  }

  /** Find the gradients from the derivatives by the outputs: products, as on the way forward. */
  private backward(traces: readonly Trace[], byOutput: Float64Array): void {
    let byUnit = byOutput;
    for (let k = traces.length - 1; k >= 0; k--) {
      const { inputs, units, weight } = this.network.layers[k]!;
      const { input } = traces[k]!;
      const rows = input.length / inputs;
      const none = new Float64Array(Math.max(inputs, units));
      const byWeight = { weight: byUnit, bias: none.subarray(0, units) };
      this.gradients[2 * k]!.set(this.kernel.product(transposed(input, rows), byWeight));
      const byBias = this.gradients[2 * k + 1]!.fill(0);
      for (let row = 0; row < byUnit.length; row += units) {
        for (let i = 0; i < units; i++) byBias[i]! += byUnit[row + i]!;
      }
      if (!k) return;
      const back = { weight: transposed(weight, inputs), bias: none.subarray(0, inputs) };
      byUnit = this.throughActivation(k - 1, traces[k - 1]!.z, this.kernel.product(byUnit, back));
    }
  }

  private throughActivation(k: number, z: Float64Array, byOutput: Float64Array): Float64Array {
    const byUnit = new Float64Array(z.length);
    if (this.network.layers[k]!.activation.name === "maxout") {
      for (let i = 0; i < byOutput.length; i++) {
        const first = z[2 * i]! >= z[2 * i + 1]!;
        byUnit[first ? 2 * i : 2 * i + 1] = byOutput[i]!;
      }
      return byUnit;
    }
    const slope = this.slopes[k]!;
    for (let i = 0; i < z.length; i++) byUnit[i] = byOutput[i]! * slope(z[i]!);
    return byUnit;
  }

  /** Move the parameters against their gradients; share: of each point in the batch. */
  private move(share: number): void {
    const { optimizer, rate, decay } = this.experiment;
    const step = rate / (1 - 0.9 ** this.step); // of Adam, whose averages begin with zero
    const shrink = 1 / Math.sqrt(1 - 0.999 ** this.step);
    for (const [k, array] of parametersOf(this.network).entries()) {
      const [gradient, first, second] = [this.gradients[k]!, this.first[k]!, this.second[k]!];
      const shrinks = k % 2 === 0 ? decay : 0; // biases stay
      for (let i = 0; i < array.length; i++)
        gradient[i] = share * gradient[i]! + shrinks * array[i]!;
      if (optimizer === "sgd") {
        for (let i = 0; i < array.length; i++) array[i]! -= rate * gradient[i]!;
      } else if (optimizer === "momentum") {
        for (let i = 0; i < array.length; i++) {
          first[i] = 0.9 * first[i]! + gradient[i]!;
          array[i]! -= rate * first[i]!;
        }
      } else {
        for (let i = 0; i < array.length; i++) {
          first[i] = 0.9 * first[i]! + 0.1 * gradient[i]!;
          second[i] = 0.999 * second[i]! + 0.001 * gradient[i]! * gradient[i]!;
          array[i]! -= (step * first[i]!) / (shrink * Math.sqrt(second[i]!) + 1e-8);
        }
      }
    }
  }
}
