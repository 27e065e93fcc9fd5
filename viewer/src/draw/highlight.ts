// Cells that are marked: a translucent fill, and a line around them.

import type { Mesh } from "../geometry/mesh";
import { clippedPolygon, type Local } from "./clip";
import { rgb } from "./colours";
import { type LineStyle, Lines } from "./lines";
import { attribute, type Programs } from "./programs";
import type { View } from "./view";

export interface HighlightStyle {
  /** The colour of the fill, and its opacity; 0: no fill. */
  color: string;
  opacity: number;
  outline?: LineStyle;
}

export class Highlight {
  private readonly outline: Lines | null;

  constructor(
    private readonly mesh: Mesh,
    private readonly cells: Uint32Array,
    private readonly style: HighlightStyle,
  ) {
    this.outline = style.outline ? new Lines(outlineOf(mesh, cells), style.outline) : null;
  }

  drawFill(programs: Programs, view: View): void {
    const { color, opacity: a } = this.style;
    if (!a || !this.cells.length) return;
    const { gl } = programs;
    const triangles = this.triangles(view);
    const array = gl.createVertexArray();
    gl.bindVertexArray(array);
    const buffer = attribute(gl, 0, [2, gl.FLOAT, false], triangles);
    const [r, g, b] = rgb(color);
    const place = [2 / view.size[0], 2 / view.size[1], 0, 0];
    programs.plain.use({ place, color: [a * r, a * g, a * b, a] });
    gl.enable(gl.BLEND);
    gl.drawArrays(gl.TRIANGLES, 0, triangles.length / 2);
    gl.bindVertexArray(null);
    gl.deleteBuffer(buffer);
    gl.deleteVertexArray(array);
  }

  drawOutline(programs: Programs, view: View): void {
    this.outline?.draw(programs, view);
  }

  forget(): void {
    this.outline?.forget();
  }

  lose(): void {
    this.outline?.lose();
  }

  /** Triangles of all cells, in device pixels from the centre of the view. */
  private triangles(view: View): Float32Array {
    const { mesh, cells } = this;
    const result: number[] = [];
    for (const cell of cells) {
      const polygon = clippedPolygon(cornersOf(mesh, cell), view);
      for (let k = 4; k + 1 < polygon.length; k += 2) {
        for (const j of [0, k - 2, k]) result.push(polygon[j]!, polygon[j + 1]!);
      }
    }
    return Float32Array.from(result);
  }
}

function cornersOf({ points, edges, corners, offsets, center, scale }: Mesh, cell: number): Local {
  const [begin, end] = [offsets[cell]!, offsets[cell + 1]!];
  const data = new Float64Array(2 * (end - begin));
  for (let k = begin; k < end; k++) {
    const v = edges[corners[k]!]!;
    data[2 * (k - begin)] = points[2 * v]!;
    data[2 * (k - begin) + 1] = points[2 * v + 1]!;
  }
  return { data, center, scale };
}

/** The edges that have a cell of a set on one side only. */
export function outlineOf(mesh: Mesh, cells: Uint32Array): Local {
  const { points, edges, corners, offsets, center, scale } = mesh;
  const around = new Set<number>();
  for (const cell of cells) {
    for (let k = offsets[cell]!; k < offsets[cell + 1]!; k++) {
      const edge = corners[k]! >> 1;
      if (!around.delete(edge)) around.add(edge);
    }
  }
  const data = new Float64Array(4 * around.size);
  let at = 0;
  for (const edge of around) {
    for (const vertex of [edges[2 * edge]!, edges[2 * edge + 1]!]) {
      data[at++] = points[2 * vertex]!;
      data[at++] = points[2 * vertex + 1]!;
    }
  }
  return { data, center, scale };
}
