// The structure of the page: top bar, controls, panes, inspector, and the bar below them.

import { box, element, show } from "./dom";
import { iconButton } from "./icons";

/** How much room there is; the look of `style.css` follows from it. */
export type Size = "wide" | "medium" | "narrow";

const WIDE = 1080;
const MEDIUM = 560;

/** A pane: its canvas, the title above it, and what lies over it. */
export interface PaneElements {
  frame: HTMLElement;
  canvas: HTMLCanvasElement;
  title: HTMLElement;
  /** Handles of anchors are placed in here, in CSS pixels from the canvas' corner. */
  overlay: HTMLElement;
}

export class Layout {
  readonly title = element("h1", { class: "sc-title" });
  readonly topMiddle = box("sc-top-middle");
  readonly topRight = box("sc-top-right");
  readonly controls = element("aside", {
    class: "sc-controls",
    "aria-label": "Controls",
  });
  readonly panes = box("sc-panes");
  readonly stage = box("sc-stage", this.panes);
  readonly inspector = element("aside", {
    class: "sc-inspector",
    "aria-label": "What is pointed at",
  });
  readonly bottom = box("sc-bottom");
  readonly toggle = iconButton("sliders", "Controls", () => this.openControls(!this.isOpen));
  /** The canvas of the first pane, there before it is known what to show. */
  readonly firstCanvas = element("canvas");
  panesShown: PaneElements[] = [];
  size: Size = "wide";

  private readonly observer: ResizeObserver;
  private sizeListeners: ((size: Size) => void)[] = [];

  constructor(readonly root: HTMLElement) {
    root.classList.add("splinecam");
    root.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves the keys to the viewer
    root.setAttribute("role", "region");
    root.setAttribute("aria-label", "SplineCam viewer");
    const top = element("header", { class: "sc-top" }, this.toggle, this.title, this.topMiddle);
    top.append(this.topRight);
    const body = box("sc-body", this.controls, this.stage, this.inspector);
    root.replaceChildren(top, body, this.bottom);
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(root);
    root.addEventListener("pointerdown", this.byPointer, true);
    root.addEventListener("keydown", this.byPointer, true);
    this.stage.addEventListener("pointerdown", () => {
      if (this.size !== "wide") this.openControls(false);
    });
    this.openControls(false);
    this.showPanes([]);
    this.measure();
  }

  get canvases(): HTMLCanvasElement[] {
    return this.panesShown.map((pane) => pane.canvas);
  }

  /** Make a canvas for each pane; several have their titles above them. */
  showPanes(titles: string[]): void {
    this.panesShown = titles.map((name, k) => {
      const canvas = k ? element("canvas") : this.firstCanvas;
      canvas.className = "sc-canvas";
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "application");
      const what = name || "Regions of the network";
      canvas.setAttribute(
        "aria-label",
        `${what}: arrow keys move, + and − zoom, shift and arrow keys go from region to region`,
      );
      const title = box("sc-pane-title", name);
      show(title, titles.length > 1);
      const overlay = box("sc-overlay");
      return { frame: box("sc-pane", canvas, overlay, title), canvas, title, overlay };
    });
    this.panes.replaceChildren(...this.panesShown.map((pane) => pane.frame));
    this.root.dataset.panes = String(Math.max(1, titles.length));
  }

  get isOpen(): boolean {
    return this.root.dataset.controls === "open";
  }

  /** Show or hide the controls where there is no room for them beside the picture. */
  openControls(open: boolean): void {
    this.root.dataset.controls = open ? "open" : "closed";
    this.toggle.setAttribute("aria-expanded", String(open));
  }

  /** Be told when the viewer gets another size. */
  onSize(listener: (size: Size) => void): void {
    this.sizeListeners.push(listener);
    listener(this.size);
  }

  dispose(): void {
    this.observer.disconnect();
    this.root.removeEventListener("pointerdown", this.byPointer, true);
    this.root.removeEventListener("keydown", this.byPointer, true);
  }

  /** Remember whether keys or a pointer are used: only keys need to see where the focus is. */
  private readonly byPointer = (event: Event): void => {
    this.root.dataset.input = event.type === "keydown" ? "keys" : "pointer";
  };

  private measure(): void {
    const width = this.root.clientWidth || WIDE;
    const size = width >= WIDE ? "wide" : width >= MEDIUM ? "medium" : "narrow";
    if (size === this.size && this.root.dataset.size) return;
    this.size = size;
    this.root.dataset.size = size;
    for (const listener of this.sizeListeners) listener(size);
  }
}
