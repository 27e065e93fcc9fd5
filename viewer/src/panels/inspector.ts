// What is pointed at: the region, its outputs and its map, and the input at the cursor.

import type { Message, SceneHeader } from "../protocol/messages";
import { box } from "./dom";
import { formatCount } from "./numbers";
import type { ShownRegion } from "./region_info";

export class Inspector {
  readonly body = box("sc-inspector-body");

  showScene(_message: Message<SceneHeader>): void {}

  show(hovered: ShownRegion | null, kept: ShownRegion | null, _compared: ShownRegion | null): void {
    const shown = kept ?? hovered;
    this.body.textContent = shown ? `region ${formatCount(shown.region)}` : "";
  }

  showEdge(_layer: number | null, _unit: number | null): void {}

  showGradient(_mesh: string, _region: number, _output: number, _gradient: Float32Array): void {}
}
