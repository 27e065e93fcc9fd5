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
  /** The colour of a rim on both sides, 1 CSS pixel wide. */
  halo?: string;
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
    const { color, width, opacity = 1, dash, halo } = this.style;
    if (halo) {
      const rim = { color: rgb(halo), opacity, width: width + 2, caps: true };
      texture.draw(programs, view, place, rim);
    }
    const stroke = {
      color: typeof color === "string" ? rgb(color) : color,
      opacity,
      width,
      caps: !dash,
    };
    texture.draw(programs, view, place, dash ? { ...stroke, dash } : stroke);
  }
}
