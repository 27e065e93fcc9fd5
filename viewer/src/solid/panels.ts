// Everything around the picture of a surface.

import type { Rgb } from "../draw/colours";
import type { Actions } from "../panels/actions";
import { box, show } from "../panels/dom";
import { EdgeControls } from "../panels/edge_controls";
import { Select } from "../panels/fields";
import { Help } from "../panels/help";
import { iconButton } from "../panels/icons";
import { Layout } from "../panels/layout";
import { Legend } from "../panels/legend";
import { mapButtons } from "../panels/map_buttons";
import { Messages } from "../panels/messages";
import { counted } from "../panels/numbers";
import { Sheet } from "../panels/sheet";
import { answerKey } from "../panels/shortcuts";
import { FrameSlider } from "../panels/slider";
import type { Theme } from "../panels/theme";
import { ThemeButton } from "../panels/theme_button";
import type { Store } from "../state";
import { Facts } from "./facts";
import type { Coloring } from "./frames";
import { GESTURES, type Keyed, shortcutsOf } from "./keys";
import { Labels } from "./labels";
import type { SolidHeader } from "./messages";
import { layerColor, plainColor } from "./painter";

export type Asked = Pick<Keyed, "turn" | "pan" | "togglePlane" | "movePlane"> &
  Pick<Actions, "zoom" | "home">;

export class SolidPanels {
  readonly messages = new Messages();
  readonly labels = new Labels();
  readonly colors = box("sc-section");
  facts: Facts | null = null;
  private readonly layout: Layout;
  private readonly color = new Select("Colour by", (color) => this.store.set({ color }));
  private readonly fields = box("sc-fields", this.color.row);
  private readonly edges: EdgeControls;
  private readonly legend = new Legend();
  private readonly frames: FrameSlider;
  private readonly themes: ThemeButton;
  private readonly help = new Help();
  private readonly shortcuts;
  private scene: SolidHeader | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly store: Store,
    private readonly asked: Asked,
  ) {
    this.layout = new Layout(root);
    this.layout.showPanes([""]);
    root.dataset.kind = "solid";
    this.canvas.setAttribute(
      "aria-label",
      "The surface: arrow keys turn it, shift and arrow keys move it, + and − zoom",
    );
    this.labels.overlay = this.layout.panesShown[0]!.overlay;
    this.edges = new EdgeControls(store);
    this.frames = new FrameSlider(store);
    this.themes = new ThemeButton(root, store);
    this.shortcuts = shortcutsOf({
      ...asked,
      nextColoring: () => this.nextColoring(),
      toggleEdges: () => store.set({ edges: !store.state.edges }),
      step: (by) => this.frames.step(by),
      togglePlay: () => this.frames.togglePlay(),
      toggleHelp: () => this.help.toggle(),
      escape: () => (this.help.isOpen ? this.help.toggle(false) : this.layout.openControls(false)),
    });
    this.help.showShortcuts(this.shortcuts, GESTURES);
    this.assemble();
    root.addEventListener("keydown", this.onKey);
    store.listen(() => this.update());
  }

  get canvas(): HTMLCanvasElement {
    return this.layout.firstCanvas;
  }

  get theme(): Theme {
    return this.themes.theme;
  }

  showScene(scene: SolidHeader): void {
    this.scene = scene;
    this.root.dataset.ready = "true";
    this.layout.title.textContent = scene.title;
    this.layout.title.title = scene.title;
    this.color.choices(scene.colorings.map(({ name, label }) => [name, label] as const));
    this.edges.showLayers(scene.layers);
    this.facts = new Facts(scene);
    this.layout.inspector.append(this.facts.body);
    this.frames.showPanes([{ frames: scene.frames, grows: false }]);
    this.update();
  }

  showColoring(coloring: Coloring): void {
    if (coloring) this.legend.showColoring(coloring);
    else show(this.legend.card, false);
  }

  showStatus(faces: number): void {
    this.messages.showStatus(counted(faces, "face"), "exact");
  }

  showPlane(section: HTMLElement): void {
    this.layout.controls.append(section);
  }

  openControls(open: boolean): void {
    this.layout.openControls(open);
  }

  /** Be told when light becomes dark; called at once. */
  onTheme(listener: (theme: Theme) => void): void {
    this.themes.onTheme((theme) => {
      const count = this.scene?.layers.length ?? 0;
      const layers = Array.from({ length: count }, (_, k) => layerColor(k, count, theme));
      this.edges.paint(layers.map(written), written(plainColor(theme)));
      listener(theme);
    });
  }

  dispose(): void {
    this.themes.dispose();
    this.frames.dispose();
    this.layout.dispose();
    this.root.removeEventListener("keydown", this.onKey);
  }

  private assemble(): void {
    const { layout, messages } = this;
    layout.topRight.append(
      this.themes.button,
      iconButton("help", "Help (?)", () => this.help.toggle()),
    );
    layout.controls.append(this.colors, this.edges.section);
    const above = box("sc-above", messages.status);
    const corner = box("sc-corner");
    const map = mapButtons(this.root, this.asked, () => messages.showNote("no full screen here"));
    layout.stage.append(map, above, corner, messages.layer, messages.note, messages.said);
    layout.inspector.append(new Sheet(this.root).grip);
    layout.bottom.append(this.frames.bar);
    this.root.append(this.help.overlay);
    layout.onSize((size) => {
      const wide = size === "wide";
      (wide ? this.colors : layout.topMiddle).prepend(this.fields);
      if (wide) this.colors.append(this.legend.card);
      else corner.prepend(this.legend.card);
      if (wide) layout.title.after(messages.status);
      else above.prepend(messages.status);
    });
  }

  private update(): void {
    this.color.set(this.store.state.color || "plain");
    this.edges.update(this.store.state);
  }

  private nextColoring(): void {
    const names = this.scene?.colorings.map(({ name }) => name) ?? [];
    const next = names[(names.indexOf(this.store.state.color) + 1) % names.length];
    if (next !== undefined) this.store.set({ color: next });
  }

  private readonly onKey = (event: KeyboardEvent): void => {
    answerKey(event, this.shortcuts, this.help.isOpen);
  };
}

function written(color: Rgb): string {
  return `rgb(${color.map((part) => Math.round(255 * part)).join(",")})`;
}
