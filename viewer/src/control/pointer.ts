// Mouse, trackpad, pen and fingers on the picture.

import type { Camera } from "../geometry/camera";
import type { Pair } from "../protocol/messages";

/** What gestures do; places are in CSS pixels from the upper left corner of the picture. */
export interface Gestures {
  camera(): Camera;
  /** The camera moves; moving: whether the gesture goes on. */
  move(camera: Camera, moving: boolean): void;
  /** The pointer is somewhere, or has left (null). */
  hover(xy: Pair | null): void;
  click(xy: Pair, shift: boolean): void;
  /** Fly deeper at a place, or back out. */
  dive(xy: Pair, out: boolean): void;
}

const CLICK_REACH = 5; // pixels that a click may move
const DOUBLE_TIME = 350; // milliseconds between the two clicks of a double one
const LONG_PRESS = 450;
const WHEEL_END = 160; // the wheel has come to rest after this time
const LINE = 16; // pixels of a line, for wheels that count lines

interface Finger {
  start: Pair;
  now: Pair;
  /** The place of the plane that was touched; it stays under the finger. */
  place: Pair;
  moved: boolean;
}

/** Listens to an element until `dispose`. */
export class Pointer {
  private fingers = new Map<number, Finger>();
  private last = { at: [0, 0] as Pair, time: Number.NEGATIVE_INFINITY };
  private pressed = 0;
  private wheeling = 0;
  private ended = new AbortController();

  constructor(
    private element: HTMLElement,
    private gestures: Gestures,
  ) {
    const on = <K extends keyof HTMLElementEventMap>(
      name: K,
      listener: (event: HTMLElementEventMap[K]) => void,
    ) => element.addEventListener(name, listener, { signal: this.ended.signal, passive: false });
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.moved(event));
    on("pointerup", (event) => this.up(event, false));
    on("pointercancel", (event) => this.up(event, true));
    on("pointerleave", () => {
      if (!this.fingers.size) gestures.hover(null);
    });
    on("wheel", (event) => this.wheel(event));
    on("contextmenu", (event) => {
      // A long press shows the inspector rather than the menu.
      if (this.fingers.size) event.preventDefault();
    });
    element.style.touchAction = "none";
  }

  /** Whether a button is held or a finger lies on the picture. */
  get held(): boolean {
    return this.fingers.size > 0;
  }

  dispose(): void {
    this.ended.abort();
    clearTimeout(this.pressed);
    clearTimeout(this.wheeling);
  }

  private at(event: MouseEvent): Pair {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0 || event.target !== this.element) return;
    const unseen: FocusOptions & { focusVisible: boolean } = {
      preventScroll: true,
      focusVisible: false, // marks are for who comes by keyboard
    };
    this.element.focus(unseen);
    capture(this.element, event.pointerId);
    const xy = this.at(event);
    const place = this.gestures.camera().toPlane(xy);
    this.fingers.set(event.pointerId, { start: xy, now: xy, place, moved: false });
    clearTimeout(this.pressed);
    if (this.fingers.size > 1) {
      // A second finger begins a pinch: both hold what is under them now.
      const camera = this.gestures.camera();
      for (const finger of this.fingers.values()) {
        finger.place = camera.toPlane(finger.now);
        finger.moved = true;
      }
    } else if (event.pointerType === "touch") {
      this.pressed = window.setTimeout(() => this.gestures.hover(xy), LONG_PRESS);
    }
  }

  private moved(event: PointerEvent): void {
    const xy = this.at(event);
    const finger = this.fingers.get(event.pointerId);
    if (!finger) {
      if (event.pointerType !== "touch") this.gestures.hover(xy);
      return;
    }
    finger.now = xy;
    const far = Math.hypot(xy[0] - finger.start[0], xy[1] - finger.start[1]);
    if (!finger.moved && far <= CLICK_REACH) return;
    finger.moved = true;
    clearTimeout(this.pressed);
    this.drag(true);
  }

  private up(event: PointerEvent, cancelled: boolean): void {
    const finger = this.fingers.get(event.pointerId);
    if (!finger) return;
    clearTimeout(this.pressed);
    this.fingers.delete(event.pointerId);
    const camera = this.gestures.camera();
    for (const other of this.fingers.values()) other.place = camera.toPlane(other.now);
    if (finger.moved) this.gestures.move(camera, this.fingers.size > 0);
    else if (!cancelled) this.clicked(finger.now, event);
  }

  private clicked(xy: Pair, event: PointerEvent): void {
    const near = Math.hypot(xy[0] - this.last.at[0], xy[1] - this.last.at[1]) < 3 * CLICK_REACH;
    if (near && event.timeStamp - this.last.time < DOUBLE_TIME) {
      this.last.time = Number.NEGATIVE_INFINITY;
      this.gestures.dive(xy, event.shiftKey || event.altKey);
      return;
    }
    this.last = { at: xy, time: event.timeStamp };
    this.gestures.click(xy, event.shiftKey);
  }

  /** Move the camera so that what was touched is under the fingers. */
  private drag(moving: boolean): void {
    const [first, second] = [...this.fingers.values()];
    if (!first) return;
    let camera = this.gestures.camera();
    if (second) {
      const [a, b] = [camera.toScreen(first.place), camera.toScreen(second.place)];
      const before = Math.hypot(a[0] - b[0], a[1] - b[1]);
      const after = Math.hypot(first.now[0] - second.now[0], first.now[1] - second.now[1]);
      if (before > 0 && after > 0) camera = camera.zoomed(after / before, first.now);
      const [c, d] = [camera.toScreen(first.place), camera.toScreen(second.place)];
      const dx = first.now[0] + second.now[0] - c[0] - d[0];
      const dy = first.now[1] + second.now[1] - c[1] - d[1];
      camera = camera.panned(dx / 2, dy / 2);
    } else {
      const [x, y] = camera.toScreen(first.place);
      camera = camera.panned(first.now[0] - x, first.now[1] - y);
    }
    this.gestures.move(camera, moving);
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? LINE : event.deltaMode === 2 ? 20 * LINE : 1;
    // A pinch on a trackpad comes as a wheel with the control key, in smaller steps.
    const rate = event.ctrlKey ? 0.01 : 0.002;
    const step = Math.max(-240, Math.min(240, event.deltaY * unit));
    const camera = this.gestures.camera().zoomed(Math.exp(-rate * step), this.at(event));
    this.gestures.move(camera, true);
    clearTimeout(this.wheeling);
    this.wheeling = window.setTimeout(() => {
      this.gestures.move(this.gestures.camera(), false);
    }, WHEEL_END);
  }
}

function capture(element: HTMLElement, pointer: number): void {
  try {
    element.setPointerCapture(pointer);
  } catch {
    // The pointer has gone already, or the event was made by a test.
  }
}
