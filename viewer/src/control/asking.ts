// Questions to Python or to the file, and answers of the expected kind.

import type { Header, MeshHeader, Message, Request, Source } from "../protocol/messages";

// One kind of message for each kind of header.
type Of<K extends Header["kind"]> = K extends Header["kind"]
  ? Message<Extract<Header, { kind: K }>>
  : never;

/** The answer if it is of one of some kinds; null if a newer request replaced this one. */
export async function askFor<K extends Header["kind"]>(
  source: Source,
  request: Request,
  ...kinds: K[]
): Promise<Of<K> | null> {
  const message = await source.ask(request);
  if (message.header.kind === "dropped") return null;
  if (!(kinds as string[]).includes(message.header.kind)) {
    throw new Error(`The answer to "${request.ask}" is a "${message.header.kind}".`);
  }
  return message as unknown as Of<K>;
}

/** Whether an answer is a mesh, not the pixels that stand for one. */
export function isMesh(message: Message): message is Message<MeshHeader> {
  return message.header.kind === "mesh";
}
