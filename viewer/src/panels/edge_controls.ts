// The switches of edges: all of them, each layer, and how wide they are.

import type { LayerHeader } from "../protocol/messages";
import type { Store, ViewState } from "../state";
import { box, element, show, text } from "./dom";
import { Slider, switchField } from "./fields";
import { formatCount, formatNumber } from "./numbers";
import { layerName } from "./outputs";

export class EdgeControls {
  readonly section: HTMLElement;
  private readonly all = switchField("Edges", "E", (edges) => this.store.set({ edges }));
  private readonly width = new Slider(
    "Width",
    (value) => `${formatNumber(2 ** value, 2)}×`,
    (value) => this.store.set({ edgeWidth: Number((2 ** value).toPrecision(2)) }),
  );
  private readonly list = element("div", {
    class: "sc-layers",
    role: "group",
    "aria-label": "Layers whose edges are drawn",
  });
  private readonly more: HTMLElement;
  private readonly head: HTMLElement;
  private boxes: HTMLInputElement[] = [];

  constructor(private readonly store: Store) {
    this.width.limits(-2, 2);
    const link = (label: string, title: string, hidden: () => number[]) =>
      element(
        "button",
        {
          class: "sc-link",
          title,
          type: "button",
          click: () => this.store.set({ hiddenLayers: hidden() }),
        },
        label,
      );
    this.head = box(
      "sc-layers-head",
      text("sc-field-label", "Layers"),
      link("all", "Draw the edges of every layer", () => []),
      link("none", "Draw the edges of no layer", () => this.boxes.map((_, k) => k)),
    );
    this.more = box("sc-indented", this.width.row, this.head, this.list);
    this.section = box("sc-section", this.all.row, this.more);
  }

  showLayers(layers: LayerHeader[]): void {
    this.boxes = [];
    const rows = layers.map((layer, k) => {
      const input = element("input", {
        class: "sc-check",
        type: "checkbox",
        change: () => this.toggle(k, input.checked),
      });
      this.boxes.push(input);
      const late = k / Math.max(1, layers.length - 1);
      const swatch = text("sc-line-swatch", "");
      swatch.style.height = `${2.6 - 1.6 * late}px`;
      swatch.style.opacity = String(0.95 - 0.5 * late);
      const units = text("sc-units", formatCount(layer.units));
      units.title = "units";
      const name = text("sc-name", layerName({ layers }, k));
      name.title = name.textContent;
      return element("label", { class: "sc-layer" }, input, swatch, name, units);
    });
    this.list.replaceChildren(...rows);
    show(this.head, layers.length > 1);
    show(this.list, layers.length > 1);
    this.update(this.store.state);
  }

  /** Give the lines of the layers colours, and what they are drawn on. */
  paint(colors: readonly string[], ground: string): void {
    for (const [k, swatch] of this.list
      .querySelectorAll<HTMLElement>(".sc-line-swatch")
      .entries()) {
      swatch.style.background = colors[k] ?? "";
      swatch.style.boxShadow = `0 0 0 4px ${ground}`;
      swatch.style.opacity = "1";
    }
  }

  update(state: Readonly<ViewState>): void {
    this.all.set(state.edges);
    this.width.set(Math.log2(Math.max(state.edgeWidth, 1e-3)));
    this.more.classList.toggle("sc-dim", !state.edges);
    const hidden = new Set(state.hiddenLayers);
    for (const [k, input] of this.boxes.entries()) input.checked = !hidden.has(k);
  }

  private toggle(layer: number, shown: boolean): void {
    const others = this.store.state.hiddenLayers.filter((each) => each !== layer);
    const hiddenLayers = shown ? others : [...others, layer].sort((a, b) => a - b);
    this.store.set({ hiddenLayers, edges: true });
  }
}
