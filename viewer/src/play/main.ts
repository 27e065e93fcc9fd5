// The playground: train a small network in the page and see its exact linear regions.

import { sentenceOf, showFailure } from "../control/failure";
import { box, element, setText, text } from "../panels/dom";
import { listenToTheme, themeOf } from "../panels/theme";
import { copyText } from "../share/clipboard";
import { download } from "../share/download";
import { Charts, shortly } from "./charts";
import { Controls } from "./controls";
import { type Task, taskOf } from "./data";
import { Diagram, POINT_AT } from "./diagram";
import { addressOf, DEFAULT, type Experiment, experimentOf } from "./experiment";
import { networkOfFile } from "./files";
import { type Activation, isPiecewise, type Network, visitActive } from "./network";
import { onnxOf, pytorchOf } from "./save";
import { Guide, type SCENES } from "./scenes";
import { Slices } from "./slices";
import { Picture, type Pointed, type Unit } from "./view";
import type { Answer as Answered, Ask, History } from "./worker";
import workerCode from "./worker?text";

const STEPS = 5; // of training between two frames
const HINT =
  "Each patch is a linear region: there the network is one affine map. Units switch on the thin " +
  "lines; the thick one is the decision boundary. Press Play, or take the Tour.";
const CALM = 500; // milliseconds between frames for those who want less motion
const CHANGES: readonly (keyof Experiment)[] = ["color"]; // that need no new network

/** An answer of the worker, with what it did not send again. */
type Answer = Answered & { network: Network; history: History };

class Playground {
  experiment: Experiment;
  playing = false;
  answer: Answer | null = null;
  private task: Task | null = null;
  private file: { name: string; network: Network } | null = null;
  private readonly worker = makeWorker();
  private waiting: ((answer: Answered) => void)[] = [];
  private asked: Promise<unknown> = Promise.resolve();
  private newest: Ask | null = null;
  private hoveredUnit: Unit | null = null;
  private heldUnit: Unit | null = null;
  private frames: number[] = [];
  private turn = 0; // how often it was told to play

  private readonly canvas = element("canvas", { class: "pg-canvas", tabindex: "0", role: "img" });
  private readonly below = element("canvas", { class: "pg-below", "aria-hidden": "true" });
  private readonly picture: Picture;
  private readonly controls = new Controls((change) => this.change(change));
  private readonly diagram = new Diagram((unit) => this.pointAtUnit(unit));
  private readonly charts = new Charts();
  private readonly guide = new Guide(
    (scene) => this.showScene(scene),
    () => this.endScene(),
  );
  private readonly slices = new Slices(({ origin, basis, marks }) => {
    const [kind, outputs, points] = ["classes" as const, 1, Float64Array.from(marks)];
    this.picture.showPoints({
      kind,
      outputs,
      points,
      targets: Float64Array.from(marks.length ? [2, 3, 4] : []),
    });
    this.ask({ ask: "slice", origin, basis, window: null });
  });
  private readonly play = button("Play", () => this.toggle(), "pg-primary", "Space bar");
  private readonly once = button("Step", () => this.step(), "", "Key s");
  private readonly again = button("Reset", () => this.begin(), "", "Key r");
  private readonly menu = element("details", { class: "pg-menu" });
  private readonly status = element("p", { class: "pg-status", role: "status" });
  private readonly facts = element("p", { class: "pg-facts" });
  private readonly slider = element("input", {
    type: "range",
    min: "0",
    max: "0",
    class: "pg-time",
    "aria-label": "Moment of the run",
  });
  private readonly inspector = box("pg-inspector");
  private readonly legend = box("pg-legend");
  private readonly label = element(
    "select",
    {},
    element("option", { value: "0" }, "blue points"),
    element("option", { value: "1" }, "orange points"),
  );
  private readonly own = box(
    "pg-row pg-own",
    element("label", { class: "pg-field" }, element("span", {}, "A click puts"), this.label),
    button("Remove all", () => this.change({ points: "" })),
  );
  private readonly note = element("p", { class: "pg-note" });
  private readonly picker = element("input", { type: "file", accept: ".onnx,.safetensors" });

  constructor(private readonly root: HTMLElement) {
    this.experiment = experimentOf(location.hash);
    this.worker.onmessage = ({ data }) => this.waiting.shift()?.(data);
    this.build();
    this.picture = new Picture(this.canvas, this.below, {
      point: (pointed) => this.pointed(pointed),
      click: (at, shift) => this.clicked(at, shift),
      look: () => this.look(),
      fail: (error) => fail(root, error),
    });
    const theme = () => {
      this.picture.theme = themeOf("auto", document);
      root.dataset.theme = this.picture.theme;
      this.picture.redraw();
      this.showLegend();
    };
    listenToTheme(document, theme);
    theme();
    this.begin();
  }

  // -- the page -------------------------------------------------------------------------------

  private build(): void {
    const { root } = this;
    root.className = "splinecam pg";
    const tour = button("Tour", () => this.guide.go(0));
    const title = element("h1", {}, "SplineCam playground");
    const bar = element("header", { class: "pg-bar" }, title);
    bar.append(box("pg-row", this.play, this.once, this.again, tour, this.saveMenu()), this.facts);
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    const open = button("Open a file…", () => this.picker.click());
    this.picker.hidden = true;
    this.picker.addEventListener("change", () => {
      const [file] = this.picker.files ?? [];
      if (file) this.open(file);
    });
    const hint = "Drop an .onnx or .safetensors file on the page. Nothing leaves the page.";
    const files = element("section", { class: "pg-files" }, open, text("pg-hint", hint));
    files.append(this.picker, this.slices.root);
    const left = element("section", { class: "pg-left", "aria-label": "Settings" });
    left.append(this.controls.root, files);
    const time = element("label", { class: "pg-moment" }, "Time", this.slider);
    const stage = element("section", { class: "pg-stage", "aria-label": "Regions" });
    const under = box("pg-under", this.controls.color, this.own, this.legend);
    stage.append(this.note, box("pg-frame", this.below, this.canvas), time, under);
    const right = element("section", { class: "pg-right", "aria-label": "Network and curves" });
    right.append(this.diagram.root, this.diagram.caption);
    right.append(this.inspector, this.charts.root);
    this.pointed(null);
    root.replaceChildren(
      bar,
      element("main", { class: "pg-main" }, stage, this.guide.card, left, right),
      this.status,
    );
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", ({ target }) => {
      if (!this.menu.contains(target as Node)) this.menu.open = false;
    });
    root.addEventListener("dragover", (event) => event.preventDefault());
    root.addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer?.files ?? [];
      if (file) this.open(file);
    });
    window.addEventListener("hashchange", () => {
      if (location.hash.slice(1) === addressOf(this.experiment)) return;
      this.experiment = experimentOf(location.hash);
      this.begin();
    });
  }

  private saveMenu(): HTMLElement {
    const { menu } = this;
    menu.append(element("summary", { class: "pg-open" }, "Save"));
    const item = (label: string, save: () => unknown) =>
      button(label, async () => {
        menu.open = false;
        try {
          await save();
        } catch (error) {
          this.say(sentenceOf(error));
        }
      });
    const network = () => this.file?.network ?? this.answer!.network;
    const file = (content: BlobPart, name: string, type: string) =>
      download(new Blob([content], { type }), name);
    menu.append(
      box(
        "pg-items",
        item("Picture (PNG)", async () => download(await this.picture.png(), "regions.png")),
        item("Picture (SVG)", () =>
          file(this.picture.svg("Linear regions"), "regions.svg", "image/svg+xml"),
        ),
        item("Network (ONNX)", () =>
          file(onnxOf(network()), "network.onnx", "application/octet-stream"),
        ),
        item("Network (PyTorch)", () => file(pytorchOf(network()), "network.py", "text/x-python")),
        item("Copy the link", async () => {
          await copyText(location.href);
          this.say("The link is copied. Whoever opens it sees the same experiment.");
        }),
      ),
    );
    return menu;
  }

  private key(event: KeyboardEvent): void {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (key === "Escape" && this.menu.open) {
      this.menu.open = false;
      this.menu.querySelector("summary")?.focus();
      return;
    }
    const free = target === document.body || target === this.canvas;
    if (!free && !(target instanceof HTMLButtonElement)) return; // buttons take the space bar
    if (key === "s") this.step();
    else if (key === "r") this.begin();
    else if (free && key === " ") this.toggle();
    else if (target === this.canvas && key === "Enter") this.readMiddle();
    else if (!free || !this.picture.key(key)) return;
    event.preventDefault();
  }

  /** Tell the map in the middle of the picture, to whom has no pointer. */
  private readMiddle(): void {
    this.picture.pointAtMiddle();
    const rows = [...this.inspector.querySelectorAll("tr")];
    const unit = this.hoveredUnit ? `${this.diagram.caption.textContent} ` : "";
    this.tell(
      unit + rows.map((row) => [...row.children].map((c) => c.textContent).join(": ")).join("; "),
    );
  }

  /** Tell everybody, also who does not see the page. */
  private say(sentence: string): void {
    this.tell(sentence);
    setText(this.note, sentence);
  }

  /** Tell what one sees to who does not see it. */
  private tell(sentence: string): void {
    setText(this.status, sentence);
  }

  // -- the experiment -------------------------------------------------------------------------

  private change(change: Partial<Experiment>): void {
    this.experiment = { ...this.experiment, ...change };
    this.controls.show(this.experiment);
    this.share();
    if (Object.keys(change).every((name) => CHANGES.includes(name as keyof Experiment))) {
      this.ask({ ask: "color", color: this.experiment.color, window: this.picture.window });
    } else this.begin();
  }

  private share(): void {
    const address = addressOf(this.experiment);
    history.replaceState(null, "", address ? `#${address}` : location.pathname);
  }

  /** Begin the experiment anew. */
  begin(): Promise<Answer> {
    this.pause();
    this.showFile(null);
    this.controls.show(this.experiment);
    this.task = taskOf(this.experiment);
    this.picture.showPoints(this.task);
    this.own.hidden = this.experiment.data !== "own";
    if (this.own.hidden) setText(this.note, HINT);
    else this.say("Click in the picture to put points of both colours. Then play.");
    return this.ask({ ask: "begin", experiment: this.experiment });
  }

  /** Ask the worker, and show the answer.
   *
   * Of moments and planes that are asked for while others are computed only the newest is. */
  private async ask(request: Ask): Promise<Answer> {
    const replaced = request.ask === "back" || request.ask === "slice";
    return this.show(await this.asking(request, replaced));
  }

  /** Ask the worker, after what was asked before; the answer is to be shown. */
  private asking(request: Ask, replaced = false): Promise<Answered> {
    if (replaced) this.newest = request;
    const answer = this.asked.then(() => {
      if (replaced && this.newest !== request && this.answer) return this.answer;
      return new Promise<Answered>((resolve) => {
        this.waiting.push(resolve);
        this.worker.postMessage(request);
      });
    });
    this.asked = answer;
    return answer;
  }

  /** Show an answer, and beside the picture what was sent for that, which takes longer to paint. */
  private show(sent: Answered): Answer {
    const found = { ...this.answer, ...sent } as Answer;
    if (!sent.network) found.network = this.answer!.network;
    if (!sent.history) found.history = this.answer!.history;
    if (found.problem) {
      this.pause();
      this.say(found.problem);
      return found;
    }
    this.answer = found;
    const { snapshot, pixels, network } = found;
    this.picture.calm = !this.playing;
    this.picture.show(snapshot, pixels, this.task, network.layers.length - 1);
    if (sent.history) this.showBeside(found);
    return found;
  }

  private showBeside({ snapshot, network, history, moment, step }: Answer): void {
    this.diagram.show(this.file?.network ?? network);
    this.charts.show(history, moment);
    this.slider.max = String(Math.max(0, history.step.length - 1));
    this.slider.value = String(moment);
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    const regions = history.regions[moment] ?? snapshot?.regions;
    const loss = history.loss[moment];
    const parts = [
      this.file ? this.file.name : `Step ${step.toLocaleString("en")}`,
      loss === undefined ? "" : `loss ${shortly(loss)}`,
      snapshot && regions ? `${regions.toLocaleString("en")} regions` : "",
      snapshot?.unresolved.length ? `${snapshot.unresolved.length} places unresolved` : "",
    ];
    setText(this.facts, parts.filter(Boolean).join(" · "));
    const what = snapshot ? `${regions} exact linear regions` : "a picture without exact regions";
    this.canvas.setAttribute("aria-label", `The square of inputs with ${what}.`);
    if (!snapshot) {
      const smooth = network.layers.some(({ activation }) => !isPiecewise(activation));
      const why = smooth
        ? "This activation is not piecewise linear: there are no linear regions, only pixels. " +
          "Python bounds it by straight pieces: sc.partition(model, domain, smooth=1e-3)."
        : "There are more than 200,000 regions: only pixels are shown. Zoom in, or take less.";
      setText(this.note, why);
    }
    this.showLegend();
    this.showUnit();
  }

  private showLegend(): void {
    const legend = this.picture.legend();
    this.legend.hidden = !legend;
    if (!legend) return;
    const bar = box("pg-ramp");
    bar.style.background = `linear-gradient(to right, ${legend.gradient})`;
    const [low, high] = [legend.low, legend.high].map(shortly);
    const ends = [low!, legend.label, high!];
    this.legend.replaceChildren(bar, box("pg-ends", ...ends.map((end) => text("", end))));
  }

  // -- training -------------------------------------------------------------------------------

  toggle(): void {
    if (this.playing) {
      this.pause();
      const { window } = this.picture;
      this.ask({ ask: "run", steps: 0, window }).then(() =>
        this.tell(`Paused. ${this.facts.textContent}`),
      );
    } else if (!this.file) this.run();
  }

  private pause(): void {
    this.playing = false;
    setText(this.play, "Play");
  }

  private async run(): Promise<void> {
    if (this.experiment.data === "own" && !this.experiment.points) {
      this.say("Click in the picture first: there is nothing to learn yet.");
      return;
    }
    this.playing = true;
    setText(this.play, "Pause");
    setText(this.note, "");
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const steps = calm ? 20 * STEPS : STEPS;
    const more = () =>
      this.asking({
        ask: "run",
        steps,
        window: this.picture.window,
        more: { card: this.picture.card },
      });
    const turn = ++this.turn;
    for (let next = more(); ; ) {
      const [answer] = await Promise.all([next, nextFrame(calm)]);
      if (!this.playing || this.turn !== turn) return; // whoever pauses asks for what is there then
      next = more(); // so that the worker goes on while this frame is drawn
      this.show(answer);
      this.frames = [...this.frames.slice(-59), performance.now()];
    }
  }

  /** Frames per second of the last ones, for tests. */
  get rate(): number {
    const { frames } = this;
    return frames.length < 2 ? 0 : (1000 * (frames.length - 1)) / (frames.at(-1)! - frames[0]!);
  }

  async step(): Promise<void> {
    if (this.file) return;
    this.pause();
    await this.ask({ ask: "run", steps: 1, window: this.picture.window });
    this.tell(this.facts.textContent ?? "");
  }

  goTo(moment: number): Promise<Answer> {
    this.pause();
    return this.ask({ ask: "back", moment, window: this.picture.window });
  }

  /** Another part of the square is looked at. */
  private look(): void {
    if (this.playing || !this.answer) return;
    const window = this.picture.window;
    if (window || this.answer.snapshot?.header.window) this.ask({ ask: "run", steps: 0, window });
  }

  // -- pointing -------------------------------------------------------------------------------

  private pointAtUnit(unit: Unit | null): void {
    this.hoveredUnit = unit;
    this.showUnit();
  }

  private showUnit(): void {
    const unit = this.hoveredUnit ?? this.heldUnit;
    this.diagram.mark(unit, this.picture.showUnit(unit));
  }

  private pointed(pointed: Pointed | null): void {
    this.hoveredUnit = pointed?.unit ?? null;
    if (this.answer) this.showUnit();
    this.diagram.light(null);
    if (!pointed?.region || !this.answer) {
      this.inspector.replaceChildren(
        text("pg-hint", `${POINT_AT} a region to read its affine map.`),
      );
      return;
    }
    const { region, at } = pointed;
    const rows: [string, string][] = region.values.length
      ? Array.from(region.values, (_, k) => {
          const [a, b] = region.weights[k]!;
          const name = region.values.length > 1 ? `y${k + 1}` : "y";
          const map = affine([a, b, region.biases[k]!], this.file ? ["u", "v"] : ["x₁", "x₂"]);
          return [name, map];
        })
      : [];
    const seen = this.answer.snapshot?.header.window ? " seen" : "";
    const place = at.map(shortly).join(", ");
    const values = Array.from(region.values, shortly).join(", ");
    if (values) rows.push(["y here", values]);
    rows.push(
      [this.file ? "u, v" : "x", place],
      ...(this.file ? this.slices.inputsAt(at) : []),
      [`Area${seen}`, shortly(region.area)],
      [`Corners${seen}`, String(region.corners)],
      [`Neighbours${seen}`, String(region.neighbours)],
    );
    const active = new Set<string>();
    const { network } = this.answer;
    const counts = network.layers.slice(0, -1).map(() => 0);
    visitActive(network, Float64Array.from(at), (_, layer, unit) => {
      active.add(`${layer},${unit}`);
      counts[layer]! += 1;
    });
    this.diagram.light(active);
    rows.push(["Active units", counts.join(" + ") || "0"]);
    const cells = rows.map(([name, value]) =>
      element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)),
    );
    this.inspector.replaceChildren(element("table", {}, element("tbody", {}, ...cells)));
  }

  private clicked(at: readonly [number, number], shift: boolean): void {
    if (this.experiment.data !== "own" || this.file) return;
    if (Math.max(...at.map(Math.abs)) > 1) return;
    const label = Number(this.label.value);
    const place = at.map((x) => Math.round(1000 * x)).join(".");
    const { points } = this.experiment;
    this.change({ points: `${points}${points && "_"}${place}.${shift ? 1 - label : label}` });
  }

  // -- scenes and files -----------------------------------------------------------------------

  private async showScene({ experiment, steps, unit }: (typeof SCENES)[number]): Promise<void> {
    this.experiment = { ...DEFAULT, ...experiment };
    this.heldUnit = null;
    this.picture.reset();
    const begun = this.begin();
    setText(this.note, ""); // the card says what to do
    this.canvas.scrollIntoView({ block: "nearest" });
    await begun;
    if (steps) await this.ask({ ask: "run", steps, window: null });
    this.heldUnit = unit;
    this.showUnit();
  }

  private endScene(): void {
    this.heldUnit = null;
    this.showUnit();
    this.canvas.focus({ preventScroll: true });
  }

  /** Show what is there for a file, or for an experiment. */
  private showFile(file: { name: string; network: Network } | null): void {
    this.file = file;
    this.play.disabled = this.once.disabled = this.slider.disabled = file !== null;
    this.root.classList.toggle("pg-has-file", file !== null);
    setText(this.again, file ? "Close file" : "Reset");
    if (file) this.slices.show(file.network.layers[0]!.inputs);
    else this.slices.hide();
  }

  async open(file: File): Promise<void> {
    this.pause();
    try {
      const { activation } = this.experiment;
      const named: Activation = activation === "abs" ? { name: "abs" } : { name: "relu" };
      const network = networkOfFile(file.name, await file.arrayBuffer(), named);
      this.showFile({ name: file.name, network });
      this.task = null;
      this.experiment = { ...this.experiment, color: "class" };
      this.controls.show(this.experiment);
      this.picture.showPoints(null);
      this.picture.reset();
      const taken = file.name.endsWith(".safetensors")
        ? " The file names no activation: ReLU."
        : "";
      this.say(`${file.name} is open.${taken} Choose the plane, and move the other inputs.`);
      await this.ask({ ask: "color", color: "class", window: null });
      await this.ask({ ask: "open", network });
      if (network.layers[0]!.inputs >= 2) this.slices.send();
    } catch (error) {
      this.say(sentenceOf(error));
    }
  }
}

function nextFrame(calm: boolean): Promise<unknown> {
  return new Promise((resolve) => {
    if (calm) setTimeout(resolve, CALM);
    else requestAnimationFrame(resolve);
  });
}

function button(label: string, act: () => unknown, kind = "", title = ""): HTMLButtonElement {
  return element("button", { type: "button", class: kind, title, click: () => act() }, label);
}

/** An affine function of two inputs in letters. */
function affine(numbers: readonly number[], names: readonly string[]): string {
  const term = (x: number, k: number) =>
    `${x < 0 ? "−" : "+"} ${shortly(Math.abs(x))} ${names[k] ?? ""}`;
  return numbers.map(term).join(" ").replace(/^\+ /, "").replace(/^− /, "−").trim();
}

function makeWorker(): Worker {
  return new Worker(URL.createObjectURL(new Blob([workerCode], { type: "text/javascript" })));
}

function start(root: HTMLElement): void {
  try {
    Object.assign(globalThis, { playground: new Playground(root) });
  } catch (error) {
    fail(root, error);
  }
}

function fail(root: HTMLElement, error: unknown): void {
  showFailure(root, sentenceOf(error), "Open the page in another browser.");
}

const root = document.getElementById("playground");
if (root) start(root);
