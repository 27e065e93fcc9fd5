// The plane is moved: one request at a time, of which only the newest matters.

import type { PlaneRequest } from "../protocol/messages";
import { askFor } from "./asking";
import { Latest } from "./latest";
import type { PaneView } from "./panes";
import type { Stage } from "./stage";

/** A request that is made when its turn comes, from how things are then; equal keys: the same. */
interface Move {
  key: string;
  request(): PlaneRequest | null;
}

/** Moves the plane of one pane. */
export class Planes {
  private begun = "";
  private queue = new Latest<Move>((move, outdated) => this.work(move, outdated));

  /** moves: asks for the mesh of the new plane, and resolves when it is there; moved: shows it. */
  constructor(
    private stage: Stage,
    private pane: PaneView,
    private moves: () => Promise<unknown>,
    private moved: () => Promise<void>,
  ) {}

  get busy(): boolean {
    return this.queue.busy;
  }

  /** Move the plane; last: the gesture has ended, so that what runs is not waited for. */
  push(move: Move, last: boolean): void {
    // When a gesture ends, its last move is mostly under way or done already.
    if (move.key === this.begun && (last || !this.queue.busy)) return;
    this.queue.push(move, last);
  }

  dispose(): void {
    this.queue.drop();
  }

  private async work(move: Move, outdated: () => boolean): Promise<void> {
    const { pane, stage } = this;
    this.begun = move.key;
    const request = move.request();
    if (!request) return;
    try {
      // A plane is shown together with its mesh: nothing is drawn while Python computes it, which
      // would take the processor from both.
      const asked = askFor(stage.source, request, "plane");
      const arrives = this.moves();
      const answer = await asked;
      await arrives;
      if (!answer || outdated() || stage.disposed) return;
      pane.setPlane(answer.header.header, answer.arrays);
      stage.panels.showPane(pane.index, pane.header, pane.arrays);
      await this.moved();
    } catch (error) {
      this.begun = "";
      if (!outdated() && !stage.disposed) stage.report(error);
    } finally {
      stage.redraw(); // finishing touches wait until nothing moves
    }
  }
}
