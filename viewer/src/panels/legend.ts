// What the colours mean: names with swatches, or a colour bar with ticks.

import type { ColoringHeader, ColorScale, Message } from "../protocol/messages";
import { box, element, show, text } from "./dom";
import { ticksOf } from "./ticks";

const BAR = 184;
const TICKS = 5;

/** What a legend says, for the page and for the PNG. */
export interface LegendContent {
  label: string;
  entries: { name: string; color: string }[];
  scale: ColorScale | null;
  /** 256 colours, three bytes each. */
  lut: Uint8Array | null;
}

/** What the legend of a colouring says. */
export function legendOf(message: Message<ColoringHeader>): LegendContent {
  const { label, legend, scale } = message.header;
  const lut = message.arrays.lut?.data;
  const bar = lut instanceof Uint8Array && lut.length >= 768 ? lut : null;
  return { label, entries: legend, scale, lut: bar };
}

export class Legend {
  readonly card = element("section", {
    class: "sc-legend",
    attributes: { "aria-label": "Legend" },
  });
  content: LegendContent | null = null;

  constructor() {
    show(this.card, false);
  }

  showColoring(message: Message<ColoringHeader>): void {
    const content = legendOf(message);
    this.content = content;
    const parts: HTMLElement[] = [];
    if (content.label) parts.push(box("sc-legend-label", content.label));
    if (content.scale && content.lut) parts.push(colorBar(content.scale, content.lut));
    if (content.entries.length) parts.push(entriesOf(content.entries));
    this.card.replaceChildren(...parts);
    show(this.card, parts.length > 0 && (content.entries.length > 0 || content.scale !== null));
  }
}

function entriesOf(entries: LegendContent["entries"]): HTMLElement {
  const list = element("ul", { class: "sc-entries" });
  for (const { name, color } of entries) {
    const label = text("sc-name", name);
    label.title = name;
    list.append(element("li", { class: "sc-entry" }, swatch(color), label));
  }
  list.classList.toggle("sc-many", entries.length > 8);
  return list;
}

/** A small square in a colour. */
export function swatch(color: string): HTMLElement {
  const square = text("sc-swatch", "");
  square.style.backgroundColor = color;
  return square;
}

function colorBar(scale: ColorScale, lut: Uint8Array): HTMLElement {
  const canvas = element("canvas", { class: "sc-bar", attributes: { "aria-hidden": "true" } });
  canvas.width = 256;
  canvas.height = 1;
  const image = new ImageData(256, 1);
  for (let k = 0; k < 256; k += 1) {
    image.data.set([lut[3 * k]!, lut[3 * k + 1]!, lut[3 * k + 2]!, 255], 4 * k);
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  canvas.dataset.extend = scale.extend;
  const axis = box("sc-axis");
  for (const { at, label } of ticksOf(scale, TICKS)) {
    const tick = text("sc-tick", label);
    tick.style.left = `${(at * BAR).toFixed(1)}px`;
    axis.append(tick);
  }
  return box("sc-colorbar", canvas, axis);
}
