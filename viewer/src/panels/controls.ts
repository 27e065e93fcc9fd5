// What is drawn and how: colours, edges, boundary, level set, data points.

import type { MeshHeader, PaneHeader } from "../protocol/messages";
import type { Store } from "../state";
import { box, show } from "./dom";
import { EdgeControls } from "./edge_controls";
import { Select, switchField } from "./fields";
import type { Layout } from "./layout";
import { LevelControls } from "./level_controls";
import { chosenOutput, outputName } from "./outputs";
import { type Choice, Picker } from "./picker";

export class Controls {
  private readonly color = new Select("Colour by", (color) => this.store.set({ color }));
  private readonly output = new Picker("Output", (output) => this.store.set({ output }));
  private readonly fields = box("sc-fields", this.color.row, this.output.row);
  /** The section of colours, where the legend finds room. */
  readonly colors = box("sc-section");
  private readonly edges: EdgeControls;
  readonly level: LevelControls;
  private readonly boundary = switchField("Decision boundary", "B", (boundary) =>
    this.store.set({ boundary }),
  );
  private readonly band = switchField("Undecided band", "U", (band) => this.store.set({ band }));
  private readonly points = switchField("Data points", "P", (points) => this.store.set({ points }));
  private readonly thumbnails = switchField("Thumbnails", "", (thumbnails) =>
    this.store.set({ thumbnails }),
  );
  private pane: PaneHeader | null = null;
  private mesh: MeshHeader | null = null;

  constructor(
    private readonly store: Store,
    layout: Layout,
  ) {
    this.edges = new EdgeControls(store);
    this.level = new LevelControls(store);
    const { boundary, band, points, thumbnails } = this;
    const switches = [boundary, band, points, thumbnails].map(({ row }) => row);
    layout.controls.append(
      this.colors,
      this.edges.section,
      box("sc-section", ...switches),
      this.level.section,
    );
    layout.onSize((size) =>
      (size === "wide" ? this.colors : layout.topMiddle).prepend(this.fields),
    );
    store.listen(() => this.update());
  }

  /** Show the choices of a pane; those of the first pane hold for all. */
  showPane(pane: PaneHeader): void {
    this.pane = pane;
    this.color.choices(pane.colorings.map(({ name, label }) => [name, label] as const));
    this.edges.showLayers(pane.layers);
    show(this.boundary.row, pane.classes !== null);
    show(this.band.row, false);
    show(this.points.row, pane.points !== null);
    show(this.thumbnails.row, pane.points?.thumbnail != null);
    show(this.level.section, pane.outputCount > 0);
    this.update();
  }

  /** Show the ranges of the outputs of a mesh; those of the whole domain stay while one zooms. */
  showMesh(mesh: MeshHeader): void {
    if (mesh.window && this.mesh?.window === null && this.mesh.frame === mesh.frame) return;
    this.mesh = mesh;
    show(this.band.row, this.pane?.classes != null && mesh.within !== undefined);
    this.update();
  }

  private update(): void {
    const { pane, store } = this;
    if (!pane) return;
    const { state } = store;
    const choice = pane.colorings.find(({ name }) => name === state.color) ?? pane.colorings[0];
    this.color.set(choice?.name ?? "");
    this.updateOutputs(pane, choice?.byOutput === true && choice.name !== "output");
    const needed = (choice?.byOutput ?? false) || state.levelSet;
    show(this.output.row, needed && pane.outputCount > 1);
    this.edges.update(state);
    this.boundary.set(state.boundary);
    this.band.set(state.band);
    this.points.set(state.points);
    this.thumbnails.set(state.thumbnails);
    const output = chosenOutput(state);
    const column = this.mesh?.outputs.indexOf(output) ?? -1;
    this.level.showRange(outputName(pane, output), this.mesh?.ranges[column] ?? [Number.NaN, 0]);
  }

  private listed = "";

  /** List the outputs: those of the mesh, and "all" where the colouring knows what this means. */
  private updateOutputs(pane: PaneHeader, all: boolean): void {
    const numbers = this.mesh?.outputs ?? pane.outputs.map((_, k) => k);
    const listed = `${all} ${numbers.length} ${numbers[0]} ${pane.outputs.length}`;
    if (listed !== this.listed) {
      this.listed = listed;
      const named: Choice[] = numbers.map((value) => ({ value, label: outputName(pane, value) }));
      this.output.setChoices(all ? [{ value: null, label: "all outputs" }, ...named] : named);
    }
    this.output.set(all ? this.store.state.output : chosenOutput(this.store.state));
  }
}
