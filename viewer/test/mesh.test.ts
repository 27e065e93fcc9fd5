import assert from "node:assert/strict";
import { test } from "node:test";
import { Mesh } from "../src/geometry/mesh";
import { gridMesh, randomNumbers, randomSubdivision, square } from "./subdivisions";

test("two cells of a square", () => {
  const mesh = square()
    .cutAll(1, 0, 0)
    .mesh(([u, v]) => [u, v]);
  assert.deepEqual([mesh.cellCount, mesh.edgeCount, mesh.vertexCount], [2, 7, 6]);
  assert.deepEqual([...mesh.offsets], [0, 4, 8]);
  const shared = mesh.edgeLayer.indexOf(0);
  const sides = [mesh.halfedgeCell[2 * shared], mesh.halfedgeCell[2 * shared + 1]];
  assert.deepEqual(sides.sort(), [0, 1]);
  assert.equal([...mesh.halfedgeCell].filter((cell) => cell < 0).length, 6);
  assert.deepEqual([...mesh.cellsOf(1)], [1]);
  assert.equal(mesh.polygon(0).length, 8);
});

test("local coordinates and plane coordinates", () => {
  const mesh = square().mesh(() => [], { center: [3, 4], scale: 1e-9 });
  assert.deepEqual(mesh.toPlane([2, 0]), [3 + 2e-9, 4]);
  assert.deepEqual(mesh.toLocal([3, 4]), [0, 0]);
  assert.ok(Math.abs(mesh.polygon(0)[0]! + 1) < 1e-15);
});

test("cells of regions that were cut", () => {
  const message = square().cutAll(1, 0, 0).cutAll(0, 1, 0).message();
  message.arrays.region = { data: Uint32Array.of(2, 0, 0, 2), shape: [4] };
  message.header.regionCount = 3;
  const mesh = Mesh.of(message);
  assert.deepEqual(
    [0, 1, 2, 9].map((k) => [...mesh.cellsOf(k)]),
    [[1, 2], [], [0, 3], []],
  );
});

test("random subdivisions are read", () => {
  for (let seed = 0; seed < 10; seed++) {
    const made = randomSubdivision(seed, 12, 30);
    const mesh = made.mesh();
    assert.equal(mesh.cellCount, made.cells.length);
    assert.equal(mesh.vertexCount - mesh.edgeCount + mesh.cellCount, 1);
  }
});

test("arrays that contradict each other are an error with a sentence", () => {
  const random = randomNumbers(5);
  for (const name of ["edges", "corners", "counts", "points"]) {
    for (let trial = 0; trial < 40; trial++) {
      const message = randomSubdivision(1, 5, 5).message();
      const { data } = message.arrays[name]!;
      const at = Math.floor(random() * data.length);
      data[at] = name === "points" ? Number.NaN : (data[at]! + 1 + trial) % 60;
      assert.throws(() => Mesh.of(message), /The mesh is damaged: .*\./, `${name}[${at}]`);
    }
  }
  for (const name of ["edges", "corners", "counts", "points", "edgeLayer", "edgeUnit", "values"]) {
    const message = randomSubdivision(1, 5, 5).message(() => [1, 2]);
    const { data, shape } = message.arrays[name]!;
    message.arrays[name] = { data: data.slice(0, data.length - 1), shape };
    assert.throws(() => Mesh.of(message), /The mesh is damaged/, name);
    if (name === "values") continue;
    delete message.arrays[name];
    assert.throws(() => Mesh.of(message), new RegExp(`no array "${name}"`));
  }
});

test("how long a million cells take to be checked", (context) => {
  const start = performance.now();
  const mesh = gridMesh(1000);
  const made = performance.now();
  Mesh.of({
    header: mesh.header,
    arrays: Object.fromEntries(
      Object.entries({
        ...{ points: mesh.points, edges: mesh.edges, corners: mesh.corners },
        ...{ counts: new Uint8Array(1e6).fill(4), edgeLayer: mesh.edgeLayer },
        ...{ edgeUnit: mesh.edgeUnit, values: mesh.values },
      }).map(([name, data]) => [name, { data, shape: [data.length] }]),
    ),
  });
  const end = performance.now();
  context.diagnostic(`${(end - made).toFixed(0)} ms (made in ${(made - start).toFixed(0)} ms)`);
});
