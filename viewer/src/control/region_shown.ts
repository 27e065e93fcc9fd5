// The region that is pointed at: known as a whole, also where only a window of it is looked at.

import { regionInfo } from "../geometry/maps";
import type { RegionInfo } from "../geometry/region_info";
import type { Hit } from "./hover";
import type { Level } from "./panes";

/** Slopes of the same map may differ by this share of the steepest, beside their own errors. */
const SAME = 1e-4;

/** What is known of the region of a hit; null outside.
 *
 * A region that a window cuts off has its number, area and corners from the mesh of the whole
 * domain, if that has the same affine map at the place; so does every region its bounds. */
export function regionShown(hit: Hit | null): RegionInfo | null {
  if (!hit || hit.cell < 0) return null;
  const { pane, level, at, cell } = hit;
  const info = regionInfo(level.mesh, cell, at, pane.header);
  const { whole } = pane;
  if (!whole || whole === level) return withBounds(info, level, info.region);
  if (!info.cutOff && whole.mesh.header.within === undefined) return info;
  const home = whole.picker.cell(at);
  if (home < 0) return info;
  const known = regionInfo(whole.mesh, home, at, pane.header);
  if (!haveSameMap(info, known)) return info;
  const { mesh, region, area, corners, layer, neighbours } = known;
  const bounded = withBounds(info, whole, region);
  if (!info.cutOff) return bounded;
  return { ...bounded, mesh, region, area, corners, layer, neighbours, cutOff: false };
}

function withBounds(info: RegionInfo, level: Level, region: number): RegionInfo {
  const bounds = level.boundsOf(region);
  return bounds ? { ...info, bounds } : info;
}

/** Whether the maps of two regions are the same, as far as they are known. */
export function haveSameMap(one: RegionInfo, other: RegionInfo): boolean {
  if (String(one.outputs) !== String(other.outputs)) return false;
  const steepest = Math.max(...one.weights.map((weight) => Math.hypot(...weight)));
  return one.weights.every((weight, k) => {
    const [u, v] = other.weights[k]!;
    const slack = SAME * steepest + one.weightErrors[k]! + other.weightErrors[k]!;
    return Math.hypot(weight[0] - u, weight[1] - v) <= slack;
  });
}
