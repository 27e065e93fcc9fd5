import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, decodeArchive } from "../src/protocol/container";
import { crc32 } from "../src/protocol/crc32";
import { randomNumbers } from "./subdivisions";

interface Given {
  dtype: string;
  bytes: Uint8Array;
  shape: number[];
  encoding?: string;
}

/** The bytes of a message, written by the description in the README. */
function packed(message: object, arrays: Record<string, Given>, checksum = true): Uint8Array {
  const about: Record<string, object> = {};
  const body: number[] = [];
  for (const [name, { bytes, ...rest }] of Object.entries(arrays)) {
    about[name] = { ...rest, at: body.length };
    body.push(...bytes, ...new Array((8 - (bytes.length % 8)) % 8).fill(0));
  }
  let header = JSON.stringify({ message, arrays: about, id: 7 });
  while ((12 + new TextEncoder().encode(header).length) % 8) header += " ";
  const text = new TextEncoder().encode(header);
  const result = new Uint8Array(12 + text.length + body.length);
  result.set(new TextEncoder().encode("SPCM"));
  result.set(text, 12);
  result.set(body, 12 + text.length);
  const view = new DataView(result.buffer);
  view.setUint32(4, text.length, true);
  view.setUint32(8, checksum ? crc32(result.subarray(12)) : 0, true);
  return result;
}

function archived(answers: [string, Uint8Array][]): Uint8Array {
  const body: number[] = [];
  const pad = () => body.push(...new Array((8 - (body.length % 8)) % 8).fill(0));
  for (const [name, bytes] of answers) {
    const key = new TextEncoder().encode(name);
    body.push(...new Uint8Array(Uint32Array.of(key.length, bytes.length).buffer), ...key);
    pad();
    body.push(...bytes);
    pad();
  }
  const result = new Uint8Array(16 + body.length);
  result.set(new TextEncoder().encode("SPCA"));
  result.set(body, 16);
  const view = new DataView(result.buffer);
  view.setUint32(4, answers.length, true);
  view.setUint32(8, crc32(result.subarray(16)), true);
  return result;
}

const bytesOf = (array: Float64Array | Uint32Array | Int16Array | Float32Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

const example = (checksum = true) =>
  packed(
    { kind: "ok", name: "große x₁" },
    {
      whole: { dtype: "u4", bytes: bytesOf(Uint32Array.of(5, 4_000_000_000, 7)), shape: [3] },
      pairs: { dtype: "f8", bytes: bytesOf(Float64Array.of(0.5, -1, 2, 1e-9)), shape: [2, 2] },
    },
    checksum,
  );

test("the checksum is that of zip", () => {
  assert.equal(crc32(new TextEncoder().encode("123456789")), 0xcbf43926);
  assert.equal(crc32(new Uint8Array()), 0);
});

test("a message is read as it was written, without copies where it is aligned", () => {
  const bytes = example();
  const { header, arrays, id } = decode(bytes);
  assert.deepEqual(header, { kind: "ok", name: "große x₁" });
  assert.equal(id, 7);
  assert.deepEqual(arrays.whole!.data, Uint32Array.of(5, 4_000_000_000, 7));
  assert.deepEqual(arrays.pairs, { data: Float64Array.of(0.5, -1, 2, 1e-9), shape: [2, 2] });
  assert.equal(arrays.pairs!.data.buffer, bytes.buffer);
  assert.deepEqual(decode(bytes.buffer as ArrayBuffer).arrays, arrays);
});

test("a message at an odd place is read as well", () => {
  const bytes = example();
  const shifted = new Uint8Array(bytes.length + 3);
  shifted.set(bytes, 3);
  assert.deepEqual(decode(shifted.subarray(3)).arrays, decode(bytes).arrays);
});

test("encodings are undone", () => {
  const numbers = Uint32Array.of(10, 12, 9, 4_000_000_000);
  const differences = numbers.map((number, k) => number - (numbers[k - 1] ?? 0));
  const shuffled = (array: Uint8Array, size: number) => {
    const count = array.length / size;
    return Uint8Array.from(array, (_, k) => array[(k % count) * size + Math.floor(k / count)]!);
  };
  const small = Int16Array.of(-1, 300, -300);
  const steps = Int16Array.of(-1, 301, -600);
  const { arrays } = decode(
    packed(
      { kind: "ok" },
      {
        a: { dtype: "u4", bytes: bytesOf(differences), shape: [4], encoding: "delta" },
        b: { dtype: "u4", bytes: shuffled(bytesOf(numbers), 4), shape: [4], encoding: "shuffle" },
        c: {
          dtype: "u4",
          bytes: shuffled(bytesOf(differences), 4),
          shape: [4],
          encoding: "delta,shuffle",
        },
        d: { dtype: "i2", bytes: bytesOf(steps), shape: [3], encoding: "delta" },
        e: {
          dtype: "f4",
          bytes: shuffled(bytesOf(Float32Array.of(1, -2.5)), 4),
          shape: [2],
          encoding: "shuffle",
        },
      },
    ),
  );
  for (const name of ["a", "b", "c"]) assert.deepEqual(arrays[name]!.data, numbers);
  assert.deepEqual(arrays.d!.data, small);
  assert.deepEqual(arrays.e!.data, Float32Array.of(1, -2.5));
});

test("no damaged byte of a message is missed", () => {
  const bytes = example();
  for (let k = 0; k < bytes.length; k++) {
    for (const bit of [1, 16, 128, 255]) {
      const damaged = bytes.slice();
      damaged[k]! ^= bit;
      assert.throws(() => decode(damaged), /damaged/, `byte ${k}`);
    }
  }
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => decode(bytes.slice(0, length)), /damaged/);
  }
});

test("without a checksum, a damaged message is an error or has arrays of the same lengths", () => {
  const bytes = example(false);
  for (let k = 0; k < bytes.length; k++) {
    const damaged = bytes.slice();
    damaged[k]! ^= 1;
    try {
      for (const { data, shape } of Object.values(decode(damaged).arrays)) {
        assert.equal(
          data.length,
          shape.reduce((a, b) => a * b, 1),
        );
      }
    } catch (error) {
      assert.match((error as Error).message, /damaged|checksum/);
    }
  }
});

test("an archive gives the answers by their keys", () => {
  const bytes = archived([
    ['{"ask":"scene"}', example(false)],
    ["other", packed({ kind: "ok" }, {}, false)],
  ]);
  const answers = decodeArchive(bytes);
  assert.deepEqual([...answers.keys()], ['{"ask":"scene"}', "other"]);
  assert.deepEqual(decode(answers.get('{"ask":"scene"}')!).arrays, decode(example()).arrays);
  assert.equal(answers.get("other")!.byteOffset % 8, 0);
});

test("no damaged byte of an archive is missed", () => {
  const bytes = archived([
    ["first", example(false)],
    ["second", example(false)],
  ]);
  const content = JSON.stringify([...decodeArchive(bytes)]);
  for (let k = 0; k < bytes.length; k++) {
    const damaged = bytes.slice();
    damaged[k]! ^= 4;
    try {
      assert.equal(JSON.stringify([...decodeArchive(damaged)]), content);
      assert.ok(k >= 12 && k < 16, `byte ${k}`); // padding
    } catch (error) {
      assert.match((error as Error).message, /file is damaged/);
    }
  }
});

test("lengths that lie are no reason to hang", () => {
  const array = { dtype: "f8", bytes: new Uint8Array(8), shape: [1] };
  for (const shape of [[1e15], [-1], [0.5], [2, 2 ** 60], ["4"]] as number[][]) {
    assert.throws(() => decode(packed({ kind: "ok" }, { x: { ...array, shape } })), /damaged/);
  }
  const more = { ...array, encoding: "delta" };
  assert.throws(() => decode(packed({ kind: "ok" }, { x: more })), /unknown encoding/);
  assert.throws(() => decode(packed({ kind: "ok" }, { x: { ...array, dtype: "f2" } })), /damaged/);
});

test("how fast 64 MB are checked", (context) => {
  const random = randomNumbers(1);
  const bytes = new Uint8Array(1 << 26);
  for (let k = 0; k < bytes.length; k += 64) bytes[k] = 256 * random();
  const start = performance.now();
  crc32(bytes);
  context.diagnostic(`${(performance.now() - start).toFixed(0)} ms`);
});
