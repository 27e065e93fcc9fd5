// Regions that are not divided have a class, but neither outputs nor a map.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Level } from "../src/control/panes";
import { haveSameMap } from "../src/control/region_shown";
import { cutByClass } from "../src/geometry/classes";
import { levelSet } from "../src/geometry/level_sets";
import { outputsAt, regionInfo } from "../src/geometry/maps";
import { Mesh } from "../src/geometry/mesh";
import { rebased } from "../src/geometry/rebase";
import { described } from "../src/panels/facts";
import type { MeshHeader, Message, Pair, PaneHeader } from "../src/protocol/messages";
import { square } from "./subdivisions";

const SENTENCE = "Not divided: the decision boundary does not cross it.";
const PANE = {
  classes: [
    { name: "cat", color: "#0072B2" },
    { name: "dog", color: "#D55E00" },
  ],
} as PaneHeader;

/** Three strips: the left one is settled, and the boundary u = 0 is in the middle one. */
function message(outputs: (uv: Pair) => number[], level = 0): Message<MeshHeader> {
  const strips = square().cutAll(1, 0, -0.5).cutAll(1, 0, 0.5);
  const made = strips.message(outputs, { settled: SENTENCE, level });
  const middle = strips.cells.map((cell) =>
    cell.reduce((sum, vertex) => sum + strips.points[vertex]![0] / cell.length, 0),
  );
  const data = Uint8Array.from(middle, (u) => (u < -0.5 ? 0 : 1));
  return { ...made, arrays: { ...made.arrays, complete: { data, shape: [3] } } };
}

function infoAt(mesh: Mesh, at: Pair) {
  const cell = Array.from({ length: mesh.cellCount }, (_, k) => k).find((k) => {
    const us = [...mesh.polygon(k)].filter((_, j) => j % 2 === 0);
    return Math.min(...us) < at[0] && at[0] < Math.max(...us);
  })!;
  return regionInfo(mesh, cell, at, PANE);
}

test("a settled region tells its class and why it is not divided, and no outputs", () => {
  const whole = Mesh.of(message(([u]) => [-u, u]));
  const cut = cutByClass(whole);
  const cells = Uint32Array.from({ length: cut.cellCount }, (_, k) => k);
  for (const mesh of [cut, rebased(cut, cells, [-0.6, 0.1], 0.5)]) {
    const settled = infoAt(mesh, [-0.8, 0]);
    assert.deepEqual([settled.settled, settled.winner], [SENTENCE, 0]);
    for (const list of [settled.outputs, settled.values, settled.weights, settled.biases]) {
      assert.equal(list.length, 0);
    }
    assert.equal(outputsAt(mesh, settled.cell, settled.at).length, 0);
    assert.ok(Math.abs(settled.area - 1) < 1e-9);
    const complete = infoAt(mesh, [0.3, 0]);
    assert.deepEqual([complete.settled, complete.winner], [null, 1]);
    assert.ok(Math.abs(complete.values[1]! - 0.3) < 1e-6);
    assert.ok(!haveSameMap(complete, settled));
    assert.match(described(PANE, settled), /^Region \d, class cat, not divided, area 1/);
    assert.doesNotMatch(described(PANE, complete), /not divided/);
  }
  assert.equal(cut.cellCount, whole.cellCount + 1);
});

test("level sets end where regions are not divided", () => {
  const mesh = Mesh.of(message(([u, v]) => [v, u]));
  const segments = levelSet(mesh, 0, 0.25);
  const ends = [...segments].filter((_, k) => k % 2 === 0);
  assert.deepEqual([Math.min(...ends), Math.max(...ends), segments.length], [-0.5, 1, 8]);
  const flat = Mesh.of(message(() => [2]));
  assert.equal(levelSet(flat, 0, 2).length, 4 * 7); // two squares beside each other
});

test("classes of a single output stay at the level that is known", () => {
  const given = message(([u]) => [u], 0.1);
  const refined = new Level(given, PANE, 0.1);
  const before = refined.mesh;
  assert.equal(refined.recut(-0.7), false);
  assert.equal(refined.mesh, before);
  assert.deepEqual(new Level(given, PANE, -0.7).mesh.cellClass, before.cellClass);
  const { complete: _, ...arrays } = given.arrays;
  const { level: __, settled: ___, ...header } = given.header;
  const whole = new Level({ header, arrays }, PANE, 0.1);
  assert.equal(whole.recut(-0.7), true);
  assert.deepEqual([whole.mesh.complete, infoAt(whole.mesh, [-0.8, 0]).settled], [null, null]);
});

test("an array for another number of regions is damaged", () => {
  const given = message(([u]) => [u]);
  given.arrays.complete = { data: new Uint8Array(2), shape: [2] };
  assert.throws(() => Mesh.of(given), /"complete" has 2 numbers in place of 3/);
});
