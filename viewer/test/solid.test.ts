// The eye and the polygons of the viewer of surfaces.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Eye } from "../src/solid/eye";
import { frameOf, sectionOf } from "../src/solid/plane";
import { Polygons, sums } from "../src/solid/polygons";
import { add, cross, dot, length, minus, row, times, unit, type Vec3 } from "../src/solid/vectors";

const PIXELS: [number, number] = [640, 480];

function eyes(): Eye[] {
  return [0, 1, 2].map((up) => Eye.around([0.1, -0.2, 0.05], 0.7, [25, 130 * up], up, PIXELS));
}

/** A cube of side 1 around 0, counter-clockwise seen from outside. */
function cube(): Polygons {
  const vertices = Float32Array.from(
    [0, 1, 2, 3, 4, 5, 6, 7].flatMap((k) => [k & 1, (k >> 1) & 1, k >> 2].map((x) => x - 0.5)),
  );
  const faces = [
    [0, 2, 3, 1],
    [4, 5, 7, 6],
    [0, 1, 5, 4],
    [2, 6, 7, 3],
    [0, 4, 6, 2],
    [1, 3, 7, 5],
  ];
  const layer = Int16Array.from({ length: 24 }, (_, k) => (k < 4 ? -1 : k % 3));
  return new Polygons(vertices, sums(faces.map((each) => each.length)), faces.flat(), layer);
}

test("the ray through the pixel of a place meets the place", () => {
  for (const eye of eyes()) {
    for (const place of [
      [0.3, 0.2, -0.4],
      [-0.5, 0.1, 0.6],
      [0, 0, 0],
    ] as Vec3[]) {
      const [x, y, depth] = eye.toScreen(place);
      const { from, way } = eye.ray([x, y]);
      const off = minus(place, from);
      assert.ok(length(minus(off, times(way, dot(off, way)))) < 1e-12);
      assert.ok(depth > 0);
      const [a, b, c, d] = [0, 1, 2, 3].map((line) => {
        const column = (k: number) => eye.matrix[4 * k + line]!;
        return dot(place, [column(0), column(1), column(2)]) + column(3);
      }) as [number, number, number, number];
      assert.ok(Math.abs(((a / d + 1) * PIXELS[0]) / 2 - x) < 1e-3);
      assert.ok(Math.abs(((1 - b / d) * PIXELS[1]) / 2 - y) < 1e-3);
      assert.ok(Math.abs(c / d) <= 1);
    }
  }
});

test("zooming keeps the place at the pixel, and panning follows the pointer", () => {
  const [eye] = eyes() as [Eye];
  const [right, up] = eye.frame;
  const place = add(eye.target, add(times(right, 0.2), times(up, 0.1)));
  const [x, y] = eye.toScreen(place);
  const closer = eye.zoomed(3, [x, y]).toScreen(place);
  assert.ok(Math.hypot(closer[0] - x, closer[1] - y) < 1e-9);
  const moved = eye.panned(30, -12).toScreen(place);
  assert.ok(Math.hypot(moved[0] - x - 30, moved[1] - y + 12) < 1e-9);
  assert.ok(eye.turned(0, 10).elevation < Math.PI / 2);
});

test("a ray finds the nearest face, and only what is kept", () => {
  const polygons = cube();
  assert.deepEqual(
    [...polygons.area].map((x) => Math.round(1e6 * x) / 1e6),
    [1, 1, 1, 1, 1, 1],
  );
  const from: Vec3 = [0.1, 0.2, 3];
  const hit = polygons.pick({ from, way: [0, 0, -1] });
  assert.equal(hit?.face, 1);
  assert.ok(Math.abs(hit!.far - 2.5) < 1e-6);
  const half = { normal: [0, 0, 1] as Vec3, offset: 0 };
  assert.equal(polygons.pick({ from, way: [0, 0, -1] }, half)?.face, 0);
  assert.equal(polygons.pick({ from, way: [0, 0, 1] }), null);
  assert.equal(polygons.pick({ from, way: unit([1, 0, -1]) }), null);
});

test("layers and lengths of edges", () => {
  const polygons = cube();
  assert.deepEqual(polygons.layersOf(0), [-1]);
  assert.deepEqual(polygons.layersOf(1), [0, 1, 2]);
  const { area, lengths } = polygons.lengths(3);
  assert.ok(Math.abs(area - 6) < 1e-6);
  assert.ok(Math.abs(lengths.reduce((a, b) => a + b, 0) - 10) < 1e-6); // 20 corners, half each
});

test("the section of a cube by planes", () => {
  const corners = Array.from(
    { length: 8 },
    (_, k): Vec3 => [(k & 1) - 0.5, ((k >> 1) & 1) - 0.5, (k >> 2) - 0.5],
  );
  const edges = [0, 1, 2, 3, 4, 5, 6, 7, 0, 2, 1, 3, 4, 6, 5, 7, 0, 4, 1, 5, 2, 6, 3, 7];
  const ways: [Vec3, number, number][] = [
    [[1, 0, 0], 0.2, 4],
    [[0, 0, -1], -0.1, 4],
    [unit([1, 1, 1]), 0, 6],
    [unit([1, 1, 1]), 0.5, 3],
    [unit([1, 1, 0]), 0, 4], // through four corners
    [[0, 1, 0], 0.7, 0],
  ];
  for (const [normal, offset, count] of ways) {
    const found = sectionOf({ normal, offset }, corners, edges);
    assert.equal(found.length, count);
    for (const [k, each] of found.entries()) {
      assert.ok(Math.abs(dot(each, normal) - offset) < 1e-12);
      const [a, b] = [minus(found.at(k - 1)!, each), minus(found.at(k - 2)!, each)];
      assert.ok(dot(cross(b, a), normal) > 0); // convex, and counter-clockwise
    }
    const [first, second] = frameOf(normal);
    assert.ok(length(minus(cross(first, second), normal)) < 1e-12);
  }
});

test("a linear function on a face", () => {
  const polygons = cube();
  const f = (x: Vec3) => 3 * x[0] - 2 * x[1] + x[2] + 0.5;
  const values = Array.from({ length: 8 }, (_, k) => f(row(polygons.vertices, k)));
  for (const place of [
    [0.1, 0.3, 0.5],
    [-0.4, 0.2, 0.5],
    [0.5, 0.5, 0.5],
  ] as Vec3[]) {
    assert.ok(Math.abs(polygons.valueAt(1, place, values) - f(place)) < 1e-12);
  }
});
