import assert from "node:assert/strict";
import { test } from "node:test";
import { Latest, Recent } from "../src/control/latest";
import { decodeBase64, fromBase64, keyOf } from "../src/protocol/embedded";

test("the key of a request has sorted names and no spaces", () => {
  const request = { pane: 0, frame: 2, ask: "mesh" } as const;
  assert.equal(keyOf(request), '{"ask":"mesh","frame":2,"pane":0}');
});

test("base64 is decoded with and without the browser's help", () => {
  const bytes = Uint8Array.from({ length: 259 }, (_, k) => (k * 37) % 256);
  for (let length = 0; length < 8; length++) {
    const part = bytes.subarray(0, 250 + length);
    const text = Buffer.from(part).toString("base64");
    assert.deepEqual(decodeBase64(`${text.slice(0, 76)}\n${text.slice(76)}\n`), part.slice());
    assert.deepEqual(new Uint8Array(fromBase64(text)), part.slice());
  }
  assert.throws(() => decodeBase64("AAA*"), /damaged/);
  assert.throws(() => decodeBase64("AAAé"), /damaged/);
});

test("of tasks that come while one runs, only the newest is run", async () => {
  const done: number[] = [];
  let release = () => {};
  const latest = new Latest<number>(async (item) => {
    await new Promise<void>((resolve) => {
      release = resolve;
    });
    done.push(item);
  });
  for (const item of [1, 2, 3]) latest.push(item);
  release();
  await new Promise((resolve) => setTimeout(resolve));
  release();
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(done, [1, 3]);
  assert.equal(latest.busy, false);
});

test("what runs is outdated after a drop, and goes on for newer tasks", async () => {
  const seen: [number, boolean][] = [];
  const latest = new Latest<number>(async (item, outdated) => {
    await Promise.resolve();
    seen.push([item, outdated()]);
  });
  latest.push(1);
  latest.drop();
  latest.push(2);
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(seen, [
    [1, true],
    [2, false],
  ]);
});

test("an urgent task does not wait for the one that runs", async () => {
  const seen: [number, boolean][] = [];
  const ends: (() => void)[] = [];
  const latest = new Latest<number>(async (item, outdated) => {
    await new Promise<void>((resolve) => ends.push(resolve));
    seen.push([item, outdated()]);
  });
  latest.push(1);
  latest.push(2);
  latest.push(3, true);
  assert.equal(ends.length, 2);
  for (const end of ends) end();
  await new Promise((resolve) => setTimeout(resolve));
  assert.deepEqual(seen, [
    [1, true],
    [3, false],
  ]);
  assert.equal(latest.busy, false);
});

test("the oldest is forgotten", () => {
  const gone: number[] = [];
  const recent = new Recent<number>(2, (value) => gone.push(value));
  recent.set("a", 1);
  recent.set("b", 2);
  recent.get("a");
  recent.set("c", 3);
  assert.deepEqual(gone, [2]);
  assert.equal(recent.get("b"), undefined);
  assert.equal(recent.get("a"), 1);
});
