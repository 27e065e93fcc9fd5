import assert from "node:assert/strict";
import { test } from "node:test";
import { Camera } from "../src/geometry/camera";
import type { Pair } from "../src/protocol/messages";
import { randomNumbers } from "./subdivisions";

function near(actual: readonly number[], expected: readonly number[], tolerance: number): void {
  actual.forEach((number, k) => {
    const difference = Math.abs(number - expected[k]!);
    assert.ok(difference <= tolerance, `${actual} is not ${expected}: ${difference}`);
  });
}

test("the middle of the screen is the centre, and v points up", () => {
  const camera = new Camera([3, -1], 8, [800, 400]);
  assert.deepEqual(camera.toScreen([3, -1]), [400, 200]);
  assert.deepEqual(camera.toScreen([7, 1]), [800, 0]);
  assert.deepEqual(camera.toPlane([0, 400]), [-1, -3]);
  assert.deepEqual(camera.window, [-1, -3, 7, 1]);
  assert.equal(camera.unitsPerPixel, 0.01);
});

test("a rectangle fits with its margin in both directions", () => {
  for (const pixels of [
    [800, 400],
    [300, 900],
  ] as Pair[]) {
    const camera = Camera.fit([0, 0, 2, 1], pixels, 0.1);
    const [x0, y1] = camera.toScreen([0, 0]);
    const [x1, y0] = camera.toScreen([2, 1]);
    near([Math.min(x0 / pixels[0], y0 / pixels[1])], [0.1], 0.051);
    assert.ok(x0 >= 0.1 * pixels[0] - 1e-9 && y0 >= 0.05 * pixels[1] - 1e-9);
    near([x0 + x1, y0 + y1], pixels, 1e-9);
  }
});

test("zooming about a place keeps it where it is, to 1e-12 of the window at width 1e-9", () => {
  const random = randomNumbers(3);
  for (let trial = 0; trial < 50; trial++) {
    const place: Pair = [2 * random() - 1, 2 * random() - 1];
    let camera = new Camera([place[0] + 0.3, place[1] - 0.2], 2, [1000, 700]);
    const before = camera.toScreen(place);
    for (let step = 0; step < 200; step++) {
      camera = camera.zoomed(10 ** (9 / 200), before);
    }
    near([camera.width], [2e-9], 1e-20);
    near(camera.toScreen(place), before, 1e-3); // a pixel of the wide window is known to 1e-16 only
    const now = camera.toScreen(place);
    near(camera.zoomed(1.7, now).toScreen(place), now, 1e-12 * 1000);
    near(camera.zoomed(0.3, now).toScreen(place), now, 1e-12 * 1000);
  }
});

test("panning far and back at width 1e-12 returns to the same place", () => {
  let camera = new Camera([0.7, -0.3], 1e-12, [1000, 1000]);
  const start = camera.toScreen([0.7, -0.3]);
  for (let k = 0; k < 1000; k++) camera = camera.panned(0.37, -0.11);
  near(camera.toScreen([0.7, -0.3]), [start[0] + 370, start[1] - 110], 1e-9);
  for (let k = 0; k < 1000; k++) camera = camera.panned(-0.37, 0.11);
  near(camera.toScreen([0.7, -0.3]), start, 1e-9);
});

test("limits hold the width, and the place stays fixed at them", () => {
  const limits = Camera.limits([-1, -1, 1, 1]);
  const camera = new Camera([0.1, 0.2], 1e-11, [600, 600]);
  const place = camera.toPlane([450, 100]);
  const before = camera.toScreen(place);
  const near_ = camera.zoomed(1e6, before, limits);
  assert.equal(near_.width, limits[0]);
  near(near_.toScreen(place), before, 1e-9);
  assert.equal(camera.zoomed(1e-30, [0, 0], limits).width, limits[1]);
});

test("two fingers keep the places under them", () => {
  const camera = new Camera([0, 0], 2, [500, 500]);
  const from: [Pair, Pair] = [
    [100, 200],
    [300, 200],
  ];
  const to: [Pair, Pair] = [
    [150, 250],
    [450, 250],
  ];
  const after = camera.pinched(from, to);
  from.forEach((finger, k) => {
    near(after.toScreen(camera.toPlane(finger)), to[k]!, 1e-9);
  });
});

test("another size of the screen keeps centre and scale", () => {
  const camera = new Camera([1, 2], 4, [400, 300], [1e-17, 0]).resized([800, 100]);
  assert.deepEqual([camera.width, camera.center, camera.rest[0]], [8, [1, 2], 1e-17]);
});

test("a flight begins and ends where it should, without a jump on the way", () => {
  const wide = new Camera([0, 0], 2, [800, 600]);
  const deep = new Camera([0.3, -0.7], 1e-9, [800, 600], [1e-18, 0]);
  const near_ = new Camera([0.3 + 3e-9, -0.7], 1e-9, [800, 600]);
  for (const [a, b] of [
    [wide, deep],
    [deep, wide],
    [deep, near_],
    [wide, wide],
  ] as const) {
    assert.deepEqual(Camera.between(a, b, 0), a);
    assert.deepEqual(Camera.between(a, b, 1), b);
    const length = Camera.flightLength(a, b);
    let last = Camera.between(a, b, 0);
    for (let step = 1; step <= 400; step++) {
      const now = Camera.between(a, b, step / 400);
      const seen = Math.hypot(...last.offset(now.center)) / last.width;
      assert.ok(seen < 0.1 + length / 100, `moved by ${seen} windows at ${step}`);
      assert.ok(Math.abs(Math.log(now.width / last.width)) < 0.01 + length / 100);
      last = now;
    }
  }
});

test("a flight to the same centre zooms evenly", () => {
  const a = new Camera([0.3, 0], 1, [100, 100]);
  const b = new Camera([0.3, 0], 1e-6, [100, 100]);
  near([Math.log10(Camera.between(a, b, 0.5).width)], [-3], 1e-9);
  assert.deepEqual(Camera.between(a, b, 0.25).center, [0.3, 0]);
});
