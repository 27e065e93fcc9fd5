// The kept region and the one that it is compared with; Python is told about both.

import type { Pair, SelectRequest } from "../protocol/messages";
import { type Hit, hitAtPlace, unitOf } from "./hover";
import type { Stage } from "./stage";

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
