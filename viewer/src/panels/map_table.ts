// The affine map of a region: output = a · u + b · v + c, in a table that can be folded.

import type { RegionInfo } from "../geometry/region_info";
import type { PaneHeader } from "../protocol/messages";
import { element, setText } from "./dom";
import { formatDifference, formatNumber } from "./numbers";
import { shownColumns } from "./output_bars";
import { outputLabel } from "./outputs";

export class MapTable {
  private readonly head = element("thead");
  private readonly body = element("tbody");
  private readonly summary = element("summary", {}, "Affine map");
  readonly view: HTMLDetailsElement;
  private shown: { pane: PaneHeader; regions: readonly RegionInfo[] } | null = null;

  constructor() {
    const table = element("table", { class: "sc-table" }, this.head, this.body);
    const toggle = () => this.fill();
    this.view = element("details", { class: "sc-part sc-fold", toggle }, this.summary, table);
  }

  /** Show the map of a region, or the difference of the maps of two. */
  update(pane: PaneHeader, regions: readonly RegionInfo[]): void {
    this.shown = { pane, regions };
    setText(this.summary, regions.length > 1 ? "Difference of the affine maps" : "Affine map");
    this.fill();
  }

  /** Fill the table while one sees it: its numbers change with every move of the pointer. */
  private fill(): void {
    if (!this.view.open || !this.shown) return;
    const { pane, regions } = this.shown;
    const [first, second] = regions as [RegionInfo, RegionInfo | undefined];
    const [u, v] = pane.domain.axes;
    const titles = ["", `× ${u}`, `× ${v}`, "+ 1 ×"].map((title) => element("th", {}, title));
    this.head.replaceChildren(element("tr", {}, ...titles));
    const rows = shownColumns(first.values).map((k) => {
      const name = outputLabel(pane, first.outputs[k]!);
      const label = element("th", { title: name, scope: "row" }, name);
      let numbers = mapOf(first, k);
      if (second) {
        const other = mapOf(second, second.outputs.indexOf(first.outputs[k]!));
        numbers = other.map((value, j) => value - numbers[j]!);
      }
      const written = second ? formatDifference : formatNumber;
      const cells = numbers.map((each) => element("td", { title: String(each) }, written(each)));
      return element("tr", {}, label, ...cells);
    });
    this.body.replaceChildren(...rows);
  }
}

function mapOf(region: RegionInfo, column: number): number[] {
  const [a, b] = region.weights[column] ?? [Number.NaN, Number.NaN];
  return [a, b, region.biases[column] ?? Number.NaN];
}
