import assert from "node:assert/strict";
import { test } from "node:test";
import { Camera } from "../src/geometry/camera";
import { levelSet } from "../src/geometry/level_sets";
import type { Mesh } from "../src/geometry/mesh";
import { Picker } from "../src/geometry/picking";
import type { ColoringHeader, Message, Pair } from "../src/protocol/messages";
import { type SvgPane, svgOf } from "../src/share/svg";
import { escaped } from "../src/share/svg_text";
import { gridMesh, randomSubdivision } from "./subdivisions";

const STATE = { edges: true, hiddenLayers: [] as number[], edgeWidth: 1, boundary: true };

function colored(mesh: Mesh): Message<ColoringHeader> {
  const header: ColoringHeader = {
    ...{ kind: "coloring", mesh: mesh.id, name: "random", label: "", by: "region" },
    ...{ output: null, scale: null, legend: [] },
  };
  const data = Uint8Array.from({ length: 3 * mesh.regionCount }, (_, k) => (37 * k) % 256);
  return { header, arrays: { colors: { data, shape: [mesh.regionCount, 3] } } };
}

function shaded(mesh: Mesh): Message<ColoringHeader> {
  const scale = { type: "linear", low: -2, center: 0, high: 2, extend: "neither" } as const;
  const header: ColoringHeader = {
    ...{ kind: "coloring", mesh: mesh.id, name: "output", label: "", by: "output" },
    ...{ output: 0, scale, legend: [] },
  };
  const data = Uint8Array.from({ length: 768 }, (_, k) => (k % 3 ? 255 - Math.floor(k / 3) : 200));
  return { header, arrays: { lut: { data, shape: [256, 3] } } };
}

function paneOf(mesh: Mesh, camera: Camera, more: Partial<SvgPane> = {}): SvgPane {
  return { camera, mesh, picker: new Picker(mesh), coloring: colored(mesh), layers: 40, ...more };
}

/** Whether all elements are closed in order. */
function isWellFormed(text: string): boolean {
  const open: string[] = [];
  for (const [, end, name, rest] of text.matchAll(/<([/?]?)([\w:]+)([^<>]*)>/g)) {
    if (end === "?") continue;
    if (end === "/") {
      if (open.pop() !== name) return false;
    } else if (!rest!.endsWith("/")) open.push(name!);
  }
  return open.length === 0;
}

const picture = (panes: SvgPane[], more = {}) =>
  svgOf({ title: "t", panes, state: STATE, theme: "light", legend: null, ...more });

test("an SVG has a polygon for each cell in view, and its edges", () => {
  const mesh = randomSubdivision(3, 8, 10).mesh();
  const text = picture([paneOf(mesh, Camera.fit([-1, -1, 1, 1], [400, 300]))]);
  assert.ok(isWellFormed(text));
  assert.equal(text.match(/Z/g)!.length, mesh.cellCount);
  const without = picture([paneOf(mesh, Camera.fit([-1, -1, 1, 1], [400, 300]))], {
    state: { ...STATE, hiddenLayers: [0, 1, 2] },
  });
  assert.ok(without.length < text.length);
  const none = picture([paneOf(mesh, Camera.fit([-1, -1, 1, 1], [400, 300]))], {
    state: { ...STATE, edges: false },
  });
  assert.equal(none.match(/<path fill="none"/g)!.length, 1); // the border
});

test("coordinates stay near the picture, also at a billionth", () => {
  const mesh = randomSubdivision(5, 30, 0).mesh(([u, v]) => [u + v]);
  const vertex = 100;
  const at: Pair = [mesh.points[2 * vertex]!, mesh.points[2 * vertex + 1]!];
  for (const coloring of [colored(mesh), shaded(mesh)]) {
    const text = picture([paneOf(mesh, new Camera(at, 1e-9, [300, 300]), { coloring })]);
    for (const [, x, y] of text.matchAll(/[ML]([-\d.]+) ([-\d.]+)/g)) {
      assert.ok(Math.abs(Number(x)) < 400 && Math.abs(Number(y)) < 400);
    }
    assert.match(text, /[ML]150 150/); // the corner in the middle
  }
});

test("an output has the gradient of its affine map", () => {
  const mesh = gridMesh(2, 1, ([u]) => [2 * u]);
  const camera = new Camera([0, 0], 2, [200, 200]);
  const text = picture([paneOf(mesh, camera, { coloring: shaded(mesh) })]);
  assert.ok(isWellFormed(text));
  const gradients = [
    ...text.matchAll(
      /<linearGradient id="p0-\d" [^>]*x1="([\d.-]+)" y1="([\d.-]+)" x2="([\d.-]+)" y2="([\d.-]+)"/g,
    ),
  ];
  assert.equal(gradients.length, 4);
  for (const [, x1, y1, x2, y2] of gradients) {
    assert.ok(Math.abs(Number(y1) - Number(y2)) < 1e-2);
    assert.ok(Number(x1) < Number(x2));
  }
});

test("text is escaped, and colours are colours", () => {
  const mesh = randomSubdivision(3, 2, 0).mesh();
  const legend = {
    label: "<b> & \u0000",
    entries: [{ name: '"><script>', color: 'red"/><script>' }],
    scale: null,
    lut: null,
  };
  const pane = paneOf(mesh, Camera.fit([-1, -1, 1, 1], [400, 300]), {
    points: { at: [0, 0, Number.NaN, 1, 9, 9], color: () => "javascript:x" },
  });
  const text = picture([pane], { legend, title: "a < b" });
  assert.ok(isWellFormed(text));
  assert.ok(!/<script|javascript/.test(text) && !text.includes("\u0000"));
  assert.equal(text.match(/<circle/g)!.length, 1);
  assert.equal(escaped("x₁ 'é' 😀"), "x₁ &#39;é&#39; 😀");
});

test("two panes, lines, marks and a colour bar", () => {
  const mesh = randomSubdivision(3, 6, 0).mesh(([u, v]) => [u * v]);
  const message = shaded(mesh);
  const camera = Camera.fit([-1, -1, 1, 1], [300, 300]);
  const segments = { data: levelSet(mesh, 0, 0.1), center: mesh.center, scale: mesh.scale };
  const pane = paneOf(mesh, camera, {
    coloring: message,
    lines: [{ segments, style: { color: "#ff0000", width: 2, dash: [4, 6], halo: "#ffffff" } }],
    highlights: [
      {
        cells: Uint32Array.of(0, 1),
        style: { color: "#00ff00", opacity: 0.3, outline: { color: "#0000ff", width: 1.5 } },
      },
    ],
  });
  const lut = message.arrays.lut!.data as Uint8Array;
  const legend = { label: "output 0", entries: [], scale: message.header.scale, lut };
  const text = picture([pane, paneOf(mesh, camera)], { legend, theme: "dark" });
  assert.ok(isWellFormed(text));
  assert.match(text, /stroke-dasharray="4 2"/);
  assert.match(text, /url\(#bar\)/);
  assert.match(text, /width="612"/);
});

test("too many cells are an error that says what to do", () => {
  const mesh = gridMesh(300);
  const camera = Camera.fit([-1, -1, 1, 1], [400, 300]);
  assert.throws(() => picture([paneOf(mesh, camera)]), /More than 50,000 regions .* save a PNG/);
});

test("the band of a smooth network is hatched", () => {
  const mesh = gridMesh(4);
  const camera = Camera.fit([-1, -1, 1, 1], [400, 300]);
  const { center, scale } = mesh;
  const data = Float64Array.of(0, 0, 0.1, 0, 0.1, 0.1, 5, 5, 6, 5, 6, 6);
  const band = { data, counts: [3, 3], center, scale };
  const text = picture([paneOf(mesh, camera, { band })]);
  assert.ok(isWellFormed(text));
  assert.equal(text.match(/<pattern id="p0-band"/g)!.length, 1);
  assert.match(text, /<path fill="url\(#p0-band\)" d="M[^M]*Z"\/>/); // the second is out of view
  assert.ok(!picture([paneOf(mesh, camera)]).includes("pattern"));
});

test("an SVG of the dark scheme is dark", () => {
  const mesh = randomSubdivision(3, 8, 10).mesh();
  const white = { data: new Uint8Array(3 * mesh.regionCount).fill(250), shape: [] };
  const coloring = { ...colored(mesh), arrays: { colors: white } };
  const pane = paneOf(mesh, Camera.fit([-1, -1, 1, 1], [400, 300]), { coloring });
  for (const [theme, paper, ink] of [
    ["light", "#ffffff", "#16202c"],
    ["dark", "#11161d", "#e6e9ee"],
  ] as const) {
    const text = picture([pane], { theme });
    assert.ok(text.includes(`fill="${paper}"`) && text.includes(`stroke="${ink}"`));
    assert.equal(text.includes('fill="#fafafa"'), theme === "light");
  }
});
