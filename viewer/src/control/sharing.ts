// The state in the address of the page, and in Python.

import { fitting } from "../fitting";
import type { PaneHeader } from "../protocol/messages";
import type { Store, ViewState } from "../state";
import { readHash, writeHash } from "../url";

const PAUSE = 250; // milliseconds after which a change is written

/** Keeps the state of a store in the address of the page: reads it, and writes it after changes. */
export class Address {
  private timer = 0;
  private written = "";
  private listener = () => this.read();

  constructor(
    private store: Store,
    private defaults: Readonly<ViewState>,
    private panes: readonly PaneHeader[],
  ) {
    window.addEventListener("hashchange", this.listener);
  }

  /** Take over the state of the address, for instance after "back". */
  read(): void {
    const { hash } = window.location;
    if (hash === this.written) return;
    this.written = hash;
    this.store.set({ ...this.defaults, ...fitting(readHash(hash), this.panes) });
  }

  /** Write the state soon. */
  touch(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.write(), PAUSE);
  }

  dispose(): void {
    clearTimeout(this.timer);
    window.removeEventListener("hashchange", this.listener);
  }

  private write(): void {
    const hash = writeHash(this.store.state, this.defaults);
    const wanted = hash ? `#${hash}` : "";
    if (wanted === window.location.hash) return;
    this.written = wanted;
    try {
      const { pathname, search } = window.location;
      window.history.replaceState(null, "", wanted || pathname + search);
    } catch {
      // Frames without an origin may not write addresses; "copy link" still works.
    }
  }
}

/** Tells Python how the view is, some time after it has changed. */
export class Telling {
  private timer = 0;

  /** tell: sends the state. */
  constructor(private tell: () => void) {}

  touch(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(this.tell, PAUSE);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }
}

/** What of a state from elsewhere has the right names and types. */
export function cleaned(
  given: Record<string, unknown>,
  like: Readonly<ViewState>,
): Partial<ViewState> {
  const result: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(like, name)) continue;
    if (isLike(value, like[name as keyof ViewState], name)) result[name] = value;
  }
  return result as Partial<ViewState>;
}

function isLike(value: unknown, like: unknown, name: string): boolean {
  if (name === "output") return value === null || Number.isInteger(value);
  if (name === "selected" || name === "compared") return value === null || isPlace(value);
  if (name === "hiddenLayers") return Array.isArray(value) && value.every(Number.isInteger);
  if (name === "center") return isPair(value);
  if (name === "theme") return value === "auto" || value === "light" || value === "dark";
  if (typeof like === "number") return Number.isFinite(value);
  return typeof value === typeof like;
}

function isPair(value: unknown): boolean {
  return Array.isArray(value) && value.length === 2 && value.every(Number.isFinite);
}

function isPlace(value: unknown): boolean {
  const { pane, at } = (value ?? {}) as { pane?: unknown; at?: unknown };
  return Number.isInteger(pane) && isPair(at);
}
