// What is known of a region at a place.

import type { Pair } from "../protocol/messages";

export interface RegionInfo {
  pane: number;
  frame: number;
  /** The mesh, the number of the region in it, and the cell of the place. */
  mesh: string;
  region: number;
  cell: number;
  at: Pair;
  /** The class that wins at the place; null where there are no classes. */
  winner: number | null;
  /** What is known of a region that is not divided, in a sentence; null if it has an affine map. */
  settled: string | null;
  /** The outputs that are known, by number, with their values at the place; none if it is settled. */
  outputs: readonly number[];
  values: ArrayLike<number>;
  /** The affine map of each of them: output = weights · (u, v) + bias. */
  weights: readonly Pair[];
  biases: ArrayLike<number>;
  /** How far each weight can be off, because values are rounded: large in very small regions. */
  weightErrors: ArrayLike<number>;
  /** How far each output of a model with smooth functions can be off; none if it is exact. */
  bounds?: ArrayLike<number>;
  area: number;
  corners: number;
  /** The last layer that bounds the region; -1 if none does. */
  layer: number;
  /** How many regions share an edge with it. */
  neighbours: number;
  /** Whether the region goes on beyond the window, so that all of these are too small. */
  cutOff: boolean;
}
