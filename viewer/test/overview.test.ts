import assert from "node:assert/strict";
import { test } from "node:test";
import { extentOf } from "../src/draw/overview";
import { isFar } from "../src/panels/overview";
import type { Box } from "../src/protocol/messages";

test("an overview shows all of a domain of any shape, without distortion", () => {
  for (const domain of [
    [-1, -1, 1, 1],
    [0, 0, 100, 1],
    [3, -5e-9, 3 + 1e-9, 7e-9],
  ] as Box[]) {
    const { box, size } = extentOf(domain);
    assert.ok(Math.max(...size) === 132 && Math.min(...size) >= 33);
    const [across, up] = [(box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]];
    assert.ok(Math.abs(across / up - 1) < 1e-6);
    const rounding = 1e-15 * Math.max(...domain.map(Math.abs));
    assert.ok(box[0] <= domain[0] + rounding && box[1] <= domain[1] + rounding);
    assert.ok(box[2] >= domain[2] - rounding && box[3] >= domain[3] - rounding);
  }
});

test("an overview is shown where little of the domain is seen", () => {
  const domain: Box = [-1, -1, 1, 1];
  assert.ok(!isFar(domain, domain));
  assert.ok(!isFar([-1, 0, 1, 0.01], domain));
  assert.ok(isFar([0.1, 0.1, 0.6, 0.4], domain));
});
