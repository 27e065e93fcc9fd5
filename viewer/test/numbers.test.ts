import assert from "node:assert/strict";
import { test } from "node:test";
import {
  counted,
  formatBound,
  formatColumn,
  formatCount,
  formatDifference,
  formatFixed,
  formatNumber,
  roundNumber,
  subscript,
  tenTo,
} from "../src/panels/numbers";

test("numbers have four significant digits and a true minus sign", () => {
  const written: [number, string][] = [
    [0, "0"],
    [-0, "0"],
    [0.5, "0.5"],
    [-1.23456, "−1.235"],
    [12345.6, "12346"],
    [99999.9, "10⁵"],
    [0.001, "0.001"],
    [0.00099999, "0.001"],
    [0.000123456, "1.235×10⁻⁴"],
    [-2e-6, "−2×10⁻⁶"],
    [1e7, "10⁷"],
    [-1e7, "−10⁷"],
    [1.5e300, "1.5×10³⁰⁰"],
    [5e-324, "4.941×10⁻³²⁴"],
    [Number.POSITIVE_INFINITY, "∞"],
    [Number.NEGATIVE_INFINITY, "−∞"],
    [Number.NaN, "not a number"],
  ];
  for (const [value, text] of written) assert.equal(formatNumber(value), text);
});

test("what is written is the number, up to its digits", () => {
  for (let k = 0; k < 2000; k += 1) {
    const value = (Math.random() - 0.5) * 10 ** (40 * Math.random() - 20);
    const digits = 1 + Math.floor(8 * Math.random());
    const error = Math.abs(readBack(formatNumber(value, digits)) - value);
    assert.ok(error <= 0.5000001 * 10 ** (1 - digits) * Math.abs(value), `${value} ${digits}`);
  }
});

test("bounds are rounded up in their last digit", () => {
  assert.equal(formatBound(0.0009951), "9.96×10⁻⁴");
  assert.equal(formatBound(0.00099951), "0.001");
  assert.equal(formatBound(0.001), "0.001");
  assert.equal(formatBound(0), "0");
  for (let k = 0; k < 2000; k += 1) {
    const value = Math.random() * 10 ** (20 * Math.random() - 10);
    const written = readBack(formatBound(value));
    assert.ok(written >= value && written <= 1.0101 * value, `${value}`);
  }
});

function readBack(text: string): number {
  const plain = text.replace("−", "-").replace(/^(-?)10(?=[⁻⁰-⁹¹²³])/, "$11×10");
  const [mantissa, power] = plain.split("×10");
  const digits = [...(power ?? "")].map((c) =>
    "⁰¹²³⁴⁵⁶⁷⁸⁹".includes(c) ? "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(c) : "-",
  );
  return Number(`${mantissa}e${digits.join("") || 0}`);
}

test("columns have equally many decimals", () => {
  assert.deepEqual(formatColumn([19.9, -8.7041, 0]), ["19.90", "−8.70", "0.00"]);
  assert.deepEqual(formatColumn([1234.5, 0.001]), ["1235", "0"]);
  assert.deepEqual(formatColumn([1e-5, 2]), ["0.000", "2.000"]);
  assert.deepEqual(formatColumn([1e9, Number.NaN]), ["10⁹", "not a number"]);
  assert.deepEqual(formatColumn([]), []);
});

test("counts, differences, powers", () => {
  assert.equal(formatCount(39412), "39,412");
  assert.equal(formatCount(-1234567), "−1,234,567");
  assert.equal(formatCount(999), "999");
  assert.equal(counted(1, "region"), "1 region");
  assert.equal(counted(1000, "region"), "1,000 regions");
  assert.equal(formatDifference(0.25), "+0.25");
  assert.equal(formatDifference(-0.25), "−0.25");
  assert.equal(formatDifference(0), "0");
  assert.equal(formatFixed(-0.001, 2), "0.00");
  assert.equal(tenTo(-12), "10⁻¹²");
  assert.equal(subscript("x", 10), "x₁₀");
});

test("round numbers are 1, 2 or 5 times a power of ten", () => {
  assert.equal(roundNumber(0.3), 0.2);
  assert.equal(roundNumber(7e6), 5e6);
  for (let k = 0; k < 500; k += 1) {
    const most = 10 ** (60 * Math.random() - 30);
    const found = roundNumber(most);
    assert.ok(found <= most && found > most / 2.51, `${most} ${found}`);
  }
});
