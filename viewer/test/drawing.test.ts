import assert from "node:assert/strict";
import { test } from "node:test";
import { UNIT } from "../src/control/overlays";
import { clippedPolygon, clippedSegments } from "../src/draw/clip";
import { inTheme, level, normalized, paintOf, rgb } from "../src/draw/colours";
import { Edges } from "../src/draw/edges";
import { Fill } from "../src/draw/fills";
import { trianglesOf } from "../src/draw/hatching";
import { outside } from "../src/draw/pictures";
import type { Programs } from "../src/draw/programs";
import { straightened } from "../src/draw/straighten";
import { edgeLook } from "../src/draw/theme";
import { atlasOf, placesOf } from "../src/draw/thumbnails";
import { coveredShares, tilesOf, visibleRuns } from "../src/draw/tiles";
import { View } from "../src/draw/view";
import { type Steps, Work } from "../src/draw/work";
import { Camera } from "../src/geometry/camera";
import { Mesh } from "../src/geometry/mesh";
import type { ColoringHeader, ColorScale, Message } from "../src/protocol/messages";

function all<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 16807) % 2147483647;
    return state / 2147483647;
  };
}

function rectangles(count: number, next: () => number): Float32Array {
  const result = new Float32Array(4 * count);
  for (let k = 0; k < count; k++) {
    const [x, y] = [next() ** 3, next() ** 3];
    result.set([x, y, x + 0.02 * next(), y + 0.02 * next()], 4 * k);
  }
  return result;
}

test("tiles hold every item once, in rectangles around them", () => {
  const items = rectangles(5000, random(3));
  const { order, first, boxes } = all(tilesOf(items, 64));
  assert.deepEqual(
    [...order].sort((a, b) => a - b),
    [...order.keys()],
  );
  assert.equal(first.at(-1), 5000);
  for (let t = 0; t + 1 < first.length; t++) {
    assert.ok(first[t + 1]! - first[t]! <= 64 && first[t + 1]! > first[t]!);
    for (const item of order.subarray(first[t], first[t + 1])) {
      assert.ok(items[4 * item]! >= boxes[4 * t]! && items[4 * item + 2]! <= boxes[4 * t + 2]!);
      assert.ok(items[4 * item + 1]! >= boxes[4 * t + 1]!);
      assert.ok(items[4 * item + 3]! <= boxes[4 * t + 3]!);
    }
  }
});

test("runs of tiles hold all items that meet a window, and few others", () => {
  const items = rectangles(20000, random(5));
  const tiles = all(tilesOf(items, 64));
  const [x0, y0, x1, y1] = [0.1, 0.2, 0.2, 0.3];
  const seen = new Set<number>();
  visibleRuns(tiles, [x0, y0, x1, y1], (begin, end) => {
    for (const item of tiles.order.subarray(tiles.first[begin], tiles.first[end])) seen.add(item);
  });
  let meeting = 0;
  for (let k = 0; k < 20000; k++) {
    const out = items[4 * k]! > x1 || items[4 * k + 2]! < x0;
    if (out || items[4 * k + 1]! > y1 || items[4 * k + 3]! < y0) continue;
    meeting++;
    assert.ok(seen.has(k));
  }
  assert.ok(seen.size < 4 * meeting + 2000, `${seen.size} for ${meeting}`);
});

test("tiles do not mix groups, and shares are those of areas", () => {
  const items = rectangles(1000, random(7));
  const group = Int16Array.from({ length: 1000 }, (_, k) => k % 3);
  const tiles = all(tilesOf(items, 50, group));
  for (let t = 0; t + 1 < tiles.first.length; t++) {
    const inside = [...tiles.order.subarray(tiles.first[t], tiles.first[t + 1])];
    assert.equal(new Set(inside.map((item) => group[item])).size, 1);
  }
  const shares = coveredShares(tiles, [-9, -9, 9, 9]);
  assert.ok(shares.every((share) => share === 1));
  assert.ok(coveredShares(tiles, [5, 5, 6, 6]).every((share) => share === 0));
  const [none] = [all(tilesOf(new Float32Array(), 50))];
  assert.deepEqual([...none.first], [0]);
});

test("straight chains become one segment, bent ones stay within the tolerance", () => {
  // A chain along y = 0, then up a circle, in one curve; another curve crosses it at vertex 1.
  const at = [0, 0, 1, 0, 2.5, 0, 3, 0];
  for (let k = 1; k <= 40; k++) at.push(3 + Math.sin(k / 40), 1 - Math.cos(k / 40));
  const points = Float64Array.from([...at, 1, -1, 1, 1]);
  const pairs: number[] = [];
  for (let k = 0; k < 43; k++) pairs.push(...(k % 2 ? [k, k + 1] : [k + 1, k]));
  pairs.push(44, 1, 1, 45);
  const curve = Float64Array.from({ length: pairs.length / 2 }, (_, e) => (e < 43 ? 1 : 2));
  const edges = Uint32Array.from(pairs);
  const chosen = Uint32Array.from(curve.keys());
  const exact = all(straightened(points, edges, chosen, curve, 1e-9));
  assert.equal(exact.edge.length, 42);
  const coarse = all(straightened(points, edges, chosen, curve, 1e-3));
  assert.ok(coarse.edge.length < 20);
  for (let v = 4; v < 44; v++) {
    let nearest = Infinity;
    for (let k = 0; k < coarse.ends.length; k += 4) {
      nearest = Math.min(nearest, distance(coarse.ends.subarray(k, k + 4), points, v));
    }
    assert.ok(nearest < 1.001e-3, `${nearest}`);
  }
});

test("a closed curve is drawn once, and ends where three meet", () => {
  const points = Float64Array.from([0, 0, 1, 0, 1, 1, 0, 1, -1, -1]);
  const square = Uint32Array.from([0, 1, 1, 2, 2, 3, 3, 0, 0, 4]);
  const loop = all(straightened(points, square, Uint32Array.of(0, 1, 2, 3), null, 1e-6));
  assert.equal(loop.edge.length, 4);
  const tailed = all(straightened(points, square, Uint32Array.of(0, 1, 2, 3, 4), null, 1e-6));
  assert.equal(tailed.edge.length, 5);
});

function distance(segment: Float32Array, points: Float64Array, vertex: number): number {
  const [ax, ay, bx, by] = segment as unknown as [number, number, number, number];
  const [px, py] = [points[2 * vertex]! - ax, points[2 * vertex + 1]! - ay];
  const [dx, dy] = [bx - ax, by - ay];
  const t = Math.min(1, Math.max(0, (px * dx + py * dy) / (dx * dx + dy * dy)));
  return Math.hypot(px - t * dx, py - t * dy);
}

const scaleOf = (type: ColorScale["type"], low: number, center: number, high: number) =>
  ({ type, low, center, high, extend: "neither" }) as ColorScale;

test("scales are matplotlib's", () => {
  // Numbers of Normalize(-1, 3), LogNorm(0.01, 10) and TwoSlopeNorm(1, vmin=-1, vmax=9).
  const linear = scaleOf("linear", -1, 0, 3);
  assert.deepEqual(
    [-1, 0, 3, 5].map((v) => normalized(v, linear)),
    [0, 0.25, 1, 1.5],
  );
  const log = scaleOf("log", 0.01, 0, 10);
  const close = (value: number, wanted: number) => assert.ok(Math.abs(value - wanted) < 1e-12);
  close(normalized(1, log), 0.6666666666666666);
  close(normalized(0.5, log), 0.5663233347786729);
  assert.ok(Number.isNaN(normalized(0, log)) && Number.isNaN(normalized(-1, log)));
  const centered = scaleOf("centered", -1, 1, 9);
  assert.deepEqual(
    [-1, 0, 1, 5, 9].map((v) => normalized(v, centered)),
    [0, 0.25, 0.5, 0.75, 1],
  );
  assert.deepEqual(
    [-0.1, 0, 0.0039, 0.004, 0.5, 0.999, 1, 2].map(level),
    [0, 0, 0, 1, 128, 255, 255, 255],
  );
  assert.ok(Number.isNaN(normalized(Number.NaN, linear)));
});

/** Two triangles of a square, with one output that is x + 2 y. */
function square(): Mesh {
  const message = {
    header: {
      kind: "mesh" as const,
      id: "0/0",
      pane: 0,
      frame: 0,
      center: [0, 0] as [number, number],
      scale: 1,
      window: null,
      regionCount: 2,
      outputs: [3],
      ranges: [[0, 3]] as [number, number][],
      unresolved: 0,
    },
    arrays: {
      points: { data: Float64Array.of(0, 0, 1, 0, 1, 1, 0, 1), shape: [4, 2] },
      edges: { data: Uint32Array.of(0, 1, 1, 2, 2, 0, 2, 3, 3, 0), shape: [5, 2] },
      corners: { data: Uint32Array.of(0, 2, 4, 5, 6, 8), shape: [6] },
      counts: { data: Uint8Array.of(3, 3), shape: [2] },
      edgeLayer: { data: Int16Array.of(-1, -1, 0, -1, -1), shape: [5] },
      edgeUnit: { data: Int32Array.of(-1, -1, 0, -1, -1), shape: [5] },
      values: { data: Float32Array.of(0, 1, 3, 2), shape: [4, 1] },
    },
  };
  return Mesh.of(message);
}

function coloring(
  by: ColoringHeader["by"],
  scale: ColorScale | null,
  arrays: Message["arrays"],
): Message<ColoringHeader> {
  const header = { mesh: "0/0", name: "x", label: "x", output: by === "output" ? 3 : null };
  return { header: { kind: "coloring", ...header, by, scale, legend: [] }, arrays };
}

const lut = {
  data: Uint8Array.from({ length: 768 }, (_, k) => Math.floor(k / 3)),
  shape: [256, 3],
};

test("cells are painted with colours, numbers and outputs", () => {
  const mesh = square();
  const colors = { data: Uint8Array.of(1, 2, 3, 4, 5, 6), shape: [2, 3] };
  const flat = paintOf(mesh, coloring("class", null, { colors }));
  assert.ok(flat.kind === "flat");
  assert.deepEqual([...new Uint8Array(flat.colors.buffer)], [1, 2, 3, 255, 4, 5, 6, 255]);
  const numbers = { data: Float32Array.of(0.5, Number.NaN), shape: [2] };
  const scale = scaleOf("linear", 0, 0, 1);
  const shades = paintOf(mesh, coloring("region", scale, { numbers, lut }));
  assert.ok(shades.kind === "flat" && !shades.opaque);
  assert.deepEqual([...new Uint8Array(shades.colors.buffer)], [128, 128, 128, 255, 0, 0, 0, 0]);
  const value = paintOf(mesh, coloring("output", scaleOf("linear", 1, 0, 3), { lut }));
  assert.ok(value.kind === "shaded");
  assert.deepEqual([...value.numbers], [-0.5, 0, 1, 0.5]);
  for (const [kind, type] of [
    [1, "log"],
    [2, "centered"],
  ] as const) {
    const own = scaleOf(type, 0.5, 1, 4);
    const paint = paintOf(mesh, coloring("output", own, { lut }));
    assert.ok(paint.kind === "shaded" && paint.scale === kind);
    [1, 3, 2].forEach((v, k) => {
      const number = paint.numbers[k + 1]!;
      const log = Math.log(number) * paint.rate;
      const place = kind === 1 ? log : 0.5 + 0.5 * (number < 0 ? number * paint.rate : number);
      assert.ok(Math.abs(place - normalized(v, own)) < 1e-6);
    });
  }
});

test("scales without extent have a colour", () => {
  const mesh = square();
  for (const type of ["linear", "log", "centered"] as const) {
    const paint = paintOf(mesh, coloring("output", scaleOf(type, 2, 2, 2), { lut }));
    assert.ok(paint.kind === "shaded" && Number.isFinite(paint.rate));
    assert.ok(paint.numbers.every(Number.isFinite));
  }
});

/** A graphics card that only keeps what it is given, by the name of the function. */
function fakeCard(): { gl: WebGL2RenderingContext; given: Map<string, unknown[][]> } {
  const given = new Map<string, unknown[][]>();
  const handler = {
    get: (_: object, name: string) => {
      if (name === name.toUpperCase()) return name.length;
      return (...args: unknown[]) => {
        given.set(name, [...(given.get(name) ?? []), args]);
        return {};
      };
    },
  };
  return { gl: new Proxy({}, handler) as WebGL2RenderingContext, given };
}

test("triangles cover the cells, and inner edges are segments", () => {
  const mesh = square();
  const { gl, given } = fakeCard();
  const fill = all(Fill.of(gl, mesh));
  const [corners, numbers] = given.get("bufferSubData")!.map((args) => args[2]);
  assert.deepEqual([...(numbers as Uint32Array)].sort(), [0, 1, 2, 3, 4, 5]);
  assert.equal((corners as Float32Array).length, 12);
  const view = View.of(new Camera([0.5, 0.5], 1, [100, 100]), 1);
  assert.ok(Math.abs(fill.visibleArea(view) - 1) < 1e-6);
  assert.deepEqual(fill.box, [0, 0, 1, 1]);
  const programs = { gl, maxTexture: 2048 } as Programs;
  const edges = all(Edges.of(programs, mesh, null));
  assert.equal(edges.layerCount, 1);
  const written = given.get("texSubImage2D")!.map((args) => args.at(-1) as Float32Array);
  assert.deepEqual([...written[0]!].sort(), [0, 0, 1, 1]);
  const looks = edges.looks(view, 1, 3);
  assert.ok(looks.layers[0]!.width > 0.7 && looks.layers[0]!.opacity > 0.5);
  const none = all(Edges.of(programs, mesh, new Uint32Array()));
  assert.equal(none.layerCount, 0);
});

test("messages that lack colours are refused with a sentence", () => {
  const mesh = square();
  const few = { data: Uint8Array.of(1, 2, 3), shape: [1, 3] };
  assert.throws(() => paintOf(mesh, coloring("class", null, { colors: few })), /1 colours/);
  assert.throws(() => paintOf(mesh, coloring("class", null, {})), /neither colours nor numbers/);
  assert.throws(() => paintOf(mesh, coloring("output", null, {})), /no table/);
  const other = coloring("output", scaleOf("linear", 0, 0, 1), { lut });
  other.header.output = 7;
  assert.throws(() => paintOf(mesh, other), /no output 7/);
});

test("colours are read", () => {
  assert.deepEqual(rgb("#ff0080"), [1, 0, 128 / 255]);
  assert.deepEqual(rgb("#f08"), [1, 0, 8 / 15]);
});

test("edges of earlier layers are stronger, and dense ones fade", () => {
  const [first, last] = [edgeLook(0, 4, 20), edgeLook(3, 4, 20)];
  assert.ok(first.width > last.width && first.opacity > last.opacity);
  assert.equal(edgeLook(3, 4, 1).opacity, 0);
  assert.ok(edgeLook(0, 4, 1000).width > edgeLook(0, 4, 20).width);
  assert.ok(edgeLook(0, 1, 1e6).width < 2);
});

test("views place local coordinates precisely", () => {
  const camera = new Camera([0.3, -0.2], 1e-9, [800, 600]);
  const view = View.of(camera, 1.5);
  assert.deepEqual(view.size, [1200, 900]);
  const [sx, sy, tx, ty] = view.place([0.3, -0.2], 1e-10);
  assert.ok(Math.abs(sx - 0.2) < 1e-9 && Math.abs(sy - 0.2 * (4 / 3)) < 1e-9);
  assert.ok(Math.abs(tx) < 1e-5 && Math.abs(ty) < 1e-5);
  const [x0, y0, x1, y1] = view.window([0.3, -0.2], 1e-10);
  assert.ok(Math.abs(x0 + 5) < 1e-4 && Math.abs(x1 - 5) < 1e-4);
  assert.ok(Math.abs(y0 + 3.75) < 1e-4 && Math.abs(y1 - 3.75) < 1e-4);
});

test("a moved view is a whole number of pixels away after it was aligned", () => {
  const camera = new Camera([0.3, -0.2], 2, [800, 600]);
  const view = View.of(camera, 1.5);
  const moved = View.of(camera.panned(7.3, -4.1), 1.5).alignedWith(view);
  const [x, y] = moved.from(view);
  assert.ok(Math.abs(x - Math.round(x)) < 1e-6 && Math.abs(y - Math.round(y)) < 1e-6);
  assert.ok(Math.abs(x + 7.3 * 1.5) <= 0.5 && Math.abs(y + 4.1 * 1.5) <= 0.5);
  const [left, low, right, top] = moved.covered(view);
  assert.ok(
    Math.abs(left + 1 + (2 * x) / 1200) < 1e-9 && Math.abs(right - 1 + (2 * x) / 1200) < 1e-9,
  );
  assert.ok(Math.abs(low + 1 + (2 * y) / 900) < 1e-9 && Math.abs(top - 1 + (2 * y) / 900) < 1e-9);
});

test("what a picture leaves free is covered once", () => {
  assert.deepEqual(outside([-1, -1, 1, 1], [100, 60]), []);
  assert.deepEqual(outside([2, 2, 3, 3], [100, 60]), [[0, 0, 100, 60]]);
  for (const place of [
    [-0.5, -0.25, 0.3, 0.9],
    [-1.5, -0.5, 0.123, 2],
    [-1.00001, -1, 1, 0.5],
  ] as [number, number, number, number][]) {
    const count = new Uint8Array(100 * 60);
    for (const [x, y, w, h] of outside(place, [100, 60])) {
      for (let i = x; i < x + w; i++) for (let j = y; j < y + h; j++) count[100 * j + i]!++;
    }
    for (let i = 0; i < 100; i++) {
      for (let j = 0; j < 60; j++) {
        const [u, v] = [(2 * (i + 0.5)) / 100 - 1, (2 * (j + 0.5)) / 60 - 1];
        const inside = u > place[0] && u < place[2] && v > place[1] && v < place[3];
        assert.ok(count[100 * j + i]! <= 1 && (inside || count[100 * j + i] === 1));
      }
    }
  }
});

test("lines and polygons are cut to the window", () => {
  const view = View.of(new Camera([0.5, 0.5], 1e-9, [100, 100]), 1);
  const local = { center: [0, 0] as const, scale: 1 };
  const data = Float64Array.of(-1, 0.5, 2, 0.5, 0, 0, 1, 0);
  const segments = clippedSegments({ ...local, data }, view);
  assert.equal(segments.length, 4);
  assert.deepEqual([segments[0], segments[2]], [-114, 114]);
  assert.ok(Math.abs(segments[1]!) < 1e-3 && Math.abs(segments[3]!) < 1e-3);
  const around = Float64Array.of(0, 0, 1, 0, 1, 1, 0, 1);
  const polygon = clippedPolygon({ ...local, data: around }, view);
  assert.equal(polygon.length, 8);
  assert.ok(polygon.every((x) => Math.abs(Math.abs(x) - 114) < 1e-3));
  const off = clippedPolygon({ ...local, data: Float64Array.of(0, 0, 1, 0, 1, 0.4) }, view);
  assert.deepEqual(off, []);
});

test("thumbnails lie on the screen, beside their points, without hiding each other", () => {
  const next = random(11);
  const points = Array.from({ length: 50 }, (): [number, number] => [800 * next(), 600 * next()]);
  const size: [number, number] = [60, 48];
  const places = placesOf(points, size, [800, 600]);
  assert.ok(places.length > 25);
  for (const { corner } of places) {
    assert.ok(corner[0] >= 4 && corner[0] + 60 <= 796 && corner[1] >= 4 && corner[1] + 48 <= 596);
    for (const other of places) {
      if (other.corner === corner) continue;
      const [w, h] = [0, 1].map((k) => size[k]! - Math.abs(corner[k]! - other.corner[k]!));
      assert.ok(!(w! > 0 && h! > 0) || w! * h! <= 0.21 * 60 * 48);
    }
  }
  const sides = new Map(places.map(({ point, side }) => [point, side]));
  const shifted = points.map(([x, y]): [number, number] => [x + 1, y]);
  const again = placesOf(shifted, size, [800, 600], sides);
  const kept = again.filter(({ point, side }) => sides.get(point) === side);
  assert.ok(kept.length > 0.9 * places.length);
});

test("an atlas holds as many pictures as fit", () => {
  const images = { pixels: new Uint8Array(), count: 64, width: 48, height: 32 };
  assert.deepEqual(atlasOf(images, 2048), { columns: 8, rows: 8 });
  assert.deepEqual(atlasOf({ ...images, count: 10 }, 2048), { columns: 4, rows: 3 });
  assert.deepEqual(atlasOf({ ...images, width: 1000, height: 1000 }, 2048), {
    columns: 2,
    rows: 2,
  });
});

test("work is done in slices", () => {
  const work = new Work();
  const done: number[] = [];
  for (let k = 0; k < 10; k++) work.add(3, () => done.push(k));
  assert.equal(work.run(7), 6);
  assert.equal(work.left, 24);
  assert.equal(work.run(1), 3);
  assert.equal(work.run(100), 21);
  assert.ok(work.done && done.length === 10);
});

test("polygons of a band are triangles of their area, cut where they leave the picture", () => {
  const squares = [0.1, 0.9, 5].flatMap((x) => [x, 0, x + 0.2, 0, x + 0.2, 0.2, x, 0.2]);
  const center = [1e6, -1e6] as const;
  const band = { data: Float64Array.from(squares), counts: [4, 4, 4], center, scale: 1e-9 };
  const view = new View(center, [0, 0], 1e-12, [2000, 2000], 1);
  const found = trianglesOf(band, view);
  let area = 0;
  for (let k = 0; k < found.length; k += 6) {
    const [ax, ay, bx, by, cx, cy] = found.subarray(k, k + 6) as unknown as number[];
    area += ((bx! - ax!) * (cy! - ay!) - (cx! - ax!) * (by! - ay!)) / 2;
  }
  // The second one reaches 100 pixels beyond the picture, of which a margin of 64 is kept.
  assert.ok(Math.abs(area - (200 * 200 + 164 * 200)) < 1, String(area));
});

test("the dark scheme turns lightness around, and keeps hues and the colours of classes", () => {
  const byte = (...parts: number[]) => Uint8Array.from(parts);
  assert.equal(inTheme(byte(1, 2, 3), "light")[1], 2);
  const [white, black] = [inTheme(byte(255, 255, 255), "dark"), inTheme(byte(0, 0, 0), "dark")];
  assert.ok(white[0]! < 40 && black[0]! > 180);
  const pale = inTheme(byte(255, 230, 200), "dark"); // orange stays orange
  assert.ok(pale[0]! > pale[1]! && pale[1]! > pale[2]! && pale[0]! < 80);
  // A class fades into the dark as it fades into white, and is not taken for another one.
  const palette = [
    [0, 114, 178],
    [240, 228, 66],
    [51, 34, 136],
  ];
  for (const [k, own] of palette.entries()) {
    const shade = (share: number) => Uint8Array.from(own, (part) => 255.5 - share * (255 - part));
    const [strong, weak] = [inTheme(shade(0.8), "dark", { palette }), shade(0.12)];
    assert.deepEqual(inTheme(shade(0.8), "dark", { palette, winner: [k] }), strong);
    const sum = (color: Uint8Array) => color[0]! + color[1]! + color[2]!;
    assert.ok(sum(strong) > 1.3 * sum(inTheme(weak, "dark", { palette })));
    const order = (color: ArrayLike<number>) => [0, 1, 2].sort((i, j) => color[i]! - color[j]!);
    assert.deepEqual(order(strong), order(own));
  }
  assert.deepEqual([...inTheme(byte(255, 255, 255, 7), "dark", { step: 4 })].at(-1), 7);
});

test("the curve of a unit is seen on every colour", () => {
  const linear = (part: number) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = (color: readonly number[]) =>
    0.2126 * linear(color[0]!) + 0.7152 * linear(color[1]!) + 0.0722 * linear(color[2]!);
  const contrast = (a: readonly number[], b: readonly number[]) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high! + 0.05) / (low! + 0.05);
  };
  for (let k = 0; k < 17 ** 3; k++) {
    const ground = [k % 17, Math.floor(k / 17) % 17, Math.floor(k / 289)].map((part) => part / 16);
    const seen = [UNIT.color, UNIT.halo!].map((color) => contrast(rgb(color), ground));
    assert.ok(Math.max(...seen) >= 3, String(ground));
  }
});
