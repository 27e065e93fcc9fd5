"""Cut a mesh face by face in compiled loops, where nothing comes close to anything else.

The same cells in the same order as by tensor operations, which take over as soon as a loop meets
something that needs care: functions that vanish at vertices, cuts or crossings close together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.births import Births, Kinks
from splinecam.compiled import mesh_loops
from splinecam.cutting import Refinement, unrefined
from splinecam.functions import Functions
from splinecam.kinks import bent
from splinecam.mesh import Mesh
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.ragged import offsets_of, take
from splinecam.threads import share, without_helpers

__all__ = ["refine_swiftly"]

_PART = 1 << 12  # edges or faces that a thread takes at a time

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
    code: ModuleType,
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
    drawn = _cut_faces(code, mesh, functions, cuts, plan)
    if drawn is None:
        return None
    refined, owner = _assemble(code, mesh, op, cuts, plan, drawn)
    a, b = (x.contiguous() for x in cuts.ends.unbind(1))
    chord, place = drawn.born.unbind(1)
    p, q = (take(drawn.lines[:, end], chord) + mesh.num_vertices for end in range(2))
    on_edges, inside = Births(a, b, cuts.t), Births(p, q, take(drawn.along, place))
    kinks = _kinks(code, functions, cuts, drawn, owner)
    return Refinement(refined, on_edges, inside, [], kinks=kinks)


@dataclass(frozen=True)
class _Cuts:
    """New vertices on edges, in order along each: first (E + 1,) those of each edge.

    Per group, (N,): column, ends of the edge (N, 2), fraction t, place (N, 2), change along the
    edge, and blur (N, 2), see ``EdgeCuts``.
    """

    first: Tensor
    column: Tensor
    ends: Tensor
    t: Tensor
    place: Tensor
    change: Tensor
    blur: Tensor


@dataclass(frozen=True)
class _Plan:
    """How many chords and crossings there are before each of the K faces with chords, (K + 1,).

    begins: (K + 1,) where their half-edges are; touched: (K,) these faces, kept: the others;
    room: for all chords, slots and places of a face; totals: chords, crossings, half-edges.
    """

    touched: Tensor
    kept: Tensor
    chords: Tensor
    crossings: Tensor
    begins: Tensor
    room: int
    totals: tuple[int, int, int]

    @property
    def faces(self) -> int:
        return self.kept.shape[0] + self.new_faces

    @property
    def new_faces(self) -> int:
        return self.touched.shape[0] + self.totals[0] + self.totals[1]


def _cut_edges(
    code: ModuleType, mesh: Mesh, functions: Functions, positive: Tensor
) -> _Cuts | None:
    words = positive.numpy().view(np.uint64)
    extra = torch.empty_like(mesh.edges[:, 0])
    _all(mesh.num_edges, code.count_changes, mesh.edges, words, made=[extra])
    first = offsets_of(extra)
    groups = int(first[-1])
    f = functions
    column, ends = first.new_empty(groups), first.new_empty((groups, 2))
    t, change = f.z.new_empty((2, groups))
    place, blur = f.z.new_empty((groups, mesh.uv.shape[1])), f.z.new_empty((groups, 2))
    given = (mesh.edges, mesh.uv, words, f.z, f.unit, f.level, f.error, first, UV_ERROR, SAFETY)
    made = [column, ends, t, place, change, blur]
    fine = _all(mesh.num_edges, code.cut_edges, *given, made=made)
    return _Cuts(first, *made) if fine else None


def _plan(code: ModuleType, mesh: Mesh, m: int, cuts: _Cuts) -> _Plan | None:
    chords, crossings = mesh.offsets.new_empty((2, mesh.num_faces))
    given = (mesh.offsets, mesh.corners, cuts.first, cuts.column, _MOST)
    made = [chords, crossings]
    if not _all(mesh.num_faces, code.count_crossings, *given, own=m, made=made):
        return None
    touched, kept = chords.nonzero()[:, 0], (chords == 0).nonzero()[:, 0]
    corners = take(mesh.counts(), touched)
    chords, crossings = take(chords, touched), take(crossings, touched)
    room = 1 + 2 * int(torch.stack([chords, crossings, corners]).amax(1).sum())
    begins = offsets_of(corners + 4 * (chords + crossings))
    offsets = offsets_of(chords), offsets_of(crossings), begins
    totals = torch.stack([x[-1] for x in offsets]).tolist()
    return _Plan(touched, kept, *offsets, room, tuple(totals))


@dataclass(frozen=True)
class _Drawn:
    """What cutting the faces gave, see ``meshloops.cut_faces``."""

    lines: Tensor
    slots: Tensor
    woven: Tensor
    along: Tensor
    born: Tensor
    uv: Tensor
    edges: Tensor
    units: Tensor
    sizes: Tensor
    starts: Tensor
    halves: Tensor


def _cut_faces(
    code: ModuleType, mesh: Mesh, functions: Functions, cuts: _Cuts, plan: _Plan
) -> _Drawn | None:
    chords, crossings, halves = plan.totals
    whole, real = mesh.edges.new_empty, mesh.uv.new_empty
    pieces = chords + 2 * crossings
    drawn = _Drawn(
        lines=whole((chords, 2)),
        slots=whole(chords + 1),
        woven=whole(2 * crossings),
        along=real(2 * crossings),
        born=whole((crossings, 2)),
        uv=real((crossings, mesh.uv.shape[1])),
        edges=whole((pieces, 2)),
        units=whole(pieces),
        sizes=whole(plan.new_faces),
        starts=whole(plan.new_faces),
        halves=whole(halves),
    )
    drawn.slots[-1] = 2 * crossings
    given = (
        *(mesh.offsets, mesh.corners, cuts.first, cuts.column, cuts.place, cuts.blur),
        *(functions.label, UV_ERROR, SAFETY, mesh.num_vertices, plan.room),
        *(plan.touched, plan.chords, plan.crossings, plan.begins),
    )
    made, count = list(vars(drawn).values()), plan.touched.shape[0]
    return drawn if _all(count, code.cut_faces, *given, own=functions.m, made=made) else None


def _assemble(
    code: ModuleType, mesh: Mesh, op: int, cuts: _Cuts, plan: _Plan, drawn: _Drawn
) -> tuple[Mesh, Tensor]:
    """The refined mesh, and the edge of each new vertex on an edge."""
    divided = mesh.num_edges + cuts.t.shape[0]
    count = divided + drawn.units.shape[0]
    edges, owner = mesh.edges.new_empty((count, 2)), torch.empty_like(cuts.column)
    edge_op, edge_unit = mesh.edges.new_empty((2, count))
    edges[divided:], edge_op[divided:], edge_unit[divided:] = drawn.edges, op, drawn.units
    given = (mesh.edges, mesh.edge_op, mesh.edge_unit, cuts.first, mesh.num_vertices)
    made = [edges, edge_op, edge_unit, owner]
    _all(mesh.num_edges, code.divide_edges, *given, made=made)
    offsets = offsets_of(torch.cat([take(mesh.counts(), plan.kept), drawn.sizes]))
    corners = mesh.corners.new_empty(int(offsets[-1]))
    faces = (mesh.offsets, mesh.corners, plan.kept, drawn.starts, drawn.halves, offsets)
    _all(plan.faces, code.copy_faces, *faces, made=[corners])
    uv = torch.cat([mesh.uv, cuts.place, drawn.uv])
    vertex_op = mesh.vertex_op.new_full((uv.shape[0],), op)
    vertex_op[: mesh.num_vertices] = mesh.vertex_op
    return Mesh(uv, edges, offsets, corners, edge_op, edge_unit, vertex_op), owner


def _kinks(
    code: ModuleType, f: Functions, cuts: _Cuts, drawn: _Drawn, owner: Tensor
) -> tuple[Kinks, Kinks] | None:
    """Where results bend on the divided edges and on the chords, see ``find_kinks``."""
    if f.jump is None or not bent(f, cuts.t.shape[0] + drawn.born.shape[0]):
        return None
    bend = take(f.jump, cuts.column) * cuts.change.abs()
    index = torch.arange(owner.shape[0])
    on_edges = Kinks(cuts.first, cuts.t, take(f.unit, cuts.column), bend, owner, index)
    unit, bend = torch.empty_like(drawn.woven), torch.empty_like(drawn.along)
    given = (
        *(drawn.lines, drawn.slots, drawn.woven, drawn.along, cuts.column, cuts.ends, cuts.t),
        *(f.z, f.unit, f.level, f.jump),
    )
    _all(drawn.lines.shape[0], code.bends, *given, made=[unit, bend])
    chord, place = (x.contiguous() for x in drawn.born.unbind(1))
    return on_edges, Kinks(drawn.slots, drawn.along, unit, bend, chord, place)


def _all(
    count: int,
    loop: Callable[..., bool | None],
    *given: Any,
    made: Sequence[Tensor],
    own: int | None = None,
) -> bool:
    """Run a loop over everything, in parts; returns whether nothing was in the way.

    own: how many whole numbers, zero at first, each part needs for itself.
    """
    given = tuple(x.numpy() if isinstance(x, Tensor) else x for x in given)
    arrays, fine = [x.numpy() for x in made], []

    def work(_: int, begin: int, end: int) -> None:
        room = [] if own is None else [torch.zeros(own, dtype=torch.int64).numpy()]
        fine.append(loop(*given, begin, end, *room, *arrays))

    share(work, count, _PART)
    return all(done is not False for done in fine)
