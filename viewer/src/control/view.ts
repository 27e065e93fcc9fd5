// The camera that all panes share: where one looks, and flights from there to elsewhere.

import { Camera } from "../geometry/camera";
import type { Box, Pair } from "../protocol/messages";
import type { Store } from "../state";

const SHORTEST_FLIGHT = 160; // milliseconds
const FLIGHT_RATE = 320; // milliseconds for a length of one, such as two doublings
const LONGEST_FLIGHT = 1600;

interface Flight {
  from: Camera;
  to: Camera;
  start: number;
  duration: number;
  end: () => void;
}

const NOTHING: Readonly<Pair> = [0, 0];

interface Made {
  camera: Camera;
  center: Readonly<Pair>;
  rest: Readonly<Pair>;
  pixels: Readonly<Pair>;
}

export class View {
  private flight: Flight | null = null;
  /** What the camera's centre rounds away; it belongs to the centre in the state. */
  private fine = { center: [0, 0] as Readonly<Pair>, rest: [0, 0] as Readonly<Pair> };

  /** The camera that was asked for last, and of what it was made: it never changes. */
  private last: Made | null = null;
  private home: Box = [-1, -1, 1, 1];
  private domain: Box = [-1, -1, 1, 1];

  constructor(
    private store: Store,
    private redraw: () => void,
  ) {}

  /** domain: the box around everything there is; home: what is seen first. */
  setDomain(domain: Box, home: Box): void {
    this.domain = domain;
    this.home = home;
  }

  /** The camera for a picture of some size in CSS pixels. */
  camera(pixels: Pair): Camera {
    const { center, width } = this.store.state;
    if (!(width > 0)) return Camera.fit(this.home, pixels);
    const known = center[0] === this.fine.center[0] && center[1] === this.fine.center[1];
    const rest = known ? this.fine.rest : NOTHING;
    const { last } = this;
    const same = last?.pixels === pixels && last.center === center && last.rest === rest;
    if (same && last.camera.width === width) return last.camera;
    const camera = new Camera(center, width, pixels, rest);
    this.last = { camera, center, rest, pixels };
    return camera;
  }

  /** Where the camera comes to rest: the end of a flight, else where it is. */
  goal(pixels: Pair): Camera {
    if (!this.flight) return this.camera(pixels);
    const { center, width, rest } = this.flight.to;
    return new Camera(center, width, pixels, rest);
  }

  /** Look through a camera, which ends a flight. */
  set(camera: Camera): void {
    this.flight = null;
    this.apply(camera);
  }

  get flying(): boolean {
    return this.flight !== null;
  }

  /** Fly to a camera. */
  fly(to: Camera, end: () => void = () => {}): void {
    const from = this.camera([...to.pixels]);
    const goal = this.clamped(to);
    const length = Camera.flightLength(from, goal);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still || !(length > 0)) {
      this.set(goal);
      end();
      return;
    }
    const duration = Math.min(LONGEST_FLIGHT, Math.max(SHORTEST_FLIGHT, FLIGHT_RATE * length));
    this.flight = { from, to: goal, start: performance.now(), duration, end };
    this.redraw();
  }

  /** Fly back to what was seen first; from then on it is fitted to the size of the picture. */
  goHome(pixels: Pair): void {
    this.fly(Camera.fit(this.home, pixels), () => this.store.set({ center: [0, 0], width: 0 }));
  }

  /** Go on with the flight, if there is one; called before each frame. */
  advance(now: number): void {
    if (!this.flight) return;
    const { from, to, start, duration, end } = this.flight;
    const share = Math.min(1, Math.max(0, (now - start) / duration));
    if (share < 1) {
      // Slow at both ends.
      this.apply(Camera.between(from, to, share * share * (3 - 2 * share)));
      this.redraw();
      return;
    }
    this.set(to);
    end();
  }

  private apply(camera: Camera): void {
    const { center, rest, width } = this.clamped(camera);
    this.fine = { center, rest };
    this.store.set({ center: [...center], width });
  }

  /** A camera that is neither too deep nor too far, and whose middle is in the domain. */
  private clamped(camera: Camera): Camera {
    const [u0, v0, u1, v1] = this.domain;
    const [narrowest, widest] = Camera.limits(this.domain);
    const width = Math.min(widest, Math.max(narrowest, camera.width));
    const [u, v] = camera.center;
    const inside = u >= u0 && u <= u1 && v >= v0 && v <= v1;
    if (width === camera.width && inside) return camera;
    const center: Pair = [Math.min(u1, Math.max(u0, u)), Math.min(v1, Math.max(v0, v))];
    return new Camera(center, width, camera.pixels, inside ? camera.rest : [0, 0]);
  }
}
