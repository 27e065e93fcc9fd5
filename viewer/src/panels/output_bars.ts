// Outputs as horizontal bars: of one region, or of two with the differences.

import type { RegionInfo } from "../geometry/region_info";
import type { PaneHeader } from "../protocol/messages";
import { box, repeat, setText, show, text } from "./dom";
import { formatBound, formatColumn, formatCount } from "./numbers";
import { outputColor, outputLabel } from "./outputs";

/** How many outputs are shown at most. */
export const SHOWN = 12;

/** The columns to show: all in their order if these are few, else the largest first. */
export function shownColumns(values: ArrayLike<number>, most = SHOWN): number[] {
  const columns = Array.from({ length: values.length }, (_, k) => k);
  if (columns.length <= most) return columns;
  const size = (k: number) => (Number.isNaN(values[k]!) ? Number.NEGATIVE_INFINITY : values[k]!);
  return columns.sort((a, b) => size(b) - size(a) || a - b).slice(0, most);
}

/** The ends of a bar, as shares of the room between the smallest and the largest number or 0. */
export function barEnds(value: number, low: number, high: number): [number, number] {
  const span = high - low || 1;
  const [from, to] = [Math.min(0, value), Math.max(0, value)];
  const share = (x: number) => Math.max(0, Math.min(1, (x - low) / span));
  return [share(from), share(to)];
}

export class OutputBars {
  private readonly list = box("sc-outputs");
  private readonly more = box("sc-more");
  readonly view = box("", this.list, this.more);

  /** Show the outputs of a region, or of two regions with the same outputs. */
  update(pane: PaneHeader, regions: readonly RegionInfo[]): void {
    const [first, second] = regions;
    if (!first) return;
    const columns = shownColumns(first.values);
    const partners = columns.map((k) => second?.outputs.indexOf(first.outputs[k]!) ?? -1);
    const rows = columns.map((k, j) => {
      const values = [first.values[k]!];
      if (second) values.push(second.values[partners[j]!] ?? Number.NaN);
      return values;
    });
    const finite = rows.flat().filter(Number.isFinite);
    const [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)];
    const largest = Math.max(...rows.map(([value]) => value!));
    const written = formatColumn(rows.flat());
    const changes = formatColumn(rows.map(([a, b]) => (b ?? Number.NaN) - a!));
    const elements = repeat(this.list, rows.length, () => new Row().view);
    for (const [j, values] of rows.entries()) {
      const output = first.outputs[columns[j]!]!;
      const row = Row.of(elements[j]!);
      setText(row.name, outputLabel(pane, output), outputLabel(pane, output));
      row.view.classList.toggle("sc-largest", values[0] === largest && rows.length > 1);
      row.showBars(values, [low, high], second ? "" : outputColor(pane, output));
      row.showNumbers(values, written.slice(j * values.length), second ? changes[j]! : "");
      row.showBounds([first.bounds?.[columns[j]!], second?.bounds?.[partners[j]!]]);
    }
    this.list.classList.toggle("sc-twin", second !== undefined);
    const left = Math.max(pane.outputCount, first.values.length) - rows.length;
    show(this.more, left > 0);
    setText(this.more, `and ${formatCount(left)} more`);
  }
}

const rowOf = new WeakMap<HTMLElement, Row>();

class Row {
  readonly name = text("sc-name", "");
  private readonly bars = box("sc-bars");
  private readonly numbers = box("sc-numbers");
  private readonly difference = text("sc-difference", "");
  readonly view = box("sc-output", this.name, this.bars, this.numbers, this.difference);

  constructor() {
    rowOf.set(this.view, this);
  }

  static of(view: HTMLElement): Row {
    return rowOf.get(view)!;
  }

  showBars(values: readonly number[], [low, high]: [number, number], color: string): void {
    const tracks = repeat(this.bars, values.length, () => box("sc-track", box("sc-fill")));
    for (const [k, value] of values.entries()) {
      const fill = tracks[k]!.firstElementChild as HTMLElement;
      const [from, to] = barEnds(value, low, high);
      fill.style.left = `${(100 * from).toFixed(2)}%`;
      fill.style.width = `${(100 * (to - from)).toFixed(2)}%`;
      fill.style.background = color;
      tracks[k]!.style.setProperty("--sc-zero", `${(-100 * low) / (high - low || 1)}%`);
    }
  }

  showNumbers(values: readonly number[], written: readonly string[], difference: string): void {
    const cells = repeat(this.numbers, values.length, () => box("sc-number-cell"));
    for (const [k, value] of values.entries()) setText(cells[k]!, written[k]!, String(value));
    show(this.difference, values.length > 1);
    setText(this.difference, difference.startsWith("−") ? difference : `+${difference}`);
  }
  /** Add to the title of each number how far the output of the model can be from it. */
  showBounds(bounds: readonly (number | undefined)[]): void {
    for (const [k, cell] of Array.from(this.numbers.children).entries()) {
      const bound = bounds[k];
      if (bound !== undefined) (cell as HTMLElement).title += ` ± ${formatBound(bound)}`;
    }
  }
}
