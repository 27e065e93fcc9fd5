// The eye: it turns around a place and looks at it.

import type { Pair } from "../protocol/messages";
import {
  add,
  axis,
  cross,
  dot,
  type Matrix,
  minus,
  product,
  times,
  unit,
  type Vec3,
} from "./vectors";

const FIELD = (28 * Math.PI) / 180; // the angle of what is seen of the shorter side
const STEEPEST = (89.5 * Math.PI) / 180;
const [NEAREST, FARTHEST] = [1e-3, 12];

export interface Ray {
  from: Vec3;
  way: Vec3;
}

/** An eye never changes: its methods return another one. Angles are in radians. */
export class Eye {
  constructor(
    readonly target: Vec3,
    readonly elevation: number,
    readonly azimuth: number,
    /** From the eye to the target. */
    readonly distance: number,
    /** The number of the axis that points up. */
    readonly up: number,
    /** The width and the height of the picture in CSS pixels. */
    readonly pixels: Readonly<Pair>,
  ) {}

  /** An eye that sees a ball, from angles in degrees. */
  static around(
    middle: Vec3,
    radius: number,
    [e, a]: Readonly<Pair>,
    up: number,
    pixels: Readonly<Pair>,
  ): Eye {
    const degree = Math.PI / 180;
    return new Eye(middle, e * degree, a * degree, radius / Math.sin(FIELD / 2), up, pixels);
  }

  private with(change: Partial<Eye>): Eye {
    const { target, elevation, azimuth, distance, up, pixels } = { ...this, ...change };
    return new Eye(target, elevation, azimuth, distance, up, pixels);
  }

  /** The directions to the right, upwards, and from the target to the eye. */
  get frame(): [Vec3, Vec3, Vec3] {
    const [first, second, third] = [1, 2, 0].map((k) => axis((this.up + k) % 3)) as [
      Vec3,
      Vec3,
      Vec3,
    ];
    const [ca, sa] = [Math.cos(this.azimuth), Math.sin(this.azimuth)];
    const [ce, se] = [Math.cos(this.elevation), Math.sin(this.elevation)];
    const back = add(times(add(times(first, ca), times(second, sa)), ce), times(third, se));
    const right = add(times(first, -sa), times(second, ca));
    return [right, cross(back, right), back];
  }

  get place(): Vec3 {
    return add(this.target, times(this.frame[2], this.distance));
  }

  /** How long a pixel is at the target. */
  get unitsPerPixel(): number {
    return (2 * this.distance * Math.tan(FIELD / 2)) / Math.min(...this.pixels);
  }

  resized(pixels: Readonly<Pair>): Eye {
    return this.with({ pixels });
  }

  turned(right: number, up: number): Eye {
    const elevation = Math.max(-STEEPEST, Math.min(STEEPEST, this.elevation + up));
    return this.with({ azimuth: this.azimuth + right, elevation });
  }

  /** Moved so that what is at the target goes by so many pixels. */
  panned(dx: number, dy: number): Eye {
    const [right, up] = this.frame;
    const size = this.unitsPerPixel;
    const target = add(this.target, add(times(right, -dx * size), times(up, dy * size)));
    return this.with({ target });
  }

  /** Closer by a factor; what is at a pixel stays there, as far as it is as far as the target. */
  zoomed(factor: number, [x, y]: Readonly<Pair>): Eye {
    const distance = Math.max(NEAREST, Math.min(FARTHEST, this.distance / factor));
    const done = this.distance / distance;
    const [dx, dy] = [x - this.pixels[0] / 2, y - this.pixels[1] / 2];
    return this.with({ distance }).panned(dx * (1 - done), dy * (1 - done));
  }

  /** From local coordinates to clip space. */
  get matrix(): Matrix {
    const [right, up, back] = this.frame;
    const at = this.place;
    const turn = [right, up, back];
    const seen = new Float32Array(16);
    for (const [line, way] of turn.entries()) {
      for (let k = 0; k < 3; k++) seen[4 * k + line] = way[k]!;
      seen[12 + line] = -dot(way, at);
    }
    seen[15] = 1;
    const [w, h] = this.pixels;
    const scale = Math.min(w, h) / Math.tan(FIELD / 2);
    // Everything lies in the ball of radius 1 around 0.
    const off = Math.hypot(...at);
    const [near, far] = [Math.max(0.02 * this.distance, off - 1.05), off + 1.05];
    const lens = new Float32Array(16);
    lens[0] = scale / w;
    lens[5] = scale / h;
    lens[10] = (far + near) / (near - far);
    lens[11] = -1;
    lens[14] = (2 * far * near) / (near - far);
    return product(lens, seen);
  }

  /** The pixel at which a place is seen, and how far it is behind the eye's plane. */
  toScreen(place: Vec3): [number, number, number] {
    const [right, up, back] = this.frame;
    const off = minus(place, this.place);
    const depth = -dot(off, back);
    const scale = Math.min(...this.pixels) / (2 * Math.tan(FIELD / 2) * depth);
    const [w, h] = this.pixels;
    return [w / 2 + scale * dot(off, right), h / 2 - scale * dot(off, up), depth];
  }

  /** The ray through a pixel. */
  ray([x, y]: Readonly<Pair>): Ray {
    const [right, up, back] = this.frame;
    const size = (2 * Math.tan(FIELD / 2)) / Math.min(...this.pixels);
    const [w, h] = this.pixels;
    const across = add(times(right, (x - w / 2) * size), times(up, (h / 2 - y) * size));
    return { from: this.place, way: unit(minus(across, back)) };
  }
}
