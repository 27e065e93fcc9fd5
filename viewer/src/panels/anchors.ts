// The anchors of a plane: handles over the picture that are dragged, or given a data point.

import type { Message, Pair, PaneHeader } from "../protocol/messages";
import type { Actions } from "./actions";
import { box, element } from "./dom";
import { thumbnail } from "./picture";

const STEP = 8; // CSS pixels that an arrow key moves a handle by

export const ANCHOR_NAMES = "ABC";

export class Anchors {
  private handles: HTMLButtonElement[] = [];
  private positions: readonly Pair[] = [];
  private dragging = false;

  constructor(
    private readonly overlay: HTMLElement,
    private readonly pane: number,
    private readonly actions: Actions,
    /** A handle was chosen; true: it was given the data point that waits for one. */
    private readonly chosen: (anchor: number) => boolean,
    private readonly moved: () => void,
  ) {}

  /** Make the handles of a pane; while one is dragged, only its image changes. */
  showPane(header: PaneHeader, arrays: Message["arrays"]): void {
    const count = header.anchors?.at.length ?? 0;
    if (count !== this.handles.length) {
      for (const handle of this.handles) handle.remove();
      this.handles = Array.from({ length: count }, (_, k) => this.handle(k));
      this.overlay.append(...this.handles);
    }
    const images = arrays[`${this.pane}/anchors`];
    for (const [k, handle] of this.handles.entries()) {
      const name = ANCHOR_NAMES[k] ?? String(k + 1);
      const letter = box("sc-anchor-name", name);
      const drawn = images && header.anchors?.thumbnail ? thumbnail(images, k, name) : null;
      handle.replaceChildren(...(drawn ? [drawn, letter] : [letter]));
      handle.classList.toggle("sc-bare", !drawn);
    }
  }

  show(on: boolean): void {
    this.overlay.hidden = !on;
  }

  /** Place the handles, in CSS pixels from the canvas' corner. */
  place(positions: readonly Pair[]): void {
    this.positions = positions;
    for (const [k, handle] of this.handles.entries()) {
      const at = positions[k];
      handle.hidden = !at?.every(Number.isFinite);
      if (at) handle.style.transform = `translate(${at[0]}px, ${at[1]}px)`;
    }
  }

  /** The anchor whose handle is at a place of the screen, or -1. */
  at(x: number, y: number): number {
    return this.handles.findIndex((handle) => {
      const { left, right, top, bottom } = handle.getBoundingClientRect();
      return (
        !handle.hidden && !this.overlay.hidden && x >= left && x <= right && y >= top && y <= bottom
      );
    });
  }

  /** Mark the handles as waiting for a data point, and the one below the pointer. */
  mark(waiting: boolean, below = -1): void {
    for (const [k, handle] of this.handles.entries()) {
      handle.classList.toggle("sc-waiting", waiting);
      handle.classList.toggle("sc-below", waiting && k === below);
    }
  }

  private handle(k: number): HTMLButtonElement {
    const label = `Anchor ${ANCHOR_NAMES[k] ?? k + 1} of the plane: drag it`;
    let from: Pair = [0, 0];
    let start: Pair = [0, 0];
    const to = (event: PointerEvent): Pair => [
      start[0] + event.clientX - from[0],
      start[1] + event.clientY - from[1],
    ];
    const handle = element("button", {
      class: "sc-anchor",
      title: label,
      type: "button",
      "aria-label": label,
      pointerdown: (event) => {
        from = [event.clientX, event.clientY];
        start = this.positions[k] ?? [0, 0];
        this.dragging = true;
        handle.setPointerCapture(event.pointerId);
        event.stopPropagation();
      },
      pointermove: (event) => {
        if (this.dragging && handle.hasPointerCapture(event.pointerId))
          this.drag(k, to(event), false);
      },
      pointerup: (event) => {
        const far = Math.hypot(event.clientX - from[0], event.clientY - from[1]) > 2;
        if (this.dragging && far) this.drag(k, to(event), true);
        this.dragging = false;
      },
      pointercancel: () => {
        this.dragging = false;
      },
      click: () => void this.chosen(k),
      keydown: (event) => this.key(k, event),
    });
    return handle;
  }

  private drag(k: number, to: Pair, done: boolean): void {
    this.moved();
    this.actions.dragAnchor(this.pane, k, to, done);
  }

  private key(k: number, event: KeyboardEvent): void {
    const step = {
      ArrowLeft: [-STEP, 0],
      ArrowRight: [STEP, 0],
      ArrowUp: [0, -STEP],
      ArrowDown: [0, STEP],
    }[event.key];
    const at = this.positions[k];
    if (!step || !at) return;
    this.drag(k, [at[0] + step[0]!, at[1] + step[1]!], true);
    event.preventDefault();
    event.stopPropagation();
  }
}
