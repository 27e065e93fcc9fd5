// A viewer of surfaces: brings together what is loaded, drawn, pointed at and chosen.

import { askFor } from "../control/asking";
import { Clock } from "../control/clock";
import { sentenceOf } from "../control/failure";
import { publish } from "../control/handle";
import { cleaned, Telling } from "../control/sharing";
import type { Message, Pair, Source } from "../protocol/messages";
import { INITIAL, Store } from "../state";
import { Eye } from "./eye";
import { type Pointed, pointedAt, pointedIn } from "./facts";
import { Frames, type Loaded } from "./frames";
import { listenTo } from "./gestures";
import type { SolidHeader } from "./messages";
import type { Sent } from "./painter";
import { Painter } from "./painter";
import { SolidPanels } from "./panels";
import type { Regions } from "./plane";
import { PlaneControl } from "./plane_control";
import { add, minus, row, times, type Vec3 } from "./vectors";

const ROOM = 1.06; // of the ball around the box that is seen at first
const GLIDE = 320; // milliseconds
const [SLOW, COARSE] = [45, 0.55]; // milliseconds of a picture, and what is then drawn of its pixels

/** A running viewer, for tests and for the curious; to read only. */
export interface SolidHandle {
  readonly state: Store["state"];
  readonly scene: SolidHeader;
  readonly busy: boolean;
  readonly frameTimes: readonly number[];
  readonly eye: Eye;
  /** The faces of the surface that is shown. */
  readonly faces: number;
  /** The plane, and how many regions it has; null: none is shown. */
  readonly plane: { normal: Vec3; offset: number; regions: number } | null;
  /** What the cursor points at. */
  pointed(): Pointed | null;
  /** What is at a pixel, in CSS pixels from the corner of the canvas. */
  pick(xy: Pair): Pointed | null;
  /** The pixel of a place of the box. */
  toScreen(place: Vec3): Pair;
  /** Draw now, and wait for the graphics card: how long this took, in milliseconds. */
  drawn(): number;
  idle(): Promise<void>;
}

export class SolidApp {
  private readonly store = new Store();
  private readonly panels: SolidPanels;
  private source!: Source;
  private scene!: SolidHeader;
  private painter!: Painter;
  private frames!: Frames;
  private plane!: PlaneControl;
  private regions: (Regions & { sent: Sent }) | null = null;
  private eye!: Eye;
  private glide: { from: Eye; to: Eye; begun: number } | null = null;
  private cursor: Pair | null = null;
  private pointed: Pointed | null = null;
  private moving = false;
  /** When the last picture of a movement was drawn, and whether such pictures are slow. */
  private before = 0;
  private slow = false;
  private disposed = false;
  private readonly clock = new Clock((now) => {
    try {
      return this.draw(now);
    } catch (error) {
      this.report(error);
      return true;
    }
  });
  private readonly ends: (() => void)[] = [];

  private constructor(root: HTMLElement) {
    this.panels = new SolidPanels(root, this.store, {
      turn: (right, up) => this.go(this.goal.turned(right, up)),
      pan: (right, up) => {
        const [w, h] = this.eye.pixels;
        this.go(this.goal.panned(-0.12 * w * right, 0.12 * h * up));
      },
      zoom: (factor) => {
        const [w, h] = this.eye.pixels;
        this.go(this.goal.zoomed(factor, [w / 2, h / 2]));
      },
      home: () => this.go(this.home()),
      togglePlane: () => this.plane?.toggle(),
      movePlane: (share) => this.plane?.move(this.plane.half.offset + share),
    });
  }

  /** Load a scene and show it in an element. */
  static async start(root: HTMLElement, open: () => Promise<Source>): Promise<SolidApp> {
    const app = new SolidApp(root);
    try {
      await app.load(open);
    } catch (error) {
      app.dispose();
      throw error;
    }
    return app;
  }

  report(error: unknown): void {
    if (!this.disposed) this.panels.messages.showError(sentenceOf(error), !this.scene);
  }

  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.clock.dispose();
    for (const end of this.ends) end();
    this.panels.dispose();
    this.source?.close();
  }

  private async load(open: () => Promise<Source>): Promise<void> {
    this.panels.messages.showProgress("Loading …", null);
    this.source = await open();
    const message = await askFor(this.source, { ask: "scene" }, "solid");
    if (!message) throw new Error("The scene was not sent. Load the page again.");
    if (this.disposed) return;
    this.scene = message.header;
    this.store.set({ ...INITIAL, ...cleaned(this.scene.state, INITIAL) });
    this.panels.showScene(this.scene);
    this.begin(message);
    this.showFrame();
  }

  private begin(message: Message<SolidHeader>): void {
    const { canvas } = this.panels;
    this.painter = new Painter(canvas);
    this.painter.frame(endsOf(message));
    this.panels.labels.setBox(message);
    this.frames = new Frames(this.source, this.scene, this.painter);
    this.eye = this.home();
    this.plane = new PlaneControl(message, this.source, {
      regions: (regions) => this.showRegions(regions),
      redraw: () => this.clock.request(),
      frame: () => this.store.state.frame,
      eye: () => this.eye,
      track: (work) => this.track(work),
    });
    this.panels.showPlane(this.plane.section);
    const measured = new ResizeObserver(() => {
      const wide: Pair = [canvas.clientWidth || 1, canvas.clientHeight || 1];
      this.eye = this.eye.resized(wide);
      this.clock.request();
    });
    measured.observe(canvas);
    const telling = this.scene.live ? new Telling(() => this.tell()) : null;
    this.ends.push(
      () => measured.disconnect(),
      () => telling?.dispose(),
      () => this.plane.dispose(),
      this.listen(),
      this.store.listen((_, changed) => {
        if (changed.has("frame")) this.showFrame();
        else if (changed.has("color")) this.paint();
        this.clock.request();
        telling?.touch();
      }),
      publish(this.handle()),
    );
    this.panels.onTheme(() => this.paint());
    this.source.listen(({ header }) => {
      if (header.kind === "state") this.store.set(cleaned(header.state, INITIAL));
    });
    this.source.onInterruption((sentence) => {
      if (sentence) this.panels.messages.showStatus(sentence, "note");
      else this.showStatus();
    });
    const restored = () => {
      this.painter = new Painter(canvas);
      this.painter.frame(endsOf(message));
      this.frames = new Frames(this.source, this.scene, this.painter);
      this.regions = null;
      this.showFrame();
    };
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", restored);
  }

  private listen(): () => void {
    return listenTo(this.panels.canvas, {
      eye: () => this.eye,
      look: (eye, moving) => {
        this.glide = null;
        this.eye = eye;
        this.moving = moving;
        this.clock.request();
      },
      hover: (xy) => {
        this.cursor = xy;
        this.clock.request();
      },
      click: (xy) => {
        this.cursor = xy;
        this.panels.openControls(false);
        this.clock.request();
      },
      dive: (xy) => {
        const found = this.hit(xy);
        if (!found) return this.go(this.home());
        const target = times(minus(found.at, this.scene.center), 1 / this.scene.scale);
        const { elevation, azimuth, distance, up, pixels } = this.eye;
        this.go(new Eye(target, elevation, azimuth, distance / 2.5, up, pixels));
      },
      grab: (xy) => this.grab(xy),
    });
  }

  // -- what is shown ------------------------------------------------------------------------------

  private get loaded(): Loaded | null {
    return this.frames.shown;
  }

  private showFrame(): void {
    const wanted = this.store.state.frame;
    const work = this.frames.load(wanted).then((loaded) => {
      if (this.disposed || !loaded || wanted !== this.store.state.frame) return;
      this.frames.show(wanted);
      this.panels.messages.showProgress("", null);
      this.panels.facts?.showSurface(loaded.known.header);
      this.showStatus();
      this.paint();
    });
    this.plane.compute();
    this.track(work);
  }

  private showRegions(regions: Regions | null): void {
    this.regions?.sent.dispose();
    const layers = this.scene.layers.length;
    this.regions = regions && {
      ...regions,
      sent: this.painter.send(regions.polygons, layers, regions.values),
    };
    this.pointed = null;
    this.clock.request();
  }

  /** Drag the plane along its normal, if a drag begins on it. */
  private grab(xy: Pair): ReturnType<Parameters<typeof listenTo>[1]["grab"]> {
    const found = this.hit(xy);
    if (found?.on !== "plane") return null;
    const { normal, offset } = this.plane.half;
    const at = times(minus(found.at, this.scene.center), 1 / this.scene.scale);
    const [x, y] = this.eye.toScreen(at);
    const [nextX, nextY] = this.eye.toScreen(add(at, times(normal, 1e-3)));
    // Where the normal points to the eye, upwards is towards it.
    let way: Pair = [1e3 * (nextX - x), 1e3 * (nextY - y)];
    const least = 0.3 / this.eye.unitsPerPixel;
    if (Math.hypot(...way) < least) way = [0, -least];
    const size = way[0] ** 2 + way[1] ** 2;
    return (dx, dy) => this.plane.move(offset + (dx * way[0] + dy * way[1]) / size);
  }

  private track(work: Promise<unknown>): void {
    this.clock.track(work.catch((error) => this.report(error)));
  }

  /** Colour the faces as it is chosen. */
  private paint(): void {
    const { loaded, store } = this;
    if (!loaded) return;
    const { color, frame } = store.state;
    const work = this.frames.coloring(frame, color).then((coloring) => {
      if (this.disposed || this.loaded !== loaded || store.state.color !== color) return;
      loaded.paint(coloring, this.panels.theme);
      this.panels.showColoring(coloring);
      this.clock.request();
    });
    this.track(work);
  }

  private showStatus(): void {
    const { loaded } = this;
    if (loaded) this.panels.showStatus(loaded.known.polygons.count);
  }

  private tell(): void {
    this.track(this.source.ask({ ask: "state", state: { ...this.store.state } }));
  }

  // -- the eye ------------------------------------------------------------------------------------

  private home(): Eye {
    const { canvas } = this.panels;
    const pixels: Pair = [canvas.clientWidth || 1, canvas.clientHeight || 1];
    const { ball, view, up } = this.scene;
    const middle: Vec3 = [ball[0], ball[1], ball[2]];
    return Eye.around(middle, ROOM * ball[3], view, "xyz".indexOf(up), pixels);
  }

  /** Where the eye comes to. */
  private get goal(): Eye {
    return this.glide?.to ?? this.eye;
  }

  /** Move the eye in a moment, or at once where motion is not wanted. */
  private go(eye: Eye): void {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.glide = still ? null : { from: this.eye, to: eye, begun: performance.now() };
    if (still) this.eye = eye;
    this.clock.request();
  }

  private advance(): void {
    const { glide } = this;
    if (!glide) return;
    const t = Math.min(1, (performance.now() - glide.begun) / GLIDE);
    this.eye = t < 1 ? between(glide.from, glide.to, 1 - (1 - t) ** 3) : glide.to;
    if (t < 1) this.clock.request();
    else this.glide = null;
  }

  // -- pictures -----------------------------------------------------------------------------------

  private draw(now: number): boolean {
    const { loaded } = this;
    if (this.disposed || !loaded) return false;
    this.advance();
    const moving = this.moving || this.glide !== null;
    if (moving && this.before && now - this.before < 1000) this.slow ||= now - this.before > SLOW;
    this.before = moving ? now : 0;
    this.point();
    const { state } = this.store;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.painter.draw({
      eye: this.eye,
      look: {
        theme: this.panels.theme,
        edges: state.edges,
        hidden: new Set(state.hiddenLayers),
        edgeWidth: state.edgeWidth,
        pixelRatio: moving && this.slow ? ratio * COARSE : ratio,
      },
      surface: loaded.sent,
      plane: this.plane.on ? (this.regions?.sent ?? null) : null,
      cut: this.plane.kept,
      picked: {
        surface: this.pointed?.on === "surface" ? this.pointed.face : -1,
        plane: this.pointed?.on === "plane" ? this.pointed.face : -1,
      },
    });
    this.panels.labels.place(this.eye);
    return true;
  }

  /** Find what the cursor points at; while one moves, nothing. */
  private point(): void {
    const found = this.cursor && !this.moving ? this.hit(this.cursor) : null;
    if (this.moving && this.pointed) return;
    if (found?.face === this.pointed?.face && found?.on === this.pointed?.on && !found) return;
    this.pointed = found;
    this.panels.facts?.show(found);
  }

  private hit(xy: Pair): Pointed | null {
    const { loaded, regions, scene } = this;
    const ray = this.eye.ray(xy);
    const found = loaded?.known.polygons.pick(ray, this.plane.kept);
    const over = this.plane.on && regions ? regions.polygons.pick(ray) : null;
    if (regions && over && !(found && found.far < over.far)) return pointedIn(regions, scene, over);
    if (!loaded || !found) return null;
    const pointed = pointedAt(loaded.known, scene, found.face, found.at);
    return { ...pointed, shade: loaded.shadeOf(found.face) };
  }

  private handle(): SolidHandle {
    const app = this;
    const isIdle = () => app.clock.idle && !app.glide;
    return {
      get state() {
        return app.store.state;
      },
      get scene() {
        return app.scene;
      },
      get busy() {
        return !isIdle();
      },
      get frameTimes() {
        return app.clock.frameTimes;
      },
      get eye() {
        return app.eye;
      },
      get faces() {
        return app.loaded?.known.polygons.count ?? 0;
      },
      get plane() {
        const { on, half } = app.plane;
        return on ? { ...half, regions: app.regions?.polygons.count ?? 0 } : null;
      },
      pointed: () => app.pointed,
      pick: (xy) => app.hit(xy),
      toScreen: (place) => {
        const { center, scale } = app.scene;
        const [x, y] = app.eye.toScreen(times(minus(place, center), 1 / scale));
        return [x, y];
      },
      drawn: () => {
        const start = performance.now();
        app.clock.drawNow();
        const gl = app.panels.canvas.getContext("webgl2");
        gl?.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
        return performance.now() - start;
      },
      idle: async () => {
        for (let calm = 0; calm < 3; calm = isIdle() ? calm + 1 : 0) {
          await new Promise((resolve) => setTimeout(resolve, 10));
          if (app.disposed) return;
        }
      },
    };
  }
}

/** The eye on the way from one to another. */
function between(from: Eye, to: Eye, t: number): Eye {
  const mix = (a: number, b: number) => a + t * (b - a);
  const turn = ((((to.azimuth - from.azimuth) % TURN) + 1.5 * TURN) % TURN) - TURN / 2;
  return new Eye(
    add(from.target, times(minus(to.target, from.target), t)),
    mix(from.elevation, to.elevation),
    from.azimuth + t * turn,
    Math.exp(mix(Math.log(from.distance), Math.log(to.distance))),
    to.up,
    from.pixels,
  );
}

const TURN = 2 * Math.PI;

/** The ends of the edges of the box, x y z of each. */
function endsOf({ arrays }: Message): Float32Array {
  const { corners, edges } = arrays;
  const ends = Array.from(edges!.data);
  return Float32Array.from(ends.flatMap((k) => [...row(corners!.data, k)]));
}
