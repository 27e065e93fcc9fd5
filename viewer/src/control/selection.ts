// The kept region and the one that it is compared with; Python is told about both.

import type { Camera } from "../geometry/camera";
import { exitOf, middleOf } from "../geometry/curves";
import type { Box, Pair, SelectRequest } from "../protocol/messages";
import { contains } from "./depth";
import { type Hit, hitAtPlace, unitOf } from "./hover";
import type { Level, PaneView } from "./panes";
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
   * Without one, what is pointed at or in the middle of the picture is kept. Where the mesh of a
   * window ends, that of the whole domain shows the way. */
  step(pane: PaneView, camera: Camera, way: Way, pointed: Hit | null): Step {
    const from = this.stage.store.state.selected;
    const start = from?.pane === pane.index ? from.at : null;
    let step: Step = "window";
    for (const level of new Set([pane.shown(camera), pane.whole])) {
      if (!level || step !== "window") continue;
      step = start
        ? stepFrom(start, { pane, level, camera }, way)
        : firstOf({ pane, level, camera }, pointed);
    }
    if (typeof step === "string") return step;
    this.edge = null;
    this.stage.store.set({ selected: { pane: pane.index, at: step.hit.at }, compared: null });
    return step;
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

/** The region that one has come to, and the layer and the unit whose line was crossed; or what is
 * in the way: the domain ends, or what is loaded of it. */
type Step = { hit: Hit; unit: [number, number] | null } | "domain" | "window";

/** A mesh in which one steps from region to region, and what is seen of it. */
interface Ground {
  pane: PaneView;
  level: Level;
  camera: Camera;
}

/** The region that one begins with. */
function firstOf(ground: Ground, pointed: Hit | null): Step {
  const { picker, mesh } = ground.level;
  const found = pointed && pointed.cell >= 0 ? picker.cell(pointed.at) : -1;
  const cell = found < 0 ? picker.cellIn(ground.camera.window) : found;
  return cell < 0 ? "window" : comeTo(ground, mesh.region[cell]!, null);
}

function stepFrom(start: Pair, ground: Ground, way: Way): Step {
  const { mesh, picker } = ground.level;
  const cell = picker.cell(start);
  if (cell < 0) return firstOf(ground, null);
  const region = mesh.region[cell]!;
  if (typeof way === "number") {
    return comeTo(ground, (region + way + mesh.regionCount) % mesh.regionCount, null);
  }
  const half = exitOf(mesh, region, middleOf(mesh, region, seenOf(ground)), way);
  if (half < 0) return "domain";
  const beyond = mesh.halfedgeCell[half ^ 1]!;
  if (beyond >= 0) return comeTo(ground, mesh.region[beyond]!, unitOf(mesh, half >> 1));
  const corner = 2 * mesh.edges[half]!;
  const [u, v] = mesh.toPlane([mesh.points[corner]!, mesh.points[corner + 1]!]);
  const ahead = AHEAD * ground.camera.width;
  const [x, y] = [u + ahead * way[0], v + ahead * way[1]];
  return contains(ground.pane.domain, [x, y, x, y]) ? "window" : "domain";
}

/** A region, at the middle of what is seen of it. */
function comeTo(ground: Ground, region: number, unit: [number, number] | null): Step {
  const { pane, level } = ground;
  const at = level.mesh.toPlane(middleOf(level.mesh, region, seenOf(ground)));
  return { hit: { pane, level, at, cell: level.picker.cell(at), edge: -1 }, unit };
}

/** The window of the camera, in local coordinates of a mesh. */
function seenOf({ level: { mesh }, camera }: Ground): Box {
  const [u0, v0, u1, v1] = camera.window;
  return [...mesh.toLocal([u0, v0]), ...mesh.toLocal([u1, v1])];
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
