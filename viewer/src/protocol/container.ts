// Bytes of messages and of files of messages, as `viewer/README.md` describes them.
//
// Every length is checked before it is used: damaged bytes become an Error with a plain sentence,
// never arrays of something else.

import { crc32 } from "./crc32";
import type { Header, Message, NumberArray } from "./messages";

/** A message, with the number of the request that it answers, or null if none was asked. */
export interface Decoded extends Message {
  id: number | null;
}

interface ArrayHeader {
  dtype: string;
  shape: number[];
  at: number;
  encoding?: string;
}

const TYPES = {
  f8: Float64Array,
  f4: Float32Array,
  u4: Uint32Array,
  i4: Int32Array,
  u2: Uint16Array,
  i2: Int16Array,
  u1: Uint8Array,
  i1: Int8Array,
};

/** The message in the bytes. Arrays are views of these bytes where they are aligned and not encoded.
 *
 * verify: compare the checksum, if the message has one; a file is verified as a whole. */
export function decode(bytes: ArrayBuffer | Uint8Array, verify = true): Decoded {
  const all = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
  if (all.length < 12 || ascii(all, 4) !== "SPCM") {
    throw damaged("it does not begin with SPCM");
  }
  const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
  const length = view.getUint32(4, true);
  if (length > all.length - 12 || (12 + length) % 8 !== 0) {
    throw damaged(`its header would have ${length} bytes of ${all.length}`);
  }
  const sum = view.getUint32(8, true);
  if (verify && sum !== 0 && crc32(all.subarray(12)) !== sum) {
    throw damaged("its checksum does not fit its content");
  }
  const header = parsed(all.subarray(12, 12 + length));
  const body = all.subarray(12 + length);
  const arrays: Message["arrays"] = {};
  let end = 0;
  for (const [name, array] of Object.entries(header.arrays)) {
    const [data, last] = arrayOf(body, name, array);
    arrays[name] = { data, shape: array.shape };
    end = Math.max(end, last);
  }
  if (body.length < end || body.length > padded(end)) {
    throw damaged(`its arrays have ${body.length} bytes in place of ${padded(end)}`);
  }
  return { header: header.message, arrays, id: header.id };
}

/** The answers in the bytes of an archive, by the key of the request that each answers. */
export function decodeArchive(bytes: ArrayBuffer | Uint8Array): Map<string, Uint8Array> {
  const all = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
  if (all.length < 16 || ascii(all, 4) !== "SPCA") {
    throw damaged("its data do not begin with SPCA", "file");
  }
  const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
  if (crc32(all.subarray(16)) !== view.getUint32(8, true)) {
    throw damaged("its checksum does not fit its content", "file");
  }
  const answers = new Map<string, Uint8Array>();
  let at = 16;
  const next = (length: number): Uint8Array => {
    const piece = all.subarray(at, at + length);
    at += padded(length);
    if (at > all.length) throw damaged("it ends too early", "file");
    return piece;
  };
  for (let count = view.getUint32(4, true); count > 0; count--) {
    if (at + 8 > all.length) throw damaged("it ends too early", "file");
    const keyLength = view.getUint32(at, true);
    const length = view.getUint32(at + 4, true);
    at += 8;
    const key = new TextDecoder().decode(next(keyLength));
    answers.set(key, next(length));
  }
  if (at !== all.length) throw damaged("it has bytes after its last answer", "file");
  return answers;
}

function damaged(why: string, what = "message"): Error {
  return new Error(`This ${what} is damaged: ${why}. Load it again, or write it anew.`);
}

function padded(length: number): number {
  return Math.ceil(length / 8) * 8;
}

function ascii(bytes: Uint8Array, length: number): string {
  return String.fromCharCode(...bytes.subarray(0, length));
}

interface Parsed {
  message: Header;
  arrays: Record<string, ArrayHeader>;
  id: number | null;
}

function parsed(bytes: Uint8Array): Parsed {
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw damaged("its header cannot be read");
  }
  const { message, arrays, id } = isRecord(header) ? header : {};
  if (!isRecord(message) || typeof message.kind !== "string") {
    throw damaged("its header does not say what it is");
  }
  const checked: Record<string, ArrayHeader> = {};
  for (const [name, array] of Object.entries(isRecord(arrays) ? arrays : {})) {
    if (!isArrayHeader(array)) throw damaged(`its array ${name} is not described`);
    checked[name] = array;
  }
  return {
    message: message as unknown as Header,
    arrays: checked,
    id: typeof id === "number" ? id : null,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isArrayHeader(value: unknown): value is ArrayHeader {
  return (
    isRecord(value) &&
    typeof value.dtype === "string" &&
    Object.hasOwn(TYPES, value.dtype) &&
    Array.isArray(value.shape) &&
    value.shape.every(isLength) &&
    isLength(value.at) &&
    value.at % 8 === 0 &&
    (value.encoding === undefined || typeof value.encoding === "string")
  );
}

function isLength(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** An array of the message, and where its bytes end. */
function arrayOf(body: Uint8Array, name: string, header: ArrayHeader): [NumberArray, number] {
  const type = TYPES[header.dtype as keyof typeof TYPES];
  const size = type.BYTES_PER_ELEMENT;
  const count = header.shape.reduce((product, side) => product * side, 1);
  const end = header.at + count * size;
  if (end > body.length) throw damaged(`its array ${name} ends beyond its bytes`);
  let bytes = body.subarray(header.at, end);
  const encodings = header.encoding ? header.encoding.split(",") : [];
  for (const encoding of encodings.reverse()) {
    if (encoding === "shuffle") bytes = unshuffled(bytes, size);
    else if (encoding === "delta" && header.dtype[0] !== "f")
      bytes = summed(bytes, size as 1 | 2 | 4);
    else throw damaged(`its array ${name} has the unknown encoding ${encoding}`);
  }
  if (bytes.byteOffset % size !== 0) bytes = bytes.slice();
  return [new type(bytes.buffer as ArrayBuffer, bytes.byteOffset, count), end];
}

/** The bytes of numbers, of which the first bytes came first, then the second bytes, and so on. */
function unshuffled(bytes: Uint8Array, size: number): Uint8Array {
  const result = new Uint8Array(bytes.length);
  const count = bytes.length / size;
  for (let place = 0; place < size; place++) {
    const from = place * count;
    for (let k = 0, to = place; k < count; k++, to += size) result[to] = bytes[from + k]!;
  }
  return result;
}

/** The bytes of integers that are given by their differences. */
function summed(bytes: Uint8Array, size: 1 | 2 | 4): Uint8Array {
  const copy = bytes.slice();
  const type = size === 4 ? Uint32Array : size === 2 ? Uint16Array : Uint8Array;
  const numbers = new type(copy.buffer);
  let sum = 0;
  for (let k = 0; k < numbers.length; k++) {
    sum = (sum + numbers[k]!) | 0;
    numbers[k] = sum;
  }
  return copy;
}
