// What one sees and can share: the camera, the colours, the switches, the selection.

import type { Pair } from "./protocol/messages";

export interface ViewState {
  /** The place in the middle of the screen, in plane coordinates. */
  center: Pair;
  /** The width of what is seen, in plane coordinates; 0: the whole domain. */
  width: number;
  color: string;
  output: number | null;
  frame: number;
  edges: boolean;
  /** Layers whose edges are hidden. */
  hiddenLayers: number[];
  /** The width of edges, as a multiple of the usual one. */
  edgeWidth: number;
  boundary: boolean;
  /** Hatch where the class of a model with smooth functions is not certain. */
  band: boolean;
  /** Draw the level set of the chosen output (or the first) at `level`. */
  levelSet: boolean;
  level: number;
  points: boolean;
  thumbnails: boolean;
  theme: "auto" | "light" | "dark";
  /** The kept region and the one it is compared with, by a place inside each. */
  selected: { pane: number; at: Pair } | null;
  compared: { pane: number; at: Pair } | null;
}

export const INITIAL: ViewState = {
  center: [0, 0],
  width: 0,
  color: "",
  output: null,
  frame: 0,
  edges: true,
  hiddenLayers: [],
  edgeWidth: 1,
  boundary: true,
  band: true,
  levelSet: false,
  level: 0,
  points: true,
  thumbnails: true,
  theme: "auto",
  selected: null,
  compared: null,
};

type Listener = (state: Readonly<ViewState>, changed: ReadonlySet<keyof ViewState>) => void;

/** The state, and who is told when it changes. */
export class Store {
  private listeners: Listener[] = [];

  constructor(public state: Readonly<ViewState> = INITIAL) {}

  /** Change some of the state; listeners are called once, with the names of what differs. */
  set(change: Partial<ViewState>): void {
    const changed = new Set<keyof ViewState>();
    for (const key of Object.keys(change) as (keyof ViewState)[]) {
      if (JSON.stringify(change[key]) !== JSON.stringify(this.state[key])) changed.add(key);
    }
    if (!changed.size) return;
    this.state = { ...this.state, ...change };
    for (const listener of [...this.listeners]) listener(this.state, changed);
  }

  /** Be told of changes; returns the function that ends this. */
  listen(listener: Listener): () => void {
    this.listeners.push(listener);
    return () => {
      this.listeners = this.listeners.filter((each) => each !== listener);
    };
  }
}
