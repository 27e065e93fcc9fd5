// The inspector: the face that is pointed at, with the affine map of its region.

import { box, element, setText, show, text } from "../panels/dom";
import { formatCount, formatNumber, subscript } from "../panels/numbers";
import { layerName } from "../panels/outputs";
import type { NumberArray } from "../protocol/messages";
import type { SolidHeader, SurfaceHeader } from "./messages";
import type { Regions } from "./plane";
import type { Hit, Polygons } from "./polygons";
import { add, row, times, type Vec3 } from "./vectors";

/** A surface with what is known of its faces. */
export interface Known {
  header: SurfaceHeader;
  polygons: Polygons;
  gradients: NumberArray;
  bias: NumberArray;
  areas: NumberArray;
  region: NumberArray;
}

/** What is pointed at, as tests and readers are told. */
export interface Pointed {
  on: "surface" | "plane";
  face: number;
  /** The number of the region, -1 for a side of the box; of a plane: of the cell. */
  region: number;
  at: Vec3;
  gradient: Vec3 | null;
  bias: number | null;
  area: number;
  layers: number[];
  value: number;
  /** The number of the colouring, if it is one of numbers. */
  shade: number | null;
}

/** What is known of a face at a place in local coordinates. */
export function pointedAt(known: Known, scene: SolidHeader, face: number, at: Vec3): Pointed {
  return {
    on: "surface",
    face,
    region: known.region[face]!,
    at: add(scene.center, times(at, scene.scale)),
    gradient: row(known.gradients, face),
    bias: known.bias[face]!,
    area: known.areas[face]!,
    layers: known.polygons.layersOf(face),
    value: known.header.level,
    shade: null,
  };
}

/** What is known of a region of the plane, where the output is linear, too. */
export function pointedIn(
  { polygons, values }: Regions,
  { center, scale }: SolidHeader,
  { face, at }: Hit,
): Pointed {
  return {
    on: "plane",
    face,
    region: face,
    at: add(center, times(at, scale)),
    gradient: null,
    bias: null,
    area: polygons.area[face]! * scale ** 2,
    layers: polygons.layersOf(face),
    value: polygons.valueAt(face, at, values),
    shade: null,
  };
}

export class Facts {
  readonly body = box("sc-solid-facts");
  private readonly title = text("sc-region-number", "");
  private readonly map = element("tbody");
  private readonly facts = element("tbody");
  private readonly whole = element("tbody");
  private readonly formula = box("sc-formula");
  private readonly pointed: HTMLElement;
  private readonly hint = element("p", {}, "Point at a face to see the affine map of its region.");

  constructor(private readonly scene: SolidHeader) {
    const table = (body: HTMLElement) => element("table", { class: "sc-table sc-facts" }, body);
    this.pointed = box(
      "sc-pointed-face",
      box("sc-region-head", box("sc-region-line", this.title), this.formula),
      box("sc-part", text("sc-part-title", "Affine map"), table(this.map)),
      box("sc-part", text("sc-part-title", "Face"), table(this.facts)),
    );
    const about = box("sc-part", text("sc-part-title", "Surface"), table(this.whole));
    this.body.append(box("sc-hint", this.hint), this.pointed, about);
    show(this.pointed, false);
  }

  showSurface(header: SurfaceHeader): void {
    const rows = header.facts.map(
      ([name, value]): Row => [
        name,
        value === null
          ? "unknown"
          : Number.isInteger(value)
            ? formatCount(value)
            : formatNumber(value, 6),
      ],
    );
    if (header.unresolved) rows.push(["unresolved", formatCount(header.unresolved)]);
    fill(this.whole, rows);
  }

  show(pointed: Pointed | null): void {
    show(this.pointed, pointed !== null);
    show(this.hint.parentElement!, pointed === null);
    if (!pointed) return;
    const { gradient, bias, region, at, layers, area } = pointed;
    const onSide = pointed.on === "surface" && region < 0;
    const name = pointed.on === "plane" ? "Region of the plane" : "Region";
    setText(this.title, onSide ? "Side of the box" : `${name} ${formatCount(region)}`);
    const letter = this.scene.plain ? "x" : "u";
    const value = pointed.on === "plane" ? "output − level" : "output";
    setText(this.formula, `${value} = ${formatNumber(pointed.value, 5)}`);
    const rows: Row[] = gradient
      ? [
          ...gradient.map(
            (each, k): Row => [`× ${subscript(letter, k + 1)}`, formatNumber(each, 5)],
          ),
          ["+ 1 ×", formatNumber(bias!, 5)],
        ]
      : [];
    fill(this.map, onSide ? [] : rows);
    show(this.map.parentElement!.parentElement!, rows.length > 0 && !onSide);
    const names = layers.map((layer) => (layer < 0 ? "the box" : layerName(this.scene, layer)));
    const facts: Row[] = [
      ["face", formatCount(pointed.face)],
      ["area", formatNumber(area, 5)],
      ["edges of", names.join(", ")],
      ...at.map((each, k): Row => [subscript(letter, k + 1), formatNumber(each, 6)]),
    ];
    if (pointed.shade !== null) facts.push(["colour", formatNumber(pointed.shade, 5)]);
    fill(this.facts, facts);
  }
}

type Row = [string, string];

function fill(body: HTMLElement, rows: readonly Row[]): void {
  body.replaceChildren(
    ...rows.map(([name, value]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, name),
        element("td", { title: value }, value),
      ),
    ),
  );
}
