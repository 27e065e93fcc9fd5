import assert from "node:assert/strict";
import { test } from "node:test";
import { clippedPolygon, clippedSegment, segmentMeets } from "../src/geometry/clip";
import { Mesh } from "../src/geometry/mesh";
import { Picker } from "../src/geometry/picking";
import { REACH, rebased, visibleCells } from "../src/geometry/visible";
import type { Box, Pair } from "../src/protocol/messages";
import { gridMesh, randomNumbers, randomSubdivision } from "./subdivisions";

function area(ring: ArrayLike<number>): number {
  let sum = 0;
  for (let k = 0; k < ring.length; k += 2) {
    const next = (k + 2) % ring.length;
    sum += ring[k]! * ring[next + 1]! - ring[next]! * ring[k + 1]!;
  }
  return sum / 2;
}

/** The same arrays read as a message would be, with all checks. */
function recheck(mesh: Mesh): Mesh {
  const counts = Uint16Array.from(mesh.region, (_, k) => mesh.offsets[k + 1]! - mesh.offsets[k]!);
  const { points, edges, corners, region, edgeLayer, edgeUnit, boundary, values } = mesh;
  const arrays = { points, edges, corners, counts, region, edgeLayer, edgeUnit, boundary, values };
  const entries = Object.entries(arrays);
  return Mesh.of({
    header: mesh.header,
    arrays: Object.fromEntries(entries.map(([name, data]) => [name, { data, shape: [] }])),
  });
}

test("a rebased piece has the cells of the window, cut to its reach", () => {
  const random = randomNumbers(11);
  for (let seed = 0; seed < 10; seed++) {
    const mesh = randomSubdivision(seed, 20, 60).mesh(([u, v]) => [3 * u - v + 1, u]);
    const picker = new Picker(mesh);
    for (const scale of [1, 0.1, 0.01, 1e-4]) {
      const center: Pair = [1.6 * random() - 0.8, 1.6 * random() - 0.8];
      const reach = scale * REACH;
      const [u, v] = center;
      const window: Box = [u - reach, v - reach, u + reach, v + reach];
      const { cells } = visibleCells(mesh, picker, window, 1e6);
      const piece = recheck(rebased(mesh, cells, center, scale));
      const source = rebased(mesh, cells, center, scale).sourceCell!;
      const expected = new Map<number, number>();
      for (const cell of cells)
        expected.set(cell, area(clippedPolygon(mesh.polygon(cell), window)));
      for (let cell = 0; cell < piece.cellCount; cell++) {
        const whole = expected.get(source[cell]!)!;
        assert.equal(mesh.region[source[cell]!], piece.region[cell]);
        assert.ok(Math.abs(area(piece.polygon(cell)) - whole) < 1e-13 * scale);
        expected.delete(source[cell]!);
      }
      for (const lost of expected.values()) assert.ok(Math.abs(lost) < 1e-12 * scale * scale);
      for (const x of piece.points) assert.ok(Math.abs(x) <= REACH);
      for (let k = 0; k < piece.vertexCount; k++) {
        const [pu, pv] = piece.toPlane([piece.points[2 * k]!, piece.points[2 * k + 1]!]);
        assert.ok(Math.abs(piece.values[2 * k]! - (3 * pu - pv + 1)) < 1e-6);
      }
    }
  }
});

test("at a billionth, a corner keeps its place to a millionth of the window", () => {
  const mesh = randomSubdivision(2, 30, 0).mesh();
  const picker = new Picker(mesh);
  const inner = [...Array(mesh.vertexCount).keys()].filter(
    (k) => Math.max(Math.abs(mesh.points[2 * k]!), Math.abs(mesh.points[2 * k + 1]!)) < 0.9,
  );
  for (const vertex of inner.slice(0, 50)) {
    const [x, y] = [mesh.points[2 * vertex]!, mesh.points[2 * vertex + 1]!];
    const center: Pair = [x + 3e-10, y - 2e-10];
    const window: Box = [x - 1e-9, y - 1e-9, x + 1e-9, y + 1e-9];
    const piece = rebased(mesh, visibleCells(mesh, picker, window, 1e6).cells, center, 1e-9);
    assert.ok(piece.cellCount >= 4);
    const at = new Float32Array(piece.points);
    const nearest = Math.min(
      ...Array.from({ length: piece.vertexCount }, (_, k) =>
        Math.hypot(at[2 * k]! - (x - center[0]) / 1e-9, at[2 * k + 1]! - (y - center[1]) / 1e-9),
      ),
    );
    assert.ok(nearest < 1e-6, `${nearest}`);
    for (let cell = 0; cell < piece.cellCount; cell++)
      assert.ok(area(piece.localPolygon(cell)) > 0);
  }
});

test("layers, boundary and classes come along", () => {
  const message = randomSubdivision(4, 8, 10).message();
  const count = message.arrays.counts!.data.length;
  message.arrays.boundary = { data: Uint32Array.of(3, 9, 14), shape: [3] };
  message.arrays.cellClass = {
    data: Uint16Array.from({ length: count }, (_, k) => k % 5),
    shape: [count],
  };
  const mesh = Mesh.of(message);
  const cells = Uint32Array.from({ length: count }, (_, k) => count - 1 - k);
  const piece = rebased(mesh, cells, [0, 0], 1);
  assert.equal(piece.cellCount, mesh.cellCount);
  assert.equal(piece.boundary.length, 3);
  assert.deepEqual(
    [...piece.cellClass!],
    [...cells].map((cell) => cell % 5),
  );
  const tally = (layers: Int16Array) => [...layers].sort((a, b) => a - b).join();
  assert.equal(tally(piece.edgeLayer), tally(mesh.edgeLayer));
  const again = rebased(piece, Uint32Array.of(2, 0), [0.1, 0], 0.01);
  for (const source of again.sourceCell!) assert.ok(source === count - 1 || source === count - 3);
  assert.ok([...again.edgeLayer].every((layer) => layer >= -2));
});

test("segments and rectangles", () => {
  const random = randomNumbers(9);
  const box: Box = [-1, -0.5, 1, 0.5];
  for (let k = 0; k < 2000; k++) {
    const [x0, y0, x1, y1] = [0, 1, 2, 3].map(() => 4 * random() - 2) as Box;
    const part = clippedSegment(x0, y0, x1, y1, box);
    assert.equal(part !== null, segmentMeets(x0, y0, x1, y1, box));
    assert.ok(!part || part.every((c, i) => Math.abs(c) <= (i % 2 ? 0.5 : 1) + 1e-12));
  }
  assert.deepEqual(clippedSegment(-2, 0, 2, 0, box), [-1, 0, 1, 0]);
});

test("how long it takes to rebase 10,000 of a million cells", (context) => {
  const mesh = gridMesh(1000, 1, ([u, v]) => [u, v, u + v]);
  const picker = new Picker(mesh);
  const window: Box = [-0.1, -0.1, 0.1, 0.1];
  const { cells } = visibleCells(mesh, picker, window, 1e6);
  const times = [0, 1, 2].map(() => {
    const start = performance.now();
    rebased(mesh, cells, [0, 0], 0.01);
    return (performance.now() - start).toFixed(1);
  });
  context.diagnostic(`${cells.length} cells: ${times.join(", ")} ms`);
});
