// Curves over the cells: outlines, units, level sets, the border of the domain.

import { clippedSegments, type Local, tooFine } from "./clip";
import { rgb } from "./colours";
import type { Programs } from "./programs";
import { SegmentTexture } from "./segments";
import type { View } from "./view";

export interface LineStyle {
  /** Such as "#16202c". */
  color: string;
  /** In CSS pixels. */
  width: number;
  opacity?: number;
  /** Length of a dash and of a dash with its gap, in CSS pixels. */
  dash?: readonly [number, number];
  /** The colour of a rim on both sides, and how wide it is in CSS pixels; by default 1. */
  halo?: string;
  rim?: number;
}

/** The rim of a line, as a line below it; null if it has none. */
export function haloOf({ halo, rim = 1, width, opacity = 1 }: LineStyle): LineStyle | null {
  return halo ? { color: halo, width: width + 2 * rim, opacity } : null;
}

/** Segments with a style; their texture is made when they are drawn first. */
export class Lines {
  private texture: SegmentTexture | null = null;

  constructor(
    private readonly local: Local,
    public style: LineStyle,
  ) {}

  draw(programs: Programs, view: View): void {
    const { local } = this;
    const { gl, maxTexture } = programs;
    let place = view.place(local.center, local.scale);
    if (tooFine(local, view)) {
      this.forget();
      const ends = clippedSegments(local, view);
      place = [2 / view.size[0], 2 / view.size[1], 0, 0];
      const texture = new SegmentTexture(gl, ends, maxTexture);
      this.stroke(texture, programs, view, place);
      texture.dispose();
      return;
    }
    this.texture ??= new SegmentTexture(gl, Float32Array.from(local.data), maxTexture);
    this.stroke(this.texture, programs, view, place);
  }

  /** Free what is on the graphics card; drawing makes it anew. */
  forget(): void {
    this.texture?.dispose();
    this.texture = null;
  }

  /** Forget what was on the graphics card, after it was lost. */
  lose(): void {
    this.texture = null;
  }

  private stroke(
    texture: SegmentTexture,
    programs: Programs,
    view: View,
    place: readonly number[],
  ): void {
    for (const each of [haloOf(this.style), this.style]) {
      if (!each) continue;
      const { color, width, opacity = 1, dash } = each;
      const stroke = { color: rgb(color), opacity, width, caps: !dash };
      texture.draw(programs, view, place, dash ? { ...stroke, dash } : stroke);
    }
  }
}
