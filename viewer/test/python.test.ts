import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import type { PaneHeader } from "../src/protocol/messages";
import { fileName } from "../src/share/download";
import { literal, pythonFor, snakeCase } from "../src/share/python";
import { INITIAL } from "../src/state";

const pane = { frames: ["final"] } as PaneHeader;
const run = { frames: ["epoch 0", "epoch 1"] } as PaneHeader;
const scene = { python: "", panes: [pane] };

test("a view that is as it begins is one line", () => {
  const line = "import splinecam as sc\n\nviewer = sc.view(part)\n";
  assert.equal(pythonFor(scene, INITIAL), line);
  assert.equal(pythonFor({ python: "sc.view(part)", panes: [pane] }, INITIAL), line);
  const named = pythonFor({ python: "model, domain", panes: [pane] }, INITIAL);
  assert.match(named, /sc\.view\(model, domain\)/);
  assert.match(pythonFor({ python: "", panes: [run] }, INITIAL), /sc\.view\(parts\)/);
  assert.match(
    pythonFor({ python: "", panes: [pane, run] }, INITIAL),
    /sc\.view\(part_1, parts_2\)/,
  );
});

test("colours are options, the rest is the state, named as Python names it", () => {
  const state = { ...INITIAL, color: "slope", output: 3, hiddenLayers: [0, 2], edges: false };
  assert.equal(
    pythonFor(scene, state),
    `import splinecam as sc

viewer = sc.view(
    part,
    color="slope",
    output=3,
    state={
        "edges": False,
        "hidden_layers": [0, 2],
    },
)
`,
  );
  assert.match(pythonFor(scene, { ...INITIAL, color: "area" }), /sc\.view\(part, color="area"\)/);
  assert.equal(snakeCase("levelSet"), "level_set");
});

test("literals are Python's", () => {
  assert.equal(literal([true, null, 'a"b\n', -1e-300]), '[True, None, "a\\"b\\n", -1e-300]');
  assert.equal(literal({ pane: 0, at: [0.1, 2] }), '{"pane": 0, "at": [0.1, 2]}');
  assert.equal(literal(Number.NaN), 'float("NaN")');
});

test("Python reads every literal as it was", (context) => {
  const values = ["é\u2028\u0007\\'\"", "\ud83d\ude00", 0.1 + 0.2, 1e21, 5e-324, [[], {}], false];
  const text = `import json; print(json.dumps(${literal(values)}))`;
  const python = spawnSync("python3", ["-c", text], { encoding: "utf8" });
  if (python.error) return context.skip("there is no Python");
  assert.deepEqual(JSON.parse(python.stdout), values);
});

test("names of files are plain", () => {
  assert.equal(fileName("MNIST: a plane, 3 digits", "png"), "mnist-a-plane-3-digits.png");
  assert.equal(fileName("../../etc/<passwd>", "svg"), "etc-passwd.svg");
  assert.equal(fileName("日本", "png"), "splinecam.png");
  assert.equal(fileName("Größe".repeat(50), "png").length, 64);
});
