// The state in the address: short, readable, and only what differs from the defaults.
//
// #at=0.25,-1.5&width=0.01&color=slope&hide=0,3-5&level=0.5&select=0:0.2,0.3

import type { Pair } from "./protocol/messages";
import type { ViewState } from "./state";

const LONGEST = 4000; // characters of an address that are read
const MOST = 100_000; // frames, layers, outputs; larger numbers are nonsense

type Change = Partial<ViewState>;

/** How a part of the state is written into the address, and read from it (undefined: nonsense). */
interface Part<K extends keyof ViewState> {
  name: string;
  write(value: ViewState[K]): string;
  read(text: string): ViewState[K] | undefined;
}

const flag: Omit<Part<"edges">, "name"> = {
  write: (value) => (value ? "on" : "off"),
  read: (text) => ({ on: true, off: false })[text],
};

const place: Omit<Part<"selected">, "name"> = {
  write: (value) => (value ? `${value.pane}:${value.at.join(",")}` : "none"),
  read: (text) => {
    if (text === "none") return null;
    const [pane, at] = text.split(":");
    const [index, pair] = [whole(pane ?? ""), readPair(at ?? "")];
    return index === undefined || pair === undefined ? undefined : { pane: index, at: pair };
  },
};

const PARTS: { [K in keyof ViewState]: Part<K> } = {
  center: { name: "at", write: (value) => value.join(","), read: readPair },
  width: { name: "width", write: String, read: (text) => positive(text, 0) },
  color: { name: "color", write: (value) => value, read: (text) => text.slice(0, 200) },
  output: {
    name: "output",
    write: (value) => (value === null ? "all" : String(value)),
    read: (text) => (text === "all" ? null : whole(text)),
  },
  frame: { name: "frame", write: String, read: whole },
  edges: { name: "edges", ...flag },
  hiddenLayers: { name: "hide", write: writeRanges, read: readRanges },
  edgeWidth: { name: "line", write: String, read: (text) => positive(text, 1e-3) },
  boundary: { name: "boundary", ...flag },
  band: { name: "band", ...flag },
  levelSet: { name: "levelset", ...flag },
  level: { name: "level", write: String, read: finite },
  points: { name: "points", ...flag },
  thumbnails: { name: "thumbnails", ...flag },
  theme: {
    name: "theme",
    write: (value) => value,
    read: (text) => (["auto", "light", "dark"] as const).find((theme) => theme === text),
  },
  selected: { name: "select", ...place },
  compared: { name: "compare", ...place },
};

const KEYS = Object.keys(PARTS) as (keyof ViewState)[];

/** What of a state differs from the defaults. */
export function differences(state: Readonly<ViewState>, defaults: Readonly<ViewState>): Change {
  const different = (key: keyof ViewState) =>
    JSON.stringify(state[key]) !== JSON.stringify(defaults[key]);
  return Object.fromEntries(KEYS.filter(different).map((key) => [key, state[key]]));
}

/** The part of the address after "#", without it; "" if nothing differs from the defaults. */
export function writeHash(state: Readonly<ViewState>, defaults: Readonly<ViewState>): string {
  const change = differences(state, defaults);
  return KEYS.filter((key) => key in change)
    .map((key) => `${PARTS[key].name}=${escaped(written(key, state))}`)
    .join("&");
}

/** The changes that an address describes; what makes no sense is left out. */
export function readHash(hash: string): Change {
  const change: Record<string, unknown> = {};
  for (const part of hash.slice(0, LONGEST).replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    const name = part.slice(0, Math.max(at, 0));
    const key = KEYS.find((each) => PARTS[each].name === name);
    const text = unescaped(part.slice(at + 1));
    if (!key || text === undefined) continue;
    const value = PARTS[key].read(text);
    if (value !== undefined) change[key] = value;
  }
  return change as Change;
}

function written<K extends keyof ViewState>(key: K, state: Readonly<ViewState>): string {
  return (PARTS[key] as Part<K>).write(state[key]);
}

/** Escape what would end a value; leave what people can read. */
function escaped(text: string): string {
  return encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")).replace(
    /%(2C|3A|20)/g,
    (code) => (code === "%20" ? "+" : decodeURIComponent(code)),
  );
}

function unescaped(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}

function finite(text: string): number | undefined {
  const value = Number(text);
  return text.trim() && Number.isFinite(value) ? value : undefined;
}

function positive(text: string, least: number): number | undefined {
  const value = finite(text);
  return value !== undefined && value >= least ? value : undefined;
}

function whole(text: string): number | undefined {
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function readPair(text: string): Pair | undefined {
  const numbers = text.split(",").map(finite);
  const [u, v] = numbers;
  return numbers.length === 2 && u !== undefined && v !== undefined ? [u, v] : undefined;
}

/** Ascending numbers, with runs of them shortened: 0,3-5. */
function writeRanges(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
}

function readRanges(text: string): number[] | undefined {
  const found: number[] = [];
  for (const run of text === "" ? [] : text.split(",")) {
    const [from, to] = run.split("-").map(whole) as [number | undefined, number | undefined];
    const last = run.includes("-") ? to : from;
    if (from === undefined || last === undefined || last >= MOST) return undefined;
    if (found.length + last - from > MOST) return undefined;
    for (let number = from; number <= last; number += 1) found.push(number);
  }
  return [...new Set(found)].sort((a, b) => a - b);
}
