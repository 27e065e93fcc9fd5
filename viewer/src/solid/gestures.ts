// Mouse, trackpad, pen and fingers on the picture: they turn, move and zoom.

import type { Pair } from "../protocol/messages";
import type { Eye } from "./eye";

export interface Listening {
  eye(): Eye;
  /** moving: whether the gesture goes on. */
  look(eye: Eye, moving: boolean): void;
  hover(xy: Pair | null): void;
  click(xy: Pair): void;
  /** Look at what is at a pixel, from closer. */
  dive(xy: Pair): void;
  /** What a drag that begins at a pixel does in place of turning; null: nothing else. */
  grab(xy: Pair): ((dx: number, dy: number, done: boolean) => void) | null;
}

const [REACH, DOUBLE, PRESS, WHEEL] = [5, 350, 450, 160]; // pixels, and milliseconds
const TURN = 0.008; // radians of a pixel

interface Finger {
  start: Pair;
  now: Pair;
  moved: boolean;
}

/** Listen to an element; returns what ends this. */
export function listenTo(element: HTMLElement, to: Listening): () => void {
  const fingers = new Map<number, Finger>();
  const ended = new AbortController();
  const last = { at: [0, 0] as Pair, time: Number.NEGATIVE_INFINITY };
  let [pressed, wheeling] = [0, 0];
  let held: ReturnType<Listening["grab"]> = null;

  const at = (event: MouseEvent): Pair => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const pair = (): [Pair, number] => {
    const [a, b] = [...fingers.values()] as [Finger, Finger];
    const middle: Pair = [(a.now[0] + b.now[0]) / 2, (a.now[1] + b.now[1]) / 2];
    return [middle, Math.hypot(a.now[0] - b.now[0], a.now[1] - b.now[1])];
  };
  const on = <K extends keyof HTMLElementEventMap>(
    name: K,
    listener: (event: HTMLElementEventMap[K]) => void,
  ) => element.addEventListener(name, listener, { signal: ended.signal, passive: false });

  on("pointerdown", (event) => {
    if (event.target !== element || event.button > 2) return;
    element.focus({ preventScroll: true });
    try {
      element.setPointerCapture(event.pointerId);
    } catch {
      // The pointer has gone already.
    }
    const xy = at(event);
    held?.(0, 0, true);
    held = null;
    fingers.set(event.pointerId, { start: xy, now: xy, moved: fingers.size > 0 });
    clearTimeout(pressed);
    if (fingers.size > 1) for (const finger of fingers.values()) finger.moved = true;
    else if (event.pointerType === "touch") pressed = window.setTimeout(() => to.hover(xy), PRESS);
    if (fingers.size === 1 && event.button === 0 && !event.shiftKey && !event.ctrlKey) {
      held = to.grab(xy);
    }
  });

  on("pointermove", (event) => {
    const xy = at(event);
    const finger = fingers.get(event.pointerId);
    if (!finger) {
      if (event.pointerType !== "touch") to.hover(xy);
      return;
    }
    const far = Math.hypot(xy[0] - finger.start[0], xy[1] - finger.start[1]);
    if (!finger.moved && far <= REACH) return;
    clearTimeout(pressed);
    finger.moved = true;
    const before = fingers.size > 1 ? pair() : null;
    const [dx, dy] = [xy[0] - finger.now[0], xy[1] - finger.now[1]];
    finger.now = xy;
    const eye = to.eye();
    if (before) {
      const [middle, apart] = pair();
      const [x, y] = before[0];
      const panned = eye.panned(middle[0] - x, middle[1] - y);
      to.look(panned.zoomed(apart / Math.max(before[1], 1), middle), true);
    } else if (held) held(xy[0] - finger.start[0], xy[1] - finger.start[1], false);
    else if (event.shiftKey || event.ctrlKey || event.buttons > 1) {
      to.look(eye.panned(dx, dy), true);
    } else to.look(eye.turned(-TURN * dx, TURN * dy), true);
  });

  const up = (event: PointerEvent, cancelled: boolean) => {
    const finger = fingers.get(event.pointerId);
    if (!finger) return;
    clearTimeout(pressed);
    fingers.delete(event.pointerId);
    const [x, y] = [finger.now[0] - finger.start[0], finger.now[1] - finger.start[1]];
    held?.(x, y, true);
    held = null;
    if (finger.moved) to.look(to.eye(), fingers.size > 0);
    if (finger.moved || cancelled || event.button > 0) return;
    const xy = finger.now;
    const near = Math.hypot(xy[0] - last.at[0], xy[1] - last.at[1]) < 3 * REACH;
    if (near && event.timeStamp - last.time < DOUBLE) {
      last.time = Number.NEGATIVE_INFINITY;
      to.dive(xy);
      return;
    }
    [last.at, last.time] = [xy, event.timeStamp];
    to.click(xy);
  };
  on("pointerup", (event) => up(event, false));
  on("pointercancel", (event) => up(event, true));
  on("pointerleave", (event) => {
    // A finger leaves when it is lifted: what it has tapped stays.
    if (!fingers.size && event.pointerType !== "touch") to.hover(null);
  });
  on("contextmenu", (event) => event.preventDefault());
  on("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 320 : 1;
    const step = Math.max(-240, Math.min(240, event.deltaY * lines));
    // A pinch on a trackpad comes as a wheel with the control key, in smaller steps.
    const rate = event.ctrlKey ? 0.01 : 0.002;
    to.look(to.eye().zoomed(Math.exp(-rate * step), at(event)), true);
    clearTimeout(wheeling);
    wheeling = window.setTimeout(() => to.look(to.eye(), false), WHEEL);
  });
  element.style.touchAction = "none";
  return () => {
    ended.abort();
    clearTimeout(pressed);
    clearTimeout(wheeling);
  };
}
