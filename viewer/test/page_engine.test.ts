import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import code from "../kernel/kernel.wasm";
import { type FlatMesh, Kernel } from "../src/play/kernel";
import { evaluate, type Layer, type Network } from "../src/play/network";
import { partition } from "../src/play/partition";
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
