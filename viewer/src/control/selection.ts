// The kept region and the one that it is compared with; Python is told about both.

import type { Camera } from "../geometry/camera";
import { exitOf, middleOf } from "../geometry/curves";
import type { Box, Pair, SelectRequest } from "../protocol/messages";
import { contains } from "./depth";
import { type Hit, hitAtPlace, unitOf } from "./hover";
import type { PaneView } from "./panes";
import type { Stage } from "./stage";

/** A direction in the plane, or how many numbers of regions to go on. */
export type Way = Readonly<Pair> | number;

const AHEAD = 0.01; // of the picture: how far beyond a region it is looked whether the domain goes on

export class Selection {
  kept: Hit | null = null;
  compared: Hit | null = null;
  /** The edge that was clicked, which counts as long as its place is selected. */
  private edge: { unit: [number, number] | null; at: Pair } | null = null;
  private told = "";

  constructor(private stage: Stage) {}

  /** Keep what was clicked, or compare it with what is kept; outside of the domain: let go. */
  click(hit: Hit | null, compare: boolean): void {
    const place = hit && hit.cell >= 0 ? { pane: hit.pane.index, at: hit.at } : null;
    const { store } = this.stage;
    this.edge = hit && { unit: unitOf(hit.level.mesh, hit.edge), at: hit.at };
    if (compare && store.state.selected) store.set({ compared: place });
    else store.set({ selected: place, compared: null });
  }

  /** Keep the region beside the kept one in a direction, or the one so many numbers after it.
   *
   * Without one, what is pointed at or in the middle of the picture is kept. Returns the edge that
   * was crossed, -1 if there is none, or what is in the way. */
  step(
    pane: PaneView,
    camera: Camera,
    way: Way,
    pointed: Hit | null,
  ): number | "domain" | "window" {
    const level = pane.shown(camera);
    const { selected } = this.stage.store.state;
    if (!level) return "window";
    const { mesh, picker } = level;
    const [u0, v0, u1, v1] = camera.window;
    const window: Box = [...mesh.toLocal([u0, v0]), ...mesh.toLocal([u1, v1])];
    const cell = selected?.pane === pane.index ? picker.cell(selected.at) : -1;
    let [region, crossed] = [cell < 0 ? -1 : mesh.region[cell]!, -1];
    if (region < 0) {
      const first =
        pointed && pointed.cell >= 0 ? picker.cell(pointed.at) : picker.cellIn([u0, v0, u1, v1]);
      if (first < 0) return "domain";
      region = mesh.region[first]!;
    } else if (typeof way === "number") {
      region = (region + way + mesh.regionCount) % mesh.regionCount;
    } else {
      const half = exitOf(mesh, region, middleOf(mesh, region, window), way);
      if (half < 0) return "domain";
      crossed = half >> 1;
      const beyond = mesh.halfedgeCell[half ^ 1]!;
      if (beyond < 0) {
        const [u, v] = mesh.toPlane([
          mesh.points[2 * mesh.edges[half]!]!,
          mesh.points[2 * mesh.edges[half]! + 1]!,
        ]);
        const [du, dv] = way.map((x) => x * AHEAD * camera.width) as Pair;
        return contains(pane.domain, [u + du, v + dv, u + du, v + dv]) ? "window" : "domain";
      }
      region = mesh.region[beyond]!;
    }
    const at = mesh.toPlane(middleOf(mesh, region, window));
    this.edge = null;
    this.stage.store.set({ selected: { pane: pane.index, at }, compared: null });
    return crossed;
  }

  /** Find the regions at the places of the state, in the meshes that are shown now. */
  resolve(): void {
    const { selected, compared } = this.stage.store.state;
    this.kept = this.find(selected);
    this.compared = this.kept && this.find(compared);
    this.tell();
  }

  private find(place: SelectedPlace): Hit | null {
    const pane = place && this.stage.panes[place.pane];
    const hit = pane ? hitAtPlace(this.stage, pane, place.at) : null;
    return hit && hit.cell >= 0 ? hit : null;
  }

  /** Tell Python once for each change. */
  private tell(): void {
    if (!this.stage.scene.live) return;
    const { kept, compared } = this;
    // While a mesh is loaded nothing is found; that is no news.
    if (!kept && this.stage.store.state.selected && !this.told) return;
    const clicked = [kept, compared].some((hit) => String(hit?.at) === String(this.edge?.at));
    const request = requestFor(kept, compared, (clicked && this.edge?.unit) || null);
    const text = JSON.stringify(request);
    const before = this.told;
    this.told = text;
    if (text === before || (!before && !kept)) return;
    this.stage.track(this.stage.source.ask(request));
  }
}

type SelectedPlace = { pane: number; at: [number, number] } | null;

function requestFor(
  kept: Hit | null,
  compared: Hit | null,
  unit: [number, number] | null,
): SelectRequest {
  const mesh = kept?.level.mesh;
  const request: SelectRequest = {
    ask: "select",
    pane: kept?.pane.index ?? 0,
    frame: mesh?.frame ?? 0,
    mesh: mesh?.id ?? "",
    region: regionOf(kept),
    compared: regionOf(compared),
    at: kept?.at ?? null,
    unit: kept ? unit : null,
  };
  if (compared && compared.level.mesh.id !== mesh?.id) {
    request.comparedMesh = compared.level.mesh.id;
  }
  return request;
}

function regionOf(hit: Hit | null): number | null {
  return hit && hit.cell >= 0 ? hit.level.mesh.region[hit.cell]! : null;
}
