// The settings of an experiment as a form.

import { box, element, setText } from "../panels/dom";
import { isOfNumbers } from "./data";
import { CHOICES, type Experiment, MOST_LAYERS, MOST_UNITS, NUMBERS } from "./experiment";

type Change = (change: Partial<Experiment>) => void;

const LABELS = {
  data: "Data",
  activation: "Activation",
  init: "First weights",
  optimizer: "Optimiser",
  color: "Colour by",
} as const;

export class Controls {
  readonly root = element("form", { class: "pg-form", "aria-label": "Experiment" });
  /** What stands beside the picture. */
  readonly color: HTMLElement;
  private readonly selects = new Map<string, HTMLSelectElement>();
  private readonly inputs = new Map<string, HTMLInputElement>();
  private readonly layers = box("pg-layers");
  private readonly more = element("button", { type: "button" }, "Add a layer");
  private experiment: Experiment | null = null;

  constructor(private readonly change: Change) {
    this.root.addEventListener("submit", (event) => event.preventDefault());
    this.more.addEventListener("click", () => {
      const { layers } = this.experiment!;
      change({ layers: [...layers, layers.at(-1) ?? 8] });
    });
    const layers = element("fieldset", {}, element("legend", {}, "Hidden layers"), this.layers);
    layers.append(this.more);
    const details = element("details", {}, element("summary", {}, "Training"));
    details.append(
      this.select("optimizer"),
      this.number("rate"),
      this.number("batch"),
      this.number("decay"),
      this.select("init"),
      this.number("noise"),
      this.number("seed"),
    );
    this.color = this.select("color");
    this.root.append(this.select("data"), layers, this.select("activation"), details);
    details.open = window.matchMedia("(min-width: 900px) and (min-height: 900px)").matches;
  }

  show(experiment: Experiment): void {
    this.experiment = experiment;
    for (const [name, select] of this.selects) {
      select.value = String(experiment[name as keyof Experiment]);
    }
    // Numbers have no classes; their output is shown instead.
    const color = this.selects.get("color")!;
    const byClass = color.options[0]!;
    byClass.disabled = isOfNumbers(experiment);
    if (byClass.disabled && byClass.selected) color.value = "output";
    for (const [name, input] of this.inputs) {
      const value = String(experiment[name as keyof Experiment]);
      if (document.activeElement !== input) input.value = value;
    }
    this.showLayers(experiment.layers);
  }

  private showLayers(widths: readonly number[]): void {
    const rows = [...this.layers.children] as HTMLElement[];
    for (const row of rows.slice(widths.length)) row.remove();
    widths.forEach((width, k) => {
      const row = rows[k] ?? this.layerRow(k);
      if (!rows[k]) this.layers.append(row);
      const input = row.querySelector("input")!;
      if (document.activeElement !== input) input.value = String(width);
      setText(row.querySelector("output")!, String(width));
      row.querySelector("button")!.disabled = widths.length === 1;
    });
    this.more.disabled = widths.length >= MOST_LAYERS;
  }

  private layerRow(k: number): HTMLElement {
    const name = `Units of layer ${k + 1}`;
    const range = { type: "range", min: "1", max: String(MOST_UNITS), "aria-label": name };
    const input = element("input", range);
    const remove = element(
      "button",
      { type: "button", "aria-label": `Remove layer ${k + 1}` },
      "×",
    );
    const set = (layers: number[]) => this.change({ layers });
    input.addEventListener("input", () => {
      const layers = [...this.experiment!.layers];
      layers[k] = Number(input.value);
      set(layers);
    });
    remove.addEventListener("click", () => {
      set(this.experiment!.layers.filter((_, at) => at !== k));
    });
    return box("pg-layer", input, element("output"), remove);
  }

  private select(name: keyof typeof LABELS): HTMLLabelElement {
    const options = CHOICES[name].map(([value, label]) => element("option", { value }, label));
    const select = element("select", { name }, ...options);
    select.addEventListener("change", () => this.change({ [name]: select.value }));
    this.selects.set(name, select);
    return element("label", { class: "pg-field" }, element("span", {}, LABELS[name]), select);
  }

  private number(name: keyof typeof NUMBERS): HTMLLabelElement {
    const { label, least, most } = NUMBERS[name];
    const limits = { min: String(least), max: String(most), step: "any" };
    const input = element("input", { type: "number", name, inputmode: "decimal", ...limits });
    input.addEventListener("change", () => {
      const value = Number(input.value);
      const whole = name === "batch" || name === "seed" ? Math.round(value) : value;
      if (input.value !== "" && whole >= least && whole <= most) this.change({ [name]: whole });
      else input.value = String(this.experiment?.[name] ?? "");
    });
    this.inputs.set(name, input);
    return element("label", { class: "pg-field" }, element("span", {}, label), input);
  }
}
