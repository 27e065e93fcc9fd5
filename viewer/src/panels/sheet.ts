// The inspector on phones: a sheet at the bottom, pulled up and pushed down by its grip.

import { element } from "./dom";

const PULL = 24; // CSS pixels from which on a touch is a pull

export class Sheet {
  readonly grip: HTMLButtonElement;
  private from: number | null = null;
  private pulled = false;

  constructor(private readonly root: HTMLElement) {
    this.grip = element("button", {
      class: "sc-grip",
      type: "button",
      pointerdown: (event) => {
        this.from = event.clientY;
        this.pulled = false;
        this.grip.setPointerCapture(event.pointerId);
      },
      pointermove: (event) => {
        const moved = event.clientY - (this.from ?? event.clientY);
        if (Math.abs(moved) < PULL) return;
        this.pulled = true;
        this.open(moved < 0);
      },
      pointerup: () => {
        this.from = null;
      },
      click: () => {
        if (!this.pulled) this.open(!this.isOpen);
        this.pulled = false;
      },
    });
    this.open(false);
  }

  get isOpen(): boolean {
    return this.root.dataset.sheet === "open";
  }

  open(open: boolean): void {
    this.root.dataset.sheet = open ? "open" : "closed";
    this.grip.setAttribute("aria-expanded", String(open));
    this.grip.setAttribute("aria-label", open ? "Show less" : "Show more");
  }
}
