// The input at a place, with the gradient: as images, or as numbers.

import { gradientImage, type ImageShape, imageOf, inputAt } from "../geometry/inputs";
import type { RegionInfo } from "../geometry/region_info";
import type { PaneHeader } from "../protocol/messages";
import { box, element, repeat, setText, show, text } from "./dom";
import { formatCount, formatNumber, formatPlace, subscript } from "./numbers";
import { outputLabel } from "./outputs";
import { drawPixels, picture } from "./picture";

const SHOWN = 12;

/** Where a pane's plane lies in input space: origin (D) and basis (2, D). */
export interface InputPlane {
  origin: ArrayLike<number>;
  basis: ArrayLike<number>;
}

/** The derivative of an output in input space. */
export interface Gradient {
  output: number;
  data: ArrayLike<number>;
}

export class InputView {
  private readonly input = picture("The input at this place");
  private readonly gradient = picture("The gradient");
  private readonly gradientLabel = element("figcaption", { class: "sc-caption" });
  private readonly pictures: HTMLElement;
  private readonly numbers = element("table", { class: "sc-table" });
  private readonly place = box("sc-place");
  private readonly gradientFigure: HTMLElement;
  readonly view: HTMLElement;

  constructor() {
    const caption = element("figcaption", { class: "sc-caption" }, "input here");
    const figure = element("figure", { class: "sc-figure" }, this.input, caption);
    const { gradient, gradientLabel } = this;
    this.gradientFigure = element("figure", { class: "sc-figure" }, gradient, gradientLabel);
    this.pictures = box("sc-pictures", figure, this.gradientFigure);
    this.view = box("sc-part", this.pictures, this.place, this.numbers);
  }

  update(
    pane: PaneHeader,
    plane: InputPlane | null,
    region: RegionInfo,
    gradient: Gradient | null,
    unitsPerPixel: number,
  ): void {
    const { image, axes } = pane.domain;
    const [u, v] = region.at.map((value) => formatPlace(value, unitsPerPixel));
    const words = [`${axes[0]} = ${u}`, `${axes[1]} = ${v}`];
    const parts = repeat(this.place, 2, () => text("sc-coordinate", ""));
    for (const [k, part] of parts.entries()) setText(part, words[k]!, String(region.at[k]));
    const input = plane ? inputAt(plane.origin, plane.basis, region.at) : null;
    const pixels = input !== null && image !== null && isImage(input, image);
    show(this.pictures, pixels);
    if (pixels) drawPixels(this.input, imageOf(input, image), image.height, image.width);
    const drawn = pixels && gradient !== null && isImage(gradient.data, image);
    show(this.gradientFigure, drawn);
    if (drawn) {
      drawPixels(this.gradient, gradientImage(gradient.data, image), image.height, image.width);
      const name = outputLabel(pane, gradient.output);
      setText(this.gradientLabel, `gradient of ${name}`, name);
    }
    const plain = input !== null && !pixels;
    const same = input?.length === 2 && axes[0] === "x₁"; // the place says it already
    show(this.numbers, plain && !same);
    if (plain) this.showNumbers(pane, input, gradient);
  }

  private showNumbers(pane: PaneHeader, input: Float32Array, gradient: Gradient | null): void {
    const name = gradient ? outputLabel(pane, gradient.output) : "";
    const cell = (words: string, title = words) => element("td", { title }, words);
    const head = element("tr", {}, element("th"), element("th", {}, "input"));
    if (gradient) head.append(element("th", { title: `of ${name}` }, "gradient"));
    const rows = [...input.subarray(0, SHOWN)].map((value, k) => {
      const label = element("th", { scope: "row" }, subscript("x", k + 1));
      const row = element("tr", {}, label, cell(formatNumber(value), String(value)));
      const slope = gradient?.data[k];
      if (slope !== undefined) row.append(cell(formatNumber(slope), String(slope)));
      return row;
    });
    const left = input.length - rows.length;
    const words = `and ${formatCount(left)} more`;
    if (left > 0)
      rows.push(element("tr", {}, element("td", { class: "sc-more", colspan: "3" }, words)));
    this.numbers.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  }
}

/** Whether numbers are an image of this size. */
function isImage(numbers: ArrayLike<number>, { height, width, channels }: ImageShape): boolean {
  return numbers.length > 0 && numbers.length === height * width * channels;
}
