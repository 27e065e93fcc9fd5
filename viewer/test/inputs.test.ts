import assert from "node:assert/strict";
import { test } from "node:test";
import { diverging, gradientImage, imageOf, inputAt, storedGradient } from "../src/geometry/inputs";
import { Mesh } from "../src/geometry/mesh";
import { square } from "./subdivisions";

const GREY = { height: 1, width: 2, channels: 1, low: -1, high: 1 };

test("an input is the origin and its way along the basis", () => {
  const input = inputAt([1, 2, 3], [1, 0, 0, 0, 1, 10], [0.5, -2]);
  assert.deepEqual([...input], [1.5, 0, -17]);
});

test("grey images lie between low and high", () => {
  assert.deepEqual([...imageOf([-1, 5], GREY)], [0, 0, 0, 255, 255, 255, 255, 255]);
  assert.deepEqual([...imageOf([0, Number.NaN], GREY)], [128, 128, 128, 255, 0, 0, 0, 255]);
});

test("channels of colour images come one after the other", () => {
  const shape = { ...GREY, channels: 3, low: 0 };
  const pixels = imageOf([1, 0, 0, 1, 0.2, 0.4], shape);
  assert.deepEqual([...pixels], [255, 0, 51, 255, 0, 255, 102, 255]);
});

test("gradients are blue below 0 and red above", () => {
  assert.deepEqual(diverging(0), [247, 247, 247]);
  assert.deepEqual(diverging(-1), [5, 48, 97]);
  assert.deepEqual(diverging(2), [103, 0, 31]);
  assert.deepEqual(diverging(Number.NaN), [247, 247, 247]);
  const pixels = gradientImage([-2, 1, -2, 1], { ...GREY, channels: 2 });
  assert.deepEqual([...pixels.slice(0, 4)], [5, 48, 97, 255]);
  assert.deepEqual([...pixels.slice(4, 7)], diverging(0.5));
  assert.deepEqual([...gradientImage([0, 0], GREY).slice(0, 3)], [247, 247, 247]);
});

test("gradients of a file are scaled by region", () => {
  const mesh = square().cutAll(1, 0, 0).mesh();
  const gradients = Int8Array.of(1, 2, 3, -127, 0, 127);
  const gradientScale = Float32Array.of(0.5, 2);
  const with_ = new Mesh(mesh.header, { ...mesh, gradients, gradientScale });
  assert.deepEqual([...storedGradient(with_, 1)!], [-254, 0, 254]);
  assert.equal(storedGradient(mesh, 1), null);
});
