// The overview: where the window is in the domain, when it is a small part of it.

import type { Extent } from "../draw/overview";
import type { Box, Pair } from "../protocol/messages";
import { box, element, show } from "./dom";

const FAR = 1 / 3; // of the domain: a window that is larger needs no overview
const LEAST = 7; // CSS pixels of a window that is drawn as a rectangle

/** Whether a window is so small a part of the domain that one may be lost in it. */
export function isFar(window: Readonly<Box>, domain: Readonly<Box>): boolean {
  const share = (k: 0 | 1) => (window[k + 2]! - window[k]!) / (domain[k + 2]! - domain[k]!);
  return Math.max(share(0), share(1)) < FAR;
}

export class Overview {
  private readonly canvas = element("canvas");
  private readonly mark = box("sc-overview-mark");
  private extent: Extent = { box: [0, 0, 1, 1], size: [1, 1] };
  readonly view: HTMLButtonElement;

  /** jump: goes to a place; home: shows everything, for those who have no pointer. */
  constructor(jump: (at: Pair) => void, home: () => void) {
    const click = (event: MouseEvent) => (event.detail ? jump(this.placeAt(event)) : home());
    const words = "Overview: click to go there";
    const about = { class: "sc-overview", type: "button", title: words, "aria-label": words };
    this.view = element("button", { ...about, click }, this.canvas, this.mark);
    show(this.view, false);
  }

  get isShown(): boolean {
    return !this.view.hidden;
  }

  /** Mark a window; null: there is no need for an overview. */
  place(window: Readonly<Box> | null, extent: Extent): void {
    show(this.view, window !== null);
    if (!window) return;
    this.extent = extent;
    const [u0, v0, u1, v1] = extent.box;
    const [wide, high] = [u1 - u0, v1 - v0];
    const [w, h] = [(window[2] - window[0]) / wide, (window[3] - window[1]) / high];
    const tiny = w * extent.size[0] < LEAST && h * extent.size[1] < LEAST;
    this.mark.classList.toggle("sc-tiny", tiny);
    const percent = (share: number) => `${(100 * share).toFixed(2)}%`;
    const { style } = this.mark;
    style.left = percent((window[0] + window[2] - 2 * u0) / (2 * wide));
    style.top = percent((2 * v1 - window[1] - window[3]) / (2 * high));
    style.width = tiny ? "" : percent(w);
    style.height = tiny ? "" : percent(h);
    this.view.style.aspectRatio = `${extent.size[0]} / ${extent.size[1]}`;
    this.view.style.setProperty("--sc-share", String(extent.size[0] / Math.max(...extent.size)));
  }

  paint(picture: ImageData): void {
    this.canvas.width = picture.width;
    this.canvas.height = picture.height;
    this.canvas.getContext("2d")?.putImageData(picture, 0, 0);
  }

  private placeAt({ clientX, clientY }: MouseEvent): Pair {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const [u0, v0, u1, v1] = this.extent.box;
    const [x, y] = [(clientX - left) / width, (clientY - top) / height];
    return [u0 + x * (u1 - u0), v1 - y * (v1 - v0)];
  }
}
