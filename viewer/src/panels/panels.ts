// Everything around the picture. The app tells the panels what there is to show; panels change the
// store, and ask the app for the rest through `Actions`.

import type { RegionInfo } from "../geometry/region_info";
import type {
  ColoringHeader,
  GradientHeader,
  MeshHeader,
  Message,
  Pair,
  PaneHeader,
  SceneHeader,
} from "../protocol/messages";
import { composePng } from "../share/png";
import { pythonFor } from "../share/python";
import type { Store, ViewState } from "../state";
import { writeHash } from "../url";
import type { Actions } from "./actions";
import { Controls } from "./controls";
import { box, setText, show } from "./dom";
import { Help } from "./help";
import { iconButton } from "./icons";
import { Inspector } from "./inspector";
import { Layout } from "./layout";
import { Legend } from "./legend";
import { mapButtons } from "./map_buttons";
import { Messages, type StatusKind } from "./messages";
import { unitName } from "./outputs";
import { Overview } from "./overview";
import { PlanePanel } from "./plane";
import { ScaleBar } from "./scale_bar";
import { type Shared, shareMenu } from "./share_menu";
import { Sheet } from "./sheet";
import { answerKey, type KeyTargets, type Shortcut, shortcutsOf } from "./shortcuts";
import { FrameSlider } from "./slider";
import type { Theme } from "./theme";
import { ThemeButton } from "./theme_button";

export class Panels {
  readonly layout: Layout;
  private readonly controls: Controls;
  private readonly legend = new Legend();
  private readonly inspector: Inspector;
  private readonly messages = new Messages();
  private readonly frames: FrameSlider;
  private readonly scale = new ScaleBar();
  readonly overview: Overview;
  private readonly help = new Help();
  private readonly shortcuts: Shortcut[];
  private readonly themes: ThemeButton;
  private readonly edge = box("sc-edge");
  private planes: PlanePanel[] = [];
  private scene: SceneHeader | null = null;
  private defaults: Readonly<ViewState>;

  constructor(
    private readonly root: HTMLElement,
    private readonly store: Store,
    private readonly actions: Actions,
  ) {
    this.layout = new Layout(root);
    this.defaults = store.state;
    this.controls = new Controls(store, this.layout);
    this.frames = new FrameSlider(store);
    this.inspector = new Inspector(store);
    this.overview = new Overview(actions.jump, actions.home);
    this.themes = new ThemeButton(root, store);
    this.shortcuts = shortcutsOf(store, actions, this.keyTargets());
    this.help.showShortcuts(this.shortcuts);
    this.assemble();
    root.addEventListener("keydown", this.onKey);
  }

  /** Light or dark, after what was chosen, the notebook and the system. */
  get theme(): Theme {
    return this.themes.theme;
  }

  /** The canvas of each pane, to draw on; made by `showScene`. */
  get canvases(): HTMLCanvasElement[] {
    return this.layout.canvases;
  }

  /** The canvas of the first pane, which is there from the beginning. */
  get firstCanvas(): HTMLCanvasElement {
    return this.layout.firstCanvas;
  }

  /** Show a scene; defaults: the state that it begins with, which links and Python leave out. */
  showScene(message: Message<SceneHeader>, defaults: Readonly<ViewState> = this.store.state): void {
    const { header } = message;
    this.scene = header;
    this.root.dataset.ready = "true";
    this.defaults = defaults;
    this.layout.title.textContent = header.title;
    this.layout.title.title = header.title;
    this.layout.showPanes(header.panes.map((pane) => pane.title));
    const [first] = header.panes;
    if (first) this.controls.showPane(first);
    this.inspector.showScene(message);
    this.frames.showPanes(header.panes);
    for (const plane of this.planes) plane.section.remove();
    this.planes = header.panes.map((pane, k) => {
      const plane = new PlanePanel(k, this.layout.panesShown[k]!.overlay, this.actions);
      if (header.panes.length > 1) plane.showTitle(pane.title || `pane ${k + 1}`);
      plane.showPane(pane, message.arrays);
      return plane;
    });
    this.layout.controls.append(...this.planes.map((plane) => plane.section));
  }

  /** Show a pane anew, after its plane was moved. */
  showPane(index: number, pane: PaneHeader, arrays: Message["arrays"]): void {
    this.inspector.showPane(index, pane, arrays);
    this.planes[index]?.showPane(pane, arrays);
  }

  /** Show the ranges of the outputs, after the mesh that one sees has changed. */
  showMesh(header: MeshHeader): void {
    const outputs = this.scene?.panes[header.pane]?.outputs;
    for (const [k, name] of (header.outputNames ?? []).entries()) {
      if (outputs) outputs[header.outputs[k]!] = name; // of very many, scenes name the first only
    }
    if (header.pane === 0) this.controls.showMesh(header);
  }

  showColoring(message: Message<ColoringHeader>): void {
    this.legend.showColoring(message);
  }

  /** Show the region that is pointed at, the kept one, and the one that this is compared with;
   * other: the region at the same place of another pane. */
  showRegion(
    hovered: RegionInfo | null,
    kept: RegionInfo | null,
    compared: RegionInfo | null = null,
    other: RegionInfo | null = null,
  ): void {
    this.inspector.show(hovered, kept, compared, other);
  }

  /** Show which unit draws the line that is pointed at; null: none is. */
  showEdge(layer: number | null, unit = -1, index = 0): void {
    const pane = this.scene?.panes[index];
    show(this.edge, layer !== null && pane !== undefined);
    if (layer === null || !pane) return;
    const words = unitName(pane, layer, unit);
    setText(this.edge, words, words);
  }

  /** Show a gradient beside the input, if its region is still shown. */
  showGradient(message: Message<GradientHeader>): void {
    const { mesh, region, output } = message.header;
    const data = message.arrays.gradient?.data;
    if (data) this.inspector.showGradient(mesh, region, { output, data });
  }

  showStatus(words: string, kind: StatusKind = "exact"): void {
    this.messages.showStatus(words, kind);
  }

  /** Show how far loading is: a share from 0 to 1, null if unknown; no words: it has ended. */
  showProgress(words: string, share: number | null = null): void {
    this.messages.showProgress(words, share);
  }

  /** Show an error; before there is a scene, it takes the place of the picture. */
  showError(words: string): void {
    this.messages.showError(words, this.scene === null);
  }

  clearErrors(): void {
    this.messages.clearErrors();
  }

  /** Tell screen readers what one has come to; nothing is shown. */
  say(words: string): void {
    this.messages.said.textContent = words;
  }

  /** Show a line for a moment. */
  showNote(words: string): void {
    this.messages.showNote(words);
  }

  /** Show the frames of a pane after some were added. */
  showFrames(pane: number, frames: readonly string[]): void {
    this.frames.showFrames(pane, frames);
  }

  /** Show the length of the scale bar for a zoom. */
  showScale(unitsPerPixel: number): void {
    this.scale.showScale(unitsPerPixel);
    this.inspector.unitsPerPixel = unitsPerPixel;
  }

  /** Place the handles of a pane's anchors, in CSS pixels from its canvas' corner. */
  placeAnchors(pane: number, positions: readonly Pair[]): void {
    this.planes[pane]?.placeAnchors(positions);
  }

  /** The PNG of what one sees, with its legend. */
  png(): Promise<Blob> {
    const style = getComputedStyle(this.root);
    return composePng(this.actions.pictures(), {
      pixelRatio: window.devicePixelRatio || 1,
      titles: this.scene?.panes.map((pane) => pane.title) ?? [],
      stacked: this.layout.size === "narrow",
      legend: this.legend.content,
      unitsPerPixel: this.scale.unitsPerPixel,
      paper: style.getPropertyValue("--sc-paper"),
      ink: style.getPropertyValue("--sc-ink"),
      font: style.fontFamily,
    });
  }

  /** The lines of "copy Python". */
  python(): string {
    return this.scene ? pythonFor(this.scene, this.store.state) : "";
  }

  /** Be told when light becomes dark; called at once. */
  onTheme(listener: (theme: Theme) => void): void {
    this.themes.onTheme((theme) => {
      this.legend.setTheme(theme);
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
    const { layout, actions } = this;
    const helpButton = iconButton("help", "Help (?)", () => this.help.toggle());
    const menu = shareMenu(this.shared());
    layout.topRight.append(menu.holder, this.themes.button, helpButton);
    const corner = box("sc-corner", box("sc-where", this.overview.view, this.scale.bar));
    show(this.edge, false);
    const above = box("sc-above", this.messages.status, this.edge);
    const map = mapButtons(this.root, actions, () => this.showNote("no full screen here"));
    layout.stage.append(map, above, corner, this.messages.layer);
    layout.stage.append(this.messages.note, this.messages.said);
    layout.inspector.append(new Sheet(this.root).grip, this.inspector.body);
    layout.bottom.append(this.frames.bar);
    this.root.append(this.help.overlay);
    layout.onSize((size) => {
      const wide = size === "wide";
      if (wide) this.legend.card.open = true;
      if (wide) this.controls.colors.append(this.legend.card);
      else corner.prepend(this.legend.card);
      if (wide) layout.title.after(this.messages.status);
      else above.prepend(this.messages.status);
    });
  }

  private shared(): Shared {
    return {
      inPage: this.root.ownerDocument.documentElement.classList.contains("splinecam-page"),
      title: () => this.scene?.title ?? "",
      link: () => this.link(),
      python: () => this.python(),
      png: () => this.png(),
      svg: () => this.actions.svg(),
      tell: (words) => this.showNote(words),
      fail: (words) => this.showError(words),
    };
  }

  private link(): string {
    const { href } = this.root.ownerDocument.location;
    const hash = writeHash(this.store.state, this.defaults);
    return href.replace(/#.*$/, "") + (hash ? `#${hash}` : "");
  }

  private keyTargets(): KeyTargets {
    return {
      step: (by) => this.frames.step(by),
      togglePlay: () => this.frames.togglePlay(),
      nextColoring: () => this.nextColoring(),
      toggleLevelSet: () => this.controls.level.toggle(!this.store.state.levelSet),
      toggleHelp: () => this.help.toggle(),
      escape: () => this.escape(),
    };
  }

  private readonly onKey = (event: KeyboardEvent): void => {
    answerKey(event, this.shortcuts, this.help.isOpen);
  };

  /** Close what is open; if nothing is, let go of the kept regions. */
  private escape(): void {
    if (this.help.isOpen) this.help.toggle(false);
    else if (this.layout.isOpen) this.layout.openControls(false);
    else if (this.store.state.compared) this.store.set({ compared: null });
    else this.store.set({ selected: null });
  }

  private nextColoring(): void {
    const names = this.scene?.panes[0]?.colorings.map(({ name }) => name) ?? [];
    const next = names[(names.indexOf(this.store.state.color) + 1) % names.length];
    if (next !== undefined) this.store.set({ color: next });
  }
}
