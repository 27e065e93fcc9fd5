// How outputs are named and coloured.

import type { PaneHeader } from "../protocol/messages";
import type { ViewState } from "../state";

/** The name of an output, also of one that has none. */
export function outputName(pane: PaneHeader, output: number): string {
  return pane.outputs[output] ?? `output ${output}`;
}

/** The output that is drawn: the chosen one, or else the first. */
export function chosenOutput(state: Readonly<ViewState>): number {
  return state.output ?? 0;
}

/** The name of the class that an output stands for, or its own name. */
export function outputLabel(pane: PaneHeader, output: number): string {
  return classOf(pane, output)?.name ?? outputName(pane, output);
}

/** The colour of the class that an output stands for, or none. */
export function outputColor(pane: PaneHeader, output: number): string {
  return classOf(pane, output)?.color ?? "";
}

function classOf(pane: PaneHeader, output: number): { name: string; color: string } | undefined {
  const one = pane.outputCount === 1; // a single output has two classes, below and above a level
  return one ? undefined : pane.classes?.[output];
}

/** The name of a layer, which is that of Python: `part.layers[layer]`. */
export function layerName({ layers }: Pick<PaneHeader, "layers">, layer: number): string {
  return layers[layer]?.name ?? String(layer);
}

/** What draws an edge, in the words of Python: "layer net.3, unit 5". */
export function unitName(pane: PaneHeader, layer: number, unit: number): string {
  return `layer ${layerName(pane, layer)}${unit < 0 ? "" : `, unit ${unit}`}`;
}
