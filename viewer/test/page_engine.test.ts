import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import code from "../kernel/kernel.wasm";
import { taskOf } from "../src/play/data";
import { CHOICES, DEFAULT } from "../src/play/experiment";
import { type FlatMesh, Kernel } from "../src/play/kernel";
import { evaluate, type Layer, type Network, onPlane } from "../src/play/network";
import { partition } from "../src/play/partition";
import { networkOf as drawn, Trainer } from "../src/play/training";
import committed from "./page_networks.json";

/** A network with what Python says of its partition. */
interface Described {
  seed: number;
  layers: (Omit<Layer, "weight" | "bias"> & { weight: number[]; bias: number[] })[];
  regions: number;
  vertices: number;
  unresolved: number;
  areas: number[];
}

const SQUARE = Float64Array.of(-1, -1, 1, -1, 1, 1, -1, 1);

function networkOf({ layers }: Described): Network {
  return {
    layers: layers.map((layer) => ({
      ...layer,
      weight: Float64Array.from(layer.weight),
      bias: Float64Array.from(layer.bias),
    })),
  };
}

function areasOf({ points, edges, corners, offsets }: FlatMesh): number[] {
  const areas: number[] = [];
  for (let f = 0; f + 1 < offsets.length; f++) {
    const [begin, end] = [offsets[f]!, offsets[f + 1]!];
    const o = 2 * edges[corners[begin]!]!;
    let sum = 0;
    for (let k = begin + 1; k + 1 < end; k++) {
      const [p, q] = [2 * edges[corners[k]!]!, 2 * edges[corners[k + 1]!]!];
      const [x, y] = [points[p]! - points[o]!, points[p + 1]! - points[o + 1]!];
      sum += x * (points[q + 1]! - points[o + 1]!) - y * (points[q]! - points[o]!);
    }
    areas.push(sum / 2);
  }
  return areas.sort((a, b) => a - b);
}

/** Every half-edge ends where the next of its face begins, and belongs to one face. */
function assertRings({ edges, corners, offsets }: FlatMesh): void {
  const seen = new Set<number>();
  for (let f = 0; f + 1 < offsets.length; f++) {
    let vertex = edges[corners[offsets[f + 1]! - 1]! ^ 1]!;
    for (let k = offsets[f]!; k < offsets[f + 1]!; k++) {
      const half = corners[k]!;
      assert.equal(edges[half], vertex);
      assert(!seen.has(half));
      seen.add(half);
      vertex = edges[half ^ 1]!;
    }
  }
}

const file = process.env.SPLINECAM_PAGE_NETWORKS;
const described: Described[] = file
  ? JSON.parse(readFileSync(file, "utf8"))
  : (committed as unknown as Described[]);

test("the page's regions are Python's", async () => {
  const kernel = await Kernel.of(code);
  const wrong: string[] = [];
  for (const each of described) {
    const network = networkOf(each);
    const found = partition(kernel, network, SQUARE);
    assert(found);
    assertRings(found.mesh);
    const areas = areasOf(found.mesh);
    const off = Math.max(...areas.map((area, k) => Math.abs(area - (each.areas[k] ?? 0))));
    if (areas.length !== each.regions || !(off <= 1e-12)) {
      const kind = each.layers[0]!.activation.name;
      const unresolved = `${found.unresolved.length / 2} unresolved, ${each.unresolved} in Python`;
      wrong.push(
        `seed ${each.seed} (${kind}): ${areas.length} of ${each.regions}, areas ${off}, ${unresolved}`,
      );
    }
    const outputs = evaluate(network, found.mesh.points);
    const size = outputs.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
    const rounded = Math.max(...outputs.map((x, k) => Math.abs(x - found.values[k]!)));
    if (!(rounded <= 1e-11 * size)) wrong.push(`seed ${each.seed}: values are off by ${rounded}`);
  }
  assert.deepEqual(wrong, []);
});

/** The mean of the corners of each face, and of the values there. */
function middlesOf({ points, edges, corners, offsets }: FlatMesh, values: Float64Array) {
  const faces = offsets.length - 1;
  const outputs = (2 * values.length) / points.length;
  const [places, means] = [new Float64Array(2 * faces), new Float64Array(faces * outputs)];
  for (let f = 0; f < faces; f++) {
    const size = offsets[f + 1]! - offsets[f]!;
    for (let k = offsets[f]!; k < offsets[f + 1]!; k++) {
      const vertex = edges[corners[k]!]!;
      for (let j = 0; j < 2; j++) places[2 * f + j]! += points[2 * vertex + j]! / size;
      for (let j = 0; j < outputs; j++) {
        means[f * outputs + j]! += values[vertex * outputs + j]! / size;
      }
    }
  }
  return { places, means };
}

test("regions cover the square while a network trains, and outputs are affine on each", async () => {
  const kernel = await Kernel.of(code);
  for (let seed = 0; seed < 20; seed++) {
    const experiment = {
      ...DEFAULT,
      seed,
      layers: [9, 7, 5].slice(seed % 3),
      activation: CHOICES.activation[seed % 5]![0],
      init: CHOICES.init[seed % 4]![0],
      data: CHOICES.data[seed % 7]![0],
    };
    const task = taskOf(experiment);
    const network = drawn(experiment, task.outputs);
    const trainer = new Trainer(kernel, network, task, experiment);
    for (const scale of [1, 1e-6, 1]) {
      const seen = onPlane(
        network,
        [0.1, 0.05],
        [
          [scale, 0],
          [0, scale],
        ],
      );
      const found = partition(kernel, seen, SQUARE);
      assert(found);
      assertRings(found.mesh);
      const areas = areasOf(found.mesh);
      assert(Math.abs(areas.reduce((sum, area) => sum + area, 0) - 4) < 1e-12);
      assert(areas[0]! > -1e-15);
      const { places, means } = middlesOf(found.mesh, found.values);
      const size = found.values.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
      evaluate(seen, places).forEach((x, k) => {
        assert(Math.abs(x - means[k]!) < 1e-11 * size, `seed ${seed}`);
      });
      for (let k = 0; k < 20; k++) trainer.learn();
    }
  }
});

test("more regions than allowed give none", async () => {
  const kernel = await Kernel.of(code);
  const network = drawn({ ...DEFAULT, layers: [16, 16] }, 1);
  assert.equal(partition(kernel, network, SQUARE, 50), null);
  const through = drawn({ ...DEFAULT, layers: [16, 16], init: "zero-bias" }, 1);
  assert.equal(partition(kernel, through, SQUARE, 20), null);
});
