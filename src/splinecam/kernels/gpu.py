"""The kernel of a GPU: refinement, maxima of groups of units, and dissolved edges.

The steps are compiled when a GPU is first used. Where they cannot be compiled, everything works by
tensor operations, only slower.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import is_cuda
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.geometry.subdivision import Breakpoints, InterpolatedVertices, Mesh
from splinecam.kernels.kernel import MAX_CHORDS, Candidates, LayerFunctions, SelectedChords
from splinecam.kernels.library import Launch, launcher, structures

# The arrays of a mesh in the order of ``Mesh``, as the structures of the steps name them.
_ARRAYS = ("uv", "edge", "offset", "corner", "edge_layer", "edge_unit", "vertex_layer")
_MADE = tuple(f"made_{name}" for name in _ARRAYS)


class Steps:
    """The steps of a source; all of them take the structure ``struct``."""

    def __init__(
        self, launch: Launch, source: str, arrays: dict[str, Tensor], **numbers: float
    ) -> None:
        self._launch, self._source = launch, source
        self.device = next(iter(arrays.values())).device
        self.struct: Any = structures(source)["run_t"](**numbers)
        self._arrays: dict[str, Tensor] = {}
        for name, array in arrays.items():
            self.set(name, array.contiguous())

    def __getitem__(self, name: str) -> Tensor:
        """The array that a field of the structure points to."""
        array = self._arrays[name]
        return array.view(torch.float64) if name in self.struct.real else array

    def set(self, name: str, array: Tensor) -> None:
        """Let a field of the structure point to an array."""
        self._arrays[name] = array
        setattr(self.struct, name, array.data_ptr())

    def swap(self, one: str, other: str) -> None:
        """Exchange the arrays of two fields."""
        first, second = self._arrays[one], self._arrays[other]
        self.set(one, second)
        self.set(other, first)

    def allocate(self, sizes: dict[str, int], *, fill: int | None = None) -> None:
        """Allocate arrays with so many entries of eight bytes in one block."""
        block = torch.empty(sum(sizes.values()), dtype=torch.int64, device=self.device)
        if fill is not None:
            block.fill_(fill)
        for name, array in zip(sizes, torch.split(block, list(sizes.values())), strict=True):
            self.set(name, array)

    def run(self, count: int, *names: str) -> None:
        """Run steps for items 0, ..., count - 1 each."""
        if count:
            for name in names:
                self._launch(self._source, name, self.struct, count)

    def cumsum(self, name: str, rows: int = 1) -> Tensor:
        """Replace the rows of an array by their running sums, and return them."""
        array = self._arrays[name].view(rows, -1)
        return torch.cumsum(array, 1, out=array)

    def totals(self, *last: Tensor) -> list[int]:
        """Whether a step gave up, what else is in ``status``, and further numbers, in one copy."""
        return torch.cat([self._arrays["status"], *last]).tolist()

    def allocate_mesh(self, vertices: int, edges: int, faces: int, corners: int) -> None:
        """Allocate the arrays of the mesh that the steps make."""
        sizes = (
            vertices * self.struct.width,
            2 * edges,
            faces + 1,
            corners,
            edges,
            edges,
            vertices,
        )
        self.allocate(dict(zip(_MADE, sizes, strict=True)))

    def mesh(self) -> Mesh:
        """The mesh that the steps have made."""
        uv, edges, *others = (self[name] for name in _MADE)
        return Mesh(uv.view(-1, self.struct.width), edges.view(-1, 2), *others)

    def interpolated(self, name: str, count: int) -> InterpolatedVertices:
        """The first ``count`` new vertices on edges ("point") or inside faces ("cross")."""
        parts = (self[f"{name}_{part}"][:count] for part in ("start", "end", "t"))
        return InterpolatedVertices(*parts)


def _steps_on_mesh(
    launch: Launch, source: str, mesh: Mesh, arrays: dict[str, Tensor], **numbers: float
) -> Steps:
    """The steps of a source that work on a mesh."""
    tensors = (getattr(mesh, field.name) for field in fields(Mesh))
    on_mesh = dict(zip(_ARRAYS, tensors, strict=True))
    on_mesh["status"] = torch.zeros(2, dtype=torch.int64, device=mesh.uv.device)
    sizes = {"vertices": mesh.num_vertices, "edges": mesh.num_edges, "faces": mesh.num_faces}
    sizes |= {"corners": mesh.corners.shape[0], "width": mesh.uv.shape[1]}
    return Steps(launch, source, on_mesh | arrays, **sizes, **numbers)


_ROUNDING = {"uv_error": UV_ERROR, "safety": SAFETY}
_PER_POINT = ("point_start", "point_end")
_POINT_BREAKPOINTS = ("point_t", "point_unit", "point_slope_change", "point_edge", "point_index")
_PER_MARK = ("mark_point", "mark_unit", "mark_corner", "mark_face", "partner")
_PER_CHORD = ("chord_face", "chord_unit", "low", "high", "start", "stop", "slots_taken")
_PER_CROSSING = ("cross_start", "cross_end", "cross_t", "cross_chord", "cross_slot")
_PER_SLOT = ("slot_t", "slot_unit", "slot_slope_change")


class GpuRefined(NamedTuple):
    """A refined mesh, its new vertices on edges and inside faces, and the breakpoints there."""

    mesh: Mesh
    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    breakpoints: tuple[Breakpoints, Breakpoints] | None


class Halved(NamedTuple):
    """A mesh with faces cut in two, its new vertices, their errors, and the ends of the chords."""

    mesh: Mesh
    on_edges: InterpolatedVertices
    position_error: Tensor
    ends: Tensor


def _selected_steps(launch: Launch, mesh: Mesh, chords: SelectedChords) -> Steps:
    """The steps that insert selected chords."""
    arrays = {"z": chords.table, "error": chords.error, "key": chords.key}
    arrays |= {"selected_unit": chords.unit, "parents": chords.parents}
    arrays["parents_t_error"] = chords.position_error
    numbers = {"units": chords.table.shape[1], "layer": chords.layer, "first_new": chords.first_new}
    numbers |= dict.fromkeys(("selected", "chords"), chords.key.shape[0])
    return _steps_on_mesh(launch, "refine.cu", mesh, arrays, **numbers, **_ROUNDING)


def _count_points(steps: Steps) -> str | None:
    """Count the new vertices on edges and around faces."""
    run = steps.struct
    steps.allocate(_before(run))
    steps.run(run.edges, "count_changes")
    steps.cumsum("first")
    sums = _count_faces(steps)
    last = steps["first"][-1:], steps["side_first"][-1:], sums[:, -1]
    gave_up, most_ends, *sizes = steps.totals(*last)
    run.points, run.marks, run.touched, run.chords, run.places, kept = sizes
    if gave_up or most_ends > 2 * MAX_CHORDS:
        return "degenerate"
    run.new_corners = kept + run.places + 2 * run.chords  # besides those at crossings
    return None if run.points else "unchanged"


def _find_chords(steps: Steps, max_faces: int | None) -> str | None:
    """Find the new vertices on edges, the chords between them, and count their crossings."""
    run = steps.struct
    points, marks, chords = run.points, run.marks, run.chords
    raw = ("raw_t", "raw_change", "raw_unit", "raw_edge", "change")
    steps.allocate(
        dict.fromkeys(raw, points)
        | {"position_error": 2 * points, "point_uv": run.width * points}
        | dict.fromkeys(_PER_MARK, marks)
        | {"lower_before": marks + 1, "half": run.places, "ends": run.places}
        | _per_chord(chords)
    )
    results = dict.fromkeys((*_PER_POINT, *_POINT_BREAKPOINTS), points)
    steps.allocate(results | {"slots": 2 * (chords + 1)})
    steps.run(run.edges * run.words, "find_points")
    steps.run(points, "sort_points", "place_point")
    steps.run(marks, "find_marks", "find_partners")
    steps.cumsum("lower_before")
    steps.run(run.corners, "place_corner")
    steps.run(marks, "place_mark")
    steps.run(chords, "count_crossings")
    gave_up, _, run.crossings = steps.totals(steps.cumsum("slots", 2)[:1, -1])
    return "degenerate" if gave_up else _too_many(run, max_faces)


def _place_selected(steps: Steps, max_faces: int | None) -> str | None:
    """Find the new vertices on edges, at most two for each selected chord, and crossings."""
    run = steps.struct
    chords, ends = run.chords, 2 * run.chords
    places = run.corners + 2 * ends
    raw = ("raw_change", "raw_unit", "point_t", "change", "point_edge", "point_unit")
    selected = ("selected_end", "selected_place", "selected_vertex")
    zeros = {"sign_changes": run.edges + 1, "sign_changes_taken": run.edges, "distinct": ends + 1}
    steps.allocate(zeros, fill=0)
    steps.allocate({"halfedge_face": 2 * run.edges}, fill=-1)
    steps.allocate(
        dict.fromkeys((*raw, *selected), ends)
        | {"point_uv": run.width * ends, "selected_error": 2 * ends}
        | _before(run)
        | {"half": places, "ends": places, "slots": 2 * (chords + 1)}
        | _per_chord(chords)
    )
    steps.allocate(
        dict.fromkeys(("raw_t", "raw_edge", "point_start", "point_end", "t_error"), ends)
    )
    steps.run(run.corners, "find_halfedge_faces")
    steps.run(chords, "find_ends")
    changes = steps.cumsum("sign_changes")
    steps.run(ends, "find_sign_changes")
    first = steps["first"]
    steps.set("first", changes)
    steps.run(ends, "sort_points")
    steps.set("first", first)
    for name in ("point_t", "change", "point_edge", "point_unit"):  # the sorted ones are the input
        steps.swap(name, f"raw_{name.removeprefix('point_')}")
    steps.run(ends, "merge_sign_changes")
    steps.cumsum("distinct")
    steps.run(run.edges + 1, "count_points")
    steps.run(ends, "merge_points")
    sums = _count_faces(steps)
    steps.run(run.corners, "place_corner")
    steps.run(ends, "place_end")
    steps.run(chords, "place_selected", "count_crossings")
    crossings = steps.cumsum("slots", 2)[:1, -1]
    gave_up, most_ends, *sizes = steps.totals(first[-1:], crossings, sums[:, -1])
    run.points, run.crossings, run.touched, _, run.places, kept = sizes
    if gave_up or most_ends > 2 * MAX_CHORDS:
        return "degenerate"
    run.new_corners = kept + run.places + 2 * chords
    return _too_many(run, max_faces)


def _cut_faces(steps: Steps, breakpoints_from: int | None) -> GpuRefined | str:
    """Write the refined subdivision."""
    run = steps.struct
    points, chords, crossings = run.points, run.chords, run.crossings
    slots, faces = 2 * crossings, run.touched + chords + crossings
    run.has_breakpoints = breakpoints_from is not None and points + crossings >= breakpoints_from
    run.new_corners += 2 * slots
    raw = ("raw_along", "raw_reach", "raw_crossing", "raw_chord")
    sorted_slots = ("slot", "slot_crossing", "slot_chord", "reach")
    steps.allocate(
        {"one": crossings, "two": crossings} | dict.fromkeys((*raw, *sorted_slots), slots)
    )
    steps.allocate(dict.fromkeys(_PER_CROSSING, crossings) | dict.fromkeys(_PER_SLOT, slots))
    steps.allocate_mesh(
        run.vertices + points + crossings,
        run.edges + points + chords + slots,
        run.faces + chords + crossings,
        run.new_corners,
    )
    steps.run(chords, "find_pairs")
    steps.run(crossings, "find_crossing")
    steps.run(slots, "sort_slots", "write_slot")
    steps.run(chords, "write_chord")
    steps.run(crossings, "write_crossing")
    _write_old(steps)
    steps.run(run.faces, "measure_kept")
    steps.run(faces, "measure_face")
    steps.cumsum("made_offset")
    steps.run(faces, "write_face")
    steps.run(run.corners, "write_corner")
    if bool(steps["status"][0]):
        return "degenerate"
    on_edges, inside = steps.interpolated("point", points), steps.interpolated("cross", crossings)
    breakpoints = _breakpoints(steps) if run.has_breakpoints else None
    return GpuRefined(steps.mesh(), on_edges, inside, breakpoints)


def _breakpoints(steps: Steps) -> tuple[Breakpoints, Breakpoints]:
    on_chords = (*_PER_SLOT, "cross_chord", "cross_slot")
    return (
        Breakpoints(steps["first"], *(steps[name] for name in _POINT_BREAKPOINTS)),
        Breakpoints(steps["slots"].view(2, -1)[1], *(steps[name] for name in on_chords)),
    )


def _before(run: Any) -> dict[str, int]:
    """The sizes of the running sums over edges, corners and faces."""
    edges, corners, faces = run.edges + 1, run.corners + 1, run.faces + 1
    return {"first": edges, "side_first": corners, "face_sums": 4 * faces}


def _per_chord(chords: int) -> dict[str, int]:
    return dict.fromkeys(_PER_CHORD, chords) | {"line": 6 * chords, "end_error": 4 * chords}


def _count_faces(steps: Steps) -> Tensor:
    """Count the new vertices of sides and faces; return running sums over the faces, (4, F + 1)."""
    steps.run(steps.struct.corners, "count_sides")
    steps.cumsum("side_first")
    steps.run(steps.struct.faces, "count_faces")
    return steps.cumsum("face_sums", 4)


def _write_old(steps: Steps) -> None:
    """Write the old vertices and the pieces of the old edges."""
    run = steps.struct
    steps.run(run.vertices, "write_vertex")
    steps.run(run.edges, "write_edge_start")
    steps.run(run.points, "write_point")


def _too_many(run: Any, max_faces: int | None) -> str | None:
    faces = run.faces + run.chords + run.crossings
    return "too many faces" if max_faces is not None and faces > max_faces else None


_log = logging.getLogger("splinecam")


@cache
def gpu_kernel_for(device: torch.device) -> GpuKernel | None:
    """The kernel of a GPU, or None for other devices and where it cannot be compiled."""
    if not is_cuda(device):
        return None
    try:
        return GpuKernel(launcher(device))
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        _log.info("no kernel for %s, which is slower: %s", device, error)
        return None


class GpuKernel:
    """The compiled steps on one device; launch: runs a step for all items."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def steps(self, source: str, arrays: dict[str, Tensor], **numbers: float) -> Steps:
        """The steps of a source, with some arrays and numbers of their structure."""
        return Steps(self._launch, source, arrays, **numbers)

    def refine(self, mesh: Mesh, functions: LayerFunctions) -> GpuRefined | str:
        """Cut a mesh along zero sets.

        Returns the refinement, or why there is none: "unchanged", "degenerate" or "too many faces".
        """
        if functions.negative is None or functions.wanted is None:
            raise ValueError("a GPU needs the negative signs, and the functions that are wanted")
        difference = functions.slope_difference
        arrays = {
            "z": functions.z,
            "positive": functions.positive,
            "negative": functions.negative,
            "error": functions.error,
            "slope_difference": torch.ones_like(functions.error)
            if difference is None
            else difference,
            "wanted": functions.wanted,
        }
        units, words = functions.z.shape[1], functions.positive.shape[1]
        numbers = {"units": units, "words": words, "layer": functions.layer}
        steps = _steps_on_mesh(self._launch, "refine.cu", mesh, arrays, **numbers, **_ROUNDING)
        reason = _count_points(steps) or _find_chords(steps, functions.max_faces)
        return reason or _cut_faces(steps, functions.breakpoints_from)

    def insert_chords(self, mesh: Mesh, chords: SelectedChords) -> GpuRefined | str:
        """Insert selected chords into a mesh; the result is as for ``refine``."""
        steps = _selected_steps(self._launch, mesh, chords)
        return _place_selected(steps, chords.max_faces) or _cut_faces(steps, None)

    def halve(self, mesh: Mesh, chords: SelectedChords) -> Halved | str:
        """Insert one chord each into selected faces, or return why not.

        The half to the left of a chord keeps the face's number, the other halves come last.
        """
        steps = _selected_steps(self._launch, mesh, chords)
        reason = _place_selected(steps, chords.max_faces)
        if reason:
            return reason
        run = steps.struct
        edges, faces = run.edges + run.points + run.chords, run.faces + run.chords
        steps.allocate_mesh(run.vertices + run.points, edges, faces, run.new_corners)
        steps.run(run.chords, "write_chord")
        _write_old(steps)
        steps.run(run.faces, "measure_half")
        steps.cumsum("made_offset")
        steps.run(run.faces, "write_half")
        ends = torch.stack([steps["start"], steps["stop"]], 1)
        on_edges, error = steps.interpolated("point", run.points), steps["t_error"][: run.points]
        return Halved(steps.mesh(), on_edges, error, ends)

    def classify(self, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """Find where the maxima of groups change in their faces: see ``envelope.FaceStatus``."""
        steps, count = self._envelope(candidates), candidates.face.shape[0]
        steps.allocate({"kind": count, "pair": 2 * count, "side": count})
        steps.run(count, "classify")
        return steps["kind"], steps["pair"].view(-1, 2), steps["side"]

    def dominated(self, candidates: Candidates) -> Tensor:
        """Whether units are nowhere the only maximum of their group, (N, R)."""
        steps = self._envelope(candidates)
        found = torch.empty(candidates.units.shape, dtype=torch.bool, device=steps.device)
        steps.set("dominated", found)
        steps.run(found.numel(), "find_dominated")
        return found

    def tied_along_lines(
        self, candidates: Candidates, cut: Tensor, ends: Tensor, between: Tensor, probe: float
    ) -> Tensor:
        """Whether two units of groups may be equal all along the lines that cut their faces, (N,).

        cut: (N,) one of L lines each; ends, between: (L, 2) their end vertices, and the two units
        that are equal on them; probe: a fraction of a line at which others differ.
        """
        steps = self._envelope(candidates)
        for name, array in (("cut", cut), ("end", ends), ("between", between)):
            steps.set(name, array.contiguous())
        steps.struct.probe_t = probe
        found = torch.zeros(cut.shape, dtype=torch.bool, device=steps.device)
        steps.set("tied", found)
        steps.run(candidates.units.numel(), "find_ties")
        return found

    def _envelope(self, candidates: Candidates) -> Steps:
        mesh, (_, size) = candidates.mesh, candidates.units.shape
        arrays = {"uv": mesh.uv, "edge": mesh.edges, "offset": mesh.offsets, "corner": mesh.corners}
        arrays |= {"table": candidates.table, "tolerance": candidates.tolerance}
        arrays |= {"face": candidates.face, "member": candidates.units}
        arrays["status"] = torch.zeros_like(mesh.offsets[:1])
        sizes = {"size": size, "units": candidates.table.shape[1], "width": mesh.uv.shape[1]}
        return Steps(self._launch, "envelope.cu", arrays, **sizes)

    def dissolve(self, mesh: Mesh, needless: Tensor, fixed: int) -> tuple[Mesh, Tensor] | None:
        """Dissolve edges as ``arrangement.dissolve`` does; None where slivers depend on slivers."""
        steps = _steps_on_mesh(
            self._launch, "dissolve.cu", mesh, {"needless": needless}, fixed=fixed
        )
        run = steps.struct
        vertices, edges, faces, corners = run.vertices, run.edges, run.faces, run.corners
        steps.allocate(dict.fromkeys(("halfedge_face", "corner_of"), 2 * edges), fill=-1)
        steps.allocate(
            {"leaders": 2 * (corners + 1), "new_edge": edges + 1, "new_vertex": vertices + 1}
            | {"merged": faces, "degree": vertices, "made_offset": faces + 1},
            fill=0,
        )
        steps.allocate(
            {"root": faces, "removed": edges, "dropped": vertices, "ends": 2 * edges}
            | {"next": corners, "side": corners}
        )
        steps.run(faces, "find_halfedges")
        steps.run(needless.shape[0], "merge_faces")
        steps.run(edges, "find_removed")
        steps.run(vertices, "find_dropped")
        steps.run(corners, "link_corners", "find_leaders")
        leaders = steps.cumsum("leaders", 2)
        steps.run(corners, "keep_slivers", "keep_slivers", "measure")
        sums = [steps.cumsum("made_offset")]
        steps.run(corners, "write_sides")
        steps.run(vertices, "count_vertex")
        sums += [steps.cumsum(name) for name in ("new_edge", "new_vertex")]
        sizes = steps.totals(leaders[:, -1], *(total[0, -1:] for total in sums))
        gave_up, _, kept, united, made_corners, made_edges, made_vertices = sizes
        if gave_up:
            return None
        offsets = steps["made_offset"][: kept + united + 1].clone()
        steps.allocate_mesh(made_vertices, made_edges, 0, made_corners)
        steps.allocate({"kept": made_vertices})
        steps.run(made_corners, "write_corner")
        steps.run(edges, "write_edge")
        steps.run(vertices, "write_vertex")
        steps.set("made_offset", offsets)
        return steps.mesh(), steps["kept"]
