// Numbers as people read them: few digits, a true minus sign, powers of ten where these are shorter.

const RAISED: Record<string, string> = { "-": "⁻" };
for (const [k, digit] of [..."⁰¹²³⁴⁵⁶⁷⁸⁹"].entries()) RAISED[String(k)] = digit;

/** Numbers whose size is between these are written without a power of ten. */
const PLAIN = [1e-3, 1e5] as const;

/** A number with some significant digits: 0.5, −1.235, 2×10⁻⁶, 10⁷; zeros at the end are cut. */
export function formatNumber(value: number, digits = 4): string {
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const [mantissa, power] = Math.abs(value)
    .toExponential(digits - 1)
    .split("e") as [string, string];
  const rounded = Number(`${mantissa}e${power}`);
  const sign = value < 0 ? "−" : "";
  if (rounded >= PLAIN[0] && rounded < PLAIN[1]) {
    const decimals = digits - 1 - Number(power);
    return sign + trimmed(decimals > 0 ? rounded.toFixed(decimals) : Math.abs(value).toFixed(0));
  }
  return `${sign}${trimmed(mantissa)}×${tenTo(Number(power))}`.replace(/^(−?)1×/, "$1");
}

/** A bound with some significant digits, of which the last is rounded up: it stays a bound. */
export function formatBound(value: number, digits = 3): string {
  const near = Number(value.toPrecision(digits));
  if (!(near < value) || !Number.isFinite(value)) return formatNumber(near, digits);
  const last = 10 ** (Math.floor(Math.log10(value)) - digits + 1);
  return formatNumber(near + last, digits);
}

/** A number with a fixed count of decimals, for columns and ticks that belong together. */
export function formatFixed(value: number, decimals: number): string {
  const written = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(written) !== 0 ? `−${written}` : written;
}

/** A coordinate with as many decimals as tell pixels apart. */
export function formatPlace(value: number, unitsPerPixel: number): string {
  if (!(unitsPerPixel > 0) || !(Math.abs(value) < 1e15)) return formatNumber(value, 6);
  return formatFixed(value, Math.max(0, Math.min(17, Math.ceil(-Math.log10(unitsPerPixel)))));
}

/** Numbers of a column with equally many decimals, so that the largest has some digits. */
export function formatColumn(values: readonly number[], digits = 4): string[] {
  const most = Math.max(0, ...values.map(Math.abs).filter(Number.isFinite));
  if (most < PLAIN[0] || most >= PLAIN[1])
    return values.map((value) => formatNumber(value, digits));
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(most)));
  return values.map((value) =>
    Number.isFinite(value) ? formatFixed(value, decimals) : formatNumber(value),
  );
}

/** A whole number with its thousands separated: 39,412. */
export function formatCount(value: number): string {
  return String(Math.round(value))
    .replace(/\B(?=(\d{3})+$)/g, ",")
    .replace("-", "−");
}

/** A count with its noun: "1 region", "39,412 regions". */
export function counted(value: number, noun: string): string {
  return `${formatCount(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** A signed difference: +0.25, −1.5, 0. */
export function formatDifference(value: number, digits = 4): string {
  return (value > 0 ? "+" : "") + formatNumber(value, digits);
}

/** A letter with a number below the line: x₁₂. */
export function subscript(letter: string, index: number): string {
  return letter + [...String(index)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[Number(digit)]).join("");
}

/** A power of ten: 10⁻⁶. */
export function tenTo(power: number): string {
  return `10${[...String(power)].map((digit) => RAISED[digit]).join("")}`;
}

/** The largest of 1, 2 and 5 times a power of ten that is not above a positive number. */
export function roundNumber(most: number): number {
  const power = Math.floor(Math.log10(most));
  const digit = [5, 2, 1].find((each) => Number(`${each}e${power}`) <= most) ?? 1;
  return Number(`${digit}e${power}`);
}

function trimmed(written: string): string {
  return written.includes(".") ? written.replace(/\.?0+$/, "") : written;
}
