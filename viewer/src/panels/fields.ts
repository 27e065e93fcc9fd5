// Switches, sliders and selects with their labels.

import { box, element, freshId, text } from "./dom";

/** A switch: its row, and how to set it. */
export interface Switch {
  row: HTMLElement;
  set(on: boolean): void;
}

/** A switch with a label; key: the key that does the same. */
export function switchField(label: string, key: string, change: (on: boolean) => void): Switch {
  const input = element("input", {
    class: "sc-switch",
    type: "checkbox",
    role: "switch",
    change: () => change(input.checked),
  });
  const row = element("label", { class: "sc-row" }, text("sc-row-label", label));
  if (key) {
    row.append(element("kbd", { class: "sc-key", "aria-hidden": "true" }, key));
    input.setAttribute("aria-keyshortcuts", key);
  }
  row.append(input);
  return {
    row,
    set: (on) => {
      input.checked = on;
    },
  };
}

/** A slider with its label; the track is filled up to the thumb. */
export class Slider {
  readonly input: HTMLInputElement;
  readonly row: HTMLElement;
  private readonly value = text("sc-value", "");

  constructor(
    readonly label: string,
    private readonly written: (value: number) => string,
    /** Called while the slider moves, and once more when it is let go. */
    change: (value: number, done: boolean) => void,
  ) {
    const id = freshId();
    const moved = (done: boolean) => () => {
      this.refresh();
      change(this.input.valueAsNumber, done);
    };
    this.input = element("input", {
      class: "sc-range",
      type: "range",
      step: "any",
      id,
      input: moved(false),
      change: moved(true),
    });
    const name = element("label", { class: "sc-row-label", for: id }, label);
    this.row = box("sc-slider", box("sc-slider-head", name, this.value), this.input);
  }

  /** Set the limits; equal ones disable the slider. */
  limits(low: number, high: number, step: number | "any" = "any"): void {
    this.input.min = String(low);
    this.input.max = String(high);
    this.input.step = String(step);
    this.input.disabled = !(low < high);
    this.refresh();
  }

  set(value: number): void {
    this.input.value = String(value);
    this.refresh();
  }

  private refresh(): void {
    const { min, max, valueAsNumber: value } = this.input;
    const share = (value - Number(min)) / (Number(max) - Number(min));
    this.input.style.setProperty("--sc-filled", `${100 * (Number.isFinite(share) ? share : 0)}%`);
    this.value.textContent = this.written(value);
    this.input.setAttribute("aria-valuetext", this.value.textContent);
  }
}

/** A choice of one of a few things. */
export class Select {
  readonly input: HTMLSelectElement;
  readonly row: HTMLElement;

  constructor(label: string, change: (value: string) => void) {
    const id = freshId();
    const picked = () => change(this.input.value);
    this.input = element("select", { class: "sc-select", id, change: picked });
    const name = element("label", { class: "sc-field-label", for: id }, label);
    this.row = box("sc-field", name, this.input);
  }

  /** Set the choices: values with their labels. */
  choices(choices: readonly (readonly [string, string])[]): void {
    const options = choices.map(([value, label]) => element("option", { value }, label));
    this.input.replaceChildren(...options);
  }

  set(value: string): void {
    this.input.value = value;
  }
}
