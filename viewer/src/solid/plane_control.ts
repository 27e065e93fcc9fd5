// The controls of the plane, and the plane that they stand for.

import { sentenceOf } from "../control/failure";
import { Latest } from "../control/latest";
import { box, element, setText, show } from "../panels/dom";
import { Slider, switchField } from "../panels/fields";
import { counted, formatNumber, subscript } from "../panels/numbers";
import type { Message } from "../protocol/messages";
import type { Eye } from "./eye";
import type { SolidHeader } from "./messages";
import { type Regions, Sections, sectionOf } from "./plane";
import type { Half } from "./polygons";
import { axis, dot, row, times, type Vec3 } from "./vectors";

const SLOW = 300; // milliseconds after which a newer plane does not wait for an older one

export interface PlaneTells {
  /** The regions of the plane that is shown, or null. */
  regions(regions: Regions | null): void;
  redraw(): void;
  frame(): number;
  eye(): Eye;
  track(work: Promise<unknown>): void;
}

export class PlaneControl {
  readonly section: HTMLElement;
  on = false;
  cutting = true;
  busy = false;
  half: Half = { normal: axis(0), offset: 0 };
  private readonly more: HTMLElement;
  private readonly words = box("sc-plane-words");
  private readonly position: Slider;
  private readonly shown = switchField("Plane", "P", (on) => this.toggle(on));
  private readonly cut = switchField("Cut away", "", (on) => {
    this.cutting = on;
    this.tells.redraw();
  });
  private readonly corners: Vec3[];
  private readonly edges: ArrayLike<number>;
  private readonly sections: Sections;
  private begun = 0;
  private readonly newest = new Latest<{ half: Half; frame: number }>(async (item, outdated) => {
    this.begun = performance.now();
    const polygon = sectionOf(item.half, this.corners, this.edges);
    try {
      const found = polygon.length
        ? await this.sections.find(item.frame, polygon, item.half.normal)
        : null;
      if (outdated() || (polygon.length && !found)) return;
      this.tells.regions(found);
      this.say(found ? counted(found.polygons.count, "region") : "");
    } catch (error) {
      if (!outdated()) this.say(sentenceOf(error));
      this.tells.regions(null);
    }
  });

  constructor(
    message: Message<SolidHeader>,
    source: ConstructorParameters<typeof Sections>[0],
    private readonly tells: PlaneTells,
  ) {
    const { header, arrays } = message;
    const { data, shape } = arrays.corners!;
    this.corners = Array.from({ length: shape[0]! }, (_, k) => row(data, k));
    this.edges = arrays.edges!.data;
    this.sections = new Sections(source, header);
    this.position = new Slider(
      "Position",
      (value) => formatNumber(dot(header.center, this.half.normal) + header.scale * value, 3),
      (value) => this.move(value),
    );
    const button = (name: string, title: string, click: () => void) =>
      element("button", { class: "sc-chip", type: "button", title, click }, name);
    const letter = header.plain ? "x" : "u";
    const ways = [0, 1, 2].map((k) => {
      const name = subscript(letter, k + 1);
      return button(name, `Across ${name}`, () => this.turn(axis(k)));
    });
    const facing = button("view", "Facing you", () => this.turn(this.tells.eye().frame[2]));
    const flip = button("flip", "Cut away the other side", () => this.flip());
    const chips = box("sc-chips", ...ways, facing, flip);
    this.more = box("sc-indented", chips, this.position.row, this.cut.row, this.words);
    this.section = box("sc-section", this.shown.row, this.more);
    this.cut.set(true);
    show(this.more, false);
  }

  /** What is kept of the surface; null: all of it. */
  get kept(): Half | null {
    return this.on && this.cutting ? this.half : null;
  }

  toggle(on = !this.on): void {
    this.on = on;
    this.shown.set(on);
    show(this.more, on);
    if (on) this.turn(nearestAxis(this.tells.eye().frame[2]));
    else this.tells.regions(null);
    this.tells.redraw();
  }

  /** Take another direction, on the side of the eye, through the middle of the box. */
  turn(way: Vec3): void {
    const towards = dot(way, this.tells.eye().frame[2]) < 0 ? times(way, -1) : way;
    this.half = { normal: towards, offset: 0 };
    const heights = this.corners.map((corner) => dot(towards, corner));
    this.position.limits(Math.min(...heights), Math.max(...heights));
    this.position.set(0);
    this.compute();
  }

  flip(): void {
    const { normal, offset } = this.half;
    this.turn(times(normal, -1));
    if (dot(this.half.normal, normal) > 0) this.half = { normal: times(normal, -1), offset: 0 };
    this.position.set(-offset);
    this.move(-offset);
  }

  /** Go to a height, or to the end of the box. */
  move(offset: number): void {
    const { min, max } = this.position.input;
    const height = Math.max(Number(min), Math.min(Number(max), offset));
    this.half = { ...this.half, offset: height };
    this.position.set(height);
    this.compute();
  }

  /** Find the regions of the plane as it is now; a computation that takes long is given up. */
  compute(): void {
    if (!this.on) return;
    const slow = this.newest.busy && performance.now() - this.begun > SLOW;
    this.newest.push({ half: this.half, frame: this.tells.frame() }, slow);
    this.tells.track(this.settled());
    this.tells.redraw();
  }

  dispose(): void {
    this.sections.dispose();
  }

  private say(words: string): void {
    setText(this.words, words);
  }

  private async settled(): Promise<void> {
    while (this.newest.busy) await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function nearestAxis(way: Vec3): Vec3 {
  const most = [0, 1, 2].reduce((a, b) => (Math.abs(way[b]!) > Math.abs(way[a]!) ? b : a));
  return axis(most);
}
