// What the panels ask the app to do, and what the app tells them. Panels know nothing of the
// renderer; all that can be shared (colours, switches, selection) goes through the store.

import type { Pair } from "../protocol/messages";

export interface Actions {
  /** Show the whole domain, or the window that was shown first. */
  home(): void;
  /** Zoom about the middle of the picture; a factor above 1 goes deeper. */
  zoom(factor: number): void;
  /** Move the camera by shares of the picture's width and height. */
  pan(right: number, up: number): void;
  /** Look at another place, as closely as now. */
  jump(at: Pair): void;
  /** Keep the region beside the kept one in a direction, or the one so many numbers after it. */
  stepRegion(way: Readonly<Pair> | number): void;
  /** Bring the region at a place into view. */
  flyTo(pane: number, at: Pair): void;
  /** The pictures of all panes, drawn completely, on canvases of their own. */
  pictures(): HTMLCanvasElement[];
  /** What one sees, as the text of an SVG file. */
  svg(): string | Promise<string>;
  /** Go back to the plane as it was at first. */
  resetPlane(pane: number): void;
  /** Turn (radians) and shift (lengths) the plane along each of the pane's directions; done: the
   * slider was let go. */
  movePlane(pane: number, turn: number[], shift: number[], done: boolean): void;
  /** Put an anchor of the plane on a data point. */
  setAnchor(pane: number, anchor: number, point: number): void;
  /** Drag an anchor to a place on the pane's canvas, in CSS pixels; done: the drag has ended. */
  dragAnchor(pane: number, anchor: number, to: Pair, done: boolean): void;
}
