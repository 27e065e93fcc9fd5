// What an address asks for may belong to another scene: only what this scene has is taken.

import type { PaneHeader } from "./protocol/messages";
import type { ViewState } from "./state";

const FAR = 1000; // domains: nobody looks farther away

/** The part of a change that makes sense for a scene. */
export function fitting(
  change: Partial<ViewState>,
  panes: readonly PaneHeader[],
): Partial<ViewState> {
  const fits: { [K in keyof ViewState]?: (value: ViewState[K]) => boolean } = {
    center: (center) => panes.some((pane) => isNear(center, pane)),
    color: (color) => panes.some((pane) => pane.colorings.some(({ name }) => name === color)),
    output: (output) => output === null || panes.some((pane) => output < pane.outputCount),
    frame: (frame) => panes.some((pane) => frame < pane.frames.length),
    selected: (place) => place === null || place.pane < panes.length,
    compared: (place) => place === null || place.pane < panes.length,
  };
  const keys = (Object.keys(change) as (keyof ViewState)[]).filter((key) => {
    const test = fits[key] as ((value: unknown) => boolean) | undefined;
    return test === undefined || test(change[key]);
  });
  const kept: Partial<ViewState> = Object.fromEntries(keys.map((key) => [key, change[key]]));
  if (change.center && !kept.center) delete kept.width; // a place without its width is none
  const layers = Math.max(0, ...panes.map((pane) => pane.layers.length));
  if (kept.hiddenLayers) {
    kept.hiddenLayers = kept.hiddenLayers.filter((layer) => layer < layers);
  }
  return kept;
}

function isNear(center: readonly number[], { domain }: PaneHeader): boolean {
  const [us, vs] = [0, 1].map((axis) => domain.corners.map((corner) => corner[axis]!));
  const size = (numbers: number[]) => Math.max(...numbers) - Math.min(...numbers);
  const reach = FAR * Math.max(size(us!), size(vs!));
  return domain.corners.some((corner) =>
    corner.every((value, axis) => Math.abs(value - center[axis]!) <= reach),
  );
}
