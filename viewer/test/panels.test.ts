import assert from "node:assert/strict";
import { test } from "node:test";
import { barEnds, shownColumns } from "../src/panels/output_bars";
import { layerName, outputColor, outputLabel, outputName, unitName } from "../src/panels/outputs";
import { type Choice, matching } from "../src/panels/picker";
import { barLength } from "../src/panels/scale_bar";
import { patience } from "../src/panels/slider";
import type { PaneHeader } from "../src/protocol/messages";

test("few outputs keep their order, of many the largest come first", () => {
  assert.deepEqual(shownColumns([3, 1, 2]), [0, 1, 2]);
  const values = Array.from({ length: 1000 }, (_, k) => Math.sin(k));
  values[7] = Number.NaN;
  const shown = shownColumns(values, 5);
  assert.equal(shown.length, 5);
  assert.equal(values[shown[0]!], Math.max(...values.filter((value) => !Number.isNaN(value))));
  assert.ok(!shown.includes(7));
});

test("bars begin at 0", () => {
  assert.deepEqual(barEnds(2, -2, 2), [0.5, 1]);
  assert.deepEqual(barEnds(-1, -2, 2), [0.25, 0.5]);
  assert.deepEqual(barEnds(0, 0, 0), [0, 0]);
});

test("choices are found by a part of their name, or by their number", () => {
  const choices: Choice[] = Array.from({ length: 30 }, (_, k) => ({
    value: k,
    label: k === 12 ? "Egyptian cat" : `class ${k}`,
  }));
  assert.equal(matching(choices, "").length, 30);
  assert.deepEqual(
    matching(choices, " EGYPT ").map(({ value }) => value),
    [12],
  );
  assert.equal(matching(choices, "2")[0]!.value, 2);
  assert.deepEqual(matching(choices, "nothing"), []);
});

test("outputs stand for classes, unless there is one output", () => {
  const pane = {
    outputCount: 2,
    outputs: ["logit 0", "logit 1"],
    classes: [
      { name: "cat", color: "#0072B2" },
      { name: "dog", color: "#D55E00" },
    ],
    layers: [{ name: "net.1", units: 8 }],
  } as unknown as PaneHeader;
  assert.equal(outputLabel(pane, 1), "dog");
  assert.equal(outputColor(pane, 0), "#0072B2");
  assert.equal(outputName(pane, 1), "logit 1");
  assert.equal(outputName(pane, 5000), "output 5000");
  assert.equal(outputLabel({ ...pane, outputCount: 1 }, 0), "logit 0");
  assert.equal(layerName(pane, 0), "net.1");
  assert.equal(layerName(pane, 7), "7");
  assert.equal(unitName(pane, 0, 5), "layer net.1, unit 5");
  assert.equal(unitName(pane, 0, -1), "layer net.1");
});

test("the scale bar has a round length at any zoom", () => {
  for (let power = -300; power < 300; power += 7) {
    const pixels = barLength(10 ** power) / 10 ** power;
    assert.ok(pixels > 45 && pixels <= 120.001, String(power));
  }
});

test("a run is expected to go on for a while, and longer if its frames come slowly", () => {
  assert.equal(patience([0]), 15_000);
  assert.equal(patience([0, 1000, 2000]), 15_000);
  assert.equal(patience([0, 600_000]), 1_800_000);
});
