// What part of the plane is on the screen, in double precision.
//
// Zoomed in to a billionth, one number in double precision holds the centre to a ten-millionth of
// the screen only, and zooming about the cursor would creep. The centre therefore has a second
// number, `rest`, that holds what the first one rounds away.

import type { Box, Pair } from "../protocol/messages";

/** The smallest and the largest width that a camera may have. */
export type Limits = Readonly<Pair>;

const UNLIMITED: Limits = [0, Number.POSITIVE_INFINITY];

/** A rectangle of the plane, shown on a rectangle of pixels; v points up, y points down.
 *
 * center: the place in the middle. width: plane units across the screen. pixels: the width and the
 * height of the screen in CSS pixels. rest: what is to be added to the centre. A camera never
 * changes: its methods return another one. */
export class Camera {
  readonly center: Readonly<Pair>;
  readonly rest: Readonly<Pair>;
  readonly width: number;
  readonly pixels: Readonly<Pair>;

  constructor(
    center: Readonly<Pair>,
    width: number,
    pixels: Readonly<Pair>,
    rest: Readonly<Pair> = [0, 0],
  ) {
    const [u, uRest] = twoSum(center[0], rest[0]);
    const [v, vRest] = twoSum(center[1], rest[1]);
    this.center = [u, v];
    this.rest = [uRest, vRest];
    this.width = width;
    this.pixels = [Math.max(1, pixels[0]), Math.max(1, pixels[1])];
  }

  get height(): number {
    return (this.width / this.pixels[0]) * this.pixels[1];
  }

  get unitsPerPixel(): number {
    return this.width / this.pixels[0];
  }

  /** The rectangle that is seen. */
  get window(): Box {
    const [u, v] = this.center;
    const [w, h] = [this.width / 2, this.height / 2];
    return [u - w, v - h, u + w, v + h];
  }

  /** How far a place is from the centre, in plane units: precise also where both are rounded. */
  offset(uv: Readonly<Pair>): Pair {
    return [uv[0] - this.center[0] - this.rest[0], uv[1] - this.center[1] - this.rest[1]];
  }

  /** The pixel at which a place is seen, from the top left. */
  toScreen(uv: Readonly<Pair>): Pair {
    const [du, dv] = this.offset(uv);
    const unit = this.unitsPerPixel;
    return [this.pixels[0] / 2 + du / unit, this.pixels[1] / 2 - dv / unit];
  }

  /** The place that is seen at a pixel. */
  toPlane(xy: Readonly<Pair>): Pair {
    const [du, dv] = this.fromCenter(xy);
    return [this.center[0] + (this.rest[0] + du), this.center[1] + (this.rest[1] + dv)];
  }

  /** The camera after the picture was dragged by so many pixels. */
  panned(dx: number, dy: number): Camera {
    const unit = this.unitsPerPixel;
    return this.moved(-dx * unit, dy * unit, this.width);
  }

  /** The camera that sees `factor` times as closely and keeps the pixel `at` where it is. */
  zoomed(factor: number, at: Readonly<Pair>, limits: Limits = UNLIMITED): Camera {
    const width = Math.min(Math.max(this.width / factor, limits[0]), limits[1]);
    const [du, dv] = this.fromCenter(at);
    const share = (this.width - width) / this.width;
    return this.moved(du * share, dv * share, width);
  }

  /** The camera after two fingers moved from two pixels to two others. */
  pinched(
    from: readonly [Pair, Pair],
    to: readonly [Pair, Pair],
    limits: Limits = UNLIMITED,
  ): Camera {
    const [before, after] = [between(from), between(to)];
    const factor = apart(to) / Math.max(apart(from), 1);
    const moved = this.panned(after[0] - before[0], after[1] - before[1]);
    return moved.zoomed(Math.max(factor, 1e-3), after, limits);
  }

  /** The same centre and scale on a screen of another size. */
  resized(pixels: Readonly<Pair>): Camera {
    const width = this.unitsPerPixel * Math.max(1, pixels[0]);
    return new Camera(this.center, width, pixels, this.rest);
  }

  /** The camera that sees all of a rectangle, with a margin that is a share of the screen. */
  static fit(box: Readonly<Box>, pixels: Readonly<Pair>, margin = 0.04): Camera {
    const [u0, v0, u1, v1] = box;
    const across = Math.max(Math.abs(u1 - u0), (Math.abs(v1 - v0) * pixels[0]) / pixels[1]);
    const width = across / (1 - 2 * margin);
    return new Camera([(u0 + u1) / 2, (v0 + v1) / 2], width > 0 ? width : 1, pixels);
  }

  /** The widths between which one can zoom in a domain: below, places on the screen are rounded. */
  static limits(domain: Readonly<Box>): Limits {
    const size = Math.max(Math.abs(domain[2] - domain[0]), Math.abs(domain[3] - domain[1]));
    const farthest = Math.max(size, ...domain.map(Math.abs));
    return [farthest * 1e-12, size * 20];
  }

  /** The camera at the fraction t of a smooth flight from a to b, on the screen of b. */
  static between(a: Camera, b: Camera, t: number): Camera {
    if (t <= 0) return new Camera(a.center, a.width, b.pixels, a.rest);
    if (t >= 1) return b;
    return t <= 0.5 ? flown(a, b, t, b.pixels) : flown(b, a, 1 - t, b.pixels);
  }

  /** How long the flight from a to b is; a doubling of the width alone has length 0.5. */
  static flightLength(a: Camera, b: Camera): number {
    const [du, dv] = b.offset(a.center).map((d, k) => d + a.rest[k]!) as Pair;
    return flight(a.width, b.width, Math.hypot(du, dv)).length;
  }

  /** How far the place at a pixel is from the centre, in plane units. */
  private fromCenter(xy: Readonly<Pair>): Pair {
    const unit = this.unitsPerPixel;
    return [(xy[0] - this.pixels[0] / 2) * unit, (this.pixels[1] / 2 - xy[1]) * unit];
  }

  /** The centre moved by a difference, which is added without rounding. */
  private moved(du: number, dv: number, width: number): Camera {
    const [u, uRest] = twoSum(this.center[0], du);
    const [v, vRest] = twoSum(this.center[1], dv);
    return new Camera([u, v], width, this.pixels, [this.rest[0] + uRest, this.rest[1] + vRest]);
  }

  /** The camera from whose centre this one is a given way towards another. */
  towards(other: Camera, share: number, width: number, pixels: Readonly<Pair>): Camera {
    const du = other.center[0] - this.center[0] + (other.rest[0] - this.rest[0]);
    const dv = other.center[1] - this.center[1] + (other.rest[1] - this.rest[1]);
    const moved = this.moved(du * share, dv * share, width);
    return new Camera(moved.center, width, pixels, moved.rest);
  }
}

/** The rounded sum, and what was rounded away (Knuth's two-sum). */
function twoSum(a: number, b: number): Pair {
  const sum = a + b;
  const part = sum - a;
  return [sum, a - (sum - part) + (b - part)];
}

function between([a, b]: readonly [Pair, Pair]): Pair {
  return [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
}

function apart([a, b]: readonly [Pair, Pair]): number {
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
}

const RHO2 = 2; // how much a flight prefers zooming out to moving, as van Wijk and Nuij found best

interface Flight {
  length: number;
  /** The distance from the start and the width, after a length of the flight. */
  at(s: number): Pair;
}

/** The flight that seems shortest to the eye between two widths a distance apart.
 *
 * J. J. van Wijk, W. A. A. Nuij: Smooth and efficient zooming and panning, 2003. Their formulas are
 * written without differences of large numbers, so that they hold at widths of 1e-12. */
function flight(w0: number, w1: number, distance: number): Flight {
  const rho = Math.sqrt(RHO2);
  if (distance < 1e-9 * Math.min(w0, w1)) {
    const length = Math.abs(Math.log(w1 / w0)) / rho;
    const rate = w1 < w0 ? -rho : rho;
    const at = (s: number): Pair => {
      const width = w0 * Math.exp(rate * s);
      return [w1 === w0 ? 0 : (distance * (width - w0)) / (w1 - w0), width];
    };
    return { length, at };
  }
  const squares = (w1 - w0) * (w1 + w0);
  const way = RHO2 * distance;
  const r0 = -Math.asinh((squares + way * way) / (2 * w0 * way));
  const r1 = -Math.asinh((squares - way * way) / (2 * w1 * way));
  const at = (s: number): Pair => {
    const cosh = Math.cosh(rho * s + r0);
    return [((w0 / RHO2) * Math.sinh(rho * s)) / cosh, (w0 * Math.cosh(r0)) / cosh];
  };
  return { length: (r1 - r0) / rho, at };
}

/** The camera at the fraction t of the flight, computed from the end that is nearer. */
function flown(a: Camera, b: Camera, t: number, pixels: Readonly<Pair>): Camera {
  const [du, dv] = b.offset(a.center).map((d, k) => d + a.rest[k]!) as Pair;
  const distance = Math.hypot(du, dv);
  const path = flight(a.width, b.width, distance);
  if (!(path.length > 0)) return a.towards(b, t, a.width, pixels);
  const [gone, width] = path.at(path.length * t);
  return a.towards(b, distance > 0 ? gone / distance : 0, width, pixels);
}
