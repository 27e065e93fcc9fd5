// Which plane of the inputs of a file is shown: that of two features, with their ranges and the
// values of the others, or the one through three inputs.

import { box, element, setText } from "../panels/dom";
import { shortly } from "./charts";

const MOST = 24; // features with a slider

export interface Slice {
  origin: number[];
  basis: [number[], number[]];
  /** Where the three inputs lie on the plane: u v of each. */
  marks: number[];
}

const MARGIN = 1.2; // of the square around three inputs

/** The plane through three inputs, with a square around them; null if they lie on a line. */
export function through(inputs: readonly [number[], number[], number[]]): Slice | null {
  const [a, b, c] = inputs;
  const dot = (x: number[], y: number[]) => x.reduce((sum, value, k) => sum + value * y[k]!, 0);
  const scaled = (x: number[], factor: number) => x.map((value) => factor * value);
  const minus = (x: number[], y: number[]) => x.map((value, k) => value - y[k]!);
  const along = minus(b, a);
  const first = scaled(along, 1 / Math.sqrt(dot(along, along)));
  const other = minus(c, a);
  const across = minus(other, scaled(first, dot(first, other)));
  const size = Math.sqrt(dot(across, across));
  if (!(size > 1e-9 * Math.sqrt(dot(other, other)))) return null;
  const second = scaled(across, 1 / size);
  const places = inputs.map((x) => [dot(minus(x, a), first), dot(minus(x, a), second)] as const);
  const middle = [0, 1].map((axis) => {
    const each = places.map((place) => place[axis]!);
    return (Math.min(...each) + Math.max(...each)) / 2;
  });
  const off = places.flatMap(([u, v]) => [u - middle[0]!, v - middle[1]!]);
  const reach = MARGIN * Math.max(...off.map(Math.abs));
  const origin = a.map((value, k) => value + middle[0]! * first[k]! + middle[1]! * second[k]!);
  const basis: [number[], number[]] = [scaled(first, reach), scaled(second, reach)];
  return { origin, basis, marks: scaled(off, 1 / reach) };
}

export class Slices {
  readonly root = element("fieldset", { class: "pg-slices" });
  private values: number[] = [];
  private axes: [number, number] = [0, 1];
  /** The three inputs, if the plane goes through them. */
  private three: [number[], number[], number[]] | null = null;
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
    [this.axes, this.three] = [[0, 1], null];
    this.root.hidden = false;
    this.build();
  }

  send(): void {
    if (this.three) {
      const slice = through(this.three);
      if (slice) this.change(slice);
      setText(this.problem, slice ? "" : "The three inputs lie on a line. Change one of them.");
      return;
    }
    const origin = [...this.values];
    const basis = [0, 1].map((axis) => {
      const [low, high] = this.ranges[axis]!;
      const feature = this.axes[axis]!;
      origin[feature] = (low + high) / 2;
      return this.values.map((_, k) => (k === feature ? (high - low) / 2 : 0));
    });
    this.change({ origin, basis: basis as [number[], number[]], marks: [] });
  }

  /** The two inputs at a place of the plane, with their names. */
  inputsAt(at: readonly [number, number]): [string, string][] {
    if (this.three) return [];
    return this.axes.map((feature, axis) => {
      const [low, high] = this.ranges[axis]!;
      const value = (low + high) / 2 + ((high - low) / 2) * at[axis]!;
      return [`x${feature + 1}`, shortly(value)];
    });
  }

  private readonly problem = element("p", { class: "pg-hint", role: "alert" });

  /** Choose what the plane goes through. */
  private kind(): HTMLElement {
    const options = ["two inputs", "three points"].map((name) => element("option", {}, name));
    const select = element("select", { "aria-label": "What the plane goes through" }, ...options);
    select.selectedIndex = this.three ? 1 : 0;
    select.addEventListener("change", () => {
      const corner = (axis: number) => this.values.map((x, k) => x + Number(k === axis));
      this.three = select.selectedIndex ? [this.values, corner(0), corner(1)] : null;
      this.build();
      this.send();
    });
    return select;
  }

  /** A point as a text of numbers. */
  private point(at: 0 | 1 | 2): HTMLElement {
    const name = `Point ${at + 1}: ${this.values.length} numbers`;
    const area = element("textarea", { rows: "2", "aria-label": name });
    area.value = this.three![at].join(", ");
    area.addEventListener("change", () => {
      const numbers = area.value.split(/[\s,;[\]]+/).filter(Boolean);
      const valid =
        numbers.length === this.values.length && !numbers.some((x) => Number.isNaN(Number(x)));
      if (valid) this.three![at] = numbers.map(Number);
      setText(this.problem, "");
      if (valid) this.send();
      else setText(this.problem, `A point has ${this.values.length} numbers.`);
    });
    return element("label", { class: "pg-field" }, element("span", {}, name), area);
  }

  private build(): void {
    const legend = element("legend", {}, "Plane of the inputs");
    if (this.three) {
      const points = ([0, 1, 2] as const).map((at) => this.point(at));
      this.root.replaceChildren(legend, this.kind(), ...points, this.problem);
      return;
    }
    const rows = [this.axis(0, "Across"), this.axis(1, "Up")];
    const others = this.values.map((_, k) => k).filter((k) => !this.axes.includes(k));
    const sliders = others.slice(0, MOST).map((k) => this.slider(k));
    const left = others.length - sliders.length;
    const note = left > 0 ? [element("p", { class: "pg-hint" }, `${left} more inputs are 0.`)] : [];
    this.root.replaceChildren(legend, this.kind(), ...rows, ...sliders);
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
    const name = `x${k + 1}`;
    const input = element("input", { type: "range", step: "any", "aria-label": name });
    const value = element("input", {
      type: "number",
      step: "any",
      "aria-label": `${name}, exactly`,
    });
    let reach = 3; // of the slider, which what is typed can widen
    const take = (x: number): void => {
      this.values[k] = x;
      if (Math.abs(x) > reach) reach = 2 * Math.abs(x);
      [input.min, input.max] = [String(-reach), String(reach)];
      input.value = value.value = String(x);
    };
    take(this.values[k]!);
    input.addEventListener("input", () => {
      take(Number(Number(input.value).toPrecision(3)));
      this.send();
    });
    value.addEventListener("change", () => {
      take(Number.isFinite(value.valueAsNumber) ? value.valueAsNumber : this.values[k]!);
      this.send();
    });
    return box("pg-layer", element("span", {}, name), input, value);
  }
}
