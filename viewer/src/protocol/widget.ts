// Answers from Python through the messages of a notebook's widget (anywidget).

import { Correspondence } from "./correspondence";
import type { Message, Notice, Request, Source } from "./messages";

/** What is used of anywidget's model. */
export interface WidgetModel {
  send(content: unknown, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
  on(event: "msg:custom", callback: (content: unknown, buffers: DataView[]) => void): void;
  off(event: "msg:custom", callback: (content: unknown, buffers: DataView[]) => void): void;
}

/** Requests travel as content, `{id, request}`; an answer is the one buffer of a message. */
export class WidgetSource implements Source {
  private correspondence: Correspondence;
  private receive = (_: unknown, buffers: DataView[]) => {
    for (const view of buffers ?? []) {
      try {
        // A view may begin anywhere in its buffer, whereas arrays must be aligned.
        const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
        this.correspondence.receive(view.byteOffset % 8 === 0 ? bytes : bytes.slice());
      } catch (error) {
        this.correspondence.fail(error instanceof Error ? error : new Error(String(error)));
      }
    }
  };

  constructor(private model: WidgetModel) {
    this.correspondence = new Correspondence((text) => model.send(JSON.parse(text)));
    model.on("msg:custom", this.receive);
  }

  ask(request: Request): Promise<Message> {
    return this.correspondence.ask(request);
  }

  listen(callback: (notice: Message<Notice>) => void): void {
    this.correspondence.listen(callback);
  }

  /** A notebook does not tell when its kernel has gone. */
  onInterruption(): void {}

  close(): void {
    this.model.off("msg:custom", this.receive);
    this.correspondence.fail(new Error("The viewer was closed."));
  }
}
