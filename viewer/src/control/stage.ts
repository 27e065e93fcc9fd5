// What the controllers of a viewer share.

import type { Panels } from "../panels/panels";
import type { SceneHeader, Source } from "../protocol/messages";
import type { Store } from "../state";
import type { PaneView } from "./panes";
import type { View } from "./view";

export interface Stage {
  readonly source: Source;
  readonly scene: SceneHeader;
  readonly store: Store;
  readonly panels: Panels;
  readonly view: View;
  readonly panes: PaneView[];
  readonly disposed: boolean;
  /** Draw with the next frame of the screen. */
  redraw(): void;
  /** Count work that goes on, so that one can wait for its end; failures are reported. */
  track(work: Promise<unknown>): void;
  report(error: unknown): void;
}
