// Colours of meshes: asked for once, and kept for a while.

import { paletteOf } from "../draw/colours";
import { classColors, leadsOf } from "../geometry/class_colors";
import type { Mesh } from "../geometry/mesh";
import type { ColoringChoice, ColoringHeader, Message } from "../protocol/messages";
import { askFor } from "./asking";
import { Recent } from "./latest";
import { dependsOnLevel, type Level, type PaneView } from "./panes";
import type { Stage } from "./stage";

const LATER = 500; // milliseconds

export class Colors {
  private known = new Recent<Promise<Message<ColoringHeader> | null>>(24);
  /** What Python said last about the classes of a frame. */
  private classes = new Recent<ColoringHeader>(8);

  constructor(private stage: Stage) {}

  /** The colours of a level as the state wants them; null if the question was dropped. */
  of(pane: PaneView, level: Level): Promise<Message<ColoringHeader> | null> {
    const { output } = this.stage.store.state;
    const choice = this.choice(pane);
    const name = choice?.name ?? "random";
    const asked = choice?.byOutput ? output : null;
    const cut = choice?.name === "class" ? this.stage.store.state.level : 0;
    const key = `${level.mesh.id} ${asked} ${name} ${cut}`;
    const before = this.known.get(key);
    if (before) return before;
    const request = { ask: "coloring", mesh: level.mesh.id, name, output: asked } as const;
    const answer = askFor(this.stage.source, request, "coloring").then(
      (message) => message && this.complete(message, pane, level),
    );
    this.known.set(key, answer);
    const forget = () => this.known.delete(key);
    answer.then((message) => {
      if (!message) forget();
    }, forget);
    return answer;
  }

  /** What the state wants a pane to be coloured by. */
  private choice(pane: PaneView): ColoringChoice | undefined {
    const { colorings } = pane.header;
    const { color } = this.stage.store.state;
    return colorings.find((each) => each.name === color) ?? colorings[0];
  }

  /** Colour all levels of all panes anew, as the state wants them now. */
  refresh(): void {
    for (const pane of this.stage.panes) {
      for (const level of [pane.whole, pane.detail]) {
        if (level) this.stage.track(this.recolor(pane, level));
      }
    }
  }

  /** Colours for a level of a frame whose classes are known, without a question; else null.
   *
   * The typical lead is that of the frame, also where the plane moves or one goes deeper. */
  guess(pane: PaneView, level: Level): Message<ColoringHeader> | null {
    const header = this.classes.get(frameOf(level.mesh));
    if (!header || header.name !== this.choice(pane)?.name) return null;
    return this.complete({ header: { ...header, mesh: level.mesh.id }, arrays: {} }, pane, level);
  }

  /** Ask for the colours of a level that are guessed so far; mostly only the legend differs.
   *
   * It is not asked for at once: while one drags, the next picture is more urgent.
   * moved: whether another picture was asked for since. */
  async confirm(pane: PaneView, level: Level, moved = () => false): Promise<void> {
    const guessed = level.coloring;
    await new Promise((resolve) => setTimeout(resolve, LATER));
    if (this.stage.disposed || moved()) return;
    if (level !== pane.whole && level !== pane.detail) return;
    const coloring = await this.of(pane, level);
    if (!coloring || this.stage.disposed || level.coloring !== guessed) return;
    level.coloring = coloring;
    if (coloring.header.typical !== guessed?.header.typical) pane.recolor(level);
    if (level === (pane.whole ?? pane.detail)) this.tell(pane, coloring);
    this.stage.redraw();
  }

  /** Colours by class follow from the mesh: add them to the message. */
  private complete(
    message: Message<ColoringHeader>,
    pane: PaneView,
    { mesh, coloring }: Level,
  ): Message<ColoringHeader> {
    if (message.header.by !== "class") return message;
    const palette = paletteOf(pane.header) ?? [[128, 128, 128]];
    const header = { ...message.header, palette };
    this.classes.set(frameOf(mesh), header);
    if (coloring?.header.by === "class" && coloring.header.typical === message.header.typical) {
      if (coloring.arrays.colors?.shape[0] === mesh.cellCount && !dependsOnLevel(mesh)) {
        return { header, arrays: coloring.arrays };
      }
    }
    const level = mesh.header.level ?? this.stage.store.state.level;
    const data = classColors(mesh, palette, header.typical ?? 0, leadsOf(mesh, level));
    const colors = { data, shape: [mesh.cellCount, 3] };
    return { header, arrays: { ...message.arrays, colors } };
  }

  private async recolor(pane: PaneView, level: Level): Promise<void> {
    const { color, output } = this.stage.store.state;
    const coloring = await this.of(pane, level).catch((error) => {
      this.giveBack(level);
      throw error;
    });
    const { state } = this.stage.store;
    if (!coloring || this.stage.disposed || state.color !== color || state.output !== output)
      return;
    level.coloring = coloring;
    pane.recolor(level);
    this.tell(pane, coloring);
    this.stage.redraw();
  }

  /** The colours that were asked for do not come: the state has those that are shown. */
  private giveBack({ coloring }: Level): void {
    if (!coloring || this.stage.disposed) return;
    const { store, panels } = this.stage;
    panels.showNote(`The colours by ${store.state.color} are not loaded`);
    store.set({ color: coloring.header.name, output: coloring.header.output });
  }

  /** Tell the legend: of the first pane, with the classes that only others have. */
  tell(pane: PaneView, coloring: Message<ColoringHeader>): void {
    const { panes, panels } = this.stage;
    const first = pane.index === 0 ? coloring : (panes[0]?.whole ?? panes[0]?.detail)?.coloring;
    if (!first) return;
    const legend = new Map(first.header.legend.map((entry) => [entry.name, entry]));
    const others = panes.map((each) => (each === pane ? coloring : each.whole?.coloring));
    for (const other of first.header.by === "class" ? others : []) {
      for (const entry of other?.header.legend ?? []) {
        if (!legend.has(entry.name)) legend.set(entry.name, entry);
      }
    }
    const order = (panes[0]?.header.classes ?? []).map(({ name }) => name);
    const entries = [...legend.values()];
    if (first.header.by === "class") {
      entries.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
    }
    panels.showColoring({ ...first, header: { ...first.header, legend: entries } });
  }
}

function frameOf(mesh: Mesh): string {
  return `${mesh.pane}/${mesh.frame}`;
}
