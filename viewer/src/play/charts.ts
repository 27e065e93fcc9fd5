// Curves over the run: loss, regions, length of the boundary, largest slope.

import { box, element, setText, text } from "../panels/dom";
import type { History } from "./worker";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [132, 40];

const CURVES = [
  ["loss", "Loss", "How far the outputs are from the data"],
  ["regions", "Regions", "Pieces on which the network is one affine map"],
  ["boundary", "Boundary length", "Of the decision boundary; the square has sides of length 2"],
  ["slope", "Largest slope", "How steep the steepest of the affine maps is"],
] as const;

/** A number with three digits that matter, or all of a whole one. */
export function shortly(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replaceAll("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

export class Charts {
  readonly root = box("pg-charts");
  private readonly parts = CURVES.map(([name, label, title]) => {
    const value = text("pg-value", "");
    const svg = document.createElementNS(SVG, "svg");
    const path = document.createElementNS(SVG, "path");
    const mark = document.createElementNS(SVG, "line");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    mark.setAttribute("class", "pg-mark");
    svg.append(mark, path);
    this.root.append(
      element("figure", { title }, element("figcaption", {}, label, " ", value), svg),
    );
    return { name, value, path, mark };
  });

  show(history: History, moment: number): void {
    const last = Math.max(1, history.step.at(-1) ?? 1);
    for (const { name, value, path, mark } of this.parts) {
      const curve = history[name];
      const most = curve.reduce((high, x) => Math.max(high, x), 0) || 1;
      const step = Math.max(1, Math.floor(curve.length / (2 * WIDTH)));
      let line = "";
      for (let k = 0; k < curve.length; k += step) {
        const x = (WIDTH * history.step[k]!) / last;
        line += `${k ? "L" : "M"}${x.toFixed(1)} ${(HEIGHT - 2 - ((HEIGHT - 4) * curve[k]!) / most).toFixed(1)}`;
      }
      path.setAttribute("d", line);
      const at = String((WIDTH * (history.step[moment] ?? 0)) / last);
      for (const end of ["x1", "x2"]) mark.setAttribute(end, at);
      mark.setAttribute("y2", String(HEIGHT));
      setText(value, moment >= 0 && moment < curve.length ? shortly(curve[moment]!) : "");
    }
  }
}
