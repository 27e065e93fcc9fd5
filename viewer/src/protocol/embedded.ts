// Answers that lie in the page itself, so that a file needs neither server nor Python.

import { decode, decodeArchive } from "./container";
import type { Message, Request, Source } from "./messages";

const DAMAGED = "The data in this file is damaged";

/** The answers of an archive, found by request. */
export class EmbeddedSource implements Source {
  private constructor(private answers: Map<string, Uint8Array>) {}

  /** Read the archive from the text of an element: base64 of deflated bytes. */
  static async read(text: string): Promise<EmbeddedSource> {
    const packed = fromBase64(text);
    const bytes = await inflate(packed);
    return new EmbeddedSource(decodeArchive(bytes));
  }

  async ask(request: Request): Promise<Message> {
    const bytes = this.answers.get(keyOf(request));
    if (!bytes) throw new Error("This is not in the file; it needs Python to be computed.");
    const message = decode(bytes, false);
    if (message.header.kind === "error") throw new Error(message.header.message);
    return message;
  }

  /** Whether the file holds the answer. */
  has(request: Request): boolean {
    return this.answers.has(keyOf(request));
  }

  listen(): void {}

  onInterruption(): void {}

  close(): void {
    this.answers.clear();
  }
}

/** The name of a request's answer: the request as JSON with sorted keys, without spaces. */
export function keyOf(request: Request): string {
  return JSON.stringify(sorted(request));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, each]) => [key, sorted(each)]));
}

interface FromBase64 {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** The bytes of a text in base64; spaces and ends of lines are skipped. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as FromBase64).fromBase64;
  if (!native) return decodeBase64(text);
  try {
    return native.call(Uint8Array, text);
  } catch {
    throw new Error(`${DAMAGED}: it holds a character that does not belong there.`);
  }
}

/** As `fromBase64`, for browsers that do not have it. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const table = new Int16Array(128).fill(-1);
  for (let k = 0; k < 64; k++) table[alphabet.charCodeAt(k)] = k;
  const trimmed = text.trimEnd().replace(/={1,2}$/, "");
  const bytes = new Uint8Array(Math.floor((trimmed.length * 3) / 4));
  let at = 0;
  let bits = 0;
  let held = 0;
  for (let k = 0; k < trimmed.length; k++) {
    const code = trimmed.charCodeAt(k);
    const value = code < 128 ? table[code]! : -1;
    if (value < 0) {
      if (code === 10 || code === 13 || code === 32 || code === 9) continue;
      throw new Error(`${DAMAGED}: it holds a character that does not belong there.`);
    }
    held = ((held << 6) | value) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = held >> bits;
    }
  }
  return bytes.subarray(0, at);
}

/** What deflated bytes hold, in one piece. */
async function inflate(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser is too old to read the file (it has no DecompressionStream).");
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new Error(`${DAMAGED}: it cannot be unpacked.`);
  }
}
