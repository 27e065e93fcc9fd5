"""Draw chords into a mesh: divide the edges that they end on, then the faces.

What finds the chords (``refine`` for whole layers, ``strokes`` for chosen ones) says where
functions change sign along edges, and at which places of its boundary a chord meets its face.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from splinecam.arrange import arrange
from splinecam.births import Births, Kinks
from splinecam.chords import Arrangement, Chords, Lines, Loops, Woven
from splinecam.errors import LimitError
from splinecam.mesh import Mesh
from splinecam.predicates import UV_ERROR, cluster
from splinecam.ragged import (
    argsort_rows,
    lengths,
    offsets_of,
    owners_of,
    places_of,
    take,
    take_rows,
)
from splinecam.weave import weave

__all__ = [
    "TWICE",
    "UNCLEAR",
    "Doubts",
    "EdgeCuts",
    "Ends",
    "Refinement",
    "boundaries",
    "chords_between",
    "cut_edges",
    "draw",
    "first_places",
    "short_chords",
    "unrefined",
]

UNCLEAR = "a unit switches too close to a vertex to tell its side"
TWICE = "a unit crosses a region's border more than twice"


@dataclass(frozen=True)
class Doubts:
    """Places (N, 2) that rounding could not settle, and why."""

    uv: Tensor
    reason: str


@dataclass(frozen=True)
class Refinement:
    """The refined mesh; its new vertices: first those on edges, then those inside faces.

    early: vertices made before those, level by level. kept: (V,) which of all these vertices the
    mesh still has; by default all. lines: those that were drawn, and woven, their crossings in
    general position; kinks: on the edges, and on these lines.
    """

    mesh: Mesh
    on_edges: Births
    inside: Births
    doubts: list[Doubts]
    early: tuple[Births, ...] = ()
    kept: Tensor | None = None
    lines: Lines | None = None
    woven: Woven | None = None
    kinks: tuple[Kinks, Kinks] | None = None


class Columns(Protocol):
    """Functions that are affine on every face."""

    @property
    def m(self) -> int: ...
    @property
    def error(self) -> Tensor: ...
    def at(self, vertex: Tensor, column: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class EdgeCuts:
    """Where functions change sign along edges, ordered along each edge.

    Hits, (N,): which of the given ones it is, edge, column, whether the function falls from
    edges[e, 0] on, its fraction at of the edge, how much the function changes along the whole edge,
    group (the new vertex), and blur (N, 2), how far rounding may shift it along the edge. Groups,
    (C,): edge, end vertices a, b, fraction t and its error shift; first: (E + 1,) those of each
    edge.
    """

    given: Tensor
    edge: Tensor
    column: Tensor
    falling: Tensor
    at: Tensor
    change: Tensor
    group: Tensor
    blur: Tensor
    group_edge: Tensor
    a: Tensor
    b: Tensor
    t: Tensor
    shift: Tensor
    first: Tensor
    doubts: list[Doubts]

    def births(self) -> Births:
        """The new vertices."""
        return Births(self.a, self.b, self.t)

    def extra(self) -> Tensor:
        """How many new vertices each edge has, (E,)."""
        return self.first[1:] - self.first[:-1]

    def divide(self, mesh: Mesh, op: int) -> Mesh:
        """The mesh with its edges divided; its faces still name whole edges."""
        made_by = mesh.vertex_op.new_full(self.t.shape, op)
        return mesh.divide(self.group_edge, self.births().interpolate(mesh.uv), made_by)


def cut_edges(mesh: Mesh, functions: Columns, edge: Tensor, column: Tensor) -> EdgeCuts:
    """Find the new vertices where functions change sign along edges: edge, column (N,)."""
    a, b = take(mesh.edges, edge).unbind(1)
    za, zb = functions.at(a, column), functions.at(b, column)
    slope = (za - zb).abs()
    t = za.abs() / slope
    side = take(mesh.uv, b) - take(mesh.uv, a)
    shift = functions.error[column] / slope
    blur = side * shift[:, None]
    error = shift + UV_ERROR / lengths(side)
    order = argsort_rows(edge, t)
    edge, column, t, error, blur = (take(x, order) for x in (edge, column, t, error, blur))
    group, best, doubtful = cluster(edge, t, error)
    group_edge = edge[best]
    a, b, t_best = mesh.edges[group_edge, 0], mesh.edges[group_edge, 1], t[best]
    doubts = []
    if bool(doubtful.any()):
        e = edge[doubtful].repeat(2)
        td = torch.cat([t[doubtful], t_best[group[doubtful]]])[:, None]
        place = torch.lerp(mesh.uv[mesh.edges[e, 0]], mesh.uv[mesh.edges[e, 1]], td)
        doubts.append(Doubts(place, "cuts of an edge too close to tell apart"))
    length = lengths(mesh.uv[b] - mesh.uv[a])
    at_end = (torch.minimum(t_best, 1 - t_best) * length <= UV_ERROR).nonzero()[:, 0]
    if at_end.shape[0]:
        ends = torch.lerp(mesh.uv[a[at_end]], mesh.uv[b[at_end]], t_best[at_end, None])
        doubts.append(Doubts(ends, "a cut of an edge too close to its end"))
    first = offsets_of(torch.bincount(group_edge, minlength=mesh.num_edges))
    falling = za[order] > 0
    return EdgeCuts(
        order,
        edge,
        column,
        falling,
        t,
        slope[order],
        group,
        blur,
        group_edge,
        a,
        b,
        t_best,
        error[best],
        first,
        doubts,
    )


# -- chords -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """One end of each chord: key = face * m + column, and the place on the boundary, all (N,).

    blur: (N, 2) how far, and in which direction, rounding may shift the end along its edge.
    """

    key: Tensor
    place: Tensor
    blur: Tensor

    def sorted(self) -> Ends:
        key, order = torch.sort(self.key)
        return Ends(key, take(self.place, order), take(self.blur, order))


def first_places(mesh: Mesh, cuts: EdgeCuts) -> Tensor:
    """Where on its face's divided boundary each corner stands, (H,)."""
    refined = offsets_of(1 + cuts.extra()[mesh.corners >> 1])
    return refined[:-1] - refined[mesh.offsets[:-1]][mesh.owners()]


def boundaries(mesh: Mesh, cuts: EdgeCuts, faces: Tensor) -> Loops:
    """Boundaries of the chosen faces along the divided edges."""
    entries, counts = take_rows(mesh.offsets, faces)
    old = mesh.corners[entries]
    first = cuts.first[old >> 1]
    extra = cuts.first[(old >> 1) + 1] - first
    sizes = 1 + extra
    offsets = offsets_of(sizes)
    owner = owners_of(sizes)
    step = places_of(sizes, owner, offsets)
    back = old[owner] & 1
    piece = torch.where(back == 1, extra[owner] - step, step)
    edge = torch.where(piece == 0, old[owner] >> 1, mesh.num_edges + first[owner] + piece - 1)
    half = 2 * edge + back
    face_offsets = offsets[offsets_of(counts)]
    return Loops(face_offsets, half)


def chords_between(
    loops: Loops, face: Tensor, falls: Ends, rises: Ends, split: Mesh
) -> tuple[Chords, Lines]:
    """The chords of faces (N,) between the places where a function falls and where it rises."""
    line = torch.arange(face.shape[0], device=face.device)
    p, q = torch.minimum(falls.place, rises.place), torch.maximum(falls.place, rises.place)
    start, end = (split.edges.view(-1)[loops.half[loops.offsets[face] + x]] for x in (p, q))
    a, b = split.uv[start], split.uv[end]
    # Across the line both ends are blurred by error / |gradient|; the estimate is the better the
    # more steeply the line meets the edge, so the smaller one counts.
    along = (b - a) / lengths(b - a).clamp(min=UV_ERROR)[:, None]
    across = [
        (x.blur[:, 0] * along[:, 1] - x.blur[:, 1] * along[:, 0]).abs() for x in (falls, rises)
    ]
    lines = Lines(start, end, a, b, torch.minimum(*across) + UV_ERROR)
    return Chords(face, p, q, line), lines


def _restrict(loops: Loops, chords: Chords, faces: Tensor) -> tuple[Loops, Chords]:
    """Only some faces and their chords."""
    rank = loops.offsets.new_full((loops.offsets.shape[0] - 1,), -1)
    rank[faces] = torch.arange(faces.shape[0], device=faces.device)
    chosen = chords.select((rank[chords.face] >= 0).nonzero()[:, 0])
    chosen.face = rank[chosen.face]
    return loops.select(faces), chosen


def short_chords(lines: Lines) -> list[Doubts]:
    """Chords whose two ends have the same coordinates, up to rounding."""
    short = (lines.length() <= UV_ERROR).nonzero()[:, 0]
    if not short.shape[0]:
        return []
    return [Doubts(lines.a[short], "a border too short for its coordinates")]


# -- the refined mesh -------------------------------------------------------------------------


def draw(
    mesh: Mesh,
    cuts: EdgeCuts,
    falls: Ends,
    rises: Ends,
    face: Tensor,
    unit: Tensor,
    op: int,
    *,
    bare: Tensor | None = None,
    max_faces: int | None = None,
) -> Refinement:
    """Divide faces by chords, of which face (ascending) and unit, (N,), are the face and the unit.

    bare: faces without chords that have divided edges.
    """
    split = cuts.divide(mesh, op)
    faces, local = torch.unique_consecutive(face, return_inverse=True)
    loops = boundaries(mesh, cuts, faces)
    chords, lines = chords_between(loops, local, falls, rises, split)
    if max_faces is not None:
        max_faces -= mesh.num_faces - faces.shape[0]
        _check_room(loops, chords, max_faces)
    made = Arrangement(split.uv, split.edges)
    doubts = short_chords(lines)
    left = weave(loops, chords, lines, made, max_faces=max_faces)
    if left.shape[0]:
        if max_faces is not None:
            max_faces -= sum(loop.offsets.shape[0] - 1 for loop in made.loops)
        arrange(*_restrict(loops, chords, left), lines, made, max_faces=max_faces)
    if bare is not None and bare.shape[0]:
        made.loops.append(boundaries(mesh, cuts, bare))
        faces = torch.cat([faces, bare])
    return _assemble(mesh, split, faces, made, lines, unit, cuts, op, doubts)


def _check_room(loops: Loops, chords: Chords, room: int) -> None:
    """Each chord makes one face at least, unless it lies on another one."""
    if chords.face.shape[0] + loops.offsets.shape[0] - 1 <= room:
        return
    start = loops.offsets[chords.face]
    different = torch.unique((start + chords.p) * loops.half.shape[0] + start + chords.q)
    if different.shape[0] + loops.offsets.shape[0] - 1 > room:
        raise LimitError("too many regions")


def _assemble(
    mesh: Mesh,
    split: Mesh,
    faces: Tensor,
    made: Arrangement,
    lines: Lines,
    unit: Tensor,
    cuts: EdgeCuts,
    op: int,
    doubts: list[Doubts],
) -> Refinement:
    """Untouched faces first, then the pieces of the cut ones."""
    untouched = torch.ones(mesh.num_faces, dtype=torch.bool, device=faces.device)
    untouched[faces] = False
    entries, counts = take_rows(mesh.offsets, untouched.nonzero()[:, 0])
    crossing = _join(made.vertex_line, lines.start)
    edge_line = _join(made.edge_line, lines.start)
    count = crossing.shape[0]
    refined = Mesh(
        uv=made.uv,
        edges=made.edges,
        offsets=offsets_of(torch.cat([counts, *[loop.sizes() for loop in made.loops]])),
        corners=torch.cat([mesh.corners[entries], *[loop.half for loop in made.loops]]),
        edge_op=torch.cat([split.edge_op, edge_line.new_full(edge_line.shape, op)]),
        edge_unit=torch.cat([split.edge_unit, unit[edge_line]]),
        vertex_op=torch.cat([split.vertex_op, crossing.new_full((count,), op)]),
    )
    inside = Births(lines.start[crossing], lines.end[crossing], _join(made.vertex_s, lines.error))
    doubts += [Doubts(uv, "crossings too close to tell apart") for uv in made.doubts]
    return Refinement(refined, cuts.births(), inside, doubts, lines=lines, woven=made.woven)


def unrefined(mesh: Mesh, doubts: list[Doubts]) -> Refinement:
    """The mesh as it is."""
    none = mesh.edges[:0, 0]
    births = Births(none, none, mesh.uv[:0, 0])
    return Refinement(mesh, births, births, doubts)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(parts) if parts else like[:0]
