// A bar of a round length in plane units.

import { box, show, text } from "./dom";
import { formatNumber, roundNumber } from "./numbers";

const LONGEST = 120; // CSS pixels

/** The length of the bar in plane units. */
export function barLength(unitsPerPixel: number): number {
  return roundNumber(LONGEST * unitsPerPixel);
}

export class ScaleBar {
  private readonly line = box("sc-scale-line");
  private readonly label = text("sc-scale-label", "");
  readonly bar = box("sc-scale", this.label, this.line);
  unitsPerPixel = 0;

  constructor() {
    show(this.bar, false);
  }

  showScale(unitsPerPixel: number): void {
    if (!(unitsPerPixel > 0) || !Number.isFinite(unitsPerPixel)) return;
    this.unitsPerPixel = unitsPerPixel;
    const length = barLength(unitsPerPixel);
    this.line.style.width = `${(length / unitsPerPixel).toFixed(1)}px`;
    this.label.textContent = formatNumber(length);
    show(this.bar, true);
  }
}
