// The camera on the pixels of the device.

import type { Camera } from "../geometry/camera";
import type { Box, Pair } from "../protocol/messages";

type Place = readonly [number, number, number, number];

/** Where the plane is on a grid of device pixels.
 *
 * unit: plane units per device pixel; ratio: device pixels per CSS pixel. The centre has a second
 * number that holds what the first one rounds away, as that of a camera. */
export class View {
  constructor(
    readonly center: Readonly<Pair>,
    readonly rest: Readonly<Pair>,
    readonly unit: number,
    readonly size: Readonly<Pair>,
    readonly ratio: number,
    /** The part that is drawn, in device pixels from the centre. */
    readonly part: Box = [-size[0] / 2, -size[1] / 2, size[0] / 2, size[1] / 2],
  ) {}

  static of(camera: Camera, ratio: number): View {
    const size = camera.pixels.map((n) => Math.max(1, Math.round(n * ratio))) as Pair;
    return new View(camera.center, camera.rest, camera.unitsPerPixel / ratio, size, ratio);
  }

  /** How far a place is from the centre, in device pixels. */
  offset(uv: Readonly<Pair>): Pair {
    const { center, rest, unit } = this;
    return [(uv[0] - center[0] - rest[0]) / unit, (uv[1] - center[1] - rest[1]) / unit];
  }

  /** How far the centre is from that of another view, in device pixels of this one. */
  from(other: View): Pair {
    const [x, y] = other.offset(this.center);
    const k = other.unit / this.unit;
    return [x * k + this.rest[0] / this.unit, y * k + this.rest[1] / this.unit];
  }

  /** The map from local coordinates, center + scale * local, to clip space. */
  place(center: Readonly<Pair>, scale: number): Place {
    const [x, y] = this.offset(center);
    const [width, height] = this.size;
    const k = (2 * scale) / this.unit;
    return [k / width, k / height, (2 * x) / width, (2 * y) / height];
  }

  /** The part that is drawn in local coordinates, with a margin in device pixels. */
  window(center: Readonly<Pair>, scale: number, margin = 0): Box {
    const [x, y] = this.offset(center);
    const [x0, y0, x1, y1] = this.part;
    const k = this.unit / scale;
    const [left, low] = [(x0 - margin - x) * k, (y0 - margin - y) * k];
    return [left, low, (x1 + margin - x) * k, (y1 + margin - y) * k];
  }

  /** The view moved by some pixels. */
  shifted([x, y]: Readonly<Pair>): View {
    const rest: Pair = [this.rest[0] + x * this.unit, this.rest[1] + y * this.unit];
    return new View(this.center, rest, this.unit, this.size, this.ratio, this.part);
  }

  /** The view on as many pixels in which all of a rectangle is seen. */
  fitting([u0, v0, u1, v1]: Box): View {
    const [width, height] = this.size;
    const unit = 1.001 * Math.max((u1 - u0) / width, (v1 - v0) / height, Number.MIN_VALUE);
    return new View([(u0 + u1) / 2, (v0 + v1) / 2], [0, 0], unit, this.size, this.ratio);
  }

  /** The view of which only a part is drawn. */
  limited(part: Box): View {
    return new View(this.center, this.rest, this.unit, this.size, this.ratio, part);
  }

  /** Where a rectangle of the plane is in clip space. */
  rectangle([u0, v0, u1, v1]: Box): Box {
    const [low, high] = [this.offset([u0, v0]), this.offset([u1, v1])];
    const [w, h] = [this.size[0] / 2, this.size[1] / 2];
    return [low[0] / w, low[1] / h, high[0] / w, high[1] / h];
  }

  /** Where what another view shows is in clip space. */
  covered(other: View): Box {
    const [x, y] = this.from(other);
    const k = other.unit / this.unit;
    const [w, h] = [this.size[0] / 2, this.size[1] / 2];
    const [across, up] = [(k * other.size[0]) / 2, (k * other.size[1]) / 2];
    return [(-x - across) / w, (-y - up) / h, (-x + across) / w, (-y + up) / h];
  }

  /** Whether another view has the same pixels, apart from a shift. */
  isShiftOf(other: View): boolean {
    const same = Math.abs(this.unit / other.unit - 1) < 1e-9;
    return same && this.size[0] === other.size[0] && this.size[1] === other.size[1];
  }

  /** Whether another view has the same pixels. */
  isAt(other: View | null): boolean {
    if (!other || !this.isShiftOf(other)) return false;
    const [x, y] = this.from(other);
    return Math.abs(x) < 1e-3 && Math.abs(y) < 1e-3;
  }

  /** This view, moved by less than a pixel so that its pixels are those of another one. */
  alignedWith(other: View): View {
    if (!this.isShiftOf(other)) return this;
    const [x, y] = this.from(other);
    const [dx, dy] = [Math.round(x) - x, Math.round(y) - y];
    if (Math.abs(x) > 1e6 || Math.abs(y) > 1e6) return this;
    return this.shifted([dx, dy]);
  }
}
