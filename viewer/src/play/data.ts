// What is learned: points of the square from -1 to 1, and what the network is to say there.

import type { Experiment } from "./experiment";

/** "classes": one output for each of several, or a single one whose sign tells two apart. */
export interface Task {
  kind: "classes" | "numbers";
  outputs: number;
  points: Float64Array;
  /** The class of each point, or the number there. */
  targets: Float64Array;
}

/** Random numbers that a seed determines. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = (seed * 2654435761 + 40503) >>> 0;
  }

  /** From 0 to 1 (mulberry32). */
  uniform(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let x = this.state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  }

  normal(): number {
    const length = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return length * Math.cos(2 * Math.PI * this.uniform());
  }

  below(count: number): number {
    return Math.floor(this.uniform() * count);
  }
}

const COUNT = 400;

/** A point with its class. */
export type Own = [u: number, v: number, label: number];

/** The points of an address. */
export function ownPoints(points: string): Own[] {
  const rows = points.split("_").filter(Boolean);
  return rows.map((row) => {
    const [u = 0, v = 0, label = 0] = row.split(".").map(Number);
    return [u / 1000, v / 1000, label];
  });
}

type Rule = (k: number, random: Random) => Own;

const RULES: Record<string, Rule> = {
  spirals: (k, random) => {
    const t = 0.05 + 0.95 * Math.sqrt(random.uniform());
    const angle = 2.6 * Math.PI * t + Math.PI * (k % 2);
    return [0.85 * t * Math.cos(angle), 0.85 * t * Math.sin(angle), k % 2];
  },
  moons: (k, random) => {
    const angle = Math.PI * random.uniform();
    const [x, y] = [Math.cos(angle), Math.sin(angle)];
    return k % 2 ? [0.5 * x + 0.25, 0.15 - 0.6 * y, 1] : [0.5 * x - 0.25, 0.6 * y - 0.15, 0];
  },
  rings: (k, random) => {
    const angle = 2 * Math.PI * random.uniform();
    const radius = [0.15 * Math.sqrt(random.uniform()), 0.45, 0.8][k % 3]!;
    return [radius * Math.cos(angle), radius * Math.sin(angle), (k % 3) % 2];
  },
  checkerboard: (_, random) => {
    const [u, v] = [1.8 * random.uniform() - 0.9, 1.8 * random.uniform() - 0.9];
    const label = (Math.floor((u + 0.9) / 0.6) + Math.floor((v + 0.9) / 0.6)) % 2;
    return [u, v, label];
  },
  gaussians: (k, random) => {
    const angle = (Math.PI / 2) * (k % 4) + Math.PI / 4;
    const spread = 0.16;
    const [u, v] = [0.55 * Math.cos(angle), 0.55 * Math.sin(angle)];
    return [u + spread * random.normal(), v + spread * random.normal(), k % 4];
  },
  waves: (_, random) => {
    const [u, v] = [2 * random.uniform() - 1, 2 * random.uniform() - 1];
    return [u, v, Math.sin(4 * u) * Math.cos(3 * v)];
  },
  star: (_, random) => {
    const [u, v] = [2 * random.uniform() - 1, 2 * random.uniform() - 1];
    return [u, v, distanceToStar(u, v)];
  },
};

/** Below 0 inside of a star with five points. */
function distanceToStar(u: number, v: number): number {
  const corner = (k: number): [number, number] => {
    const radius = k % 2 ? 0.32 : 0.75;
    const angle = Math.PI / 2 + (Math.PI / 5) * k;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  };
  let [nearest, inside] = [Infinity, false];
  for (let k = 0; k < 10; k++) {
    const [a, b] = [corner(k), corner(k + 1)];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const along = ((u - a[0]) * dx + (v - a[1]) * dy) / (dx * dx + dy * dy);
    const t = Math.min(1, Math.max(0, along));
    nearest = Math.min(nearest, Math.hypot(u - a[0] - t * dx, v - a[1] - t * dy));
    if (a[1] > v !== b[1] > v && u < a[0] + ((v - a[1]) / dy) * dx) inside = !inside;
  }
  return inside ? -nearest : nearest;
}

/** Whether numbers are learned, and not classes. */
export function isOfNumbers({ data }: Experiment): boolean {
  return data === "waves" || data === "star";
}

export function taskOf(experiment: Experiment): Task {
  const { data, noise, seed, points: own } = experiment;
  const numbers = isOfNumbers(experiment);
  const random = new Random(seed + 17);
  const rule: Rule | undefined = data in RULES ? RULES[data] : undefined;
  const rows = rule ? Array.from({ length: COUNT }, (_, k) => rule(k, random)) : ownPoints(own);
  const points = new Float64Array(2 * rows.length);
  const targets = new Float64Array(rows.length);
  rows.forEach(([u, v, target], k) => {
    const shift = rule && !numbers ? noise : 0;
    points[2 * k] = u + shift * random.normal();
    points[2 * k + 1] = v + shift * random.normal();
    targets[k] = target + (numbers ? noise * random.normal() : 0);
  });
  const outputs = data === "gaussians" ? 4 : 1;
  return { kind: numbers ? "numbers" : "classes", outputs, points, targets };
}
