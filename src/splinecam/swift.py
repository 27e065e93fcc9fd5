"""Cut a mesh face by face in compiled loops, where nothing comes close to anything else.

The same cells in the same order as by tensor operations, which take over as soon as a loop meets
something that needs care: functions that vanish at vertices, cuts or crossings close together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.compiled import MeshLoops, mesh_loops
from splinecam.cutting import Refinement, unrefined
from splinecam.functions import Functions
from splinecam.kinks import bent
from splinecam.memory import lend
from splinecam.mesh import Mesh
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.ragged import take
from splinecam.threads import share, without_helpers

__all__ = ["refine_swiftly"]

# Edges or faces that a thread takes at a time, at least; and into how many parts all are divided.
_PART, _PARTS = 1 << 9, 16

_MOST = 1 << 7  # chords of a face: the loops compare all of them, and one thread has a whole face


def refine_swiftly(
    mesh: Mesh, functions: Functions, op: int, max_faces: int | None
) -> Refinement | None:
    """What ``refine`` gives, or None where that needs more care."""
    found = functions.found
    if found is None or not found.clear:  # loops have looked at everything
        return None
    with without_helpers():
        return _refine(mesh_loops(), mesh, functions, found.positive, op, max_faces)


def _refine(
    code: MeshLoops,
    mesh: Mesh,
    functions: Functions,
    positive: Tensor,
    op: int,
    max_faces: int | None,
) -> Refinement | None:
    cuts = _cut_edges(code, mesh, functions, positive)
    if cuts is None:
        return None
    if not cuts.t.shape[0]:
        return unrefined(mesh, [])
    plan = _plan(code, mesh, functions.m, cuts)
    if plan is None or (max_faces is not None and plan.faces > max_faces):
        return None
    made = _room(mesh, cuts, plan, op)
    drawn = _cut_faces(code, mesh, functions, cuts, plan, made)
    if drawn is None:
        return None
    refined = _finish(code, mesh, cuts, plan, drawn, made)
    kinks = _kinks(code, functions, cuts, drawn)
    (a, b), (p, q), t = cuts.ends, *drawn.crossings[1:]
    on_edges, inside = Births(a, b, cuts.t), Births(p, q, t)
    return Refinement(refined, on_edges, inside, [], kinks=kinks)


# -- edges ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cuts:
    """New vertices on edges, in order along each: first (E + 1,) those of each edge.

    Per group, (N,): column, owner (the edge), ends of that (2, N), fraction t, bend, place and blur
    (N, 2), see ``meshloops.cut_edges``.
    """

    first: Tensor
    column: Tensor
    owner: Tensor
    ends: Tensor
    t: Tensor
    bend: Tensor
    place: Tensor
    blur: Tensor


def _cut_edges(code: MeshLoops, mesh: Mesh, f: Functions, positive: Tensor) -> _Cuts | None:
    words = positive.numpy().view(np.uint64)
    extra, first = mesh.edges.new_empty(mesh.num_edges), mesh.edges.new_empty(mesh.num_edges + 1)
    _all(mesh.num_edges, code.mesh.count_changes, mesh.edges, words, made=[extra])
    groups = code.mesh.offsets(extra.numpy(), first.numpy())
    column, owner, *_ = whole = mesh.edges.new_empty((4, groups))
    t, bend = f.z.new_empty((2, groups))
    place, blur = f.z.new_empty((groups, mesh.uv.shape[1])), f.z.new_empty((groups, 2))
    jump = torch.zeros_like(f.level) if f.jump is None else f.jump
    given = ((mesh.edges, mesh.uv), (words, f.z, f.unit, f.level, f.error, jump), first)
    made = [column, owner, whole[2:], t, bend, place, blur]
    fine = _all(mesh.num_edges, code.mesh.cut_edges, *given, UV_ERROR, SAFETY, made=made)
    return _Cuts(first, *made) if fine else None


# -- faces ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What becomes of the faces: touched, (K,), have chords, kept ones do not.

    sums: (3, K + 1) chords, crossings, and half-edges of the new faces before each of the K; totals
    of these; room: for all chords, slots and places of a face.
    """

    touched: Tensor
    kept: Tensor
    sums: Tensor
    room: int
    totals: tuple[int, ...]

    @property
    def faces(self) -> int:
        return self.kept.shape[0] + self.new_faces

    @property
    def new_faces(self) -> int:
        return self.touched.shape[0] + self.totals[0] + self.totals[1]


def _plan(code: MeshLoops, mesh: Mesh, m: int, cuts: _Cuts) -> _Plan | None:
    faces = mesh.num_faces
    chords, crossings, touched, kept = mesh.offsets.new_empty((4, faces))
    given = ((mesh.offsets, mesh.corners), cuts.first, cuts.column, _MOST)
    made = [chords, crossings]
    if not _all(faces, code.face.count_crossings, *given, own=m, made=made):
        return None
    sums = mesh.offsets.new_empty((3, faces + 1))
    lists = (mesh.offsets, chords, crossings, touched, kept, sums)
    count, room = code.mesh.plan(*_arrays(lists))
    totals = tuple(sums[:, count].tolist())
    sums = sums[:, : count + 1].contiguous()
    return _Plan(touched[:count], kept[: faces - count], sums, room, totals)


def _room(mesh: Mesh, cuts: _Cuts, plan: _Plan, op: int) -> Mesh:
    """The refined mesh, as far as it is known: where vertices and edges are that it had before.

    All of it is one piece of memory, which a system finds faster than several.
    """
    chords, crossings, _ = plan.totals
    vertices, groups = mesh.num_vertices, cuts.t.shape[0]
    edges = mesh.num_edges + groups + chords + 2 * crossings
    corners = mesh.corners.shape[0] + 4 * (chords + crossings)
    points = (vertices + groups + crossings, mesh.uv.shape[1])
    sizes = (2 * edges, edges, edges, points[0], plan.faces + 1, corners, prod(points))
    chunk = torch.from_numpy(lend(sum(sizes), snug=True))[: sum(sizes)]
    whole = chunk.view(torch.int64).split(sizes)
    ends, edge_op, edge_unit, vertex_op, offsets, halves, uv = whole
    uv = uv.view(torch.float64).view(points)
    uv[:vertices], uv[vertices : vertices + groups] = mesh.uv, cuts.place
    vertex_op[:vertices], vertex_op[vertices:] = mesh.vertex_op, op
    edge_op[mesh.num_edges + groups :] = op  # the others have what they had
    return Mesh(uv, ends.view(-1, 2), offsets, halves, edge_op, edge_unit, vertex_op)


@dataclass(frozen=True)
class _Drawn:
    """What cutting the faces gave, see ``faceloops.cut_faces``."""

    chords: tuple[Tensor, Tensor]
    slots: tuple[Tensor, Tensor]
    crossings: tuple[Tensor, Tensor, Tensor]
    pieces: tuple[Tensor, Tensor]
    faces: tuple[Tensor, Tensor, Tensor]

    @classmethod
    def room(cls, mesh: Mesh, divided: int, plan: _Plan, made: Mesh) -> _Drawn:
        """divided: how many edges there are but for the pieces of chords."""
        chords, crossings, halves = plan.totals
        whole, real = mesh.edges.new_empty, mesh.uv.new_empty
        first = whole(chords + 1)
        first[-1] = 2 * crossings
        return cls(
            chords=(whole((2, chords)), first),
            slots=(whole(2 * crossings), real(2 * crossings)),
            crossings=(whole((2, crossings)), whole((2, crossings)), real(crossings)),
            pieces=(made.edges[divided:], made.edge_unit[divided:]),
            faces=(whole(plan.new_faces), whole(plan.new_faces), whole(halves)),
        )


def _cut_faces(
    code: MeshLoops, mesh: Mesh, f: Functions, cuts: _Cuts, plan: _Plan, made: Mesh
) -> _Drawn | None:
    divided = mesh.num_edges + cuts.t.shape[0]
    drawn = _Drawn.room(mesh, divided, plan, made)
    given = (
        *((mesh.offsets, mesh.corners), (cuts.first, cuts.column, cuts.place, cuts.blur)),
        *(f.label, UV_ERROR, SAFETY, mesh.num_vertices, plan.room, plan.touched, plan.sums),
    )
    results = [drawn.chords, drawn.slots, drawn.crossings, drawn.pieces, drawn.faces]
    count = plan.touched.shape[0]
    return drawn if _all(count, code.face.cut_faces, *given, own=f.m, made=results) else None


def _finish(
    code: MeshLoops, mesh: Mesh, cuts: _Cuts, plan: _Plan, drawn: _Drawn, made: Mesh
) -> Mesh:
    """The refined mesh: untouched faces first, then the pieces of the cut ones."""
    edges = (mesh.edges, mesh.edge_op, mesh.edge_unit)
    parts = [made.edges, made.edge_op, made.edge_unit]
    _all(mesh.num_edges, code.mesh.divide_edges, edges, cuts.first, mesh.num_vertices, made=parts)
    _, ends, t = drawn.crossings
    inside = made.uv[made.uv.shape[0] - t.shape[0] :]
    _all(t.shape[0], code.mesh.points_between, made.uv, ends, t, made=[inside])
    sizes, starts, halves = drawn.faces
    lists = _arrays((mesh.offsets, plan.kept, sizes, made.offsets))
    code.mesh.offsets_of_faces(*lists)
    given = ((mesh.offsets, mesh.corners), plan.kept, starts, halves, made.offsets)
    _all(plan.faces, code.mesh.copy_faces, *given, made=[made.corners])
    return made


def _kinks(code: MeshLoops, f: Functions, cuts: _Cuts, drawn: _Drawn) -> tuple[Kinks, Kinks] | None:
    """Where results bend on the divided edges and on the chords, see ``find_kinks``."""
    (chord, place), _, t = drawn.crossings
    if f.jump is None or not bent(f, cuts.t.shape[0] + t.shape[0]):
        return None
    index = torch.arange(cuts.owner.shape[0])
    unit = take(f.unit, cuts.column)
    on_edges = Kinks(cuts.first, cuts.t, unit, cuts.bend, cuts.owner, index)
    (lines, first), (woven, along) = drawn.chords, drawn.slots
    unit, bend = torch.empty_like(woven), torch.empty_like(along)
    functions = (f.z, f.unit, f.level, f.jump)
    given = (drawn.chords, drawn.slots, (cuts.column, cuts.ends, cuts.t), functions)
    _all(lines.shape[1], code.mesh.bends, *given, made=[unit, bend])
    return on_edges, Kinks(first, along, unit, bend, chord, place)


def _all(
    count: int,
    loop: Callable[..., bool | None],
    *given: Any,
    made: Sequence[Any],
    own: int | None = None,
) -> bool:
    """Run a loop over everything, in parts; returns whether nothing was in the way.

    own: how many whole numbers, zero at first, each part needs for itself.
    """
    before, after, fine = _arrays(given), _arrays(made), []

    def work(_: int, begin: int, end: int) -> None:
        room = [] if own is None else [torch.zeros(own, dtype=torch.int64).numpy()]
        fine.append(loop(*before, begin, end, *room, *after))

    share(work, count, max(_PART, -(-count // _PARTS)))
    return all(done is not False for done in fine)


def _arrays(values: Iterable[Any]) -> tuple[Any, ...]:
    """What loops are given: tensors as arrays, also those in tuples."""
    return tuple(
        x.numpy() if isinstance(x, Tensor) else _arrays(x) if isinstance(x, tuple) else x
        for x in values
    )
