// The worker that finds the exact regions of a plane, by the compiled kernel.

import code from "../../kernel/kernel.wasm";
import { Kernel } from "../play/kernel";
import { onPlane } from "../play/network";
import { partition } from "../play/partition";
import type { WorkerAnswer, WorkerAsk } from "./plane";

const MOST = 200_000; // regions

let kernel: Promise<Kernel> | null = null;

async function answer({ network, origin, basis, corners }: WorkerAsk): Promise<WorkerAnswer> {
  kernel ??= Kernel.of(code);
  const found = partition(await kernel, onPlane(network, origin, basis), corners, MOST);
  if (!found) throw new Error(`This plane has more than ${MOST.toLocaleString("en")} regions.`);
  const { points, edges, offsets, corners: sides, edgeLayer } = found.mesh;
  return {
    problem: "",
    points,
    values: Float32Array.from(found.values),
    offsets: Uint32Array.from(offsets),
    corners: Uint32Array.from(sides, (side) => edges[side]!),
    layer: Int16Array.from(sides, (side) => edgeLayer[side >> 1]!),
  };
}

self.onmessage = async ({ data }: MessageEvent<WorkerAsk>) => {
  try {
    self.postMessage(await answer(data));
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error);
    self.postMessage({ problem } as WorkerAnswer);
  }
};
