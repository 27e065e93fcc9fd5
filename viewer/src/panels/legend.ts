// What the colours mean: names with swatches, or a colour bar with ticks.

import { hexInTheme, inTheme, type Theme } from "../draw/colours";
import type { ColoringHeader, ColorScale, Message } from "../protocol/messages";
import { box, element, show, text } from "./dom";
import { type Tick, ticksOf } from "./ticks";

const BAR = 184; // CSS pixels, as in the style
const TICKS = 6;
const LETTER = 6.2; // CSS pixels, the width of a digit below the bar
const GAP = 10;
const SHORT = 12; // letters of names that are listed in two columns
const MANY = 8;

/** What a legend says, for the page and for the PNG. */
export interface LegendContent {
  label: string;
  entries: { name: string; color: string }[];
  scale: ColorScale | null;
  /** 256 colours, three bytes each. */
  lut: Uint8Array | null;
}

/** What the legend of a colouring says, in the colours of a scheme. */
export function legendOf(message: Message<ColoringHeader>, theme: Theme): LegendContent {
  const { name, label, legend, scale, palette } = message.header;
  const lut = message.arrays.lut?.data;
  const bar = lut instanceof Uint8Array && lut.length >= 768 ? inTheme(lut, theme) : null;
  const entries = legend.map((entry) => ({
    ...entry,
    color: hexInTheme(entry.color, theme, palette),
  }));
  return { label: label || name, entries, scale, lut: bar };
}

/** As many ticks as have room for their numbers on a bar of some length. */
export function ticksThatFit(scale: ColorScale, length: number): Tick[] {
  for (let most = TICKS; most > 1; most -= 1) {
    const ticks = ticksOf(scale, most);
    const room = (k: number) =>
      length * (ticks[k]!.at - ticks[k - 1]!.at) -
      (LETTER / 2) * (ticks[k]!.label.length + ticks[k - 1]!.label.length);
    if (ticks.every((_, k) => k === 0 || room(k) >= GAP)) return ticks;
  }
  return ticksOf(scale, 1).slice(0, 1);
}

/** The colour of a bar at one of 256 places. */
export function colorAt(lut: Uint8Array, place: number): string {
  return `rgb(${lut.subarray(3 * place, 3 * place + 3).join(",")})`;
}

export class Legend {
  private readonly label = element("summary", { class: "sc-legend-label" });
  private readonly parts = box("sc-legend-parts");
  readonly card = element("details", { class: "sc-legend" }, this.label, this.parts);
  content: LegendContent | null = null;
  private shown: Message<ColoringHeader> | null = null;
  private theme: Theme = "light";

  constructor() {
    this.card.open = true;
    show(this.card, false);
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    if (this.shown) this.showColoring(this.shown);
  }

  showColoring(message: Message<ColoringHeader>): void {
    this.shown = message;
    const content = legendOf(message, this.theme);
    this.content = content;
    this.label.textContent = content.label;
    const { name, label } = message.header;
    this.card.classList.toggle("sc-same", label === "" || label === name);
    const parts: HTMLElement[] = [];
    if (content.scale && content.lut) parts.push(colorBar(content.scale, content.lut));
    if (content.entries.length) parts.push(entriesOf(content.entries));
    this.parts.replaceChildren(...parts);
    show(this.card, parts.length > 0);
  }
}

function entriesOf(entries: LegendContent["entries"]): HTMLElement {
  const list = element("ul", { class: "sc-entries" });
  for (const { name, color } of entries) {
    const label = text("sc-name", name);
    label.title = name;
    list.append(element("li", { class: "sc-entry" }, swatch(color), label));
  }
  const short = entries.every(({ name }) => name.length <= SHORT);
  list.classList.toggle("sc-many", short && entries.length > MANY);
  return list;
}

/** A small square in a colour. */
export function swatch(color: string): HTMLElement {
  const square = text("sc-swatch", "");
  square.style.backgroundColor = color;
  return square;
}

function colorBar(scale: ColorScale, lut: Uint8Array): HTMLElement {
  const colors = Array.from({ length: 33 }, (_, k) => colorAt(lut, Math.min(255, 8 * k)));
  const bar = box("sc-bar");
  bar.style.background = `linear-gradient(to right, ${colors.join(",")})`;
  for (const [end, place] of [
    ["min", 0],
    ["max", 255],
  ] as const) {
    if (scale.extend !== end && scale.extend !== "both") continue;
    const tip = box(`sc-tip sc-tip-${end}`);
    tip.style.background = colorAt(lut, place);
    tip.title = `there are ${end === "min" ? "smaller" : "larger"} numbers`;
    bar.append(tip);
  }
  const axis = box("sc-axis");
  for (const { at, label } of ticksThatFit(scale, BAR)) {
    const tick = text("sc-tick", label);
    tick.style.left = `${(at * BAR).toFixed(1)}px`;
    axis.append(tick);
  }
  return box("sc-colorbar", bar, axis);
}
