// The network as a diagram: units are dots, strong weights are lines.

import { setText } from "../panels/dom";
import { type Layer, type Network, widthAfter } from "./network";
import type { Unit } from "./view";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, MARGIN, MOST_LINES] = [280, 14, 260];

/** What one does to see more of something, with a pointer or a finger. */
export const POINT_AT = window.matchMedia("(hover: none)").matches ? "Tap" : "Point at";

export class Diagram {
  readonly root = document.createElementNS(SVG, "svg");
  readonly caption = document.createElement("p");
  private key = "";
  private readonly lines = document.createElementNS(SVG, "g");
  private dots: SVGCircleElement[][] = [];
  private shown: SVGCircleElement | null = null;
  private widths: number[] = [];

  /** hover: called with the unit that is pointed at, or null. */
  constructor(private readonly hover: (unit: Unit | null) => void) {
    this.root.setAttribute("class", "pg-diagram");
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-label", "The network: arrow keys move from unit to unit");
    this.caption.className = "pg-hint";
    this.root.addEventListener("keydown", (event) => this.moved(event));
  }

  /** Show a network; its weights are drawn anew, its units only when there are others. */
  show(network: Network): void {
    const widths = [network.layers[0]!.inputs, ...network.layers.map(widthAfter)];
    const key = widths.join();
    if (key !== this.key) this.build(widths);
    this.key = key;
    this.drawWeights(network);
  }

  /** Mark a unit that is pointed at elsewhere; seen: whether it switches in the picture. */
  mark(unit: Unit | null, seen: boolean): void {
    this.shown?.classList.remove("pg-on");
    this.shown = unit ? (this.dots[unit[0] + 1]?.[unit[1]] ?? null) : null;
    this.shown?.classList.add("pg-on");
    const where = seen ? "it switches along the yellow line" : "it does not switch in this picture";
    setText(
      this.caption,
      unit
        ? `Layer ${unit[0] + 1}, unit ${unit[1] + 1}: ${where}.`
        : `Lines are weights: blue above zero, orange below. ${POINT_AT} a unit to see where it switches.`,
    );
  }

  /** Fill the units that are active where one points; null: nowhere. */
  light(active: ReadonlySet<string> | null): void {
    this.dots.slice(1, -1).forEach((dots, layer) => {
      dots.forEach((dot, unit) => {
        dot.classList.toggle("pg-active", active?.has(`${layer},${unit}`) ?? false);
      });
    });
  }

  private get height(): number {
    return Math.min(260, Math.max(110, 16 * Math.max(...this.widths) + 2 * MARGIN));
  }

  private at(column: number, row: number): [number, number] {
    const columns = this.widths.length - 1;
    const count = this.widths[column]!;
    const room = this.height - 2 * MARGIN;
    const gap = Math.min(24, room / Math.max(1, count - 1));
    const x = MARGIN + ((WIDTH - 2 * MARGIN) * column) / columns;
    return [x, this.height / 2 + gap * (row - (count - 1) / 2)];
  }

  private build(widths: number[]): void {
    this.widths = widths;
    this.root.setAttribute("viewBox", `0 0 ${WIDTH} ${this.height}`);
    this.dots = widths.map((count, column) =>
      Array.from({ length: count }, (_, row) => this.dot(column, row)),
    );
    this.root.replaceChildren(this.lines, ...this.dots.flat());
    this.dots[1]?.[0]?.setAttribute("tabindex", "0");
    this.mark(null, false);
  }

  private dot(column: number, row: number): SVGCircleElement {
    const dot = document.createElementNS(SVG, "circle");
    const [x, y] = this.at(column, row);
    const crowded = this.widths[column]! > 20;
    const hidden = column > 0 && column < this.widths.length - 1;
    const attributes = {
      cx: x,
      cy: y,
      r: crowded ? 2.6 : 5.5,
      class: hidden ? "pg-unit" : "pg-end",
    };
    for (const [name, value] of Object.entries(attributes)) dot.setAttribute(name, String(value));
    if (hidden) {
      dot.setAttribute("role", "img");
      dot.setAttribute("tabindex", "-1"); // else Chromium stops at each, as it listens for the focus
      dot.setAttribute("aria-label", `Layer ${column}, unit ${row + 1}`);
      const unit: Unit = [column - 1, row];
      dot.addEventListener("pointerenter", () => this.hover(unit));
      dot.addEventListener("pointerleave", () => this.hover(null));
      dot.addEventListener("focus", () => this.hover(unit));
      dot.addEventListener("blur", () => this.hover(null));
    }
    return dot;
  }

  /** Lines for the strongest weights, blue where they are positive. */
  private drawWeights({ layers }: Network): void {
    const most = layers.map(({ weight }) =>
      weight.reduce((m, w) => Math.max(m, Math.abs(w)), 1e-9),
    );
    const least = this.leastShown(layers, most);
    const paths = ["", "", "", ""];
    layers.forEach(({ units, weight, activation }, column) => {
      const shared = activation.name === "maxout" ? 2 : 1;
      for (let k = 0; k < weight.length; k++) {
        const size = Math.abs(weight[k]!) / most[column]!;
        if (size < least) continue;
        const from = this.at(column, Math.floor(k / units));
        const to = this.at(column + 1, Math.floor((k % units) / shared));
        const place = (weight[k]! > 0 ? 0 : 2) + (size > 0.5 ? 1 : 0);
        const [ax, ay, bx, by] = [...from, ...to].map((x) => x.toFixed(1));
        paths[place] += `M${ax} ${ay}L${bx} ${by}`;
      }
    });
    while (this.lines.children.length < 4) {
      const path = document.createElementNS(SVG, "path");
      const place = this.lines.children.length;
      path.setAttribute(
        "class",
        `pg-${place < 2 ? "plus" : "minus"} ${place % 2 ? "pg-strong" : ""}`,
      );
      this.lines.append(path);
    }
    paths.forEach((path, k) => {
      this.lines.children[k]!.setAttribute("d", path);
    });
  }

  /** The size, as a share of the largest in its layer, from which on weights are drawn. */
  private leastShown(layers: readonly Layer[], most: readonly number[]): number {
    const counts = new Uint32Array(1001);
    layers.forEach(({ weight }, column) => {
      for (const w of weight) counts[Math.floor((1000 * Math.abs(w)) / most[column]!)]!++;
    });
    let [least, drawn] = [1000, counts[1000]!];
    while (least > 0 && drawn + counts[least - 1]! <= MOST_LINES) drawn += counts[--least]!;
    return least / 1000;
  }

  private moved(event: KeyboardEvent): void {
    const hidden = this.dots.slice(1, -1);
    const column = hidden.findIndex((dots) => dots.includes(event.target as SVGCircleElement));
    if (column < 0) return;
    const row = hidden[column]!.indexOf(event.target as SVGCircleElement);
    const steps: Record<string, [number, number]> = {
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
    };
    const step = steps[event.key];
    if (!step) return;
    const next = hidden[column + step[0]];
    const to = next?.[Math.min(next.length - 1, Math.max(0, row + step[1]))];
    event.preventDefault();
    event.stopPropagation();
    if (!to) return;
    for (const dots of hidden) for (const dot of dots) dot.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  }
}
