// Questions that wait for their answers, as they are sent through a socket or a notebook.

import { decode } from "./container";
import type { Header, Message, Notice, Request } from "./messages";

interface Waiting {
  text: string;
  resolve: (message: Message) => void;
  reject: (error: Error) => void;
}

/** Numbers requests, and gives each answer to whoever asked. */
export class Correspondence {
  private waiting = new Map<number, Waiting>();
  private listeners: ((notice: Message<Notice>) => void)[] = [];
  // Two views of one widget hear each other's answers, so that numbers begin anywhere.
  private next = 1 + Math.floor(Math.random() * 2 ** 40);

  /** send: transports a request, as JSON, to the other side. */
  constructor(private send: (text: string) => void) {}

  ask(request: Request): Promise<Message> {
    const id = this.next++;
    const text = JSON.stringify({ id, request });
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { text, resolve, reject });
      try {
        this.send(text);
      } catch (error) {
        this.waiting.delete(id);
        reject(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }

  /** Take in the bytes of a message: an answer, or a notice. */
  receive(bytes: Uint8Array): void {
    const message = decode(bytes);
    const { id } = message;
    if (id === null) {
      if (isNotice(message)) for (const listener of [...this.listeners]) listener(message);
      return;
    }
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (message.header.kind === "error") waiting?.reject(new Error(message.header.message));
    else waiting?.resolve(message);
  }

  listen(callback: (notice: Message<Notice>) => void): void {
    this.listeners.push(callback);
  }

  /** Send all requests that wait for an answer once more, after an interruption. */
  repeat(): void {
    for (const each of this.waiting.values()) this.send(each.text);
  }

  /** Give up all requests that wait for an answer. */
  fail(error: Error): void {
    const all = [...this.waiting.values()];
    this.waiting.clear();
    for (const each of all) each.reject(error);
  }
}

function isNotice(message: Message<Header>): message is Message<Notice> {
  return message.header.kind === "frames" || message.header.kind === "state";
}
