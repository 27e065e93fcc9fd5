// The keys of the viewer: one table, for the keyboard and for the help.

import type { Store } from "../state";
import type { Actions } from "./actions";
import { ZOOM } from "./map_buttons";

/** What keys may ask of the panels themselves. */
export interface KeyTargets {
  step(frames: number): void;
  togglePlay(): void;
  nextColoring(): void;
  toggleLevelSet(): void;
  toggleHelp(): void;
  escape(): void;
}

export interface Shortcut {
  /** The values of `KeyboardEvent.key` that it answers to. */
  keys: readonly string[];
  /** How the help writes them. */
  written: readonly string[];
  what: string;
  run(key: string): void;
}

const STEP = 0.15; // of the picture, that an arrow key moves it by

export function shortcutsOf(store: Store, actions: Actions, targets: KeyTargets): Shortcut[] {
  const toggle = (name: "edges" | "boundary" | "band" | "points") => () =>
    store.set({ [name]: !store.state[name] });
  const moves: Record<string, [number, number]> = {
    ArrowLeft: [-STEP, 0],
    ArrowRight: [STEP, 0],
    ArrowUp: [0, STEP],
    ArrowDown: [0, -STEP],
  };
  const shortcut = (keys: string, written: string, what: string, run: Shortcut["run"]) => ({
    keys: keys.split(" ").map((key) => (key === "space" ? " " : key)),
    written: written.split(" "),
    what,
    run,
  });
  const towards = Object.keys(moves).map((key) => `Shift+${key}`);
  return [
    shortcut("+ =", "+", "zoom in", () => actions.zoom(ZOOM)),
    shortcut("- _", "−", "zoom out", () => actions.zoom(1 / ZOOM)),
    shortcut(Object.keys(moves).join(" "), "← → ↑ ↓", "move", (key) => actions.pan(...moves[key]!)),
    shortcut(towards.join(" "), "⇧ ← → ↑ ↓", "keep the neighbouring region", (key) => {
      const [right, up] = moves[key.slice(6)]!;
      actions.stepRegion([Math.sign(right), Math.sign(up)]);
    }),
    shortcut(",", ",", "keep the region before", () => actions.stepRegion(-1)),
    shortcut(".", ".", "keep the next region", () => actions.stepRegion(1)),
    shortcut("0 Home", "0 Home", "show everything", () => actions.home()),
    shortcut("c", "C", "next colouring", () => targets.nextColoring()),
    shortcut("e", "E", "edges", toggle("edges")),
    shortcut("b", "B", "decision boundary", toggle("boundary")),
    shortcut("u", "U", "undecided band of a smooth network", toggle("band")),
    shortcut("l", "L", "level set", () => targets.toggleLevelSet()),
    shortcut("p", "P", "data points", toggle("points")),
    shortcut("[", "[", "frame before", () => targets.step(-1)),
    shortcut("]", "]", "next frame", () => targets.step(1)),
    shortcut("space", "space", "play frames", () => targets.togglePlay()),
    shortcut("Escape", "Esc", "close, let go of regions", () => targets.escape()),
    shortcut("?", "?", "this help", () => targets.toggleHelp()),
  ];
}

/** What can be done by pointing, for the help. */
export const GESTURES: readonly (readonly [string, string])[] = [
  ["drag", "move"],
  ["wheel, pinch", "zoom"],
  ["double-click", "go deeper"],
  ["point", "look at a region or a line"],
  ["click", "keep a region"],
  ["shift-click", "compare it with another"],
];

/** Whether a key belongs to the field that has the focus, and not to the viewer. */
export function isForField(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  if (event.key === "Escape") return false;
  const { tagName } = target;
  if (tagName === "SELECT" || tagName === "TEXTAREA" || target.isContentEditable) return true;
  if (tagName === "BUTTON" || tagName === "SUMMARY") return event.key === " ";
  if (!(target instanceof HTMLInputElement)) return false;
  if (target.type === "checkbox") return event.key === " ";
  return target.type !== "range" || event.key.startsWith("Arrow") || event.key === "Home";
}

/** Do what a key asks for. While the help is open, only keys that close it count. */
export function answerKey(
  event: KeyboardEvent,
  shortcuts: readonly Shortcut[],
  helpIsOpen: boolean,
): void {
  if (isForField(event)) return;
  const arrow = event.shiftKey && event.key.startsWith("Arrow") ? "Shift+" : "";
  const key = event.key.length === 1 ? event.key.toLowerCase() : arrow + event.key;
  if (helpIsOpen && key !== "Escape" && key !== "?") return;
  const shortcut = shortcuts.find(({ keys }) => keys.includes(key));
  if (!shortcut) return;
  shortcut.run(key);
  event.preventDefault();
  event.stopPropagation();
}
