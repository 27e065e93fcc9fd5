import assert from "node:assert/strict";
import { test } from "node:test";
import { cutByClass } from "../src/geometry/classes";
import { Mesh } from "../src/geometry/mesh";

type Values = (x: number, y: number) => number[];

/** Triangles of a grid with n x n squares on [-1, 1]^2, on which any values are affine. */
function triangles(n: number, values: Values): Mesh {
  const points: number[] = [];
  const rows: number[] = [];
  for (let j = 0; j <= n; j++) {
    for (let i = 0; i <= n; i++) {
      const [x, y] = [(2 * i) / n - 1, (2 * j) / n - 1];
      points.push(x, y);
      rows.push(...values(x, y));
    }
  }
  const edges: number[] = [];
  const corners: number[] = [];
  const known = new Map<string, number>();
  const half = (a: number, b: number): number => {
    const back = known.get(`${b},${a}`);
    if (back !== undefined) return back ^ 1;
    edges.push(a, b);
    known.set(`${a},${b}`, edges.length - 2);
    return edges.length - 2;
  };
  for (let j = 0; j < n; j++) {
    for (let i = 0; i < n; i++) {
      const a = j * (n + 1) + i;
      const [b, c, d] = [a + 1, a + n + 2, a + n + 1];
      for (const ring of [
        [a, b, c],
        [a, c, d],
      ] as const) {
        ring.forEach((id, k) => {
          corners.push(half(id, ring[(k + 1) % 3]!));
        });
      }
    }
  }
  const count = rows.length / (points.length / 2);
  const array = <T>(data: T) => ({ data, shape: [] });
  return Mesh.of({
    header: {
      ...{ kind: "mesh", id: "0/0", pane: 0, frame: 0, center: [0, 0], scale: 1, window: null },
      ...{ regionCount: 2 * n * n, outputs: Array.from({ length: count }, (_, k) => k) },
      ...{ ranges: [], unresolved: 0 },
    } as Mesh["header"],
    arrays: {
      points: array(Float64Array.from(points)),
      edges: array(Uint32Array.from(edges)),
      corners: array(Uint32Array.from(corners)),
      counts: array(new Uint8Array(2 * n * n).fill(3)),
      edgeLayer: array(new Int16Array(edges.length / 2)),
      edgeUnit: array(new Int32Array(edges.length / 2)),
      values: array(Float64Array.from(rows)),
    },
  });
}

/** Areas add up, rings close, each cell's class is the largest output at its middle. */
function check(mesh: Mesh, cut: Mesh, tie = 1e-12): void {
  const n = mesh.outputs.length;
  const areas = new Float64Array(mesh.regionCount);
  assert.deepEqual(new Set(cut.halfedgeCell).size, cut.cellCount + 1);
  for (let cell = 0; cell < cut.cellCount; cell++) {
    const ring = cut.polygon(cell);
    let [area, x, y] = [0, 0, 0];
    const corners = ring.length / 2;
    const mean = new Float64Array(n);
    for (let c = 0; c < corners; c++) {
      const half = cut.corners[cut.offsets[cell]! + c]!;
      const next = cut.corners[cut.offsets[cell]! + ((c + 1) % corners)]!;
      assert.equal(cut.edges[half ^ 1], cut.edges[next]);
      assert.equal(cut.halfedgeCell[half], cell);
      const d = ((c + 1) % corners) * 2;
      area += (ring[2 * c]! * ring[d + 1]! - ring[d]! * ring[2 * c + 1]!) / 2;
      x += ring[2 * c]! / corners;
      y += ring[2 * c + 1]! / corners;
      for (let k = 0; k < n; k++)
        mean[k]! += cut.preciseValues[cut.edges[half]! * n + k]! / corners;
    }
    assert.ok(area > 0, `cell ${cell} has the area ${area}`);
    areas[cut.region[cell]!]! += area;
    const own = n === 1 ? mean[0]! : mean[cut.cellClass![cell]!]!;
    if (n === 1) assert.equal(cut.cellClass![cell], own > tie ? 1 : 0);
    else assert.ok(own >= Math.max(...mean) - tie, `cell ${cell} at ${x}, ${y}`);
  }
  const side = Math.sqrt(8 / mesh.regionCount);
  for (const area of areas) assert.ok(Math.abs(area - (side * side) / 2) < 1e-9);
}

let seed = 1;
function random(): number {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return seed / 2147483648;
}

test("random outputs: every cell has the largest output", () => {
  for (const outputs of [1, 2, 3, 5, 12]) {
    const mesh = triangles(9, () => Array.from({ length: outputs }, () => random() - 0.5));
    check(mesh, cutByClass(mesh));
  }
});

test("small whole numbers: ties at vertices, along edges and on whole regions", () => {
  for (let round = 0; round < 30; round++) {
    const outputs = 1 + (round % 4);
    const mesh = triangles(6, () =>
      Array.from({ length: outputs }, () => Math.floor(3 * random())),
    );
    check(mesh, cutByClass(mesh));
  }
});

test("equal outputs belong to the first", () => {
  const mesh = triangles(2, (x) => [x, x, 0]);
  const cut = cutByClass(mesh);
  check(mesh, cut);
  assert.ok(!cut.cellClass!.includes(1));
  assert.equal(cut.boundary.length, 2);
});

test("a boundary of straight lines has their length", () => {
  const mesh = triangles(7, (x, y) => [x - 0.1, y / 2 + 0.03, -x]);
  const cut = cutByClass(mesh);
  check(mesh, cut);
  let total = 0;
  for (const edge of cut.boundary) {
    const [a, b] = [cut.edges[2 * edge]!, cut.edges[2 * edge + 1]!];
    const [dx, dy] = [0, 1].map((k) => cut.points[2 * a + k]! - cut.points[2 * b + k]!);
    total += Math.hypot(dx!, dy!);
  }
  // Three rays leave (0.05, -0.16), where all outputs are equal: down, and up to the left and right.
  const expected = 0.84 + 2 * Math.hypot(0.58, 1.16);
  assert.ok(Math.abs(total - expected) < 1e-9, `${total} is not ${expected}`);
});

test("a level divides a single output", () => {
  const mesh = triangles(5, (x, y) => [x + y]);
  for (const level of [-3, -0.5, 0, 0.25, 3]) {
    const cut = cutByClass(mesh, level);
    let above = 0;
    for (let cell = 0; cell < cut.cellCount; cell++) {
      const ring = cut.polygon(cell);
      let area = 0;
      for (let c = 0; c < ring.length; c += 2) {
        const d = (c + 2) % ring.length;
        area += (ring[c]! * ring[d + 1]! - ring[d]! * ring[c + 1]!) / 2;
      }
      if (cut.cellClass![cell]) above += area;
    }
    const corner = 2 - Math.min(2, Math.abs(level));
    const expected = level > 0 ? corner ** 2 / 2 : 4 - corner ** 2 / 2;
    assert.ok(Math.abs(above - (level === 0 ? 2 : expected)) < 1e-9, `${level}: ${above}`);
  }
});

test("a large mesh is cut in a moment", () => {
  const mesh = triangles(400, (x, y) => [x * x - y, Math.sin(5 * x) + y, 0.2 * x]);
  const start = performance.now();
  const cut = cutByClass(mesh);
  const time = performance.now() - start;
  console.log(`${mesh.cellCount} regions into ${cut.cellCount} cells: ${time.toFixed(0)} ms`);
  check(mesh, cut);
});
