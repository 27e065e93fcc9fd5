// A plane through the box: where it is, the polygon in which it meets the box, and its regions.

import type { Layer, Network } from "../play/network";
import type { Source } from "../protocol/messages";
import type { SolidHeader } from "./messages";
import { type Half, Polygons, sums } from "./polygons";
import workerCode from "./section_worker?text";
import { add, axis, cross, dot, length, minus, times, unit, type Vec3 } from "./vectors";

/** The frame of a plane: two orthonormal ways in it, so that their product is the normal. */
export function frameOf(normal: Vec3): [Vec3, Vec3] {
  const least = [0, 1, 2].reduce((a, b) => (Math.abs(normal[b]!) < Math.abs(normal[a]!) ? b : a));
  const first = unit(cross(normal, axis(least)));
  return [first, cross(normal, first)];
}

/** The corners of the polygon in which a plane meets a convex body, counter-clockwise seen from
 * where its normal points; fewer than three: it does not. edges: pairs of numbers of corners. */
export function sectionOf(
  { normal, offset }: Half,
  corners: readonly Vec3[],
  edges: ArrayLike<number>,
): Vec3[] {
  const found: Vec3[] = [];
  const height = corners.map((corner) => dot(normal, corner) - offset);
  for (let k = 0; k < edges.length; k += 2) {
    const [a, b] = [edges[k]!, edges[k + 1]!];
    if (height[a]! < 0 === height[b]! < 0) continue;
    const share = height[a]! / (height[a]! - height[b]!);
    found.push(add(corners[a]!, times(minus(corners[b]!, corners[a]!), share)));
  }
  if (found.length < 3) return [];
  const [first, second] = frameOf(normal);
  const middle = times(found.reduce(add), 1 / found.length);
  const angle = (place: Vec3) => {
    const off = minus(place, middle);
    return Math.atan2(dot(off, second), dot(off, first));
  };
  found.sort((a, b) => angle(a) - angle(b));
  // A plane through a corner of the box meets several edges there.
  const apart = (a: Vec3, b: Vec3) => length(minus(a, b)) > 1e-9;
  const clear = found.filter((each, k) => apart(each, found.at(k - 1)!));
  return clear.length < 3 ? [] : clear;
}

/** The regions of a plane, with the output less the level at their corners. */
export interface Regions {
  polygons: Polygons;
  values: Float32Array;
}

/** What the worker is asked; places are coordinates of the box. */
export interface WorkerAsk {
  network: Network;
  origin: Vec3;
  basis: [Vec3, Vec3];
  /** u v of each corner. */
  corners: Float64Array;
}

/** What it answers: points (V, 2) in the plane; null: there are too many regions. */
export interface WorkerAnswer {
  problem: string;
  points: Float64Array;
  values: Float32Array;
  offsets: Uint32Array;
  corners: Uint32Array;
  layer: Int16Array;
}

const NOT_HERE = "The plane cannot be computed here.";

/** Finds the regions of planes: by Python, or by the kernel in a worker of the page. */
export class Sections {
  private worker: Worker | null = null;
  /** Ends the computation that goes on. */
  private outdate: () => void = () => {};
  private readonly networks = new Map<number, Promise<Network>>();

  constructor(
    private readonly source: Source,
    private readonly scene: SolidHeader,
  ) {}

  /** The regions of a convex polygon with local corners; null: a newer plane came. */
  find(frame: number, corners: readonly Vec3[], normal: Vec3): Promise<Regions | null> {
    return this.scene.live ? this.asked(frame, corners) : this.computed(frame, corners, normal);
  }

  dispose(): void {
    this.worker?.terminate();
  }

  private async asked(frame: number, corners: readonly Vec3[]): Promise<Regions | null> {
    const places = corners.map((each) => this.place(each));
    const message = await this.source.ask({ ask: "section", frame, corners: places });
    const { header, arrays } = message;
    if (header.kind !== "section") return null;
    if (header.reason) throw new Error(`This plane has ${header.reason}.`);
    const { vertices, values, counts, corners: at, edgeLayer } = arrays;
    const points = Float32Array.from(vertices!.data);
    const polygons = new Polygons(points, sums(counts!.data), at!.data, edgeLayer!.data);
    return { polygons, values: Float32Array.from(values!.data) };
  }

  private async computed(
    frame: number,
    corners: readonly Vec3[],
    normal: Vec3,
  ): Promise<Regions | null> {
    const asked = this.networks.get(frame) ?? this.network(frame);
    this.networks.set(frame, asked);
    const network = await asked;
    const basis = frameOf(normal);
    const origin = this.place(corners[0]!);
    const flat = corners.flatMap((each) => {
      const off = minus(this.place(each), origin);
      return [dot(off, basis[0]), dot(off, basis[1])];
    });
    const ask: WorkerAsk = { network, origin, basis, corners: Float64Array.from(flat) };
    const found = await this.run(ask);
    if (!found) return null;
    if (found.problem) throw new Error(found.problem);
    const { points, values, offsets, corners: at, layer } = found;
    const vertices = new Float32Array((3 * points.length) / 2);
    for (let k = 0; 2 * k < points.length; k++) {
      const [u, v] = [points[2 * k]!, points[2 * k + 1]!];
      const place = add(origin, add(times(basis[0], u), times(basis[1], v)));
      vertices.set(times(minus(place, this.scene.center), 1 / this.scene.scale), 3 * k);
    }
    return { polygons: new Polygons(vertices, offsets, at, layer), values };
  }

  /** Ask the worker; if it still computes an older plane, another one takes its place. */
  private run(ask: WorkerAsk): Promise<WorkerAnswer | null> {
    this.outdate();
    const code = new Blob([workerCode], { type: "text/javascript" });
    const worker = this.worker ?? new Worker(URL.createObjectURL(code));
    this.worker = worker;
    return new Promise((resolve, reject) => {
      this.outdate = () => {
        worker.terminate();
        this.worker = null;
        resolve(null);
      };
      worker.onmessage = ({ data }) => {
        this.outdate = () => {};
        resolve(data);
      };
      worker.onerror = () => reject(new Error(NOT_HERE));
      worker.postMessage(ask);
    });
  }

  private async network(frame: number): Promise<Network> {
    const message = await this.source.ask({ ask: "network", frame });
    const { header, arrays } = message;
    if (header.kind !== "network") throw new Error(NOT_HERE);
    if (header.reason) throw new Error(header.reason);
    const numbers = (name: string) => Float64Array.from(arrays[name]!.data);
    const layers = header.layers.map(
      (layer, k): Layer => ({ ...layer, weight: numbers(`weight${k}`), bias: numbers(`bias${k}`) }),
    );
    return { layers };
  }

  private place(local: Vec3): Vec3 {
    return add(this.scene.center, times(local, this.scene.scale));
  }
}
