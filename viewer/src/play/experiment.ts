// What an experiment is made of; its address, by which it can be shared.

import type { Activation } from "./network";

export interface Experiment {
  data: string;
  /** The widths of the hidden layers. */
  layers: number[];
  activation: string;
  init: string;
  optimizer: string;
  rate: number;
  /** Weight decay. */
  decay: number;
  noise: number;
  batch: number;
  seed: number;
  color: string;
  /** The points that were clicked, as in an address: 1000 u, 1000 v and the class of each. */
  points: string;
}

export const DEFAULT: Experiment = {
  data: "spirals",
  layers: [16, 16],
  activation: "relu",
  init: "he",
  optimizer: "adam",
  rate: 0.01,
  decay: 0,
  noise: 0.05,
  batch: 32,
  seed: 1,
  color: "class",
  points: "",
};

type Choices = readonly (readonly [value: string, label: string])[];

export const CHOICES: Record<"data" | "activation" | "init" | "optimizer" | "color", Choices> = {
  data: [
    ["spirals", "Two spirals"],
    ["moons", "Moons"],
    ["rings", "Rings"],
    ["checkerboard", "Checkerboard"],
    ["gaussians", "Four Gaussians"],
    ["waves", "Regression: waves"],
    ["star", "Shape: distance to a star"],
    ["own", "My own points"],
  ],
  activation: [
    ["relu", "ReLU"],
    ["leaky", "Leaky ReLU"],
    ["abs", "Absolute value"],
    ["hardtanh", "Hardtanh"],
    ["maxout", "Maxout (pairs)"],
    ["tanh", "Tanh (not piecewise linear)"],
    ["gelu", "GELU (not piecewise linear)"],
  ],
  init: [
    ["he", "He (normal)"],
    ["xavier", "Xavier (uniform)"],
    ["pytorch", "PyTorch's default"],
    ["zero-bias", "He, no biases"],
  ],
  optimizer: [
    ["adam", "Adam"],
    ["sgd", "SGD"],
    ["momentum", "SGD with momentum"],
  ],
  color: [
    ["class", "Class"],
    ["output", "Output"],
    ["slope", "Slope"],
    ["area", "Area"],
    ["active", "Number of active units"],
    ["code", "Code of active units"],
    ["layer", "Last layer that cut"],
  ],
};

export const [MOST_LAYERS, MOST_UNITS] = [8, 128];

export function activationOf(name: string): Activation {
  if (name === "leaky") return { name, slope: 0.1 };
  if (name === "hardtanh") return { name: "clip", low: -1, high: 1 };
  if (name === "abs" || name === "maxout" || name === "tanh" || name === "gelu") return { name };
  return { name: "relu" };
}

/** The limits of the numbers that one can choose, and how they are called. */
export const NUMBERS = {
  rate: { label: "Learning rate", least: 1e-5, most: 1 },
  decay: { label: "Weight decay", least: 0, most: 1 },
  noise: { label: "Noise of the data", least: 0, most: 1 },
  batch: { label: "Batch", least: 1, most: 512 },
  seed: { label: "Seed", least: 0, most: 999_999 },
} as const;

/** The part of an address after "#"; what is as usual is left out. */
export function addressOf(experiment: Experiment): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(experiment)) {
    const usual = DEFAULT[name as keyof Experiment];
    if (String(value) !== String(usual)) parts.set(name, String(value));
  }
  return parts.toString().replaceAll("%2C", ",");
}

/** The experiment of an address; what makes no sense in it is as usual. */
export function experimentOf(address: string): Experiment {
  const parts = new URLSearchParams(address.replace(/^#/, ""));
  const found = { ...DEFAULT };
  for (const name of ["data", "activation", "init", "optimizer", "color"] as const) {
    const value = parts.get(name);
    if (CHOICES[name].some(([known]) => known === value)) found[name] = value!;
  }
  for (const [name, { least, most }] of Object.entries(NUMBERS)) {
    const value = Number(parts.get(name) ?? Number.NaN);
    const whole = name === "batch" || name === "seed" ? Math.round(value) : value;
    if (value >= least && value <= most) found[name as keyof typeof NUMBERS] = whole;
  }
  const layers = (parts.get("layers") ?? "").split(",").map(Number);
  const valid = layers.every((n) => Number.isInteger(n) && n >= 1 && n <= MOST_UNITS);
  if (valid && layers.length <= MOST_LAYERS) found.layers = layers;
  const points = parts.get("points") ?? "";
  if (/^(-?\d{1,4}\.-?\d{1,4}\.[01]_?){0,500}$/.test(points)) found.points = points;
  return found;
}
