// The head of the inspector: the number of a region, its class, and whether it is kept.

import type { RegionInfo } from "../geometry/region_info";
import type { PaneHeader } from "../protocol/messages";
import { box, element, setText, show, text } from "./dom";
import { iconButton } from "./icons";
import { swatch } from "./legend";
import { formatCount } from "./numbers";

export class RegionHead {
  private readonly mark = text("sc-mark", "");
  private readonly number = text("sc-region-number", "");
  private readonly color = swatch("");
  private readonly name = text("sc-name", "");
  private readonly winner = box("sc-winner", this.color, this.name);
  private readonly settled = box("sc-settled");
  private readonly release: HTMLButtonElement;
  readonly view: HTMLElement;

  constructor(release: () => void) {
    this.release = iconButton("close", "Let go of this region (Esc)", release);
    const line = box("sc-region-line", this.mark, this.number, this.release);
    this.view = element("div", { class: "sc-region-head" }, line, this.winner, this.settled);
  }

  /** Show a region; mark: "A" or "B" or the title of its pane; kept: whether it can be let go. */
  update(pane: PaneHeader, region: RegionInfo, mark: string, kept: boolean): void {
    setText(this.mark, mark, mark);
    show(this.mark, mark !== "");
    setText(this.number, `Region ${formatCount(region.region)}`);
    show(this.release, kept);
    setText(this.settled, region.settled ?? "");
    show(this.settled, region.settled !== null);
    const winner = region.winner === null ? undefined : pane.classes?.[region.winner];
    show(this.winner, winner !== undefined);
    if (!winner) return;
    this.color.style.backgroundColor = winner.color;
    setText(this.name, winner.name, winner.name);
  }
}
