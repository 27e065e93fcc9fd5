// A viewer: brings together what is loaded, drawn, pointed at and shared.

import { askFor } from "./control/asking";
import { Clock } from "./control/clock";
import { Colors } from "./control/colors";
import { boxAround } from "./control/depth";
import { sentenceOf } from "./control/failure";
import { Gradients } from "./control/gradients";
import { handleOf, publish } from "./control/handle";
import { Hover, hitAt, hitAtPlace, practisePointing } from "./control/hover";
import { PaneControl } from "./control/pane_control";
import { PaneView } from "./control/panes";
import type { Gestures } from "./control/pointer";
import { regionShown } from "./control/region_shown";
import { Selection, type Way } from "./control/selection";
import { Address, cleaned, Telling } from "./control/sharing";
import type { Stage } from "./control/stage";
import { View } from "./control/view";
import { extentOf } from "./draw/overview";
import { Renderer } from "./draw/renderer";
import { fitting } from "./fitting";
import { Camera } from "./geometry/camera";
import type { Actions } from "./panels/actions";
import { described } from "./panels/facts";
import { legendOf } from "./panels/legend";
import type { StatusKind } from "./panels/messages";
import { counted, formatBound, formatNumber } from "./panels/numbers";
import { unitName } from "./panels/outputs";
import { isFar } from "./panels/overview";
import { Panels } from "./panels/panels";
import type { Message, Notice, Pair, SceneHeader, Source } from "./protocol/messages";
import { Gone } from "./protocol/socket";
import { svgOf } from "./share/svg";
import { INITIAL, Store, type ViewState } from "./state";
import { readHash } from "./url";

const PATIENCE = 400; // milliseconds after which it is said that something is computed
const DIVE = 4; // how much closer a double-click goes
const MARGIN = 0.08; // of the picture, within which a region is not seen well

export class App implements Stage {
  readonly store = new Store();
  readonly panels: Panels;
  readonly panes: PaneView[] = [];
  disposed = false;
  source!: Source;
  scene!: SceneHeader;
  view!: View;

  private controls: PaneControl[] = [];
  private colors = new Colors(this);
  private hover = new Hover(this, () => this.showRegions());
  private selection = new Selection(this);
  private gradients = [new Gradients(this), new Gradients(this)] as const;
  private clock = new Clock((now) => {
    try {
      return this.draw(now);
    } catch (error) {
      this.report(error);
      return false;
    }
  });
  private ends: (() => void)[] = [];
  private moving = false;
  private practised = false;
  private interruption: string | null = null;
  /** What the page shows already: changing it to the same would lay it out again. */
  private said = "";
  private placed = "";
  private busySince = 0;
  private firstRenderer: Renderer | null = null;

  private constructor(root: HTMLElement) {
    this.panels = new Panels(root, this.store, this.actions());
  }

  /** Load a scene and show it; inPage: the viewer is alone on its page, whose address it uses. */
  static async start(
    root: HTMLElement,
    open: () => Promise<Source>,
    inPage: boolean,
  ): Promise<App> {
    const app = new App(root);
    try {
      await app.load(open, inPage);
    } catch (error) {
      app.dispose();
      throw error;
    }
    return app;
  }

  redraw(): void {
    this.clock.request();
  }

  track(work: Promise<unknown>): void {
    this.clock.track(work.catch((error) => this.report(error)));
  }

  report(error: unknown): void {
    // That Python has gone is said once, beside the picture.
    if (this.disposed || (error instanceof Gone && this.interruption)) return;
    this.panels.showError(sentenceOf(error));
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.clock.dispose();
    for (const gradients of this.gradients) gradients.dispose();
    for (const end of this.ends) end();
    for (const control of this.controls) control.dispose();
    if (!this.panes.length) this.firstRenderer?.dispose();
    this.panels.dispose();
    this.source?.close();
  }

  private async load(open: () => Promise<Source>, inPage: boolean): Promise<void> {
    this.panels.showProgress("Loading …");
    // The graphics card has its programs compiled while the data comes.
    this.firstRenderer = new Renderer(this.panels.firstCanvas);
    this.source = await open();
    const message = await askFor(this.source, { ask: "scene" }, "scene");
    if (!message) throw new Error("The scene was not sent. Load the page again.");
    if (this.disposed) return;
    this.scene = message.header;
    const defaults: ViewState = { ...INITIAL, ...cleaned(message.header.state, INITIAL) };
    const { panes } = message.header;
    const asked = inPage ? fitting(readHash(window.location.hash), panes) : {};
    this.store.set({ ...defaults, ...asked });
    this.panels.showScene(message, defaults);
    this.view = new View(this.store, () => this.redraw());
    this.makePanes(message);
    this.measure();
    this.listen(defaults, inPage);
    for (const control of this.controls) control.showFrame(this.store.state.frame);
    this.redraw();
  }

  /** Find out how large the domain is, which changes with the plane. */
  private measure(): void {
    const domain = boxAround(this.panes.flatMap((pane) => pane.header.domain.corners));
    this.view.setDomain(domain, this.panes[0]?.header.start ?? domain);
  }

  private makePanes(message: Message<SceneHeader>): void {
    for (const [index, header] of message.header.panes.entries()) {
      const canvas = this.panels.canvases[index]!;
      const renderer = index ? new Renderer(canvas) : this.firstRenderer!;
      renderer.onWake = () => this.redraw();
      const pane = new PaneView(index, header, message.arrays, canvas, renderer);
      this.panes.push(pane);
      const gestures = this.gestures(pane);
      const shown = () => this.meshShown(pane);
      this.controls.push(new PaneControl(this, pane, this.colors, gestures, shown));
    }
  }

  private listen(defaults: Readonly<ViewState>, inPage: boolean): void {
    const address = inPage ? new Address(this.store, defaults, this.scene.panes) : null;
    const telling = this.scene.live ? new Telling(() => this.tellState()) : null;
    this.ends.push(
      this.store.listen((state, changed) => {
        this.stateChanged(state, changed);
        address?.touch();
        telling?.touch();
      }),
      () => address?.dispose(),
      () => telling?.dispose(),
      publish(handleOf(this, this.controls, this.hover, this.clock)),
    );
    const observer = new ResizeObserver(() => {
      for (const pane of this.panes) pane.measure();
      this.redraw();
    });
    for (const pane of this.panes) observer.observe(pane.canvas);
    this.ends.push(() => observer.disconnect());
    this.panels.onTheme(() => this.redraw());
    this.source.listen((notice) => this.noticed(notice));
    this.source.onInterruption((sentence) => {
      this.interruption = sentence;
      this.showStatus();
    });
  }

  private stateChanged(state: Readonly<ViewState>, changed: ReadonlySet<keyof ViewState>): void {
    if (changed.has("frame")) for (const control of this.controls) control.showFrame(state.frame);
    if (changed.has("level")) this.recut();
    if (changed.has("color") || changed.has("output")) this.colors.refresh();
    if (changed.has("selected") || changed.has("compared")) {
      this.selection.resolve();
      this.showRegions();
    }
    this.redraw();
  }

  /** With a single output, classes depend on the level. */
  private recut(): void {
    for (const pane of this.panes) pane.recut(this.store.state.level);
    this.colors.refresh();
  }

  private noticed(notice: Message<Notice>): void {
    const { header } = notice;
    if (header.kind === "frames") {
      const control = this.controls[header.pane];
      if (!control) return;
      control.frames.relabel(header.frames);
      this.panels.showFrames(header.pane, header.frames);
    } else {
      this.store.set(cleaned(header.state, INITIAL));
    }
  }

  /** Another mesh is shown: what is kept and pointed at is looked up in it. */
  private meshShown(pane: PaneView): void {
    this.panels.showProgress("");
    this.measure();
    const camera = this.camera(pane);
    const level = pane.shown(camera);
    if (level) this.panels.showMesh(level.mesh.header);
    this.hover.refresh();
    this.selection.resolve();
    this.showRegions();
    this.showStatus();
    this.redraw();
  }

  private showRegions(): void {
    const { hit } = this.hover;
    const { kept, compared } = this.selection;
    const pane = hit && this.panes.find((each) => each !== hit.pane);
    const other = pane ? hitAtPlace(this, pane, hit.at) : null;
    this.gradients[0].show(kept ?? hit);
    this.gradients[1].show(kept ? compared : other);
    this.panels.showRegion(
      regionShown(hit),
      regionShown(kept),
      regionShown(compared),
      regionShown(other),
    );
    if (hit && hit.edge >= 0) {
      const { edgeLayer, edgeUnit } = hit.level.mesh;
      this.panels.showEdge(edgeLayer[hit.edge]!, edgeUnit[hit.edge]!, hit.pane.index);
    } else this.panels.showEdge(null);
  }

  /** Say what is shown: how many regions, how exact, whether Python is there or at work. */
  private showStatus(): void {
    const [words, kind] = this.status();
    if (this.said === `${kind} ${words}`) return;
    this.said = `${kind} ${words}`;
    this.panels.showStatus(words, kind);
  }

  private status(): [string, StatusKind] {
    const [control] = this.controls;
    if (this.interruption) return [this.interruption, "note"];
    if (!control) return ["", "exact"];
    const { pane } = control;
    const camera = this.camera(pane);
    const limit = pane.header.live ? null : control.deeper.limitOf(camera);
    if (limit !== null) {
      const what = this.scene.live ? "What is loaded" : "This file";
      const how = this.scene.live ? "with the network, Python goes deeper" : "Python goes deeper";
      return [`${what} is exact to a width of ${formatNumber(limit, 1)}; ${how}.`, "note"];
    }
    if (control.deeper.problem && !pane.isShownWell(camera))
      return [control.deeper.problem, "note"];
    const reason = pane.tooMuch(camera);
    if (reason) return [`Coarse picture: ${reason} here; zoom in.`, "note"];
    const level = pane.shown(camera);
    if (!level) return ["", "exact"];
    const { regionCount, window } = level.mesh.header;
    const words =
      counted(regionCount, "region") + (window ? " in this window" : "") + promise(control);
    return [words, this.isBusyForLong() ? "busy" : "exact"];
  }

  /** Whether something has been computed for so long that it is worth to say so. */
  private isBusyForLong(): boolean {
    if (!this.controls.some((each) => each.busy)) {
      this.busySince = 0;
      return false;
    }
    if (!this.busySince) {
      this.busySince = performance.now();
      window.setTimeout(() => this.disposed || this.showStatus(), PATIENCE + 10);
    }
    return performance.now() - this.busySince > PATIENCE;
  }

  private tellState(): void {
    this.track(this.source.ask({ ask: "state", state: { ...this.store.state } }));
  }

  private camera(pane: PaneView): Camera {
    return this.view.camera(pane.pixels);
  }

  /** Draw all panes; returns whether their pictures are complete. */
  private draw(now: number): boolean {
    if (!this.view || this.disposed) return false;
    this.view.advance(now);
    this.hover.update();
    const marks = {
      hovered: this.hover.hit,
      kept: this.selection.kept,
      compared: this.selection.compared,
    };
    let complete = true;
    for (const control of this.controls) {
      const { pane } = control;
      const camera = this.camera(pane);
      const goal = this.view.goal(pane.pixels);
      const moving = this.moving || this.view.flying;
      if (control.draw(camera, goal, moving, marks)) this.clock.request(false);
      complete &&= pane.loaded && pane.renderer.current;
    }
    this.place();
    this.showStatus();
    if (complete && !this.controls.some((control) => control.busy)) {
      this.preparePointing();
      this.paintOverview();
    }
    return complete;
  }

  /** Make ready what pointing needs, so that the first answer does not wait for it. */
  private preparePointing(): void {
    const pickers = this.panes.flatMap((pane) => pane.shown(this.camera(pane))?.picker ?? []);
    if (pickers.every((picker) => picker.ready)) return;
    const later = new Promise((resolve) => setTimeout(resolve));
    const prepare = () => {
      for (const picker of pickers) {
        picker.prepare();
        picker.mesh.cellsOf(0); // finds the cells of all regions
      }
      if (this.practised) return;
      this.practised = true;
      return practisePointing(this, this.panes[0]!);
    };
    this.clock.track(later.then(prepare));
  }

  /** Place what lies over the pictures, if the camera or the plane has moved. */
  private place(): void {
    const cameras = this.panes.map((pane) => this.camera(pane));
    const anchors = this.panes.map((pane) => pane.header.anchors?.at ?? []);
    const key = JSON.stringify([cameras, anchors]);
    if (key === this.placed) return;
    this.placed = key;
    for (const [k, camera] of cameras.entries()) {
      if (k === 0) this.showWhere(camera);
      const places = anchors[k]!.map((at) => camera.toScreen(at));
      if (places.length) this.panels.placeAnchors(k, places);
    }
  }

  /** Show how large things are, and where the window is if it is a small part of the domain. */
  private showWhere(camera: Camera): void {
    const { domain } = this.panes[0]!;
    this.panels.showScale(camera.unitsPerPixel);
    const window = isFar(camera.window, domain) ? camera.window : null;
    this.panels.overview.place(window, extentOf(domain));
  }

  private paintOverview(): void {
    const { overview } = this.panels;
    const [control] = this.controls;
    if (!overview.isShown || !control) return;
    const picture = control.overview(extentOf(control.pane.domain));
    if (picture) overview.paint(picture);
  }

  private gestures(pane: PaneView): Gestures {
    return {
      camera: () => this.camera(pane),
      move: (camera, moving) => {
        this.moving = moving;
        this.view.set(camera);
        this.redraw();
      },
      hover: (xy) => this.hover.move(pane, xy),
      click: (xy, shift) => this.selection.click(hitAt(this, pane, xy), shift),
      dive: (xy, out) => this.view.fly(this.camera(pane).zoomed(out ? 1 / DIVE : DIVE, xy)),
    };
  }

  private actions(): Actions {
    const ready = () => !this.disposed && this.panes.length > 0;
    const control = (pane: number) => this.controls[pane];
    return {
      home: () => ready() && this.view.goHome(this.panes[0]!.pixels),
      zoom: (factor) => {
        if (!ready()) return;
        const camera = this.view.goal(this.panes[0]!.pixels);
        const middle: Pair = [camera.pixels[0] / 2, camera.pixels[1] / 2];
        this.view.fly(camera.zoomed(factor, middle));
      },
      pan: (right, up) => {
        if (!ready()) return;
        const camera = this.view.goal(this.panes[0]!.pixels);
        this.view.fly(camera.panned(-right * camera.pixels[0], up * camera.pixels[1]));
      },
      jump: (at) => {
        if (!ready()) return;
        const { width, pixels } = this.view.goal(this.panes[0]!.pixels);
        this.view.fly(new Camera(at, width, pixels));
      },
      stepRegion: (way) => ready() && this.stepRegion(way),
      flyTo: (pane, at) => this.flyTo(pane, at),
      pictures: () => this.controls.map((control) => control.picture()),
      svg: () => this.svg(),
      resetPlane: (pane) => control(pane)?.resetPlane(),
      movePlane: (pane, turn, shift, done) => control(pane)?.movePlane(turn, shift, done),
      setAnchor: (pane, anchor, point) => control(pane)?.setAnchor(anchor, point),
      dragAnchor: (pane, anchor, to, done) => control(pane)?.dragAnchor(anchor, to, done),
    };
  }

  private svg(): string {
    const { state } = this.store;
    const panes = this.controls.flatMap((control) => control.svg() ?? []);
    const coloring = panes[0]?.coloring;
    const { theme } = this.panels;
    const legend = coloring ? legendOf(coloring, theme) : null;
    return svgOf({ title: this.scene.title, panes, state, theme, legend });
  }

  /** Keep another region, bring it into view, and tell screen readers about it. */
  private stepRegion(way: Way): void {
    const place = this.store.state.selected;
    const pane = this.panes[place?.pane ?? 0] ?? this.panes[0]!;
    const camera = this.view.goal(pane.pixels);
    const step = this.selection.step(pane, camera, way, this.hover.hit);
    if (step === "domain") this.panels.say("The domain ends here.");
    if (step === "window") {
      this.panels.say("The region goes on beyond what is loaded: the picture shows more of it.");
      if (place) this.view.fly(camera.zoomed(1 / DIVE, camera.toScreen(place.at)));
    }
    if (typeof step === "string") return;
    const { hit, unit } = step;
    const across = unit ? unitName(pane.header, ...unit) : "";
    const info = regionShown(hit);
    if (info) this.panels.say(described(pane.header, info, across));
    const [x, y] = camera.toScreen(hit.at);
    const near = (at: number, size: number) => at > MARGIN * size && at < (1 - MARGIN) * size;
    if (near(x, camera.pixels[0]) && near(y, camera.pixels[1])) return;
    this.view.fly(new Camera(hit.at, camera.width, camera.pixels));
  }

  /** Bring the region at a place into view. */
  private flyTo(index: number, at: Pair): void {
    const pane = this.panes[index];
    const level = pane?.shown(this.camera(pane));
    const cell = level ? level.picker.cell(at) : -1;
    if (!pane || !level || cell < 0) return;
    const points: Pair[] = [];
    for (const each of level.mesh.cellsOf(level.mesh.region[cell]!)) {
      const polygon = level.mesh.polygon(each);
      for (let k = 0; k < polygon.length; k += 2) points.push([polygon[k]!, polygon[k + 1]!]);
    }
    this.view.fly(Camera.fit(boxAround(points), pane.pixels, 0.25));
  }
}

/** What is proved of a model with smooth functions; nothing if it is exact. */
function promise({ pane, overlays }: PaneControl): string {
  const { within } = pane.whole?.mesh.header ?? {};
  if (within === undefined) return "";
  const { undecided } = overlays;
  const share = undecided === null ? "" : `, ${formatBound(100 * undecided, 2)} % undecided`;
  return `, ${within}${share}`;
}
