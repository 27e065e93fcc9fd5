// Which cells are in a window of the plane.

import type { Box } from "../protocol/messages";
import { segmentMeets } from "./clip";
import type { Reached } from "./flood";
import type { Mesh } from "./mesh";
import type { Picker } from "./picking";

export { REACH, rebased } from "./rebase";

const MARGIN = 0.01; // of the window, by which it is made larger

/** The cells that meet a window, those in its middle first; not complete if more than `limit`.
 *
 * Cells that meet a rectangle hang together by the edges that meet it, so that no other cells are
 * looked at. */
export function visibleCells(
  mesh: Mesh,
  picker: Picker,
  window: Readonly<Box>,
  limit = Number.POSITIVE_INFINITY,
): Reached {
  const start = picker.cellIn(window);
  if (start < 0) return { cells: new Uint32Array(), complete: true };
  const { points, edges } = mesh;
  const [x0, y0] = mesh.toLocal([window[0], window[1]]);
  const [x1, y1] = mesh.toLocal([window[2], window[3]]);
  const [dx, dy] = [MARGIN * (x1 - x0), MARGIN * (y1 - y0)];
  const box: Box = [x0 - dx, y0 - dy, x1 + dx, y1 + dy];
  return picker.flood.from(start, limit, (edge) => {
    const a = 2 * edges[2 * edge]!;
    const b = 2 * edges[2 * edge + 1]!;
    return segmentMeets(points[a]!, points[a + 1]!, points[b]!, points[b + 1]!, box);
  });
}
