// Small pictures beside their points, in frames of the points' colours.

import type { Pair } from "../protocol/messages";
import { type Programs, textureOf } from "./programs";
import { drawImage } from "./raster";
import type { Samples, Thumbnails } from "./samples";
import { SegmentTexture } from "./segments";
import { INK, PAPER, POINT } from "./theme";
import type { View } from "./view";

const SHARE = 0.13; // of the shorter side of the screen that a picture's longer side has
const [SMALLEST, LARGEST] = [32, 64]; // CSS pixels of it
const MOST = 64; // pictures on the screen
const CROWDED = 0.2; // pictures that others would cover more than this are left out
const STICKY = 0.4; // how much a picture prefers to stay on its side of the point
const SIDES: readonly Pair[] = [
  [1, -1],
  [1, 1],
  [-1, -1],
  [-1, 1],
  [1, 0],
  [-1, 0],
  [0, -1],
  [0, 1],
];

/** A picture's place: the number of its point, and its upper left corner in CSS pixels. */
export interface Place {
  point: number;
  corner: Pair;
  side: number;
}

/** Where pictures of a size fit beside points on a screen, all in CSS pixels.
 *
 * points: by number, null for those that are not on the screen. before: sides that were taken. */
export function placesOf(
  points: readonly (Pair | null)[],
  size: Readonly<Pair>,
  screen: Readonly<Pair>,
  before: ReadonlyMap<number, number> = new Map(),
): Place[] {
  const places: Place[] = [];
  const area = size[0] * size[1];
  const gap = 0.12 * Math.max(...size);
  points.forEach((at, point) => {
    if (!at || places.length >= MOST) return;
    let best: (Place & { cost: number }) | null = null;
    SIDES.forEach((direction, side) => {
      const corner = [0, 1].map((k) => {
        const wanted = at[k]! + direction[k]! * (size[k]! / 2 + gap) - size[k]! / 2;
        return Math.min(Math.max(wanted, 4), screen[k]! - 4 - size[k]!);
      }) as Pair;
      const moved =
        Math.abs(corner[0] + size[0] / 2 - at[0]) < size[0] / 2 &&
        Math.abs(corner[1] + size[1] / 2 - at[1]) < size[1] / 2;
      let overlap = 0;
      for (const other of places) overlap += common(corner, other.corner, size) / area;
      const covered = points.filter((p) => p && holds(corner, size, p, gap / 3)).length;
      const sticky = before.get(point) === side ? STICKY : 0;
      const cost = 4 * overlap + 0.5 * covered + (moved ? 3 : 0) - sticky + 0.01 * side;
      if (overlap <= CROWDED && (!best || cost < best.cost)) best = { point, corner, side, cost };
    });
    if (best) places.push(best);
  });
  return places;
}

/** The area that two rectangles of a size have in common. */
function common(a: Pair, b: Pair, size: Readonly<Pair>): number {
  const width = size[0] - Math.abs(a[0] - b[0]);
  const height = size[1] - Math.abs(a[1] - b[1]);
  return width > 0 && height > 0 ? width * height : 0;
}

function holds(corner: Pair, size: Readonly<Pair>, at: Readonly<Pair>, margin: number): boolean {
  return [0, 1].every(
    (k) => at[k]! > corner[k]! - margin && at[k]! < corner[k]! + size[k]! + margin,
  );
}

/** How pictures are laid out in a texture: how many beside each other, and how many fit. */
export function atlasOf(
  { count, width, height }: Thumbnails,
  maxTexture: number,
): { columns: number; rows: number } {
  const columns = Math.max(
    1,
    Math.min(Math.ceil(Math.sqrt(count)), Math.floor(maxTexture / width)),
  );
  const most = Math.max(1, Math.floor(maxTexture / height));
  return { columns, rows: Math.max(1, Math.min(Math.ceil(count / columns), most)) };
}

/** Thumbnails on the graphics card. */
export class ThumbnailLayer {
  /** Where pictures were drawn last. */
  places: readonly Place[] = [];
  size: Pair = [0, 0];
  private texture: WebGLTexture | null = null;
  private atlas = { columns: 1, rows: 1 };

  constructor(
    private readonly samples: Samples,
    private readonly images: Thumbnails,
  ) {}

  /** Find places, and draw the lines from points to pictures, which lie below the points. */
  drawLeaders(programs: Programs, view: View): void {
    const { gl } = programs;
    const { width, height } = this.images;
    const screen = view.size.map((n) => n / view.ratio) as Pair;
    const longer = Math.min(LARGEST, Math.max(SMALLEST, SHARE * Math.min(...screen)));
    this.size = [width, height].map((n) => (longer * n) / Math.max(width, height)) as Pair;
    const sides = new Map(this.places.map(({ point, side }) => [point, side]));
    this.places = placesOf(this.onScreen(view, screen), this.size, screen, sides);
    if (!this.places.length) return;
    const ends = new Float32Array(4 * this.places.length);
    this.places.forEach(({ point, corner }, k) => {
      const [x, y] = view.offset([this.samples.at[2 * point]!, this.samples.at[2 * point + 1]!]);
      ends[4 * k] = x;
      ends[4 * k + 1] = y;
      ends[4 * k + 2] = (corner[0] + this.size[0] / 2) * view.ratio - view.size[0] / 2;
      ends[4 * k + 3] = view.size[1] / 2 - (corner[1] + this.size[1] / 2) * view.ratio;
    });
    const segments = new SegmentTexture(gl, ends, programs.maxTexture);
    const place = [2 / view.size[0], 2 / view.size[1], 0, 0];
    segments.draw(programs, view, place, {
      color: INK,
      opacity: 1,
      width: 0.7 * POINT,
      caps: false,
    });
    segments.dispose();
  }

  draw(programs: Programs, view: View): void {
    const { gl } = programs;
    this.texture ??= this.upload(programs);
    const { columns, rows } = this.atlas;
    const { colors } = this.samples;
    for (const { point, corner } of this.places) {
      const [x, y] = corner.map((n) => Math.round(n * view.ratio)) as Pair;
      const [w, h] = this.size.map((n) => Math.round(n * view.ratio)) as Pair;
      const low = view.size[1] - y - h;
      const color = [0, 1, 2].map((k) => colors[4 * point + k]! / 255);
      for (const [ink, wide] of [
        [PAPER, 2.5 * view.ratio],
        [color, 1.2 * view.ratio],
      ] as const) {
        const rim = Math.max(1, Math.round(wide));
        gl.enable(gl.SCISSOR_TEST);
        gl.scissor(x - rim, low - rim, w + 2 * rim, h + 2 * rim);
        gl.clearColor(ink[0]!, ink[1]!, ink[2]!, 1);
        gl.clear(gl.COLOR_BUFFER_BIT);
      }
      gl.disable(gl.SCISSOR_TEST);
      const [i, j] = [point % columns, Math.floor(point / columns)];
      const [left, right] = [(2 * x) / view.size[0] - 1, (2 * (x + w)) / view.size[0] - 1];
      const [bottom, top] = [(2 * low) / view.size[1] - 1, (2 * (low + h)) / view.size[1] - 1];
      const part: [number, number, number, number] = [
        i / columns,
        (j + 1) / rows,
        (i + 1) / columns,
        j / rows,
      ];
      drawImage(programs, this.texture, [left, bottom, right, top], { part, exact: true });
    }
  }

  /** The point whose picture is at a pixel of the screen; -1: none. */
  at([x, y]: Readonly<Pair>): number {
    const found = [...this.places]
      .reverse()
      .find(({ corner }) => holds(corner, this.size, [x, y], 0));
    return found ? found.point : -1;
  }

  /** Free what is on the graphics card; drawing makes it anew. */
  forget(gl?: WebGL2RenderingContext): void {
    gl?.deleteTexture(this.texture);
    this.texture = null;
  }

  /** Points on the screen that have a picture, in CSS pixels. */
  private onScreen(view: View, screen: Readonly<Pair>): (Pair | null)[] {
    const { at } = this.samples;
    const count = Math.min(this.images.count, at.length / 2);
    return Array.from({ length: count }, (_, k) => {
      const [x, y] = view.offset([at[2 * k]!, at[2 * k + 1]!]);
      const point: Pair = [x / view.ratio + screen[0] / 2, screen[1] / 2 - y / view.ratio];
      return point.every((n, axis) => n >= 0 && n <= screen[axis]!) ? point : null;
    });
  }

  private upload({ gl, maxTexture }: Programs): WebGLTexture {
    const { pixels, count, width, height } = this.images;
    this.atlas = atlasOf(this.images, maxTexture);
    const { columns, rows } = this.atlas;
    const texture = textureOf(gl, [columns * width, rows * height], gl.RGBA8, gl.NEAREST);
    const bytes = 4 * width * height;
    for (let k = 0; k < Math.min(count, columns * rows); k++) {
      const [x, y] = [(k % columns) * width, Math.floor(k / columns) * height];
      const part = onPaper(pixels.subarray(k * bytes, (k + 1) * bytes));
      gl.texSubImage2D(gl.TEXTURE_2D, 0, x, y, width, height, gl.RGBA, gl.UNSIGNED_BYTE, part);
    }
    return texture;
  }
}

/** Pixels (n, 4) without transparency, on white paper. */
function onPaper(pixels: Uint8Array): Uint8Array {
  return pixels.map((value, k) => {
    const opacity = pixels[k | 3]! / 255;
    return (k & 3) === 3 ? 255 : 255 - opacity * (255 - value);
  });
}
