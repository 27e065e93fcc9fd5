// What is pointed at: the region, its outputs and its map, and the input at the cursor.
//
// One region, or two side by side: a kept one and the one it is compared with, or those at the same
// place of two panes.

import type { RegionInfo } from "../geometry/region_info";
import type { Message, PaneHeader, SceneHeader } from "../protocol/messages";
import type { Store } from "../state";
import { box, element, setText, show, text } from "./dom";
import { Facts } from "./facts";
import { type Gradient, type InputPlane, InputView } from "./input_view";
import { MapTable } from "./map_table";
import { formatCount } from "./numbers";
import { OutputBars } from "./output_bars";
import { RegionHead } from "./region_head";

const KEPT = 64; // gradients that are remembered

const HINTS = [
  "Point at a region to see its class, its outputs, and the affine map that the network is there.",
  "Click keeps a region, shift-click compares it with another.",
  "? shows all keys.",
];
const TOUCH_HINTS = ["Tap a region to see its class, its outputs and the input there."];

export class Inspector {
  readonly body = box("sc-inspector-body");
  private readonly heads: RegionHead[];
  private readonly inputs = [new InputView(), new InputView()];
  private readonly bars = new OutputBars();
  private readonly map = new MapTable();
  private readonly outputs = box("sc-part", text("sc-part-title", "Outputs"), this.bars.view);
  private readonly facts = new Facts();
  private readonly hint = box("sc-hint");
  private readonly content: HTMLElement;
  private readonly pointed = box("sc-pointed");
  private readonly gradients = new Map<string, Gradient>();
  private panes: PaneHeader[] = [];
  private planes: (InputPlane | null)[] = [];
  private regions: RegionInfo[] = [];
  private kept = false;
  /** How finely the screen tells places apart. */
  unitsPerPixel = 0;

  constructor(store: Store) {
    this.heads = [
      new RegionHead(() => store.set({ selected: null, compared: null })),
      new RegionHead(() => store.set({ compared: null })),
    ];
    this.content = box(
      "sc-content",
      box("sc-columns", ...this.heads.map((head) => head.view)),
      box("sc-columns sc-inputs", ...this.inputs.map((input) => input.view)),
      this.outputs,
      this.map.view,
      this.facts.view,
    );
    this.body.append(this.hint, this.content, this.pointed);
    show(this.content, false);
    show(this.pointed, false);
  }

  /** Take the names of a scene, and the place of each pane in input space. */
  showScene(message: Message<SceneHeader>): void {
    this.panes = message.header.panes;
    this.planes = this.panes.map((_, k) => planeOf(message.arrays, k));
    this.gradients.clear();
    this.hint.replaceChildren(...hints(this.panes).map((words) => element("p", {}, words)));
  }

  /** Take another plane of a pane. */
  showPane(index: number, pane: PaneHeader, arrays: Message["arrays"]): void {
    this.panes[index] = pane;
    this.planes[index] = planeOf(arrays, index);
    this.gradients.clear();
    this.draw();
  }

  /** Show what is pointed at, or what is kept; other: the region at the same place elsewhere. */
  show(
    hovered: RegionInfo | null,
    kept: RegionInfo | null,
    compared: RegionInfo | null,
    other: RegionInfo | null,
  ): void {
    const pair = kept ? [kept, compared] : [hovered, hovered && other];
    this.regions = pair.filter((region) => region !== null);
    this.kept = kept !== null;
    const beside = kept && hovered && !compared && hovered.region !== kept.region;
    show(this.pointed, beside === true);
    if (beside) {
      const name = this.panes[hovered.pane]?.classes?.[hovered.winner ?? -1]?.name;
      const words = `pointing at region ${formatCount(hovered.region)}${name ? `, ${name}` : ""}`;
      setText(this.pointed, words, words);
    }
    this.draw();
  }

  showGradient(mesh: string, region: number, gradient: Gradient): void {
    if (this.gradients.size >= KEPT) this.gradients.clear();
    this.gradients.set(`${mesh} ${region}`, gradient);
    if (this.regions.some((each) => each.mesh === mesh && each.region === region)) this.draw();
  }

  private draw(): void {
    const { regions, panes } = this;
    const [first, second] = regions;
    show(this.hint, !first);
    show(this.content, first !== undefined);
    this.content.classList.toggle("sc-two", second !== undefined);
    const pane = first && panes[first.pane];
    if (!first || !pane) return;
    for (const [k, head] of this.heads.entries()) {
      const region = regions[k];
      const own = region && panes[region.pane];
      show(head.view, own !== undefined);
      show(this.inputs[k]!.view, own !== undefined);
      if (!region || !own) continue;
      head.update(own, region, second ? this.markOf(k) : "", this.kept);
      const gradient = this.gradients.get(`${region.mesh} ${region.region}`) ?? null;
      const plane = this.planes[region.pane] ?? null;
      this.inputs[k]!.update(own, plane, region, gradient, this.unitsPerPixel);
    }
    const known = regions.every(({ settled }) => settled === null);
    show(this.outputs, known);
    show(this.map.view, known);
    if (known) {
      this.bars.update(pane, regions);
      this.map.update(pane, regions);
    }
    this.facts.update(panes, regions);
  }

  /** What the two columns are called: their panes, or A and B. */
  private markOf(column: number): string {
    const titles = this.regions.map((region) => this.panes[region.pane]?.title ?? "");
    return titles[0] === titles[1] ? "AB"[column]! : titles[column] || "AB"[column]!;
  }
}

/** What one can do, and what there is to say about the panes. */
function hints(panes: readonly PaneHeader[]): string[] {
  const touch = window.matchMedia("(hover: none)").matches;
  return [...(touch ? TOUCH_HINTS : HINTS), ...panes.flatMap((pane) => pane.notes ?? [])];
}

function planeOf(arrays: Message["arrays"], pane: number): InputPlane | null {
  const [origin, basis] = [arrays[`${pane}/origin`]?.data, arrays[`${pane}/basis`]?.data];
  return origin && basis && basis.length === 2 * origin.length ? { origin, basis } : null;
}
