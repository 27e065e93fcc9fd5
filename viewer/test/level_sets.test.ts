import assert from "node:assert/strict";
import { test } from "node:test";
import { chained } from "../src/geometry/curves";
import { levelSet } from "../src/geometry/level_sets";
import type { Pair } from "../src/protocol/messages";
import { gridMesh, randomSubdivision, square } from "./subdivisions";

function lengthOf(segments: Float64Array): number {
  let sum = 0;
  for (let k = 0; k < segments.length; k += 4) {
    sum += Math.hypot(segments[k + 2]! - segments[k]!, segments[k + 3]! - segments[k + 1]!);
  }
  return sum;
}

/** How often each end of a segment occurs, by its exact coordinates. */
function ends(segments: Float64Array): Map<string, number> {
  const counts = new Map<string, number>();
  for (let k = 0; k < segments.length; k += 2) {
    const name = `${segments[k]},${segments[k + 1]}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}

test("the level set of an affine function is one connected line", () => {
  for (let seed = 0; seed < 8; seed++) {
    const mesh = randomSubdivision(seed, 10, 20).mesh(([u, v]) => [7, u + 2 * v]);
    const segments = levelSet(mesh, 1, 0.3);
    for (let k = 0; k < segments.length; k += 2) {
      assert.ok(Math.abs(segments[k]! + 2 * segments[k + 1]! - 0.3) < 1e-6);
    }
    // From u = -1, v = 0.65 to u = 1, v = -0.35.
    assert.ok(Math.abs(lengthOf(segments) - Math.hypot(2, 1)) < 1e-6);
    const single = [...ends(segments).values()].filter((count) => count % 2 === 1);
    assert.equal(single.length, 2);
    assert.equal(levelSet(mesh, 1, 5).length, 0);
    assert.equal(levelSet(mesh, 0, 0).length, 0);
  }
});

test("segments of a level set are joined to curves", () => {
  const mesh = randomSubdivision(3, 12, 30).mesh(([u, v]) => [u + 2 * v]);
  const segments = levelSet(mesh, 0, 0.3);
  const [line, ...others] = chained(segments);
  assert.deepEqual([others.length, line!.length], [0, segments.length / 2 + 2]);
  const ring = chained([0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1]);
  assert.deepEqual(ring, [[0, 0, 1, 0, 1, 1, 0, 0]]);
  const star = chained([0, 0, 1, 0, 0, 0, 0, 1, 0, 0, -1, 0]);
  assert.equal(
    star.reduce((sum, each) => sum + each.length / 2 - 1, 0),
    3,
  );
});

test("corners at the level are ordinary", () => {
  const mesh = square()
    .cutAll(1, 0, 0)
    .cutAll(0, 1, 0)
    .mesh(([u, v]) => [u + v]);
  const segments = levelSet(mesh, 0, 0);
  assert.ok(Math.abs(lengthOf(segments) - 2 * Math.SQRT2) < 1e-12);
});

test("an edge at the level is found", () => {
  const mesh = square()
    .cutAll(1, 0, 0)
    .mesh(([u]) => [u]);
  assert.deepEqual([lengthOf(levelSet(mesh, 0, 0)), levelSet(mesh, 0, 0).length], [2, 4]);
});

test("cells at the level have their outline", () => {
  const mesh = square()
    .cutAll(1, 0, 0)
    .mesh(([u]) => [Math.max(0, u)]);
  assert.equal(lengthOf(levelSet(mesh, 0, 0)), 6);
  assert.equal(lengthOf(levelSet(mesh, 0, 0.5)), 2);
});

test("values that are not numbers are skipped", () => {
  const mesh = gridMesh(10, 1, ([u]) => [u > 0.9 ? Number.NaN : u]);
  const segments = levelSet(mesh, 0, 0.13);
  assert.ok(segments.length > 0);
  assert.ok(segments.every(Number.isFinite));
});

test("how long the level set of a million cells takes", (context) => {
  const wavy = ([u, v]: Pair) => [Math.sin(40 * u) * Math.cos(40 * v), u, v];
  const mesh = gridMesh(1000, 1, wavy);
  const times = [0, 0.1, 0.2].map((level) => {
    const start = performance.now();
    const { length } = levelSet(mesh, 0, level);
    return `${length / 4} segments ${(performance.now() - start).toFixed(1)} ms`;
  });
  context.diagnostic(times.join(", "));
});
