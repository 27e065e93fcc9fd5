import assert from "node:assert/strict";
import { test } from "node:test";
import { sketchOf } from "../src/draw/sketch";
import { Sketchpad } from "../src/draw/sketchpad";
import { INK, PAPER } from "../src/draw/theme";
import { View } from "../src/draw/view";
import { Camera } from "../src/geometry/camera";
import { Picker } from "../src/geometry/picking";
import type { Pair } from "../src/protocol/messages";
import { randomSubdivision } from "./subdivisions";

const LOOK = {
  paper: PAPER,
  ink: INK,
  edges: false,
  boundary: false,
  rim: null,
  hidden: new Set<number>(),
  edgeWidth: 1,
  layers: 0,
};

/** Cells of different opaque colours, which are never those of the paper. */
function paintOf(cells: number) {
  const colors = Uint32Array.from({ length: cells }, (_, cell) => (cell | 0xff000000) >>> 0);
  return { kind: "flat" as const, colors, opaque: true };
}

test("every pixel of a sketch has the colour of the cell at its middle", () => {
  const mesh = randomSubdivision(5, 30, 40).mesh();
  const picker = new Picker(mesh);
  for (const [camera, whole] of [
    [new Camera([0.01, -0.02], 2.3, [120, 110]), true],
    [new Camera([0.2, 0.3], 0.4, [90, 70]), false],
    [new Camera([0.9, 0.9], 1, [64, 48]), false],
  ] as const) {
    const view = View.of(camera, 1.5);
    const sketch = sketchOf(mesh, paintOf(mesh.cellCount), view, LOOK);
    const [width, height] = view.size;
    const pixels = new Uint32Array(sketch.pixels.buffer);
    assert.equal(pixels.length, width * height);
    assert.equal(sketch.whole, whole);
    for (let k = 0; k < pixels.length; k++) {
      const x = (k % width) + 0.5;
      const y = Math.floor(k / width) + 0.5;
      const uv: Pair = [
        camera.center[0] + (x - width / 2) * view.unit,
        camera.center[1] + (y - height / 2) * view.unit,
      ];
      const cell = picker.cell(uv);
      const wanted = cell < 0 ? 0xffffffff : (cell | 0xff000000) >>> 0;
      assert.equal(pixels[k], wanted, `pixel ${x}, ${y}`);
    }
  }
});

test("colours that change evenly are those of the numbers at the middles of pixels", () => {
  const mesh = randomSubdivision(5, 30, 40).mesh();
  const numberAt = (u: number, v: number) => 0.5 + 0.3 * u - 0.45 * v;
  const numbers = new Float32Array(mesh.vertexCount);
  for (let k = 0; k < numbers.length; k++) {
    numbers[k] = numberAt(...mesh.toPlane([mesh.points[2 * k]!, mesh.points[2 * k + 1]!]));
  }
  const table = Uint8Array.from({ length: 768 }, (_, k) => Math.floor(k / 3));
  const paint = { kind: "shaded", numbers, scale: 0, rate: 0, table } as const;
  const camera = new Camera([0.2, 0.1], 1.1, [90, 70]);
  const view = View.of(camera, 1);
  const pad = new Sketchpad(view.size, true);
  const { pixels } = sketchOf(mesh, paint, view, LOOK, pad);
  const picker = new Picker(mesh);
  for (let k = 0; k < 90 * 70; k++) {
    const [x, y] = [(k % 90) + 0.5, 70 - Math.floor(k / 90) - 0.5]; // the first row is the highest
    const uv: Pair = [0.2 + (x - 45) * view.unit, 0.1 + (y - 35) * view.unit];
    const place = Math.min(255, Math.max(0, Math.floor(256 * numberAt(...uv))));
    const wanted = picker.cell(uv) < 0 ? 255 : place;
    assert.ok(Math.abs(pixels[4 * k]! - wanted) <= 1, `${x}, ${y}`);
  }
});

test("cells without a colour show the paper", () => {
  const mesh = randomSubdivision(3, 4, 0).mesh();
  const paint = { ...paintOf(mesh.cellCount), colors: new Uint32Array(mesh.cellCount) };
  const view = View.of(new Camera([0, 0], 2, [40, 40]), 1);
  const { pixels } = sketchOf(mesh, paint, view, LOOK);
  assert.ok(pixels.every((byte) => byte === 255));
});

test("a line darkens as much as it is wide and long, in all directions", () => {
  for (const width of [0.4, 1, 2.5]) {
    for (let angle = 0; angle < 2 * Math.PI; angle += 0.37) {
      const pad = new Sketchpad([100, 100]);
      pad.clear([1, 1, 1]);
      pad.setStroke({ color: [0, 0, 0], opacity: 1, width, caps: false });
      const [x, y] = [30 * Math.cos(angle), 30 * Math.sin(angle)];
      pad.line(50.3 - x, 50.6 - y, 50.3 + x, 50.6 + y);
      let dark = 0;
      for (const pixel of pad.pixels) dark += (255 - (pixel & 255)) / 255;
      assert.ok(Math.abs(dark / (60 * width) - 1) < 0.06, `${dark} for ${60 * width}`);
    }
  }
});

test("lines that continue each other have no dark joint", () => {
  const draw = (...stops: number[]) => {
    const pad = new Sketchpad([60, 20]);
    pad.clear([1, 1, 1]);
    pad.setStroke({ color: [0, 0, 0], opacity: 0.5, width: 1, caps: false });
    const at = (t: number): Pair => [3.2 + 50 * t, 4.1 + 10 * t];
    stops.slice(1).forEach((stop, k) => {
      pad.line(...at(stops[k]!), ...at(stop));
    });
    return pad.pixels;
  };
  assert.deepEqual(draw(0, 0.31, 0.5, 0.77, 1), draw(0, 1));
  assert.deepEqual(draw(1, 0), draw(0, 1));
});

test("a sketch draws edges and the boundary, except hidden layers", () => {
  const mesh = randomSubdivision(8, 6, 0).mesh();
  const all = new Set(mesh.edgeLayer);
  const view = View.of(new Camera([0, 0], 2, [200, 200]), 1);
  const bare = sketchOf(mesh, paintOf(mesh.cellCount), view, LOOK);
  const inked = sketchOf(mesh, paintOf(mesh.cellCount), view, { ...LOOK, edges: true });
  const hidden = { ...LOOK, edges: true, hidden: all };
  assert.notDeepEqual(inked.pixels, bare.pixels);
  assert.deepEqual(sketchOf(mesh, paintOf(mesh.cellCount), view, hidden).pixels, bare.pixels);
  const cut = mesh.withBoundary(Uint32Array.from([0, 1, 2]));
  const bounded = sketchOf(cut, paintOf(mesh.cellCount), view, { ...LOOK, boundary: true });
  assert.notDeepEqual(bounded.pixels, bare.pixels);
});
