// Which plane of the inputs of a file is shown: two features, their ranges, and the others' values.

import { box, element, setText } from "../panels/dom";

const MOST = 24; // features with a slider

export interface Slice {
  origin: number[];
  basis: [number[], number[]];
}

export class Slices {
  readonly root = element("fieldset", { class: "pg-slices" });
  private values: number[] = [];
  private axes: [number, number] = [0, 1];
  private ranges: [[number, number], [number, number]] = [
    [-1, 1],
    [-1, 1],
  ];

  constructor(private readonly change: (slice: Slice) => unknown) {
    this.root.hidden = true;
  }

  hide(): void {
    this.root.hidden = true;
  }

  show(inputs: number): void {
    this.values = new Array(inputs).fill(0);
    this.axes = [0, 1];
    this.root.hidden = false;
    this.build();
  }

  send(): void {
    const origin = [...this.values];
    const basis = [0, 1].map((axis) => {
      const [low, high] = this.ranges[axis]!;
      const feature = this.axes[axis]!;
      origin[feature] = (low + high) / 2;
      return this.values.map((_, k) => (k === feature ? (high - low) / 2 : 0));
    });
    this.change({ origin, basis: basis as [number[], number[]] });
  }

  /** The two inputs at a place of the plane, with their names. */
  inputsAt(at: readonly [number, number]): [string, string][] {
    return this.axes.map((feature, axis) => {
      const [low, high] = this.ranges[axis]!;
      const value = (low + high) / 2 + ((high - low) / 2) * at[axis]!;
      return [`x${feature + 1}`, String(Number(value.toPrecision(4)))];
    });
  }

  private build(): void {
    const rows = [this.axis(0, "Across"), this.axis(1, "Up")];
    const others = this.values.map((_, k) => k).filter((k) => !this.axes.includes(k));
    const sliders = others.slice(0, MOST).map((k) => this.slider(k));
    const left = others.length - sliders.length;
    const note = left > 0 ? [element("p", { class: "pg-hint" }, `${left} more inputs are 0.`)] : [];
    this.root.replaceChildren(element("legend", {}, "Plane of the inputs"), ...rows, ...sliders);
    this.root.append(...note);
  }

  private axis(axis: 0 | 1, label: string): HTMLElement {
    const options = this.values.map((_, k) => element("option", { value: String(k) }, `x${k + 1}`));
    const select = element("select", { "aria-label": label }, ...options);
    select.value = String(this.axes[axis]);
    select.addEventListener("change", () => {
      const feature = Number(select.value);
      if (this.axes[1 - axis] === feature) this.axes[1 - axis] = this.axes[axis];
      this.axes[axis] = feature;
      this.build();
      this.send();
    });
    const ends = [0, 1].map((end) => {
      const name = `${label}: ${end ? "to" : "from"}`;
      const input = element("input", { type: "number", step: "any", "aria-label": name });
      input.value = String(this.ranges[axis][end]);
      input.addEventListener("change", () => {
        const range: [number, number] = [...this.ranges[axis]];
        range[end] = Number(input.value);
        if (range[0] < range[1]) this.ranges[axis] = range;
        input.value = String(this.ranges[axis][end]);
        this.send();
      });
      return input;
    });
    return box("pg-axis", element("span", {}, label), select, ...ends);
  }

  private slider(k: number): HTMLElement {
    const limits = { min: "-3", max: "3", step: "0.01" };
    const input = element("input", { type: "range", "aria-label": `x${k + 1}`, ...limits });
    const value = element("output", {}, String(this.values[k]));
    input.value = String(this.values[k]);
    input.addEventListener("input", () => {
      this.values[k] = Number(input.value);
      setText(value, input.value);
      this.send();
    });
    return box("pg-layer", element("span", {}, `x${k + 1}`), input, value);
  }
}
