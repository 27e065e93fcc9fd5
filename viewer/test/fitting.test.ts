import assert from "node:assert/strict";
import { test } from "node:test";
import { fitting } from "../src/fitting";
import type { PaneHeader } from "../src/protocol/messages";

const pane = {
  frames: ["epoch 0", "epoch 1"],
  layers: [{ name: "net.1", units: 8 }],
  outputCount: 3,
  colorings: [{ name: "slope", label: "slope", byOutput: true }],
  domain: {
    corners: [
      [-1, -1],
      [1, -1],
      [0, 1],
    ],
  },
} as unknown as PaneHeader;

test("what the scene has is taken", () => {
  const change = {
    center: [0.5, 0.25] as [number, number],
    width: 1e-9,
    color: "slope",
    output: 2,
    frame: 1,
    hiddenLayers: [0],
    selected: { pane: 0, at: [0, 0] as [number, number] },
    compared: null,
    edges: false,
  };
  assert.deepEqual(fitting(change, [pane]), change);
});

test("what it has not is left out", () => {
  const far: [number, number] = [1e300, 0];
  assert.deepEqual(fitting({ center: far, width: 1e-300, level: 2 }, [pane]), { level: 2 });
  assert.deepEqual(fitting({ color: "nonsense", output: 3, frame: 2 }, [pane]), {});
  assert.deepEqual(fitting({ hiddenLayers: [0, 1, 500] }, [pane]), { hiddenLayers: [0] });
  assert.deepEqual(fitting({ selected: { pane: 1, at: [0, 0] } }, [pane]), {});
  assert.deepEqual(fitting({ output: null, frame: 0 }, []), { output: null });
});
