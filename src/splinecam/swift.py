"""Cut a mesh face by face in compiled loops, where nothing comes close to anything else.

The same cells in the same order as by tensor operations, which take over as soon as a loop meets
something that needs care: functions that vanish at vertices, cuts or crossings close together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from splinecam.births import Births, Kinks
from splinecam.compiled import MeshLoops, mesh_loops
from splinecam.cutting import Refinement, unrefined
from splinecam.functions import Functions
from splinecam.kinks import bent
from splinecam.memory import lend
from splinecam.mesh import Mesh
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.threads import share, without_helpers

__all__ = ["refine_swiftly"]

# Edges or faces that a thread takes at a time, at least; and into how many parts all are divided.
_PART, _PARTS = 1 << 9, 16

_MOST = 1 << 7  # chords of a face: the loops compare all of them, and one thread has a whole face

Whole = NDArray[np.int64]
Real = NDArray[np.float64]


def refine_swiftly(
    mesh: Mesh, functions: Functions, op: int, max_faces: int | None
) -> Refinement | None:
    """What ``refine`` gives, or None where that needs more care."""
    found = functions.found
    if found is None or not found.clear:  # loops have looked at everything, in whole layers
        return None
    with without_helpers():
        return _refine(mesh_loops(), mesh, functions, op, max_faces)


def _refine(
    code: MeshLoops, whole: Mesh, functions: Functions, op: int, max_faces: int | None
) -> Refinement | None:
    mesh, layer = _Arrays.of(whole), _Layer.of(functions)
    cuts = _cut_edges(code, mesh, layer)
    if cuts is None:
        return None
    if not len(cuts.t):
        return unrefined(whole, [])
    plan = _plan(code, mesh, layer, cuts)
    if plan is None or (max_faces is not None and plan.faces > max_faces):
        return None
    made = _room(mesh, cuts, plan, op)
    drawn = _cut_faces(code, mesh, layer, cuts, plan, made)
    if drawn is None:
        return None
    _, ends, t, _ = drawn.crossings
    bends = _Bends.room(drawn) if bent(functions, len(cuts.t) + len(t)) else None
    _finish(code, mesh, layer, cuts, plan, drawn, made, bends)
    kinks = None if bends is None else _kinks(cuts, drawn, bends)
    return Refinement(made.mesh(), _births(cuts.ends, cuts.t), _births(ends, t), [], kinks=kinks)


class _Arrays(NamedTuple):
    """The arrays of a mesh."""

    uv: Real
    edges: Whole
    offsets: Whole
    corners: Whole
    edge_op: Whole
    edge_unit: Whole
    vertex_op: Whole

    @classmethod
    def of(cls, mesh: Mesh) -> _Arrays:
        return cls(*[getattr(mesh, name).numpy() for name in cls._fields])

    def mesh(self) -> Mesh:
        return Mesh(*[torch.from_numpy(array) for array in self])


class _Layer(NamedTuple):
    """Units z (V, n) that are cut where they vanish, which is at no vertex.

    words: where they are positive; error, jump: see ``Functions``.
    """

    z: Real
    words: NDArray[np.uint64]
    error: Real
    jump: Real

    @classmethod
    def of(cls, f: Functions) -> _Layer:
        if f.found is None:
            raise ValueError("the signs are not known")
        words, error = f.found.positive.numpy().view(np.uint64), f.error.numpy()
        jump = np.zeros_like(error) if f.jump is None else f.jump.numpy()
        return cls(f.z.numpy(), words, error, jump)


# -- edges ------------------------------------------------------------------------------------


class _Cuts(NamedTuple):
    """New vertices on edges, in order along each: first (E + 1,) those of each edge.

    Per group, (N,): column, owner (the edge), ends of that (2, N), fraction t, bend, place and blur
    (N, 2), see ``meshloops.cut_edges``.
    """

    first: Whole
    column: Whole
    owner: Whole
    ends: Whole
    t: Real
    bend: Real
    place: Real
    blur: Real


def _cut_edges(code: MeshLoops, mesh: _Arrays, layer: _Layer) -> _Cuts | None:
    count = len(mesh.edges)
    extra, first = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    _all(_Job(count, code.mesh.count_changes, (mesh.edges, layer.words), [extra]))
    groups = code.mesh.offsets(extra, first)
    column, owner, *_ = names = np.empty((4, groups), np.int64)
    t, bend = np.empty((2, groups))
    place, blur = np.empty((groups, mesh.uv.shape[1])), np.empty((groups, 2))
    made = (column, owner, names[2:], t, bend, place, blur)
    given = ((mesh.edges, mesh.uv), layer, first, UV_ERROR, SAFETY)
    fine = _all(_Job(count, code.mesh.cut_edges, given, made))
    return _Cuts(first, *made) if fine else None


# -- faces ------------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """What becomes of the faces: touched, (K,), have chords, kept ones do not.

    sums: (3, K + 1 at least) chords, crossings, and half-edges of the new faces before each of the
    K; totals of these; room: for all chords, slots and places of a face.
    """

    touched: Whole
    kept: Whole
    sums: Whole
    room: int
    totals: tuple[int, ...]

    @property
    def faces(self) -> int:
        return len(self.kept) + self.new_faces

    @property
    def new_faces(self) -> int:
        return len(self.touched) + self.totals[0] + self.totals[1]


def _plan(code: MeshLoops, mesh: _Arrays, layer: _Layer, cuts: _Cuts) -> _Plan | None:
    faces = len(mesh.offsets) - 1
    chords, crossings, touched, kept = np.empty((4, faces), np.int64)
    given = ((mesh.offsets, mesh.corners), cuts.first, cuts.column, _MOST)
    own, made = len(layer.error), (chords, crossings)
    if not _all(_Job(faces, code.face.count_crossings, given, made, own)):
        return None
    sums = np.empty((3, faces + 1), np.int64)
    count, room = code.mesh.plan(mesh.offsets, chords, crossings, touched, kept, sums)
    return _Plan(touched[:count], kept[: faces - count], sums, room, tuple(sums[:, count].tolist()))


def _room(mesh: _Arrays, cuts: _Cuts, plan: _Plan, op: int) -> _Arrays:
    """The refined mesh, with what is known of its vertices.

    All of it is one piece of memory, which is found faster than several.
    """
    chords, crossings, _ = plan.totals
    (vertices, width), groups = mesh.uv.shape, len(cuts.t)
    count = vertices + groups + crossings
    edges = len(mesh.edges) + groups + chords + 2 * crossings
    corners = len(mesh.corners) + 4 * (chords + crossings)
    sizes = (count * width, 2 * edges, plan.faces + 1, corners, edges, edges, count)
    ends = np.cumsum(sizes)
    uv, *whole = np.split(lend(int(ends[-1]), snug=True)[: ends[-1]], ends[:-1])
    uv = uv.reshape(count, width)
    uv[:vertices], uv[vertices : vertices + groups] = mesh.uv, cuts.place
    pairs, offsets, halves, edge_op, edge_unit, vertex_op = [x.view(np.int64) for x in whole]
    vertex_op[:vertices], vertex_op[vertices:] = mesh.vertex_op, op
    edge_op[len(mesh.edges) + groups :] = op  # the others have what they had
    return _Arrays(uv, pairs.reshape(-1, 2), offsets, halves, edge_op, edge_unit, vertex_op)


class _Drawn(NamedTuple):
    """What cutting the faces gave, see ``faceloops.cut_faces``."""

    chords: tuple[Whole, Whole]
    slots: tuple[Whole, Real]
    crossings: tuple[Whole, Whole, Real, Real]
    pieces: tuple[Whole, Whole]
    faces: tuple[Whole, Whole, Whole]

    @classmethod
    def room(cls, divided: int, plan: _Plan, made: _Arrays) -> _Drawn:
        """divided: how many edges there are but for the pieces of chords."""
        chords, crossings, halves = plan.totals
        first = np.empty(chords + 1, np.int64)
        first[-1] = 2 * crossings
        lines, sizes = np.empty((2, chords), np.int64), np.empty((2, plan.new_faces), np.int64)
        born, ends = np.empty((2, 2, crossings), np.int64)
        return cls(
            chords=(lines, first),
            slots=(np.empty(2 * crossings, np.int64), np.empty(2 * crossings)),
            crossings=(born, ends, np.empty(crossings), made.uv[len(made.uv) - crossings :]),
            pieces=(made.edges[divided:], made.edge_unit[divided:]),
            faces=(sizes[0], sizes[1], np.empty(halves, np.int64)),
        )


def _cut_faces(
    code: MeshLoops, mesh: _Arrays, layer: _Layer, cuts: _Cuts, plan: _Plan, made: _Arrays
) -> _Drawn | None:
    drawn = _Drawn.room(len(mesh.edges) + len(cuts.t), plan, made)
    given = (
        *((mesh.offsets, mesh.corners), (cuts.first, cuts.column, cuts.place, cuts.blur)),
        *(UV_ERROR, SAFETY, len(mesh.uv), plan.room, plan.touched, plan.sums),
    )
    count, own = len(plan.touched), len(layer.error)
    return drawn if _all(_Job(count, code.face.cut_faces, given, drawn, own)) else None


class _Bends(NamedTuple):
    """Per slot of a chord, the unit that it crosses there, and by how much its result bends."""

    unit: Whole
    bend: Real

    @classmethod
    def room(cls, drawn: _Drawn) -> _Bends:
        woven, along = drawn.slots
        return cls(np.empty_like(woven), np.empty_like(along))


def _finish(
    code: MeshLoops,
    mesh: _Arrays,
    layer: _Layer,
    cuts: _Cuts,
    plan: _Plan,
    drawn: _Drawn,
    made: _Arrays,
    bends: _Bends | None,
) -> None:
    """The rest of the refined mesh: untouched faces first, then the pieces of the cut ones."""
    edges, pieces = ((x.edges, x.edge_op, x.edge_unit) for x in (mesh, made))
    sizes, starts, halves = drawn.faces
    code.mesh.offsets_of_faces(mesh.offsets, plan.kept, sizes, made.offsets)
    faces = ((mesh.offsets, mesh.corners), plan.kept, starts, halves, made.offsets)
    jobs = [
        _Job(len(mesh.edges), code.mesh.divide_edges, (edges, cuts.first, len(mesh.uv)), pieces),
        _Job(plan.faces, code.mesh.copy_faces, faces, [made.corners]),
    ]
    if bends is not None:
        lines, functions = (cuts.column, cuts.ends, cuts.t), (layer.z, layer.jump)
        given = (drawn.chords, drawn.slots, lines, functions)
        jobs.append(_Job(drawn.chords[0].shape[1], code.mesh.bends, given, bends))
    _all(*jobs)


# -- what the next stage needs to know --------------------------------------------------------


def _births(ends: Whole, t: Real) -> Births:
    p, q = torch.from_numpy(ends)
    return Births(p, q, torch.from_numpy(t))


def _kinks(cuts: _Cuts, drawn: _Drawn, bends: _Bends) -> tuple[Kinks, Kinks]:
    """Where results bend on the divided edges and on the chords, see ``find_kinks``."""
    (_, first), (_, along), (chord, place) = drawn.chords, drawn.slots, drawn.crossings[0]
    index = np.arange(len(cuts.t))
    on_edges = (cuts.first, cuts.t, cuts.column, cuts.bend, cuts.owner, index)
    on_chords = (first, along, *bends, chord, place)
    one, other = (Kinks(*[torch.from_numpy(x) for x in each]) for each in (on_edges, on_chords))
    return one, other


# -- how loops are run ------------------------------------------------------------------------


class _Job(NamedTuple):
    """A loop over so many edges, faces or chords: what it is given, and what it writes.

    own: how many whole numbers, zero at first, each part of it needs for itself.
    """

    number: int
    loop: Callable[..., bool | None]
    given: Sequence[Any]
    made: Sequence[Any]
    own: int | None = None

    def parts(self) -> Iterator[tuple[_Job, int, int]]:
        step = max(_PART, -(-self.number // _PARTS))
        for begin in range(0, self.number, step):
            yield self, begin, min(begin + step, self.number)

    def run(self, begin: int, end: int) -> bool:
        room = () if self.own is None else (np.zeros(self.own, np.int64),)
        return self.loop(*self.given, begin, end, *room, *self.made) is not False


def _all(*jobs: _Job) -> bool:
    """Run loops over everything, in parts; returns whether nothing was in the way."""
    parts = [part for job in jobs for part in job.parts()]
    fine = []

    def work(_: int, begin: int, end: int) -> None:
        for job, first, last in parts[begin:end]:
            fine.append(job.run(first, last))

    share(work, len(parts), 1)
    return all(fine)
