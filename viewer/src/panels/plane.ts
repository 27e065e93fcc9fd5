// Moves of the plane: turned and shifted by sliders, its anchors dragged or put on data points.

import type { Message, Pair, PaneHeader } from "../protocol/messages";
import type { Actions } from "./actions";
import { ANCHOR_NAMES, Anchors } from "./anchors";
import { box, element, setText, show, text } from "./dom";
import { Slider, switchField } from "./fields";
import { formatFixed, formatNumber } from "./numbers";
import { Strip } from "./strip";

const HINT = "Drag an anchor on the picture, or drag a data point onto it.";

/** The moves of one pane. */
export class PlanePanel {
  readonly section: HTMLElement;
  private readonly anchors: Anchors;
  private readonly handles = switchField("Anchors", "", (on) => {
    this.chosen = on;
    this.showAnchors(on);
  });
  private readonly name = text("sc-section-title", "Plane");
  private readonly strip: Strip;
  private readonly sliders = box("sc-indented");
  private readonly hint = box("sc-explanation");
  private readonly reset: HTMLButtonElement;
  private readonly drawn: HTMLElement;
  private chosen: boolean | null = null;
  private turns: Slider[] = [];
  private shifts: Slider[] = [];
  private directions = "";

  constructor(
    private readonly pane: number,
    overlay: HTMLElement,
    private readonly actions: Actions,
  ) {
    this.anchors = new Anchors(
      overlay,
      pane,
      actions,
      (anchor) => this.give(this.strip.waiting, anchor),
      () => this.rest(),
    );
    this.strip = new Strip({
      over: (point, x, y, done) => {
        const anchor = this.anchors.at(x, y);
        this.anchors.mark(!done, anchor);
        if (done) this.give(point, anchor);
      },
      waits: (point) => {
        this.anchors.mark(point !== null);
        const words = `Choose the anchor to put it on: ${[...ANCHOR_NAMES].join(", ")}.`;
        setText(this.hint, point === null ? HINT : words);
      },
    });
    const click = () => this.home();
    const title = "The plane as it was at first";
    this.reset = element("button", { class: "sc-link", title, type: "button", click });
    this.reset.textContent = "reset";
    const head = box("sc-layers-head", this.name, this.reset);
    this.drawn = box("sc-indented", this.hint, this.strip.view);
    this.section = box("sc-section", head, this.handles.row, this.drawn, this.sliders);
    show(this.section, false);
  }

  /** Say which pane it is, where there are several. */
  showTitle(title: string): void {
    setText(this.name, title ? `Plane of ${title}` : "Plane", title);
  }

  /** Show the moves that a pane allows, if Python can compute them. */
  showPane(header: PaneHeader, arrays: Message["arrays"]): void {
    const { live } = header;
    const anchored = live && header.anchors !== null;
    if (live) this.anchors.showPane(header, arrays);
    if (anchored && arrays[`${this.pane}/thumbnails`]) {
      this.strip.showPane(this.pane, header, arrays);
    }
    show(this.strip.view, anchored && this.strip.view.childElementCount > 0);
    show(this.handles.row, anchored);
    show(this.reset, anchored || header.directions.length > 0);
    this.showAnchors(anchored && (this.chosen ?? header.anchors?.thumbnail != null));
    this.showDirections(live ? header.directions : []);
    show(this.section, anchored || (live && header.directions.length > 0));
  }

  /** Show or hide the handles: without images, they are in the way of most who look. */
  private showAnchors(on: boolean): void {
    this.handles.set(on);
    show(this.drawn, on);
    this.anchors.show(on);
    if (!on) this.strip.wait(null);
  }

  placeAnchors(positions: readonly Pair[]): void {
    this.anchors.place(positions);
  }

  /** Make the sliders, unless they are there: one must not lose the one that is being dragged. */
  private showDirections(directions: PaneHeader["directions"]): void {
    const signature = JSON.stringify(directions.map(({ name, turn }) => [name, turn]));
    if (signature === this.directions) {
      for (const [k, { reach }] of directions.entries()) this.shifts[k]!.limits(-reach, reach);
      return;
    }
    this.directions = signature;
    const move = (_: number, done: boolean) => this.move(done);
    const degrees = (value: number) => `${formatFixed((180 * value) / Math.PI, 0)}°`;
    this.turns = directions.map(() => new Slider("turn", degrees, move));
    this.shifts = directions.map(
      () => new Slider("shift", (value) => formatNumber(value, 3), move),
    );
    const groups = directions.map(({ name, turn, reach }, k) => {
      const title = text("sc-name sc-direction", name);
      title.title = name;
      this.turns[k]!.limits(-Math.PI / 2, Math.PI / 2);
      this.shifts[k]!.limits(-reach, reach);
      this.turns[k]!.input.setAttribute("aria-label", `turn towards ${name}`);
      this.shifts[k]!.input.setAttribute("aria-label", `shift along ${name}`);
      show(this.turns[k]!.row, turn);
      return box("sc-direction-group", title, this.turns[k]!.row, this.shifts[k]!.row);
    });
    this.sliders.replaceChildren(...groups);
    this.rest();
  }

  private move(done: boolean): void {
    const values = (sliders: readonly Slider[]) =>
      sliders.map((slider) => slider.input.valueAsNumber);
    this.actions.movePlane(this.pane, values(this.turns), values(this.shifts), done);
  }

  private home(): void {
    this.rest();
    this.actions.resetPlane(this.pane);
  }

  /** Set all sliders to 0: where anchors put the plane is where turns and shifts begin. */
  private rest(): void {
    for (const slider of [...this.turns, ...this.shifts]) slider.set(0);
  }

  /** Put an anchor on a data point. */
  private give(point: number | null, anchor: number): boolean {
    if (point === null || anchor < 0) return false;
    this.strip.wait(null);
    this.rest();
    this.actions.setAnchor(this.pane, anchor, point);
    return true;
  }
}
