// Where the ticks of a colour bar are, and what they say; as in the static pictures.

import type { ColorScale } from "../protocol/messages";
import { formatFixed, formatNumber, tenTo } from "./numbers";

export interface Tick {
  /** The share of the bar's length before the tick. */
  at: number;
  label: string;
}

/** The share of the bar at which a number is, from 0 to 1 within the limits. */
export function placeOn(scale: ColorScale, value: number): number {
  const { type, low, center, high } = scale;
  if (type === "log") return Math.log(value / low) / Math.log(high / low);
  if (type === "linear") return (value - low) / (high - low);
  return value < center
    ? (0.5 * (value - low)) / (center - low)
    : 0.5 + (0.5 * (value - center)) / (high - center);
}

/** At most about `most` ticks at round numbers; none where the limits make no sense. */
export function ticksOf(scale: ColorScale, most: number): Tick[] {
  const { type, low, high } = scale;
  if (!(low < high) || !Number.isFinite(high - low) || (type === "log" && low <= 0)) return [];
  const decades = type === "log" ? Math.log10(high / low) : 0;
  const ticks = decades > 0.8 ? powers(low, high, most) : rounds(low, high, most);
  return ticks.map(([value, label]) => ({ at: placeOn(scale, value), label }));
}

/** Multiples of a round step between two numbers, with labels of equally many decimals. */
function rounds(low: number, high: number, most: number): [number, string][] {
  const step = roundStep((high - low) / most);
  const power = Math.floor(Math.log10(step) + 1e-9);
  const values: number[] = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let k = first; k * step <= high + 1e-9 * step && values.length <= 2 * most; k += 1) {
    values.push(Number((k * step).toPrecision(15)));
  }
  const largest = Math.max(Math.abs(low), Math.abs(high));
  if (largest < 1e-3 || largest >= 1e5) {
    const digits = Math.max(1, Math.floor(Math.log10(largest)) - power + 1);
    return values.map((value) => [value, formatNumber(value, Math.min(digits, 17))]);
  }
  return values.map((value) => [value, formatFixed(value, Math.min(20, Math.max(0, -power)))]);
}

/** Powers of ten between two numbers, with 2 and 5 times these if there is room. */
function powers(low: number, high: number, most: number): [number, string][] {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const decades = Math.log10(high / low);
  const digits = decades <= 2.5 && 3 * decades <= most ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(decades / most));
  const plain = low >= 1e-3 && high <= 1e5;
  const found: [number, string][] = [];
  for (let power = from; power <= to; power += 1) {
    if (power % stride) continue;
    for (const digit of digits) {
      const value = Number(`${digit}e${power}`);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      const raised = digit === 1 ? tenTo(power) : `${digit}×${tenTo(power)}`;
      found.push([value, plain ? formatNumber(value) : raised]);
    }
  }
  return found;
}

/** The smallest of 1, 2 and 5 times a power of ten that is not below a positive number. */
function roundStep(least: number): number {
  const power = Math.floor(Math.log10(least));
  const digit = [1, 2, 5, 10].find((each) => each * 10 ** power >= least * (1 - 1e-9)) ?? 10;
  return digit * 10 ** power;
}
