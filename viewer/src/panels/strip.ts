// A strip of data points, which are dragged onto an anchor, or chosen before an anchor is.

import type { Message, PaneHeader } from "../protocol/messages";
import { box, element, text } from "./dom";
import { thumbnail } from "./picture";

const PULL = 8; // CSS pixels from which on a touch is a drag

/** What happens to a thumbnail that is dragged or chosen. */
export interface StripTargets {
  /** A data point is over a place of the screen; done: it was let go there. */
  over(point: number, x: number, y: number, done: boolean): void;
  /** A data point waits for an anchor, or none does. */
  waits(point: number | null): void;
}

export class Strip {
  readonly view = element("div", {
    class: "sc-strip",
    role: "group",
    "aria-label": "Data points",
  });
  waiting: number | null = null;

  constructor(private readonly targets: StripTargets) {}

  /** Show the data points of a pane that have thumbnails. */
  showPane(pane: number, header: PaneHeader, arrays: Message["arrays"]): void {
    const images = arrays[`${pane}/thumbnails`];
    const labels = arrays[`${pane}/label`]?.data;
    const count = header.points?.thumbnail && images ? (images.shape[0] ?? 0) : 0;
    const items = Array.from({ length: count }, (_, k) => {
      const label = labels ? header.points?.labels[labels[k]!] : undefined;
      const name = label ? `data point ${k}, ${label}` : `data point ${k}`;
      return this.item(k, name, thumbnail(images!, k, name));
    });
    this.view.replaceChildren(...items);
    this.wait(null);
  }

  /** Let a data point wait for an anchor. */
  wait(point: number | null): void {
    this.waiting = point;
    for (const [k, item] of [...this.view.children].entries()) {
      item.setAttribute("aria-pressed", String(k === point));
    }
    this.targets.waits(point);
  }

  private item(k: number, name: string, image: HTMLElement): HTMLElement {
    let from: [number, number] | null = null;
    let ghost: HTMLElement | null = null;
    const end = () => {
      from = null;
      ghost?.remove();
      ghost = null;
    };
    const item: HTMLButtonElement = element("button", {
      class: "sc-thumb",
      title: `${name}: drag it onto an anchor, or click it and then an anchor`,
      type: "button",
      "aria-label": name,
      pointerdown: (event) => {
        from = [event.clientX, event.clientY];
        item.setPointerCapture(event.pointerId);
      },
      pointermove: (event) => {
        if (!from) return;
        const { clientX: x, clientY: y } = event;
        if (!ghost && Math.hypot(x - from[0], y - from[1]) < PULL) return;
        ghost ??= this.ghost(image);
        ghost.style.transform = `translate(${x}px, ${y}px)`;
        this.targets.over(k, x, y, false);
      },
      pointerup: (event) => {
        const dragged = ghost !== null;
        end();
        if (dragged) this.targets.over(k, event.clientX, event.clientY, true);
        else this.wait(this.waiting === k ? null : k);
      },
      pointercancel: end,
      keydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        this.wait(this.waiting === k ? null : k);
      },
    });
    item.append(image);
    return item;
  }

  /** A copy of a thumbnail that follows the pointer. */
  private ghost(image: HTMLElement): HTMLElement {
    const copy = document.createElement("canvas");
    const source = image as HTMLCanvasElement;
    copy.width = source.width;
    copy.height = source.height;
    copy.getContext("2d")?.drawImage(source, 0, 0);
    copy.className = "sc-picture";
    const ghost = box("sc-ghost", copy, text("", ""));
    this.view.closest(".splinecam")?.append(ghost);
    return ghost;
  }
}
