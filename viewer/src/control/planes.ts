// The plane is moved: one request at a time, of which only the newest matters.

import type { PlaneRequest } from "../protocol/messages";
import { askFor } from "./asking";
import { Latest } from "./latest";
import type { PaneView } from "./panes";
import type { Stage } from "./stage";

/** A request that is made when its turn comes, from how things are then. */
type Move = () => PlaneRequest | null;

/** Moves the plane of one pane. */
export class Planes {
  private moves = new Latest<Move>((move, outdated) => this.work(move, outdated));

  /** moved: loads the meshes of the new plane. */
  constructor(
    private stage: Stage,
    private pane: PaneView,
    private moved: () => Promise<void>,
  ) {}

  get busy(): boolean {
    return this.moves.busy;
  }

  push(move: Move): void {
    this.moves.push(move);
  }

  dispose(): void {
    this.moves.drop();
  }

  private async work(move: Move, outdated: () => boolean): Promise<void> {
    const { pane, stage } = this;
    const request = move();
    if (!request) return;
    try {
      const answer = await askFor(stage.source, request, "plane");
      if (!answer || outdated() || stage.disposed) return;
      pane.setPlane(answer.header.header, answer.arrays);
      stage.panels.showPane(pane.index, pane.header, pane.arrays);
      await this.moved();
    } catch (error) {
      if (!outdated() && !stage.disposed) stage.report(error);
    }
  }
}
