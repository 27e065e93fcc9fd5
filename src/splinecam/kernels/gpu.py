"""Refinement on a GPU: the steps of ``refine.cu``, with running sums by torch in between.

Where they cannot be compiled everything works by tensor operations, only slower.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.nvrtc import Launch, launcher, struct_of

__all__ = [
    "Candidates",
    "GpuKernel",
    "Halved",
    "Layer",
    "Refined",
    "SelectedChords",
    "gpu_kernel_for",
]

_log = logging.getLogger("splinecam")


@cache
def gpu_kernel_for(device: torch.device) -> GpuKernel | None:
    """The kernel of a GPU, where it can be compiled."""
    if device.type != "cuda":
        return None
    try:
        return GpuKernel(launcher(device))
    except (AttributeError, ImportError, OSError, RuntimeError) as error:
        _log.info("no kernel for %s, which is slower: %s", device, error)
        return None


# Arrays of real numbers among the results.
_REAL = frozenset(
    {"point_t", "point_bend", "cross_t", "slot_t", "slot_bend", "made_uv", "side", "shift"}
)


class Layer(NamedTuple):
    """Functions to cut by, z (V, n), with their signs as words (V, W).

    error, jump, wanted: (n,) rounding, the change of slope where a function vanishes, and whether
    it may change sign; uv_error, safety: the rounding of a coordinate, and how many times errors
    are tolerances; op: the number of the layer; max_faces: None for any number; max_chords: of one
    face; least_bends: new vertices from which slope changes are wanted, None for never.
    """

    z: Tensor
    positive: Tensor
    negative: Tensor
    error: Tensor
    jump: Tensor
    wanted: Tensor
    uv_error: float
    safety: float
    op: int
    max_faces: int | None
    max_chords: int
    least_bends: int | None


class SelectedChords(NamedTuple):
    """Chords to draw, (N,), ascending: key, (face * n + one unit) * n + another one of n units.

    unit: (N,) the number of its edges; table, error: (V, n) and (n,) values of all units, and their
    rounding; of vertices from ``old`` on born (W, 2), between which they lie, and blur (W,), how
    far they may be off there. The rest is as in ``Layer``.
    """

    key: Tensor
    unit: Tensor
    table: Tensor
    error: Tensor
    old: int
    born: Tensor
    position_error: Tensor
    uv_error: float
    safety: float
    op: int
    max_faces: int | None
    max_chords: int


class Halved(NamedTuple):
    """A mesh with faces cut in two, its new vertices, their errors, and the ends of the chords."""

    mesh: Mesh
    on_edges: InterpolatedVertices
    position_error: Tensor
    ends: Tensor


class Refined(NamedTuple):
    """A refined mesh, its new vertices on edges and inside faces, and the slope changes there."""

    mesh: Mesh
    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    breakpoints: tuple[Breakpoints, Breakpoints] | None


class Candidates(NamedTuple):
    """Groups of units (N, R) in faces (N,) of a mesh.

    table, tolerance: (V, n) and (n,) values of all units, and how far they may be off.
    """

    mesh: Mesh
    table: Tensor
    tolerance: Tensor
    face: Tensor
    units: Tensor


def _numbers(given: Layer | SelectedChords) -> dict[str, float]:
    units = given.z if isinstance(given, Layer) else given.table
    return {
        "units": units.shape[1],
        "op": given.op,
        "uv_error": given.uv_error,
        "safety": given.safety,
    }


class _Work:
    """The structure that the steps of a source are given, and the arrays it points to."""

    def __init__(
        self, launch: Launch, source: str, arrays: dict[str, Tensor], **numbers: float
    ) -> None:
        self._launch, self._source = launch, source
        self.device = next(iter(arrays.values())).device
        self.arrays: dict[str, Tensor] = {}
        self.run: Any = struct_of(source)(**numbers)
        for name, array in arrays.items():
            self.point(name, array.contiguous())

    @classmethod
    def refining(cls, launch: Launch, mesh: Mesh, layer: Layer) -> _Work:
        """What is to be refined."""
        arrays = {
            "z": layer.z,
            "positive": layer.positive,
            "negative": layer.negative,
            "error": layer.error,
            "jump": layer.jump,
            "wanted": layer.wanted,
        }
        words = layer.positive.shape[1]
        return cls.on(launch, "refine.cu", mesh, arrays, words=words, **_numbers(layer))

    @classmethod
    def drawing(cls, launch: Launch, mesh: Mesh, strokes: SelectedChords) -> _Work:
        """Chords to draw."""
        arrays = {
            "z": strokes.table,
            "error": strokes.error,
            "key": strokes.key,
            "stroke_unit": strokes.unit,
            "born": strokes.born,
            "born_blur": strokes.position_error,
        }
        count, numbers = strokes.key.shape[0], _numbers(strokes)
        numbers |= {"strokes": count, "chords": count, "old": strokes.old}
        return cls.on(launch, "refine.cu", mesh, arrays, **numbers)

    @classmethod
    def on(
        cls,
        launch: Launch,
        source: str,
        mesh: Mesh,
        arrays: dict[str, Tensor],
        **numbers: float,
    ) -> _Work:
        """What is to be done to a mesh."""
        return cls(
            launch,
            source,
            {
                "uv": mesh.uv,
                "edge": mesh.edges,
                "offset": mesh.offsets,
                "corner": mesh.corners,
                "edge_layer": mesh.edge_layer,
                "edge_unit": mesh.edge_unit,
                "vertex_layer": mesh.vertex_layer,
                "status": torch.zeros(2, dtype=torch.int64, device=mesh.uv.device),
                **arrays,
            },
            vertices=mesh.num_vertices,
            edges=mesh.num_edges,
            faces=mesh.num_faces,
            corners=mesh.corners.shape[0],
            width=mesh.uv.shape[1],
            **numbers,
        )

    @classmethod
    def judging(cls, launch: Launch, contest: Candidates) -> _Work:
        """What is to be judged."""
        mesh, (size, units) = contest.mesh, (contest.units.shape[1], contest.table.shape[1])
        arrays = {
            "uv": mesh.uv,
            "edge": mesh.edges,
            "offset": mesh.offsets,
            "corner": mesh.corners,
            "table": contest.table,
            "tolerance": contest.tolerance,
            "face": contest.face,
            "member": contest.units,
            "status": torch.zeros_like(mesh.offsets[:1]),
        }
        return cls(launch, "envelope.cu", arrays, size=size, units=units, width=mesh.uv.shape[1])

    def point(self, name: str, array: Tensor) -> None:
        """Have the structure point to an array, and keep this."""
        self.arrays[name] = array
        setattr(self.run, name, array.data_ptr())

    def room(self, sizes: dict[str, int], *, fill: int | None = None) -> None:
        """Arrays of so many entries of eight bytes, which stand one after the other."""
        whole = torch.empty(sum(sizes.values()), dtype=torch.int64, device=self.device)
        if fill is not None:
            whole.fill_(fill)
        for name, array in zip(sizes, torch.split(whole, list(sizes.values())), strict=True):
            self.point(name, array)

    def made_room(self, vertices: int, edges: int, faces: int) -> None:
        """Room for the mesh that is made."""
        self.room(
            {
                "made_uv": vertices * self.run.width,
                "made_edge": 2 * edges,
                "made_offset": faces + 1,
                "made_corner": self.run.new_corners,
                "made_edge_op": edges,
                "made_edge_unit": edges,
                "made_vertex_op": vertices,
            }
        )

    def made(self) -> Mesh:
        """The mesh that was made."""
        names = ("offset", "corner", "edge_layer", "edge_unit", "vertex_layer")
        uv, edges, *rest = (self.result(f"made_{name}") for name in ("uv", "edge", *names))
        return Mesh(uv.view(-1, self.run.width), edges.view(-1, 2), *rest)

    def interpolated(self, name: str, count: int) -> InterpolatedVertices:
        """So many new vertices of one kind."""
        return InterpolatedVertices(
            *(self.result(f"{name}_{part}")[:count] for part in ("start", "end", "t"))
        )

    def steps(self, count: int, *names: str) -> None:
        """Run steps for so many items each."""
        if count:
            for name in names:
                self._launch(self._source, name, self.run, count)

    def exchange(self, one: str, other: str) -> None:
        """Have two names stand for each other's arrays."""
        first, second = self.arrays[one], self.arrays[other]
        self.point(one, second)
        self.point(other, first)

    def sum_up(self, name: str, rows: int = 1) -> Tensor:
        """Running sums of the rows of an array, in its place."""
        array = self.arrays[name].view(rows, -1)
        return torch.cumsum(array, 1, out=array)

    def result(self, name: str) -> Tensor:
        array = self.arrays[name]
        return array.view(torch.float64) if name in _REAL else array


class GpuKernel:
    """The compiled steps on one device; launch: runs a step for all items."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def refine(self, mesh: Mesh, layer: Layer) -> Refined | str:
        """The mesh cut along zero sets, or why not: unchanged, delicate, too many."""
        work = _Work.refining(self._launch, mesh, layer)
        reason = self._edges(work, layer) or self._chords(work, layer)
        reason = reason or self._cut(work, layer.least_bends)
        return reason or _refined(work)

    def draw(self, mesh: Mesh, strokes: SelectedChords) -> Refined | str:
        """The mesh with chosen chords, or why not."""
        work = _Work.drawing(self._launch, mesh, strokes)
        reason = self._strokes(work, strokes) or self._cut(work, None)
        return reason or _refined(work)

    def halve(self, mesh: Mesh, strokes: SelectedChords) -> Halved | str:
        """The mesh with one chord each in chosen faces, or why not.

        The part to the left of a chord keeps the face's number, the others come after all faces.
        """
        work = _Work.drawing(self._launch, mesh, strokes)
        reason = self._strokes(work, strokes)
        if reason:
            return reason
        run = work.run
        edges, faces = run.edges + run.points + run.chords, run.faces + run.chords
        work.made_room(run.vertices + run.points, edges, faces)
        work.steps(run.chords, "write_chord")
        self._write_old(work)
        work.steps(run.faces, "measure_half")
        work.sum_up("made_offset")
        work.steps(run.faces, "write_half")
        ends = torch.stack([work.arrays["start"], work.arrays["stop"]], 1)
        shift = work.result("shift")[: run.points]
        return Halved(work.made(), work.interpolated("point", run.points), shift, ends)

    def judge(self, contest: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        """How contests stand: see ``envelope.FaceStatus``."""
        work, count = _Work.judging(self._launch, contest), contest.face.shape[0]
        work.room({"kind": count, "pair": 2 * count, "side": count})
        work.steps(count, "judge")
        kind, pair, side = (work.result(name) for name in ("kind", "pair", "side"))
        return kind, pair.view(-1, 2), side

    def hopeless(self, contest: Candidates) -> Tensor:
        """Units that need not be looked at any more, (N, R)."""
        work = _Work.judging(self._launch, contest)
        found = torch.empty(contest.units.shape, dtype=torch.bool, device=work.device)
        work.point("hopeless", found)
        work.steps(found.numel(), "doom")
        return found

    def along(
        self, contest: Candidates, cut: Tensor, ends: Tensor, between: Tensor, aside: float
    ) -> Tensor:
        """Whether contests (N,) may have a border along the lines that cut their faces.

        cut: (N,) one of L lines each; ends, between: (L, 2) their end vertices, and two units.
        """
        work = _Work.judging(self._launch, contest)
        for name, array in (("cut", cut), ("end", ends), ("between", between)):
            work.point(name, array.contiguous())
        work.run.aside = aside
        found = torch.zeros(cut.shape, dtype=torch.bool, device=work.device)
        work.point("along", found)
        work.steps(contest.units.numel(), "tie")
        return found

    def dissolve(self, mesh: Mesh, needless: Tensor, fixed: int) -> tuple[Mesh, Tensor] | None:
        """What ``dissolve.dissolve`` gives; None where slivers are left to tensor operations."""
        work = _Work.on(self._launch, "dissolve.cu", mesh, {"needless": needless}, fixed=fixed)
        run = work.run
        vertices, edges, faces, corners = run.vertices, run.edges, run.faces, run.corners
        work.room(dict.fromkeys(("beside", "corner_of"), 2 * edges), fill=-1)
        work.room(
            {"leads": 2 * (corners + 1), "new_edge": edges + 1, "new_vertex": vertices + 1}
            | {"merged": faces, "degree": vertices, "made_offset": faces + 1},
            fill=0,
        )
        work.room(
            {"root": faces, "gone": edges, "passed": vertices, "ends": 2 * edges}
            | {"next": corners, "side": corners}
        )
        work.steps(faces, "find_beside")
        work.steps(needless.shape[0], "unite")
        work.steps(edges, "part")
        work.steps(vertices, "pass")
        work.steps(corners, "link", "lead")
        leads = work.sum_up("leads", 2)
        work.steps(corners, "unbend", "unbend", "measure")
        sums = [work.sum_up("made_offset")]
        work.steps(corners, "write_sides")
        work.steps(vertices, "count_vertex")
        sums += [work.sum_up(name) for name in ("new_edge", "new_vertex")]
        totals = [leads[:, -1], *(total[0, -1:] for total in sums)]
        close, _, kept, united, *sizes = torch.cat([work.arrays["status"], *totals]).tolist()
        if close:
            return None
        made_corners, made_edges, made_vertices = sizes
        run.new_corners = made_corners
        offsets = work.arrays["made_offset"][: kept + united + 1].clone()
        work.made_room(made_vertices, made_edges, 0)
        work.point("kept", torch.empty(made_vertices, dtype=torch.int64, device=work.device))
        work.steps(made_corners, "write_corner")
        work.steps(edges, "write_edge")
        work.steps(vertices, "write_vertex")
        work.arrays["made_offset"] = offsets
        return work.made(), work.arrays["kept"]

    def _edges(self, work: _Work, layer: Layer) -> str | None:
        """Count the new vertices on edges, and around faces."""
        run = work.run
        work.room({"first": run.edges + 1, "before": run.corners + 1, "sums": 4 * (run.faces + 1)})
        work.steps(run.edges, "count_changes")
        work.sum_up("first")
        work.steps(run.corners, "count_sides")
        work.sum_up("before")
        work.steps(run.faces, "count_faces")
        sums = work.sum_up("sums", 4)
        ends = [work.arrays["first"][-1:], work.arrays["before"][-1:], sums[:, -1]]
        close, most, *sizes = torch.cat([work.arrays["status"], *ends]).tolist()
        run.points, run.marks, run.touched, run.chords, run.places, kept = sizes
        if close or most > 2 * layer.max_chords:
            return "delicate"
        run.new_corners = kept + run.places + 2 * run.chords  # besides those at crossings
        return None if run.points else "unchanged"

    def _chords(self, work: _Work, layer: Layer) -> str | None:
        """Find the new vertices on edges, the chords between them, and count their crossings."""
        run = work.run
        points, marks, chords = run.points, run.marks, run.chords
        each = ("raw_t", "raw_change", "raw_unit", "raw_edge", "change")
        found = ("mark_point", "mark_unit", "mark_corner", "mark_face", "mate")
        work.room(
            dict.fromkeys(each, points)
            | {"blur": 2 * points, "point_uv": run.width * points}
            | dict.fromkeys(found, marks)
            | {"lower": marks + 1, "half": run.places, "ends": run.places}
            | _per_chord(chords)
        )
        work.room(
            dict.fromkeys(
                ("point_edge", "point_start", "point_end", "point_unit", "point_index"), points
            )
            | {"point_t": points, "point_bend": points, "slots": 2 * (chords + 1)}
        )
        work.steps(run.edges * run.words, "find_points")
        work.steps(points, "sort_points", "place_point")
        work.steps(marks, "find_marks", "find_mates")
        work.sum_up("lower")
        work.steps(run.corners, "place_corner")
        work.steps(marks, "place_mark")
        work.steps(chords, "count_crossings")
        slots = work.sum_up("slots", 2)
        close, _, run.crossings = torch.cat([work.arrays["status"], slots[:1, -1]]).tolist()
        return "delicate" if close else _too_many(run, layer.max_faces)

    def _strokes(self, work: _Work, strokes: SelectedChords) -> str | None:
        """Find the new vertices on edges and the chords of given ones, and their crossings.

        There are two ends of each chord, so that nothing has to be known before it is found.
        """
        run = work.run
        chords, most = run.chords, 2 * run.chords
        places = run.corners + 2 * most
        found = ("raw_t", "raw_edge", "point_start", "point_end", "shift")
        each = ("raw_change", "raw_unit", "point_t", "change", "point_edge", "point_unit")
        ends = ("stroke_end", "stroke_place", "stroke_vertex")
        work.room({"hits": run.edges + 1, "taken_hits": run.edges, "fresh": most + 1}, fill=0)
        work.room({"beside": 2 * run.edges}, fill=-1)
        work.room(
            dict.fromkeys((*each, *ends), most)
            | {"point_uv": run.width * most, "stroke_blur": 2 * most}
            | {"first": run.edges + 1, "before": run.corners + 1, "sums": 4 * (run.faces + 1)}
            | {"half": places, "ends": places, "slots": 2 * (chords + 1)}
            | _per_chord(chords)
        )
        work.room(dict.fromkeys(found, most))
        work.steps(run.corners, "find_beside")
        work.steps(chords, "find_ends")
        hits = work.sum_up("hits")
        work.steps(most, "find_hits")
        first = work.arrays["first"]
        work.point("first", hits)
        work.steps(most, "sort_points")
        work.point("first", first)
        for name in ("point_t", "change", "point_edge", "point_unit"):  # those in order are given
            work.exchange(name, f"raw_{name.removeprefix('point_')}")
        work.steps(most, "unite_hits")
        work.sum_up("fresh")
        work.steps(run.edges + 1, "count_points")
        work.steps(most, "unite_points")
        work.steps(run.corners, "count_sides")
        work.sum_up("before")
        work.steps(run.faces, "count_faces")
        sums = work.sum_up("sums", 4)
        work.steps(run.corners, "place_corner")
        work.steps(most, "place_end")
        work.steps(chords, "place_stroke", "count_crossings")
        slots = work.sum_up("slots", 2)
        totals = [first[-1:], slots[:1, -1], sums[:, -1]]
        close, most, *sizes = torch.cat([work.arrays["status"], *totals]).tolist()
        run.points, run.crossings, run.touched, _, run.places, kept = sizes
        if close or most > 2 * strokes.max_chords:
            return "delicate"
        run.new_corners = kept + run.places + 2 * chords
        return _too_many(run, strokes.max_faces)

    def _cut(self, work: _Work, least: int | None) -> str | None:
        """Write the refined subdivision; least: new vertices from which slope changes count."""
        run = work.run
        points, chords, crossings = run.points, run.chords, run.crossings
        slots = 2 * crossings
        run.bends = least is not None and points + crossings >= least
        run.new_corners += 2 * slots
        edges = run.edges + points + chords + slots
        faces, vertices = run.faces + chords + crossings, run.vertices + points + crossings
        raw = ("raw_along", "raw_reach", "raw_met", "raw_chord", "met", "slot_chord", "reach")
        work.room({"one": crossings, "two": crossings, "slot": slots} | dict.fromkeys(raw, slots))
        ends = ("cross_start", "cross_end", "cross_chord", "cross_slot", "cross_t")
        work.room(
            dict.fromkeys(ends, crossings)
            | dict.fromkeys(("slot_t", "slot_unit", "slot_bend"), slots)
        )
        work.made_room(vertices, edges, faces)
        work.steps(chords, "find_pairs")
        work.steps(crossings, "meet")
        work.steps(slots, "sort_slots", "write_slot")
        work.steps(chords, "write_chord")
        work.steps(crossings, "write_crossing")
        self._write_old(work)
        work.steps(run.faces, "measure_kept")
        work.steps(run.touched + chords + crossings, "measure_face")
        work.sum_up("made_offset")
        work.steps(run.touched + chords + crossings, "write_face")
        work.steps(run.corners, "write_corner")
        return "delicate" if bool(work.arrays["status"][0]) else None

    def _write_old(self, work: _Work) -> None:
        """Old vertices and edges, and what divides these."""
        run = work.run
        work.steps(run.vertices, "write_vertex")
        work.steps(run.edges, "write_edge_start")
        work.steps(run.points, "write_point")


def _per_chord(chords: int) -> dict[str, int]:
    names = ("chord_face", "chord_unit", "low", "high", "start", "stop", "taken")
    return dict.fromkeys(names, chords) | {"line": 6 * chords, "end_blur": 4 * chords}


def _too_many(run: Any, most: int | None) -> str | None:
    faces = run.faces + run.chords + run.crossings
    return "too many" if most is not None and faces > most else None


def _refined(work: _Work) -> Refined:
    breakpoints = None
    if work.run.bends:
        points = ("first", "point_t", "point_unit", "point_bend", "point_edge", "point_index")
        inner = ("slot_t", "slot_unit", "slot_bend", "cross_chord", "cross_slot")
        offsets = work.arrays["slots"].view(2, -1)[1]
        breakpoints = (
            Breakpoints(*(work.result(name) for name in points)),
            Breakpoints(offsets, *(work.result(name) for name in inner)),
        )
    on_edges, inside = (
        work.interpolated(*some)
        for some in (("point", work.run.points), ("cross", work.run.crossings))
    )
    return Refined(work.made(), on_edges, inside, breakpoints)
