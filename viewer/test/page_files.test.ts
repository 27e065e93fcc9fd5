import assert from "node:assert/strict";
import { test } from "node:test";
import code from "../kernel/kernel.wasm";
import { taskOf } from "../src/play/data";
import { activationOf, addressOf, CHOICES, DEFAULT, experimentOf } from "../src/play/experiment";
import { networkOfFile, Unsupported } from "../src/play/files";
import { Kernel } from "../src/play/kernel";
import { evaluate, type Network } from "../src/play/network";
import { onnxOf, pytorchOf } from "../src/play/save";
import { through } from "../src/play/slices";
import { networkOf, parametersOf, Trainer } from "../src/play/training";

const RELU = { name: "relu" } as const;
const PLACES = Float64Array.of(0.3, -0.7, -0.2, 0.4, 0.9, 0.1);

function safetensors(
  tensors: Record<string, { shape: number[]; data: Float32Array }>,
): ArrayBuffer {
  let at = 0;
  const header: Record<string, unknown> = {};
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
  }
  const words = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + words.length + at);
  new DataView(file.buffer).setBigUint64(0, BigInt(words.length), true);
  file.set(words, 8);
  let place = 8 + words.length;
  for (const { data } of Object.values(tensors)) {
    file.set(new Uint8Array(data.buffer), place);
    place += data.byteLength;
  }
  return file.buffer;
}

test("a network that is saved as ONNX is read again as it was", () => {
  for (const activation of ["relu", "leaky", "abs", "hardtanh", "tanh", "gelu"]) {
    const network = networkOf({ ...DEFAULT, layers: [5, 4], activation }, 3);
    const read = networkOfFile("a.onnx", onnxOf(network).buffer, RELU);
    const [before, after] = [evaluate(network, PLACES), evaluate(read, PLACES)];
    before.forEach((x, k) => {
      assert(Math.abs(x - after[k]!) <= 1e-6, activation);
    });
  }
});

test("an activation at the end of an ONNX file is part of the network", () => {
  const { layers } = networkOf({ ...DEFAULT, layers: [5], seed: 5 }, 3);
  const ended: Network = { layers: layers.map((layer) => ({ ...layer, activation: RELU })) };
  const read = networkOfFile("a.onnx", onnxOf(ended).buffer, RELU);
  const [before, after] = [evaluate(ended, PLACES), evaluate(read, PLACES)];
  assert(before.some((x) => x === 0) && before.some((x) => x > 0));
  before.forEach((x, k) => {
    assert(Math.abs(x - after[k]!) <= 1e-12);
  });
  assert.equal(read.layers.at(-1)!.activation.name, "linear"); // as regions take it
});

test("PyTorch code has the modules and the numbers", () => {
  const network = networkOf({ ...DEFAULT, layers: [3], activation: "maxout" }, 1);
  const code = pytorchOf(network);
  assert.match(code, /nn\.Linear\(2, 6\),\n {4}Maxout\(\),\n {4}nn\.Linear\(3, 1\)/);
  assert(code.includes(String(network.layers[0]!.weight[0])));
});

test("safetensors are read in the order of their names, with batch-norm", () => {
  const file = safetensors({
    "10.weight": { shape: [1, 2], data: Float32Array.of(1, -1) },
    "2.bias": { shape: [2], data: Float32Array.of(0.5, 0) },
    "2.weight": { shape: [2, 2], data: Float32Array.of(1, 2, 3, 4) },
    "3.weight": { shape: [2], data: Float32Array.of(2, 1) },
    "3.bias": { shape: [2], data: Float32Array.of(0, 1) },
    "3.running_mean": { shape: [2], data: Float32Array.of(1, 0) },
    "3.running_var": { shape: [2], data: Float32Array.of(4, 1) },
  });
  const network = networkOfFile("a.safetensors", file, RELU);
  const at = (u: number, v: number): number => {
    const first = (2 * (u + 2 * v + 0.5 - 1)) / Math.sqrt(4 + 1e-5);
    const second = (3 * u + 4 * v) / Math.sqrt(1 + 1e-5) + 1;
    return Math.max(first, 0) - Math.max(second, 0);
  };
  const found = evaluate(network, PLACES);
  found.forEach((x, k) => {
    assert(Math.abs(x - at(PLACES[2 * k]!, PLACES[2 * k + 1]!)) < 1e-12);
  });
});

test("what is not supported is named, with the call of Python", () => {
  const image = safetensors({ "0.weight": { shape: [1, 1, 2, 2], data: new Float32Array(4) } });
  assert.throws(() => networkOfFile("a.safetensors", image, RELU), Unsupported);
  assert.throws(() => networkOfFile("a.safetensors", image, RELU), /\[1, 1, 2, 2\].*sc\.partition/);
  assert.throws(() => networkOfFile("a.pt2", image, RELU), /neither/);
  assert.throws(() => networkOfFile("a.safetensors", new ArrayBuffer(4), RELU), /damaged/);
  const onnx = onnxOf(networkOf({ ...DEFAULT, layers: [2], activation: "maxout" }, 1));
  assert.throws(() => networkOfFile("a.onnx", onnx.buffer, RELU), /ReduceMax.*sc\.partition/);
  const cut = onnx.slice(0, onnx.length - 3).buffer;
  assert.throws(() => networkOfFile("a.onnx", cut, RELU), /damaged/);
});

test("a plane goes through three points, which lie in the square", () => {
  const points: [number[], number[], number[]] = [
    [1, 2, 3, 4],
    [0, 2, 1, -1],
    [5, 5, 5, 0],
  ];
  const { origin, basis, marks } = through(points)!;
  points.forEach((point, k) => {
    const [u, v] = [marks[2 * k]!, marks[2 * k + 1]!];
    assert(Math.max(Math.abs(u), Math.abs(v)) < 0.9);
    const found = origin.map((x, j) => x + u * basis[0][j]! + v * basis[1][j]!);
    found.forEach((x, j) => {
      assert(Math.abs(x - point[j]!) < 1e-12);
    });
  });
  assert.equal(through([points[0], points[1], points[1]]), null);
});

test("an address is an experiment", () => {
  const experiment = { ...DEFAULT, data: "moons", layers: [3, 4, 5], seed: 12, rate: 0.1 };
  assert.deepEqual(experimentOf(`#${addressOf(experiment)}`), experiment);
  assert.equal(addressOf(DEFAULT), "");
  assert.deepEqual(experimentOf("#layers=0,5&seed=x&data=zork&rate=-1"), DEFAULT);
});

/** The loss by small changes of the parameters, against what training moves them by. */
function assertLearns(network: Network, trainer: Trainer): void {
  const before = trainer.loss();
  const saved = trainer.save();
  for (let k = 0; k < 60; k++) trainer.learn();
  assert(trainer.loss() < before);
  trainer.restore(saved, 0);
  assert.equal(trainer.loss(), before);
  assert(parametersOf(network).every((array) => array.every(Number.isFinite)));
}

test("every kind of network learns every kind of data, and goes back", async () => {
  const kernel = await Kernel.of(code);
  for (const [activation] of CHOICES.activation) {
    for (const data of ["moons", "gaussians", "star"]) {
      const experiment = { ...DEFAULT, activation, data, layers: [8, 6], noise: 0.02 };
      const task = taskOf(experiment);
      const network = networkOf(experiment, task.outputs);
      assert.equal(network.layers[0]!.activation.name, activationOf(activation).name);
      assertLearns(network, new Trainer(kernel, network, task, experiment));
    }
  }
});

test("training moves against the gradient, as small changes of the parameters find it", async () => {
  const kernel = await Kernel.of(code);
  for (const [activation] of CHOICES.activation) {
    const experiment = {
      ...DEFAULT,
      activation,
      data: "gaussians",
      layers: [4, 3],
      optimizer: "sgd",
      rate: 1e-3,
      batch: 512,
    };
    const task = taskOf(experiment);
    const network = networkOf(experiment, task.outputs);
    const trainer = new Trainer(kernel, network, task, experiment);
    const arrays = parametersOf(network);
    const step = 1e-6;
    const slopes = arrays.map((array) => {
      const old = array[0]!;
      array[0] = old + step;
      const above = trainer.loss();
      array[0] = old - step;
      const below = trainer.loss();
      array[0] = old;
      return (above - below) / (2 * step);
    });
    const before = arrays.map((array) => array[0]!);
    trainer.learn();
    arrays.forEach((array, k) => {
      const moved = (before[k]! - array[0]!) / experiment.rate;
      assert(Math.abs(moved - slopes[k]!) < 1e-4 + 1e-3 * Math.abs(moved), activation);
    });
  }
});
