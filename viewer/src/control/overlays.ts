// What lies over the regions: the ones that are pointed at and kept, curves of units, level sets.

import type { Local } from "../draw/clip";
import type { Polygons } from "../draw/hatching";
import type { HighlightStyle } from "../draw/highlight";
import type { LineStyle } from "../draw/lines";
import { neighbours, segmentsOf, unitCurve } from "../geometry/curves";
import { levelSet } from "../geometry/level_sets";
import type { Mesh } from "../geometry/mesh";
import type { BandHeader, Message } from "../protocol/messages";
import { askFor } from "./asking";
import type { Hit } from "./hover";
import { unitOf } from "./hover";
import type { PaneView } from "./panes";
import type { Stage } from "./stage";

// The colours of A and B in the inspector.
const [KEPT, COMPARED] = ["#0072B2", "#B54F00"];
const [INK, PAPER] = ["#16202C", "#FFFFFF"];

const HIGHLIGHTS: Record<"hovered" | "kept" | "compared" | "neighbours", HighlightStyle> = {
  neighbours: { color: KEPT, opacity: 0.12, outline: { color: KEPT, width: 1.2, opacity: 0.8 } },
  kept: { color: KEPT, opacity: 0.15, outline: { color: KEPT, width: 3, halo: PAPER } },
  compared: { color: COMPARED, opacity: 0.15, outline: { color: COMPARED, width: 3, halo: PAPER } },
  hovered: { color: PAPER, opacity: 0.2, outline: { color: INK, width: 1.8, halo: PAPER } },
};
/** A bright line between dark ones: one of the two is seen on every colour of regions, and the
 * decision boundary looks otherwise, light or dark. */
export const UNIT: LineStyle = { color: "#FFD60A", width: 2.5, halo: INK, rim: 1.75 };
const LEVEL: LineStyle = { color: "#CC2EA0", width: 2, halo: PAPER };

/** What is to be highlighted. */
export interface Marks {
  hovered: Hit | null;
  kept: Hit | null;
  compared: Hit | null;
}

/** Keeps the highlights and lines of one pane up to date with what is drawn. */
export class Overlays {
  /** What is shown now, by name, from below. */
  readonly highlights = new Map<string, { cells: Uint32Array; style: HighlightStyle }>();
  readonly lines = new Map<string, { segments: Local; style: LineStyle }>();
  /** Where no class is certain, as it is drawn, and what share of the domain this is. */
  band: Polygons | null = null;
  undecided: number | null = null;
  private polygons: Polygons | null = null;
  private asked = "";
  private shown = new Map<string, { mesh: Mesh | null; key: string }>();

  constructor(
    private stage: Stage,
    private pane: PaneView,
  ) {}

  /** Set what lies over a mesh that is drawn; what has not changed costs nothing. */
  update(mesh: Mesh | null, marks: Marks): void {
    const hovered = this.regionOf(marks.hovered, true);
    const kept = this.regionOf(marks.kept, false);
    const compared = this.regionOf(marks.compared, false);
    this.highlight("neighbours", mesh, kept, neighboursOf);
    this.highlight("kept", mesh, kept);
    this.highlight("compared", mesh, compared);
    this.highlight("hovered", mesh, hovered);
    this.curve(mesh, marks);
    this.levelSet(mesh);
    this.updateBand();
  }

  /** Ask for the band of the frame if it is another one; draw it if this is wanted.
   *
   * It is that of the whole mesh also where a window of it is looked at. */
  private updateBand(): void {
    const { pane, stage } = this;
    const { mesh } = pane.whole ?? {};
    const smooth = mesh?.header.within !== undefined && pane.header.classes !== null;
    const level = smooth && mesh.outputs.length === 1 ? this.chosenLevel : null;
    const key = smooth ? `${mesh.id} ${level}` : "";
    if (key !== this.asked) {
      this.asked = key;
      this.take(null);
      const request = { ask: "band", pane: pane.index, mesh: mesh?.id ?? "", level } as const;
      const answer = smooth ? askFor(stage.source, request, "band") : null;
      // A file holds the band of the level with which it begins.
      const found = stage.scene.live ? answer : answer?.catch(() => null);
      const taken = found?.then((message) => {
        if (message && this.asked === key && !stage.disposed) this.take(message);
      });
      if (taken) stage.track(taken);
    }
    const drawn = stage.store.state.band ? this.polygons : null;
    if (drawn === this.band) return;
    this.band = drawn;
    pane.renderer.setBand(drawn);
  }

  /** The level that decides the class of a single output; null if it is that of the scene. */
  private get chosenLevel(): number | null {
    const { level } = this.stage.store.state;
    return level === (this.stage.scene.state.level ?? 0) ? null : level;
  }

  private take(message: Message<BandHeader> | null): void {
    this.polygons = message && polygonsOf(message);
    this.undecided = message ? message.header.share : null;
    this.stage.redraw();
  }

  /** The region of a hit in this pane, -1 if there is none; a cursor is seen in all panes. */
  private regionOf(hit: Hit | null, linked: boolean): number {
    if (!hit) return -1;
    if (hit.pane === this.pane) return hit.cell >= 0 ? hit.level.mesh.region[hit.cell]! : -1;
    if (!linked) return -1;
    const level = this.pane.shown(this.stage.view.camera(this.pane.pixels));
    const cell = level ? level.picker.cell(hit.at) : -1;
    return level && cell >= 0 ? level.mesh.region[cell]! : -1;
  }

  private highlight(
    name: "hovered" | "kept" | "compared" | "neighbours",
    mesh: Mesh | null,
    region: number,
    cells: (mesh: Mesh, region: number) => Uint32Array = cellsOf,
  ): void {
    if (this.isShown(name, mesh, String(region))) return;
    const marked = mesh && region >= 0 ? cells(mesh, region) : null;
    this.pane.renderer.setHighlight(name, mesh, marked, HIGHLIGHTS[name]);
    this.highlights.delete(name);
    if (marked) this.highlights.set(name, { cells: marked, style: HIGHLIGHTS[name] });
  }

  /** The whole curve of the unit whose edge is pointed at. */
  private curve(mesh: Mesh | null, { hovered }: Marks): void {
    const unit = hovered && unitOf(hovered.level.mesh, hovered.edge);
    if (this.isShown("curve", mesh, unit ? unit.join(" ") : "")) return;
    const data = mesh && unit ? segmentsOf(mesh, unitCurve(mesh, unit[0], unit[1])) : null;
    this.draw("unit", mesh, data, UNIT);
  }

  private levelSet(mesh: Mesh | null): void {
    const { levelSet: on, level, output } = this.stage.store.state;
    const column = mesh ? Math.max(0, mesh.outputs.indexOf(output ?? 0)) : 0;
    if (this.isShown("level", mesh, on ? `${column} ${level}` : "")) return;
    const data = mesh && on && mesh.outputs.length ? levelSet(mesh, column, level) : null;
    this.draw("level", mesh, data, LEVEL);
  }

  private draw(name: string, mesh: Mesh | null, data: Float64Array | null, style: LineStyle): void {
    const segments = mesh && data ? { data, center: mesh.center, scale: mesh.scale } : null;
    this.pane.renderer.setLines(name, segments, style);
    this.lines.delete(name);
    if (segments) this.lines.set(name, { segments, style });
  }

  /** Whether something is shown as it should be; remembers it otherwise. */
  private isShown(name: string, mesh: Mesh | null, key: string): boolean {
    const before = this.shown.get(name);
    if (before && before.key === key && (before.mesh === mesh || key === "" || key === "-1")) {
      return true;
    }
    this.shown.set(name, { mesh, key });
    return false;
  }
}

/** The polygons of a band; an Error says if its arrays contradict each other. */
function polygonsOf({ header, arrays }: Message<BandHeader>): Polygons {
  const [data, counts] = [arrays.points?.data, arrays.counts?.data];
  const corners = counts ? Array.from(counts).reduce((sum, count) => sum + count, 0) : -1;
  if (!(data instanceof Float64Array) || !counts || data.length !== 2 * corners) {
    throw new Error("The band of the boundary is damaged. Load it again, or write it anew.");
  }
  return { data, counts, center: header.center, scale: header.scale };
}

function cellsOf(mesh: Mesh, region: number): Uint32Array {
  return mesh.cellsOf(region);
}

function neighboursOf(mesh: Mesh, region: number): Uint32Array {
  const cells: number[] = [];
  for (const each of neighbours(mesh, region)) cells.push(...mesh.cellsOf(each));
  return Uint32Array.from(cells);
}
