import assert from "node:assert/strict";
import { test } from "node:test";
import { ticksThatFit } from "../src/panels/legend";
import { placeOn, ticksOf } from "../src/panels/ticks";
import type { ColorScale } from "../src/protocol/messages";

function scale(type: ColorScale["type"], low: number, high: number, center = 0): ColorScale {
  return { type, low, center, high, extend: "neither" };
}

const labels = (given: ColorScale, most: number) => ticksOf(given, most).map(({ label }) => label);

test("ticks are at round numbers", () => {
  assert.deepEqual(labels(scale("linear", 0, 1), 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
  assert.deepEqual(labels(scale("centered", -12.3, 8.1), 5), ["−10", "−5", "0", "5"]);
  assert.deepEqual(labels(scale("log", 0.03, 41), 6), ["0.1", "1", "10"]);
  assert.deepEqual(labels(scale("log", 2, 40), 6), ["2", "5", "10", "20"]);
  assert.deepEqual(labels(scale("log", 3e-9, 0.02), 4), ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²"]);
  assert.deepEqual(labels(scale("log", 3, 4), 4), ["3.0", "3.5", "4.0"]);
});

test("ticks are placed as colours are", () => {
  assert.equal(placeOn(scale("linear", 2, 4), 3), 0.5);
  assert.ok(Math.abs(placeOn(scale("log", 1, 100), 10) - 0.5) < 1e-12);
  assert.equal(placeOn(scale("centered", -4, 1, 0), 0), 0.5);
  assert.equal(placeOn(scale("centered", -4, 1, 0), -2), 0.25);
  assert.equal(placeOn(scale("centered", -4, 1, 0), 0.5), 0.75);
});

test("limits that make no sense have no ticks", () => {
  const { NaN: none, POSITIVE_INFINITY: infinite } = Number;
  for (const [low, high] of [
    [1, 1],
    [2, 1],
    [none, 1],
    [0, none],
    [0, infinite],
  ] as const) {
    assert.deepEqual(ticksOf(scale("linear", low, high), 5), []);
  }
  assert.deepEqual(ticksOf(scale("log", 0, 1), 5), []);
  assert.deepEqual(ticksThatFit(scale("log", -1, 1), 184), []);
});

test("ticks are within the limits, ascend, differ and are few", () => {
  for (let k = 0; k < 2000; k += 1) {
    const type = (["linear", "log", "centered"] as const)[k % 3]!;
    const size = 10 ** (40 * Math.random() - 20);
    const middle = type === "log" ? 0 : (Math.random() - 0.5) * size;
    const width = size * 10 ** (type === "log" ? 0 : -6 * Math.random());
    const low = type === "log" ? size : middle - width;
    const high = type === "log" ? size * 10 ** (12 * Math.random()) : middle + width;
    const given = scale(type, low, high, middle);
    const ticks = ticksOf(given, 5);
    assert.ok(ticks.length <= 11, `${ticks.length} ${JSON.stringify(given)}`);
    assert.equal(
      new Set(ticks.map(({ label }) => label)).size,
      ticks.length,
      JSON.stringify(ticks),
    );
    for (const [j, { at }] of ticks.entries()) {
      assert.ok(at >= -1e-6 && at <= 1 + 1e-6, JSON.stringify([given, ticks]));
      if (j) assert.ok(at > ticks[j - 1]!.at);
    }
    const fitting = ticksThatFit(given, 184);
    for (const [j, { at }] of fitting.entries()) {
      if (j) assert.ok(184 * (at - fitting[j - 1]!.at) > 10);
    }
  }
});
