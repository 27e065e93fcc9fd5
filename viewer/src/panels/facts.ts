// What is known of a region beside its outputs: area, corners, neighbours, layer.

import type { RegionInfo } from "../geometry/region_info";
import type { PaneHeader } from "../protocol/messages";
import { box, element, repeat, setText } from "./dom";
import { counted, formatBound, formatCount, formatNumber } from "./numbers";
import { layerName } from "./outputs";

export class Facts {
  private readonly body = element("tbody");
  readonly view = box("sc-part", element("table", { class: "sc-table sc-facts" }, this.body));

  /** Show the facts of a region, or of several in columns. */
  update(panes: readonly PaneHeader[], regions: readonly RegionInfo[]): void {
    const facts: [string, (region: RegionInfo) => string][] = [
      ["area", (region) => atLeast(region) + formatNumber(region.area)],
      ["corners", (region) => (region.cutOff ? "cut off here" : formatCount(region.corners))],
      ["neighbours", (region) => atLeast(region) + formatCount(region.neighbours)],
      ["last layer", (region) => lastLayer(panes[region.pane]!, region.layer)],
    ];
    if (regions.some(({ bounds }) => bounds)) facts.push(["off by at most", boundOf]);
    const rows = repeat(this.body, facts.length, () =>
      element("tr", {}, element("th", { scope: "row" })),
    );
    for (const [k, [name, fact]] of facts.entries()) {
      const row = rows[k]!;
      setText(row.firstElementChild as HTMLElement, name);
      while (row.children.length > 1 + regions.length) row.lastElementChild?.remove();
      while (row.children.length < 1 + regions.length) row.append(element("td"));
      for (const [j, region] of regions.entries()) {
        setText(row.children[j + 1] as HTMLElement, fact(region), fact(region));
      }
    }
  }
}

/** A region in a sentence, for those who do not see it; across: what was crossed to come to it. */
export function described(pane: PaneHeader, region: RegionInfo, across = ""): string {
  const winner = region.winner === null ? null : pane.classes?.[region.winner]?.name;
  const size = `area ${atLeast(region)}${formatNumber(region.area)}`;
  const around = `${atLeast(region)}${counted(region.neighbours, "neighbour")}`;
  const parts = [
    `Region ${formatCount(region.region)}`,
    winner && `class ${winner}`,
    region.settled && "not divided",
    size,
    around,
  ];
  return `${parts.filter(Boolean).join(", ")}${across && `, across ${across}`}.`;
}

/** A sign before numbers of a region that goes on beyond what is known. */
function atLeast(region: RegionInfo): string {
  return region.cutOff ? "≥ " : "";
}

/** How far the outputs of a model with smooth functions are from those of its region. */
function boundOf({ bounds }: RegionInfo): string {
  return bounds ? formatBound(Math.max(...Array.from(bounds))) : "0";
}

function lastLayer(pane: PaneHeader, layer: number): string {
  return layer < 0 ? "none" : layerName(pane, layer);
}
