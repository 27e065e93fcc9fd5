// What the inspector shows of a region.

import type { Pair } from "../protocol/messages";

/** A region at a place of a pane. */
export interface ShownRegion {
  pane: number;
  frame: number;
  /** The mesh and the number of the region in it. */
  mesh: string;
  region: number;
  at: Pair;
  /** The class that wins at the place; null where there are no classes. */
  winner: number | null;
  /** The outputs that are known, by number, with their values at the place. */
  outputs: readonly number[];
  values: ArrayLike<number>;
  /** The affine map of each of them: output = weights · (u, v) + bias. */
  weights: readonly Pair[];
  biases: ArrayLike<number>;
  area: number;
  corners: number;
  /** The last layer that bounds the region; −1 if none does. */
  layer: number;
  neighbours: number;
}
