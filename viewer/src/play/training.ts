// A small network that learns, in double precision.

import { Random, type Task } from "./data";
import { activationOf, type Experiment } from "./experiment";
import { activate, evaluate, type Layer, type Network, slopeOf, widthAfter } from "./network";

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

/** The values of one point on its way through the network. */
interface Trace {
  input: Float64Array;
  z: Float64Array;
  output: Float64Array;
  /** The derivatives of the loss by the inputs and the units. */
  byInput: Float64Array;
  byUnit: Float64Array;
}

export class Trainer {
  step = 0;
  private readonly traces: Trace[];
  private readonly slopes: ((x: number) => number)[];
  private readonly gradients: Float64Array[];
  private first: Float64Array[];
  private second: Float64Array[];
  private random: Random;
  private order: number[] = [];

  constructor(
    readonly network: Network,
    private readonly task: Task,
    private readonly experiment: Experiment,
  ) {
    this.traces = network.layers.map((layer) => ({
      input: new Float64Array(layer.inputs),
      z: new Float64Array(layer.units),
      output: new Float64Array(widthAfter(layer)),
      byInput: new Float64Array(layer.inputs),
      byUnit: new Float64Array(layer.units),
    }));
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
    for (const gradient of this.gradients) gradient.fill(0);
    const batch = Math.min(this.experiment.batch, count);
    for (let k = 0; k < batch; k++) {
      const at = this.draw(count);
      this.forward(points[2 * at]!, points[2 * at + 1]!);
      this.backward(targets[at]!);
    }
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

  private forward(u: number, v: number): void {
    let input: Float64Array = Float64Array.of(u, v);
    for (const [k, layer] of this.network.layers.entries()) {
      const { inputs, units, weight, bias } = layer;
      const trace = this.traces[k]!;
      trace.input.set(input);
      trace.z.set(bias);
      for (let j = 0; j < inputs; j++) {
        const x = input[j]!;
        if (x === 0) continue;
        for (let i = 0; i < units; i++) trace.z[i]! += x * weight[j * units + i]!;
      }
      activate(layer, trace.z, 1, trace.output);
      input = trace.output;
    }
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

  private backward(target: number): void {
    const last = this.traces.at(-1)!;
    const { output } = last;
    if (this.task.kind === "numbers") last.byUnit[0] = 2 * (output[0]! - target);
    else if (output.length === 1) last.byUnit[0] = 1 / (1 + Math.exp(-output[0]!)) - target;
    else {
      const most = Math.max(...output);
      const shares = output.map((x) => Math.exp(x - most));
      const sum = shares.reduce((a, b) => a + b, 0);
      shares.forEach((share, k) => {
        last.byUnit[k] = share / sum - (k === target ? 1 : 0);
      });
    }
    for (let k = this.traces.length - 1; k >= 0; k--) {
      const { inputs, units, weight } = this.network.layers[k]!;
      const { input, byUnit, byInput } = this.traces[k]!;
      const [byWeight, byBias] = [this.gradients[2 * k]!, this.gradients[2 * k + 1]!];
      for (let i = 0; i < units; i++) byBias[i]! += byUnit[i]!;
      for (let j = 0; j < inputs; j++) {
        let sum = 0;
        for (let i = 0; i < units; i++) {
          byWeight[j * units + i]! += input[j]! * byUnit[i]!;
          sum += weight[j * units + i]! * byUnit[i]!;
        }
        byInput[j] = sum;
      }
      if (k) this.throughActivation(k - 1, byInput);
    }
  }

  private throughActivation(k: number, byOutput: Float64Array): void {
    const { byUnit, z } = this.traces[k]!;
    if (this.network.layers[k]!.activation.name === "maxout") {
      for (let i = 0; i < byOutput.length; i++) {
        const first = z[2 * i]! >= z[2 * i + 1]!;
        byUnit[2 * i] = first ? byOutput[i]! : 0;
        byUnit[2 * i + 1] = first ? 0 : byOutput[i]!;
      }
      return;
    }
    const slope = this.slopes[k]!;
    for (let i = 0; i < z.length; i++) byUnit[i] = byOutput[i]! * slope(z[i]!);
  }

  /** Move the parameters against their gradients; share: of each point in the batch. */
  private move(share: number): void {
    const { optimizer, rate, decay } = this.experiment;
    const [one, two] = [1 - 0.9 ** this.step, 1 - 0.999 ** this.step];
    parametersOf(this.network).forEach((array, k) => {
      const gradient = this.gradients[k]!;
      const [first, second] = [this.first[k]!, this.second[k]!];
      const shrinks = k % 2 === 0 ? decay : 0; // biases stay
      for (let i = 0; i < array.length; i++) {
        const g = share * gradient[i]! + shrinks * array[i]!;
        if (optimizer === "sgd") {
          array[i]! -= rate * g;
          continue;
        }
        if (optimizer === "momentum") {
          first[i] = 0.9 * first[i]! + g;
          array[i]! -= rate * first[i]!;
          continue;
        }
        first[i] = 0.9 * first[i]! + 0.1 * g;
        second[i] = 0.999 * second[i]! + 0.001 * g * g;
        array[i]! -= (rate * (first[i]! / one)) / (Math.sqrt(second[i]! / two) + 1e-8);
      }
    });
  }
}
