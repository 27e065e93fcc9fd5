import assert from "node:assert/strict";
import { test } from "node:test";
import {
  boundarySegments,
  exitOf,
  middleOf,
  neighbours,
  outlineOf,
  unitCurve,
} from "../src/geometry/curves";
import { areaOf, outputsAt, regionInfo } from "../src/geometry/maps";
import { Mesh } from "../src/geometry/mesh";
import { Picker } from "../src/geometry/picking";
import type { Box, Pair } from "../src/protocol/messages";
import { gridMesh, randomNumbers, randomSubdivision, square } from "./subdivisions";

const CLASSES = { classes: [{ name: "a", color: "#000000" }] };
const affine = ([u, v]: Pair) => [3 * u - 2 * v + 0.5, -u, 100 + v];

/** The same mesh with values in double precision. */
function precise(mesh: Mesh, outputs: (uv: Pair) => number[]): Mesh {
  const places = Array.from({ length: mesh.vertexCount }, (_, k) => k);
  const values = Float64Array.from(
    places.flatMap((k) => outputs(mesh.toPlane([mesh.points[2 * k]!, mesh.points[2 * k + 1]!]))),
  );
  return new Mesh(mesh.header, { ...mesh, preciseValues: values });
}

test("outputs and maps of an affine function", () => {
  const random = randomNumbers(4);
  for (let seed = 0; seed < 6; seed++) {
    const mesh = precise(randomSubdivision(seed, 10, 30).mesh(affine), affine);
    const picker = new Picker(mesh);
    for (let k = 0; k < 50; k++) {
      const at: Pair = [2 * random() - 1, 2 * random() - 1];
      const info = regionInfo(mesh, picker.cell(at), at, CLASSES);
      affine(at).forEach((value, j) => {
        assert.ok(Math.abs(info.values[j]! - value) < 1e-12);
        assert.ok(Math.abs(outputsAt(mesh, info.cell, at)[j]! - value) < 1e-12);
        const expected = [
          [3, -2],
          [-1, 0],
          [0, 1],
        ][j]!;
        const error = info.weightErrors[j]!;
        info.weights[j]!.forEach((weight, c) => {
          assert.ok(Math.abs(weight - expected[c]!) <= error + 1e-15, `${weight} ± ${error}`);
        });
        const [w, b] = [info.weights[j]!, info.biases[j]!];
        assert.ok(Math.abs(w[0] * at[0] + w[1] * at[1] + b - value) < 1e-9);
      });
    }
  }
});

test("values in 32 bits give weights to the error that is told", () => {
  const mesh = randomSubdivision(3, 20, 60).mesh(affine);
  for (let cell = 0; cell < mesh.cellCount; cell++) {
    const info = regionInfo(mesh, cell, [0, 0], CLASSES);
    const off = Math.hypot(info.weights[0]![0] - 3, info.weights[0]![1] + 2);
    assert.ok(off <= info.weightErrors[0]!, `${off} > ${info.weightErrors[0]}`);
  }
});

test("a region of a billionth has its map in plane coordinates", () => {
  const center: Pair = [0.7, -0.2];
  const made = randomSubdivision(5, 10, 10).mesh();
  const deep = new Mesh({ ...made.header, center, scale: 1e-9, outputs: [0, 1, 2] }, made);
  const local = ([u, v]: Pair) => affine([center[0] + 1e-9 * u, center[1] + 1e-9 * v]);
  const values = Float64Array.from(
    Array.from({ length: made.vertexCount }, (_, k) =>
      local([made.points[2 * k]!, made.points[2 * k + 1]!]),
    ).flat(),
  );
  const mesh = new Mesh(deep.header, { ...deep, preciseValues: values });
  const info = regionInfo(mesh, 0, center, CLASSES);
  assert.ok(Math.abs(info.weights[0]![0] - 3) < 1e-3 + info.weightErrors[0]!);
  assert.ok(info.weightErrors[0]! < 1e-2);
  assert.ok(Math.abs(info.area / (1e-18 * areaOf(made, 0)) - 1) < 1e-12);
});

test("a sliver without width is constant across", () => {
  const made = square()
    .cutAll(1, 0, 0)
    .mesh(([u]) => [u]);
  const points = made.points.map((x, k) => (k % 2 ? x : 0.5 + 1e-18 * x));
  const mesh = new Mesh(made.header, { ...made, points });
  const info = regionInfo(mesh, 0, [0.5, 0], CLASSES);
  assert.ok(Number.isFinite(info.values[0]!));
  assert.equal(info.weightErrors[0], Number.POSITIVE_INFINITY);
});

test("a region of several cells", () => {
  const message = square().cutAll(1, 0, 0).cutAll(0, 1, 0).message(affine);
  message.arrays.region = { data: Uint32Array.of(1, 0, 1, 2), shape: [4] };
  message.arrays.cellClass = { data: Uint16Array.of(4, 0, 4, 1), shape: [4] };
  message.header.regionCount = 3;
  const mesh = Mesh.of(message);
  const info = regionInfo(mesh, 0, [0, 0], CLASSES);
  assert.deepEqual([info.region, info.winner, info.area, info.neighbours], [1, 4, 2, 2]);
  assert.equal(regionInfo(mesh, 0, [0, 0], { classes: null }).winner, null);
  assert.equal(info.layer, 0);
});

test("areas add up to the whole", () => {
  const mesh = randomSubdivision(6, 30, 30).mesh();
  let sum = 0;
  for (let region = 0; region < mesh.regionCount; region++) sum += areaOf(mesh, region);
  assert.ok(Math.abs(sum - 4) < 1e-12);
});

test("neighbours, outlines and curves of units", () => {
  const mesh = gridMesh(4);
  assert.deepEqual(
    [...neighbours(mesh, 5)].sort((a, b) => a - b),
    [1, 4, 6, 9],
  );
  assert.deepEqual(
    [...neighbours(mesh, 0)].sort((a, b) => a - b),
    [1, 4],
  );
  assert.equal(outlineOf(mesh, 5).length, 4);
  const cut = square().cutAll(1, 0, 0, 2).cutAll(0, 1, 0, 4).mesh();
  assert.equal(unitCurve(cut, 2, 2).length, 2);
  assert.equal(unitCurve(cut, 4, 1).length, 2);
  assert.equal(unitCurve(cut, 4, 2).length, 0);
  const marked = new Mesh(cut.header, { ...cut, boundary: unitCurve(cut, 2, 2) });
  assert.equal(boundarySegments(marked).length, 8);
  assert.ok(boundarySegments(marked).every((x, k) => k % 2 === 1 || x === 0));
});

test("how long the curve of a unit takes among a million cells", (context) => {
  const mesh = gridMesh(1000);
  unitCurve(mesh, 0, 1);
  const start = performance.now();
  const { length } = unitCurve(mesh, 0, 7);
  context.diagnostic(`${length} edges: ${(performance.now() - start).toFixed(1)} ms`);
});

test("a window tells which regions it cuts off", () => {
  const center: Pair = [0.7, -0.2];
  const scale = 2 ** -30;
  const third = 1 / 3;
  const made = square()
    .cutAll(1, 0, third)
    .cutAll(1, 0, -third)
    .cutAll(0, 1, third)
    .cutAll(0, 1, -third)
    .mesh();
  const middle = new Picker(made).cell([0, 0]);
  const low: Pair = [center[0] - scale, center[1] - scale];
  const window: Box = [...low, center[0] + scale, center[1] + scale];
  const inner = new Mesh({ ...made.header, center, scale, window }, made);
  const whole = new Mesh({ ...made.header, center, scale }, made);
  const cut = (mesh: Mesh) =>
    Array.from({ length: 9 }, (_, cell) => regionInfo(mesh, cell, center, CLASSES).cutOff);
  assert.deepEqual(cut(whole), Array(9).fill(false));
  assert.deepEqual(
    cut(inner),
    Array.from({ length: 9 }, (_, cell) => cell !== middle),
  );
});

test("the way out of a region leads to the neighbour that lies there", () => {
  const mesh = randomSubdivision(5, 12, 20).mesh();
  const picker = new Picker(mesh);
  const everything: Box = [-1, -1, 1, 1];
  for (let region = 0; region < mesh.regionCount; region++) {
    const middle = middleOf(mesh, region, everything);
    assert.equal(mesh.region[picker.cell(mesh.toPlane(middle))], region);
    for (const way of [
      [1, 0],
      [-1, 0],
      [0, 1],
      [0, -1],
    ] as Pair[]) {
      const half = exitOf(mesh, region, middle, way);
      const beyond = mesh.halfedgeCell[half ^ 1]!;
      // Go on along the way until another region is there.
      let far = 1e-4;
      const there = () =>
        picker.cell(mesh.toPlane([middle[0] + far * way[0], middle[1] + far * way[1]]));
      for (; there() >= 0 && mesh.region[there()] === region; far += 1e-4);
      if (beyond < 0) assert.equal(there(), -1);
      else if (there() !== beyond) assert.ok(areaOf(mesh, mesh.region[beyond]!) < 1e-4); // it was jumped over
    }
  }
  // Of a region that is cut off by the picture, the middle of what is seen is meant.
  const [x, y] = middleOf(mesh, 0, [...middleOf(mesh, 0, everything), 1, 1]);
  assert.ok(x > middleOf(mesh, 0, everything)[0] || y > middleOf(mesh, 0, everything)[1]);
});
