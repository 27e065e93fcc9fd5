"""Draw chords into a mesh: divide the edges that they end on, then the faces.

What finds the chords (``refine`` for whole layers, ``strokes`` for chosen ones) says where
functions change sign along edges, and at which places of its boundary a chord meets its face.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from splinecam.arrange import arrange
from splinecam.births import Births, Kinks
from splinecam.chords import Arrangement, Chords, Lines, Loops, Spans, Woven
from splinecam.errors import LimitError
from splinecam.mesh import Mesh
from splinecam.predicates import UV_ERROR, cluster
from splinecam.ragged import (
    lengths,
    offsets_of,
    owners_of,
    places_of,
    sort_rows,
    take,
    take_rows,
)
from splinecam.weave import weave

__all__ = [
    "TWICE",
    "UNCLEAR",
    "Doubts",
    "Drawing",
    "EdgeCuts",
    "Ends",
    "Refinement",
    "boundaries",
    "chords_between",
    "cut_edges",
    "draw",
    "draw_chords",
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
    (C,): edge, end vertices a, b, fraction t, its error shift and the place uv (C, 2). Edges, (E,):
    extra, the number of groups.
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
    uv: Tensor
    extra: Tensor
    doubts: list[Doubts]

    @property
    def distinct(self) -> bool:
        """Whether every hit has a vertex of its own."""
        return self.group_edge.shape == self.edge.shape

    @cached_property
    def first(self) -> Tensor:
        """The groups of each edge, (E + 1,)."""
        return offsets_of(self.extra)

    def births(self) -> Births:
        """The new vertices."""
        return Births(self.a, self.b, self.t)

    def divide(self, mesh: Mesh, op: int) -> Mesh:
        """The mesh with its edges divided; its faces still name whole edges."""
        return mesh.divide(self.group_edge, self.uv, mesh.vertex_op.new_full(self.t.shape, op))


def cut_edges(mesh: Mesh, functions: Columns, edge: Tensor, column: Tensor) -> EdgeCuts:
    """Find the new vertices where functions change sign along edges: edge (ascending), column."""
    a, b = (take(end, edge) for end in mesh.edges.unbind(1))
    za = functions.at(a, column)
    change = za - functions.at(b, column)
    order, _, t = sort_rows(edge, za / change, mesh.num_edges)
    column, change = take(column, order), take(change, order)
    falling, change = change > 0, change.abs()
    start, end = take(mesh.uv, a), take(mesh.uv, b)
    side = end - start
    length = lengths(side)
    shift = take(functions.error, column) / change
    error = shift + UV_ERROR / length
    group, best, doubtful = cluster(edge, t, error)
    doubts, group_edge, at = [], edge, t
    blur = side * shift[:, None]
    if best.shape != group.shape:
        if bool(doubtful.any()):
            chosen = torch.cat([doubtful.nonzero()[:, 0], best[group[doubtful]]])
            place = torch.lerp(start[chosen], end[chosen], at[chosen][:, None])
            doubts.append(Doubts(place, "cuts of an edge too close to tell apart"))
        group_edge, a, b, t, error = (take(x, best) for x in (edge, a, b, t, error))
        start, end, length = (take(x, best) for x in (start, end, length))
    uv = torch.lerp(start, end, t[:, None])
    at_end = (torch.minimum(t, 1 - t) * length <= UV_ERROR).nonzero()[:, 0]
    if at_end.shape[0]:
        doubts.append(Doubts(uv[at_end], "a cut of an edge too close to its end"))
    extra = mesh.corners.new_zeros(mesh.num_edges)
    extra.scatter_add_(0, group_edge, torch.ones_like(group_edge))
    return EdgeCuts(
        given=order,
        edge=edge,
        column=column,
        falling=falling,
        at=at,
        change=change,
        group=group,
        blur=blur,
        group_edge=group_edge,
        a=a,
        b=b,
        t=t,
        shift=error,
        uv=uv,
        extra=extra,
        doubts=doubts,
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
    refined = offsets_of(1 + cuts.extra[mesh.corners >> 1])
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


def short_chords(lines: Lines) -> list[Doubts]:
    """Chords whose two ends have the same coordinates, up to rounding."""
    short = (lines.length() <= UV_ERROR).nonzero()[:, 0]
    if not short.shape[0]:
        return []
    return [Doubts(lines.a[short], "a border too short for its coordinates")]


# -- the refined mesh -------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """Chords to be drawn into K faces, (K,) ascending: boundaries, chords, and their lines.

    distinct: whether no two chords are known to meet the boundary at one place.
    """

    faces: Tensor
    loops: Loops
    spans: Spans
    lines: Lines
    distinct: bool


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
    faces, local = torch.unique_consecutive(face, return_inverse=True)
    loops = boundaries(mesh, cuts, faces)
    chords, lines = chords_between(loops, local, falls, rises, cuts.divide(mesh, op))
    start = take(loops.offsets, local)
    lo, line = torch.sort(start + chords.p, stable=True)
    drawing = Drawing(faces, loops, Spans(lo, take(start + chords.q, line), line), lines, False)
    return draw_chords(mesh, cuts, drawing, unit, op, bare=bare, max_faces=max_faces)


def draw_chords(
    mesh: Mesh,
    cuts: EdgeCuts,
    drawing: Drawing,
    unit: Tensor,
    op: int,
    *,
    bare: Tensor | None = None,
    max_faces: int | None = None,
) -> Refinement:
    """Divide faces by chords; unit: (L,) of each line; bare: other faces with divided edges."""
    faces, loops, lines = drawing.faces, drawing.loops, drawing.lines
    if max_faces is not None:
        max_faces -= mesh.num_faces - faces.shape[0]
        _check_room(drawing, max_faces)
    made = Arrangement(mesh.uv, mesh.edges)
    made.add_vertices(cuts.uv)
    made.add_edges(mesh.pieces(cuts.group_edge))
    doubts = short_chords(lines)
    left = weave(loops, drawing.spans, lines, made, distinct=drawing.distinct, max_faces=max_faces)
    if left.shape[0]:
        if max_faces is not None:
            max_faces -= sum(loop.count for loop in made.loops)
        mesh.shorten(made.edges, cuts.group_edge)
        some = loops.select(left)
        chords = drawing.spans.restrict(loops, left).chords(some)
        arrange(some, chords.by(unit), lines, made, max_faces=max_faces)
    if bare is not None and bare.shape[0]:
        made.loops.append(boundaries(mesh, cuts, bare))
        faces = torch.cat([faces, bare])
    return _assemble(mesh, faces, made, lines, unit, cuts, op, doubts)


def _check_room(drawing: Drawing, room: int) -> None:
    """Each chord makes one face at least, unless it lies on another one."""
    spans, loops = drawing.spans, drawing.loops
    if spans.lo.shape[0] + loops.count <= room:
        return
    different = torch.unique(spans.lo * loops.half.shape[0] + spans.hi)
    if different.shape[0] + loops.count > room:
        raise LimitError("too many regions")


def _assemble(
    mesh: Mesh,
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
    new_vertices = made.num_vertices - mesh.num_vertices
    edges = made.edges
    mesh.shorten(edges, cuts.group_edge)
    refined = Mesh(
        uv=made.uv,
        edges=edges,
        offsets=offsets_of(torch.cat([counts, *[loop.sizes() for loop in made.loops]])),
        corners=torch.cat([take(mesh.corners, entries), *[loop.half for loop in made.loops]]),
        edge_op=torch.cat(
            [
                mesh.edge_op,
                take(mesh.edge_op, cuts.group_edge),
                edge_line.new_full(edge_line.shape, op),
            ]
        ),
        edge_unit=torch.cat(
            [mesh.edge_unit, take(mesh.edge_unit, cuts.group_edge), take(unit, edge_line)]
        ),
        vertex_op=torch.cat([mesh.vertex_op, crossing.new_full((new_vertices,), op)]),
    )
    inside = Births(
        take(lines.start, crossing), take(lines.end, crossing), _join(made.vertex_s, lines.error)
    )
    doubts += [Doubts(uv, "crossings too close to tell apart") for uv in made.doubts]
    return Refinement(refined, cuts.births(), inside, doubts, lines=lines, woven=made.woven)


def unrefined(mesh: Mesh, doubts: list[Doubts]) -> Refinement:
    """The mesh as it is."""
    none = mesh.edges[:0, 0]
    births = Births(none, none, mesh.uv[:0, 0])
    return Refinement(mesh, births, births, doubts)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat(parts) if parts else like[:0]
