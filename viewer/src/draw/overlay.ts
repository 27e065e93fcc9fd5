// What lies over the cells: the border, lines, marks, data points, thumbnails.

import type { Mesh } from "../geometry/mesh";
import type { Pair } from "../protocol/messages";
import type { Local } from "./clip";
import type { Rgb, Theme } from "./colours";
import { Hatching, type Polygons } from "./hatching";
import { Highlight, type HighlightStyle } from "./highlight";
import { type LineStyle, Lines } from "./lines";
import { Points } from "./points";
import type { GL, Programs } from "./programs";
import type { Samples } from "./samples";
import { BORDER, INKS } from "./theme";
import { ThumbnailLayer } from "./thumbnails";
import type { View } from "./view";

/** The switches of what lies over the cells. */
export interface OverlayLook {
  theme: Theme;
  points: boolean;
  thumbnails: boolean;
}

export class Overlay {
  /** Of the canvas; null until it is drawn on. */
  gl: GL | null = null;
  private readonly lines = new Map<string, Lines>();
  private readonly highlights = new Map<string, Highlight>();
  private band: Hatching | null = null;
  private border: Lines | null = null;
  private points: Points | null = null;
  private thumbnails: ThumbnailLayer | null = null;
  /** Counts changes. */
  private version = 0;
  private key = "";

  setLines(name: string, segments: Local | null, style?: LineStyle): void {
    if (!segments && !this.lines.has(name)) return;
    this.version++;
    this.lines.get(name)?.forget();
    if (segments && style) this.lines.set(name, new Lines(segments, style));
    else this.lines.delete(name);
  }

  setBand(polygons: Polygons | null): void {
    if (!polygons && !this.band) return;
    this.version++;
    this.band = polygons && new Hatching(polygons);
  }

  setHighlight(
    name: string,
    mesh: Mesh | null,
    cells?: Uint32Array | null,
    style?: HighlightStyle,
  ): void {
    if (!mesh && !this.highlights.has(name)) return;
    this.version++;
    this.highlights.get(name)?.forget();
    if (mesh && cells && style) this.highlights.set(name, new Highlight(mesh, cells, style));
    else this.highlights.delete(name);
  }

  setDomain(corners: readonly Readonly<Pair>[]): void {
    this.version++;
    this.border?.forget();
    const [center] = corners;
    if (!center) {
      this.border = null;
      return;
    }
    const data = corners.flatMap((corner, k) => {
      const next = corners[(k + 1) % corners.length]!;
      return [...corner, ...next].map((x, axis) => x - center[axis % 2]!);
    });
    const local = { data: Float64Array.from(data), center, scale: 1 };
    this.border = new Lines(local, { color: INKS.light, width: BORDER });
  }

  setPoints(samples: Samples | null): void {
    this.version++;
    if (this.gl) this.points?.forget(this.gl);
    if (this.gl) this.thumbnails?.forget(this.gl);
    this.points = samples && new Points(samples);
    const images = samples?.thumbnails;
    this.thumbnails = samples && images ? new ThumbnailLayer(samples, images) : null;
  }

  thumbnailAt(xy: Readonly<Pair>): number {
    return this.thumbnails?.at(xy) ?? -1;
  }

  /** Whether it looks otherwise than when this was asked last. */
  changed({ theme, points, thumbnails }: OverlayLook): boolean {
    const key = [this.version, theme, points, thumbnails].join();
    const changed = key !== this.key;
    this.key = key;
    return changed;
  }

  /** ink: of what lies on the colours of the cells. */
  draw(programs: Programs, view: View, look: OverlayLook, ink: Rgb): void {
    this.band?.draw(programs, view, ink);
    for (const each of this.highlights.values()) each.drawFill(programs, view);
    if (this.border) {
      this.border.style.color = INKS[look.theme];
      this.border.draw(programs, view);
    }
    for (const each of this.lines.values()) each.draw(programs, view);
    for (const each of this.highlights.values()) each.drawOutline(programs, view);
    const thumbnails = look.thumbnails ? this.thumbnails : null;
    thumbnails?.drawLeaders(programs, view);
    if (look.points) this.points?.draw(programs, view);
    thumbnails?.draw(programs, view);
  }

  /** Forget what was on the graphics card, after it was lost. */
  lose(): void {
    this.version++;
    for (const each of [...this.lines.values(), ...this.highlights.values()]) each.lose();
    this.border?.lose();
    this.points?.forget();
    this.thumbnails?.forget();
  }

  dispose(): void {
    for (const each of [...this.lines.values(), ...this.highlights.values()]) each.forget();
    this.setDomain([]);
    this.setPoints(null);
  }
}
