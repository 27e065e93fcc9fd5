import assert from "node:assert/strict";
import { test } from "node:test";
import { Mesh } from "../src/geometry/mesh";
import { Picker } from "../src/geometry/picking";
import { visibleCells } from "../src/geometry/visible";
import type { Box, Pair } from "../src/protocol/messages";
import { gridMesh, meshMessage, randomNumbers, randomSubdivision, square } from "./subdivisions";

/** How far a place is outside of a cell: at most 0 inside. */
function outside(mesh: Mesh, cell: number, [u, v]: Pair): number {
  const ring = mesh.polygon(cell);
  let worst = Number.NEGATIVE_INFINITY;
  for (let k = 0; k < ring.length; k += 2) {
    const [ax, ay] = [ring[k]!, ring[k + 1]!];
    const [bx, by] = [ring[(k + 2) % ring.length]!, ring[(k + 3) % ring.length]!];
    const right = (by - ay) * (u - ax) - (bx - ax) * (v - ay);
    worst = Math.max(worst, right / (Math.hypot(bx - ax, by - ay) || 1));
  }
  return worst;
}

const all = (count: number) => Array.from({ length: count }, (_, k) => k);

test("random places are found in random subdivisions, those outside are not", () => {
  for (let seed = 0; seed < 12; seed++) {
    const mesh = randomSubdivision(seed, 4 * seed, 10 * seed).mesh();
    const picker = new Picker(mesh);
    const random = randomNumbers(seed);
    for (let k = 0; k < 300; k++) {
      const at: Pair = [2.2 * random() - 1.1, 2.2 * random() - 1.1];
      const cell = picker.cell(at);
      if (Math.max(...at.map(Math.abs)) > 1) assert.equal(cell, -1);
      else assert.ok(outside(mesh, cell, at) <= 1e-14, `${at} in ${cell}`);
    }
  }
});

test("vertices and middles of edges belong to a cell beside them", () => {
  const mesh = randomSubdivision(3, 20, 40).mesh();
  const picker = new Picker(mesh);
  for (let edge = 0; edge < mesh.edgeCount; edge++) {
    const [a, b] = [mesh.edges[2 * edge]!, mesh.edges[2 * edge + 1]!];
    const at = (t: number): Pair =>
      [0, 1].map((k) => (1 - t) * mesh.points[2 * a + k]! + t * mesh.points[2 * b + k]!) as Pair;
    for (const t of [0, 0.5, 1]) {
      const cell = picker.cell(at(t));
      if (cell < 0)
        assert.equal(mesh.edgeLayer[edge], -1); // rounded to the outside
      else assert.ok(outside(mesh, cell, at(t)) <= 1e-14);
    }
  }
});

test("places that are no numbers are nowhere", () => {
  const picker = new Picker(randomSubdivision(3, 4, 4).mesh());
  for (const at of [
    [Number.NaN, 0],
    [0, Number.NaN],
    [Infinity, 0],
    [0, -Infinity],
  ] as Pair[]) {
    assert.deepEqual([picker.cell(at), picker.edge(at, 1)], [-1, -1]);
  }
});

test("a mesh of nonsense does not stop the picker", () => {
  const random = randomNumbers(12);
  const mesh = randomSubdivision(3, 10, 10).mesh();
  const points = mesh.points.map((x) => x + 0.5 * (random() - 0.5));
  const picker = new Picker(new Mesh(mesh.header, { ...mesh, points }));
  for (let k = 0; k < 200; k++) {
    const at: Pair = [2 * random() - 1, 2 * random() - 1];
    const cell = picker.cell(at);
    assert.ok(cell >= -1 && cell < mesh.cellCount);
    visibleCells(picker.mesh, picker, [at[0], at[1], at[0] + 0.1, at[1] + 0.1]);
  }
});

test("slivers do not stop a walk", () => {
  const made = square();
  const random = randomNumbers(8);
  for (let k = 0; k < 60; k++) made.cutAll(1, 1e-9 * random(), 0.1 + 1e-13 * random(), k);
  for (let k = 0; k < 20; k++) made.cutAll(1e-9 * random(), 1, 0.1 + 1e-13 * random(), k);
  const mesh = made.mesh();
  const picker = new Picker(mesh);
  for (let k = 0; k < 2000; k++) {
    const width = 10 ** (-15 * random());
    const at: Pair = [0.1 + width * (random() - 0.5), 0.1 + width * (random() - 0.5)];
    assert.ok(outside(mesh, picker.cell(at), at) <= 1e-14);
  }
});

test("a cell with thousands of corners, and one cell alone", () => {
  const ring = all(5000).map((k): Pair => {
    const angle = (2 * Math.PI * k) / 5000;
    return [Math.cos(angle), Math.sin(angle)];
  });
  const mesh = Mesh.of(meshMessage(ring, [all(5000)], () => []));
  const picker = new Picker(mesh);
  assert.equal(picker.cell([0, 0]), 0);
  assert.equal(picker.cell([0.9999, 0]), 0);
  assert.equal(picker.cell([0.9, 0.9]), -1);
  assert.equal(picker.edge([0.99, 0.0001], 0.1) >= 0, true);
});

test("a mesh with a corner that turns inwards has no cell in its bay", () => {
  const points: Pair[] = [
    [0, 0],
    [2, 0],
    [2, 1],
    [1, 1],
    [1, 2],
    [0, 2],
    [0, 1],
    [1, 0],
  ];
  const mesh = Mesh.of(
    meshMessage(
      points,
      [
        [0, 7, 3, 6],
        [7, 1, 2, 3],
        [6, 3, 4, 5],
      ],
      () => [],
    ),
  );
  const picker = new Picker(mesh);
  const places: Pair[] = [
    [0.5, 0.5],
    [1.5, 0.5],
    [0.5, 1.5],
    [1.4, 1.4],
    [1.9, 0.1],
  ];
  assert.deepEqual(
    places.map((at) => picker.cell(at)),
    [0, 1, 2, -1, 1],
  );
});

test("a billionth of the plane is picked in local coordinates", () => {
  const random = randomNumbers(2);
  const scaled = randomSubdivision(4, 20, 20);
  const center: Pair = [0.731, -0.44];
  const mesh = scaled.mesh();
  const deep = new Mesh({ ...mesh.header, center, scale: 1e-9 }, mesh);
  const [picker, deepPicker] = [new Picker(mesh), new Picker(deep)];
  let different = 0;
  for (let k = 0; k < 500; k++) {
    const at: Pair = [2 * random() - 1, 2 * random() - 1];
    if (picker.cell(at) !== deepPicker.cell(deep.toPlane(at))) different++;
  }
  assert.ok(different <= 1, `${different}`);
});

test("the nearest edge is that of all edges", () => {
  const mesh = randomSubdivision(6, 15, 30).mesh();
  const picker = new Picker(mesh);
  const random = randomNumbers(6);
  const distance = (edge: number, [u, v]: Pair) => {
    const at = (k: number) => mesh.points[2 * mesh.edges[2 * edge + (k >> 1)]! + (k & 1)]!;
    const [dx, dy] = [at(2) - at(0), at(3) - at(1)];
    const t = ((u - at(0)) * dx + (v - at(1)) * dy) / (dx * dx + dy * dy);
    const s = Math.min(1, Math.max(0, t));
    return Math.hypot(u - at(0) - s * dx, v - at(1) - s * dy);
  };
  for (let k = 0; k < 500; k++) {
    const at: Pair = [2 * random() - 1, 2 * random() - 1];
    const reach = 0.05 * random();
    for (const accepted of [() => true, (edge: number) => mesh.edgeLayer[edge] !== 3]) {
      const edge = picker.edge(at, reach, accepted);
      const distances = all(mesh.edgeCount)
        .filter(accepted)
        .map((each) => distance(each, at));
      const least = Math.min(...distances);
      if (least > reach) assert.equal(edge, -1);
      else assert.ok(Math.abs(distance(edge, at) - least) < 1e-12);
    }
  }
});

/** Whether a convex cell and a rectangle have no line between them. */
function meets(mesh: Mesh, cell: number, [x0, y0, x1, y1]: Box): boolean {
  const ring = mesh.polygon(cell);
  const polygon = all(ring.length / 2).map((k): Pair => [ring[2 * k]!, ring[2 * k + 1]!]);
  const rectangle: Pair[] = [
    [x0, y0],
    [x1, y0],
    [x1, y1],
    [x0, y1],
  ];
  return [polygon, rectangle].every((shape, k) =>
    shape.every(([ax, ay], at) => {
      const [bx, by] = shape[(at + 1) % shape.length]!;
      return [rectangle, polygon][k]!.some(
        ([u, v]) => (bx - ax) * (v - ay) - (by - ay) * (u - ax) >= 0,
      );
    }),
  );
}

test("visible cells are those that meet the window", () => {
  const random = randomNumbers(7);
  for (let seed = 0; seed < 8; seed++) {
    const mesh = randomSubdivision(seed, 12, 40).mesh();
    const picker = new Picker(mesh);
    for (let k = 0; k < 40; k++) {
      const width = 3 * random() ** 3;
      const [u, v] = [2.6 * random() - 1.3, 2.6 * random() - 1.3];
      const window: Box = [u - width, v - width / 2, u + width, v + width / 2];
      const { cells, complete } = visibleCells(mesh, picker, window, 1e6);
      assert.ok(complete);
      const found = new Set(cells);
      const larger = window.map((x, i) => x + (i < 2 ? -0.021 : 0.021) * width) as Box;
      for (let cell = 0; cell < mesh.cellCount; cell++) {
        if (meets(mesh, cell, window)) assert.ok(found.has(cell), `${cell} in ${window}`);
        else if (!meets(mesh, cell, larger)) assert.ok(!found.has(cell));
      }
    }
  }
});

test("a limit keeps the cells in the middle", () => {
  const mesh = gridMesh(40);
  const picker = new Picker(mesh);
  const { cells, complete } = visibleCells(mesh, picker, [-1, -1, 1, 1], 50);
  assert.deepEqual([cells.length, complete], [50, false]);
  for (const cell of cells) assert.ok(Math.hypot(...mesh.polygon(cell).slice(0, 2)) < 0.5);
  assert.deepEqual(visibleCells(mesh, picker, [2, 2, 3, 3], 50).cells.length, 0);
});

test("how long picking takes among a million cells", (context) => {
  const mesh = gridMesh(1000);
  const random = randomNumbers(1);
  const places = all(20000).map((): Pair => [2 * random() - 1, 2 * random() - 1]);
  const start = performance.now();
  const picker = new Picker(mesh);
  picker.prepare();
  const prepared = performance.now();
  picker.cell(places[0]!);
  const first = performance.now();
  for (const at of places) picker.cell(at);
  const jumped = performance.now();
  for (let k = 0; k < 20000; k++) picker.edge([1e-4 * k - 1, 0.3], 1e-3);
  const edges = performance.now();
  const { cells } = visibleCells(mesh, picker, [-0.3, -0.3, 0.3, 0.3], 1e6);
  const visible = performance.now();
  context.diagnostic(
    `prepare ${(prepared - start).toFixed(1)} ms, first ${(first - prepared).toFixed(3)} ms, ` +
      `anywhere ${((jumped - first) / 20).toFixed(2)} µs, edge ${((edges - jumped) / 20).toFixed(2)} µs, ` +
      `${cells.length} visible ${(visible - edges).toFixed(1)} ms`,
  );
});
