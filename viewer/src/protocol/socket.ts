// Answers from Python through a websocket, which is opened again after an interruption.

import { Correspondence } from "./correspondence";
import type { Message, Notice, Request, Source } from "./messages";

/** After this time without a connection, requests fail, and the viewer says so; milliseconds. */
const PATIENCE = 4000;
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 8000;
const GONE = "Python has gone. What is loaded can still be looked at.";

/** Nobody answers any more; the viewer says so beside the picture, and not over it. */
export class Gone extends Error {
  constructor() {
    super(GONE);
  }
}

export class SocketSource implements Source {
  private socket: WebSocket | null = null;
  private correspondence = new Correspondence((text) => this.send(text));
  private interrupted: (text: string | null) => void = () => {};
  private closed = false;
  private gone = false;
  private pause = FIRST_PAUSE;
  private timer = 0;
  private lostAt = performance.now();

  constructor(private url: string) {
    this.open();
  }

  ask(request: Request): Promise<Message> {
    if (this.closed || this.gone) return Promise.reject(new Gone());
    return this.correspondence.ask(request);
  }

  listen(callback: (notice: Message<Notice>) => void): void {
    this.correspondence.listen(callback);
  }

  onInterruption(callback: (text: string | null) => void): void {
    this.interrupted = callback;
    if (this.gone) callback(GONE);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
    this.correspondence.fail(new Error("The viewer was closed."));
  }

  /** Requests that are made before the socket is open are sent when it opens. */
  private send(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(text);
  }

  private open(): void {
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.pause = FIRST_PAUSE;
      this.gone = false;
      this.interrupted(null);
      this.correspondence.repeat();
    };
    socket.onmessage = (event) => {
      if (!(event.data instanceof ArrayBuffer)) return;
      try {
        this.correspondence.receive(new Uint8Array(event.data));
      } catch (error) {
        this.correspondence.fail(error instanceof Error ? error : new Error(String(error)));
      }
    };
    socket.onclose = (event) => {
      if (this.closed || socket !== this.socket) return;
      if (this.pause === FIRST_PAUSE) this.lostAt = performance.now();
      // 1000 is the other side's good-bye: Python closed the viewer, or ended.
      const patient = event.code !== 1000 && performance.now() - this.lostAt < PATIENCE;
      if (!patient && !this.gone) {
        this.gone = true;
        this.correspondence.fail(new Gone());
        this.interrupted(GONE);
      } else if (!this.gone) {
        this.interrupted("The connection to Python is interrupted; connecting again …");
      }
      if (event.code === 1000) return;
      this.timer = window.setTimeout(() => this.open(), this.pause);
      this.pause = Math.min(2 * this.pause, LONGEST_PAUSE);
    };
  }
}
