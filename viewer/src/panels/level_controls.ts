// The level set of the chosen output: a switch, a slider over the output's range, and a number.

import type { Pair } from "../protocol/messages";
import type { Store, ViewState } from "../state";
import { box, element, show, text } from "./dom";
import { Slider, switchField } from "./fields";
import { formatNumber, roundNumber } from "./numbers";

export class LevelControls {
  readonly section: HTMLElement;
  private readonly on = switchField("Level set", "L", (on) => this.toggle(on));
  private readonly slider = new Slider(
    "",
    () => "",
    (value) => this.store.set({ level: this.rounded(value) }),
  );
  private readonly field = element("input", {
    class: "sc-number",
    type: "number",
    step: "any",
    "aria-label": "Level",
    change: () => {
      const level = this.field.valueAsNumber;
      if (Number.isFinite(level)) this.store.set({ level });
      else this.update(this.store.state);
    },
  });
  private readonly name = text("sc-name", "");
  private readonly more: HTMLElement;
  private range: Pair = [-1, 1];
  private known = false;

  constructor(private readonly store: Store) {
    const equation = box("sc-equation", this.name, text("", "="), this.field);
    this.slider.input.setAttribute("aria-label", "Level");
    this.slider.row.firstElementChild?.remove();
    this.more = box("sc-indented", equation, this.slider.row);
    this.section = box("sc-section", this.on.row, this.more);
    this.slider.limits(-1, 1);
  }

  /** Draw the level set or not; a level that no input has moves into the middle of the range. */
  toggle(levelSet: boolean): void {
    const { level } = this.store.state;
    const [low, high] = this.range;
    const outside = levelSet && this.known && (level <= low || level >= high);
    this.store.set({ levelSet, level: outside ? this.rounded((low + high) / 2) : level });
  }

  /** Show which output it is, and between which values it lies. */
  showRange(name: string, range: Pair): void {
    this.name.textContent = name;
    this.name.title = name;
    this.known = Number.isFinite(range[0]) && range[0] < range[1];
    if (this.known) this.range = range;
    this.slider.limits(...this.range);
    this.update(this.store.state);
  }

  update(state: Readonly<ViewState>): void {
    this.on.set(state.levelSet);
    show(this.more, state.levelSet);
    this.slider.set(state.level);
    this.slider.input.setAttribute("aria-valuetext", formatNumber(state.level));
    const root = this.field.getRootNode() as Document | ShadowRoot;
    if (root.activeElement !== this.field) this.field.value = String(state.level);
  }

  /** A level with no more digits than the slider can tell apart. */
  private rounded(value: number): number {
    const step = roundNumber((this.range[1] - this.range[0]) / 500);
    return Number((Math.round(value / step) * step).toPrecision(12));
  }
}
