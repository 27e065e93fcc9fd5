// The names of the axes, at the edges of the box.

import { show, text } from "../panels/dom";
import { subscript } from "../panels/numbers";
import type { Message } from "../protocol/messages";
import type { Eye } from "./eye";
import type { SolidHeader } from "./messages";
import { row, type Vec3 } from "./vectors";

const APART = 15; // pixels from the box

export class Labels {
  private readonly names = [1, 2, 3].map((k) => text("sc-axis-name", subscript("x", k)));
  private corners: Vec3[] = [];

  /** overlay: what lies over the picture. */
  set overlay(overlay: HTMLElement) {
    overlay.replaceChildren(...this.names);
    for (const name of this.names) show(name, false);
  }

  /** A box of eight corners has names at its edges, others have none. */
  setBox({ header, arrays }: Message<SolidHeader>): void {
    const { data, shape } = arrays.corners!;
    const corners = Array.from({ length: shape[0]! }, (_, k) => row(data, k));
    this.corners = corners.length === 8 ? corners : [];
    for (const [k, name] of this.names.entries()) {
      name.textContent = subscript(header.plain ? "x" : "u", k + 1);
      show(name, this.corners.length > 0);
    }
  }

  /** Put each name beside the edge along its axis that is nearest to the lower border. */
  place(eye: Eye): void {
    if (!this.corners.length) return;
    const [cx, cy] = eye.toScreen([0, 0, 0]);
    for (const [axis, name] of this.names.entries()) {
      let [x, y, best] = [0, 0, Number.NEGATIVE_INFINITY];
      for (const corner of this.corners) {
        if (corner[axis]! > 0) continue;
        const other = corner.map((each, k) => (k === axis ? 0 : each)) as unknown as Vec3;
        const [px, py, depth] = eye.toScreen(other);
        // Low, and on the outline: far from the middle.
        const rank = py - cy + 0.6 * Math.abs(px - cx) - 1e-3 * depth;
        if (rank > best) [x, y, best] = [px, py, rank];
      }
      const [dx, dy] = [x - cx, y - cy];
      const far = Math.hypot(dx, dy) || 1;
      const [left, top] = [x + (APART * dx) / far, y + (APART * dy) / far];
      name.style.transform = `translate(${left.toFixed(1)}px, ${top.toFixed(1)}px) translate(-50%, -50%)`;
    }
  }
}
