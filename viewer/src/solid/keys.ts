// The keys and gestures of the viewer of surfaces, for the keyboard and for the help.

import { ZOOM } from "../panels/map_buttons";
import type { Shortcut } from "../panels/shortcuts";

/** What keys may ask for. */
export interface Keyed {
  turn(right: number, up: number): void;
  pan(right: number, up: number): void;
  zoom(factor: number): void;
  home(): void;
  nextColoring(): void;
  toggleEdges(): void;
  togglePlane(): void;
  /** By a share of the radius of the box. */
  movePlane(share: number): void;
  step(frames: number): void;
  togglePlay(): void;
  toggleHelp(): void;
  escape(): void;
}

const ANGLE = Math.PI / 24;

export const GESTURES: readonly (readonly [string, string])[] = [
  ["drag", "turn"],
  ["shift-drag, two fingers", "move"],
  ["drag the plane", "move it through the box"],
  ["wheel, pinch", "zoom"],
  ["double-click", "look at a face from closer"],
  ["point, tap", "see the map of a region"],
];

export function shortcutsOf(keyed: Keyed): Shortcut[] {
  const ways: Record<string, [number, number]> = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, 1],
    ArrowDown: [0, -1],
  };
  const shortcut = (keys: string, written: string, what: string, run: Shortcut["run"]) => ({
    keys: keys.split(" ").map((key) => (key === "space" ? " " : key)),
    written: written.split(" "),
    what,
    run,
  });
  const arrows = Object.keys(ways);
  return [
    shortcut(arrows.join(" "), "← → ↑ ↓", "turn", (key) => {
      const [right, up] = ways[key]!;
      keyed.turn(ANGLE * right, ANGLE * up);
    }),
    shortcut(arrows.map((key) => `Shift+${key}`).join(" "), "⇧ ← → ↑ ↓", "move", (key) => {
      keyed.pan(...ways[key.slice(6)]!);
    }),
    shortcut("+ =", "+", "zoom in", () => keyed.zoom(ZOOM)),
    shortcut("- _", "−", "zoom out", () => keyed.zoom(1 / ZOOM)),
    shortcut("0 Home", "0 Home", "show everything", () => keyed.home()),
    shortcut("c", "C", "next colouring", () => keyed.nextColoring()),
    shortcut("e", "E", "edges", () => keyed.toggleEdges()),
    shortcut("p", "P", "plane with its regions", () => keyed.togglePlane()),
    shortcut(", .", ", .", "move the plane", (key) => keyed.movePlane(key === "," ? -0.02 : 0.02)),
    shortcut("[", "[", "surface before", () => keyed.step(-1)),
    shortcut("]", "]", "next surface", () => keyed.step(1)),
    shortcut("space", "space", "play surfaces", () => keyed.togglePlay()),
    shortcut("Escape", "Esc", "close", () => keyed.escape()),
    shortcut("?", "?", "this help", () => keyed.toggleHelp()),
  ];
}
