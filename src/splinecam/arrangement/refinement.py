"""Draw chords into a mesh: divide the edges that they end on, then the faces.

What finds the chords (``refine`` for whole layers, ``strokes`` for chosen ones) says where
functions change sign along edges, and at which places of its boundary a chord meets its face.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from splinecam._util.backend import backend_of
from splinecam._util.csr import (
    entries_of,
    lengths,
    offsets_of,
    owners_of,
    places_in,
    places_of,
    take,
    take_rows,
)
from splinecam._util.tolerances import UV_ERROR
from splinecam.arrangement.chords import (
    Arrangement,
    ChordCrossings,
    ChordIntervals,
    Chords,
    FaceBoundaries,
    Lines,
)
from splinecam.arrangement.edge_crossings import (
    TWICE,
    UNCLEAR,
    Ambiguities,
    EdgeCrossings,
    cut_edges,
)
from splinecam.arrangement.general_position import weave
from splinecam.arrangement.incremental import arrange
from splinecam.errors import LimitError
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import History

__all__ = [
    "TWICE",
    "UNCLEAR",
    "Ambiguities",
    "EdgeCrossings",
    "Ends",
    "Insertion",
    "KernelRefinement",
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


@dataclass(frozen=True)
class Refinement:
    """The refined mesh; its new vertices: first those on edges, then those inside faces.

    early: vertices made before those, level by level. kept: (V,) which of all these vertices the
    mesh still has; by default all. lines: those that were drawn, and woven, their crossings in
    general position; kinks: on the edges, and on these lines. history: all of this in the memory of
    the compiled kernel, if that made it.
    """

    mesh: Mesh
    on_edges: InterpolatedVertices
    inside: InterpolatedVertices
    ambiguities: list[Ambiguities]
    early: tuple[InterpolatedVertices, ...] = ()
    kept: Tensor | None = None
    lines: Lines | None = None
    woven: ChordCrossings | None = None
    breakpoints: tuple[Breakpoints, Breakpoints] | None = None
    history: History | None = None


class KernelRefinement(Refinement):
    """A refinement by the compiled kernel, whose tensors are made when they are asked for."""

    def __init__(self, mesh: Mesh, history: History) -> None:
        vars(self).update(mesh=mesh, history=history, ambiguities=[])

    @cached_property
    def _tensors(
        self,
    ) -> tuple[InterpolatedVertices, InterpolatedVertices, tuple[Breakpoints, Breakpoints] | None]:
        return vars(self)["history"].tensors()  # type: ignore[no-any-return]

    @property
    def on_edges(self) -> InterpolatedVertices:
        return self._tensors[0]

    @property
    def inside(self) -> InterpolatedVertices:
        return self._tensors[1]

    @property
    def breakpoints(self) -> tuple[Breakpoints, Breakpoints] | None:
        return self._tensors[2]


# -- chords -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """One end of each chord: key = face * m + column, and the place on the boundary, all (N,).

    blur: (N, 2) how far, and in which direction, rounding may shift the end along its edge.
    """

    key: Tensor
    place: Tensor
    position_error: Tensor

    def sorted(self) -> Ends:
        key, order = torch.sort(self.key)
        return Ends(key, take(self.place, order), take(self.position_error, order))


def first_places(mesh: Mesh, cuts: EdgeCrossings) -> Tensor:
    """Where on its face's divided boundary each corner stands, (H,)."""
    refined = offsets_of(1 + take(cuts.extra, mesh.corners >> 1))
    return refined[:-1] - take(take(refined, mesh.offsets), mesh.owners())


def boundaries(mesh: Mesh, cuts: EdgeCrossings, faces: Tensor) -> FaceBoundaries:
    """Boundaries of the chosen faces along the divided edges."""
    entries, counts = take_rows(mesh.offsets, faces)
    old = take(mesh.corners, entries)
    first, extra = take(cuts.first, old >> 1), take(cuts.extra, old >> 1)
    sizes = 1 + extra
    offsets = offsets_of(sizes)
    owner = owners_of(sizes)
    step = places_of(sizes, owner, offsets)
    old = take(old, owner)
    back, edge = old & 1, old >> 1
    piece = torch.where(back == 1, take(extra, owner) - step, step)
    edge = torch.where(piece == 0, edge, take(first, owner) + (mesh.num_edges - 1) + piece)
    return FaceBoundaries(take(offsets, offsets_of(counts)), 2 * edge + back)


def chords_between(
    loops: FaceBoundaries, face: Tensor, falls: Ends, rises: Ends, uv: Tensor, edges: Tensor
) -> tuple[Chords, Lines]:
    """The chords of faces (N,) between the places where a function falls and where it rises.

    uv, edges: those of the mesh after its edges were divided.
    """
    line = torch.arange(face.shape[0], device=face.device)
    p, q = torch.minimum(falls.place, rises.place), torch.maximum(falls.place, rises.place)
    first, ends = take(loops.offsets, face), edges.view(-1)
    start, end = (take(ends, take(loops.half, first + x)) for x in (p, q))
    a, b = take(uv, start), take(uv, end)
    # Across the line both ends are blurred by error / |gradient|; the estimate is the better the
    # more steeply the line meets the edge, so the smaller one counts.
    along = (b - a) / lengths(b - a).clamp(min=UV_ERROR)[:, None]
    across = [
        (x.position_error[:, 0] * along[:, 1] - x.position_error[:, 1] * along[:, 0]).abs()
        for x in (falls, rises)
    ]
    lines = Lines(start, end, a, b, torch.minimum(*across) + UV_ERROR)
    return Chords(face, p, q, line), lines


def short_chords(lines: Lines) -> list[Ambiguities]:
    """Chords whose two ends have the same coordinates, up to rounding."""
    short = (lines.length <= UV_ERROR).nonzero()[:, 0]
    if not short.shape[0]:
        return []
    return [Ambiguities(lines.a[short], "a border too short for its coordinates")]


# -- the refined mesh -------------------------------------------------------------------------


@dataclass(frozen=True)
class Insertion:
    """Chords to be drawn into K faces, (K,) ascending: boundaries, chords, and their lines.

    distinct: whether no two chords are known to meet the boundary at one place.
    """

    faces: Tensor
    loops: FaceBoundaries
    spans: ChordIntervals
    lines: Lines
    distinct: bool

    @property
    def corners(self) -> int | None:
        """How many corners the faces have, if each chord is known to have made two more."""
        return self.loops.half.shape[0] - 2 * self.spans.lo.shape[0] if self.distinct else None


def draw(
    mesh: Mesh,
    cuts: EdgeCrossings,
    falls: Ends,
    rises: Ends,
    face: Tensor,
    unit: Tensor,
    op: int,
    *,
    bare: Tensor,
    max_faces: int | None = None,
) -> Refinement:
    """Divide faces by chords, of which face (ascending) and unit, (N,), are the face and the unit.

    bare: faces without chords that have divided edges.
    """
    faces, local = torch.unique(torch.cat([face, bare]), return_inverse=True)
    local = local[: face.shape[0]]
    loops = boundaries(mesh, cuts, faces)
    made = _divided(mesh, cuts)
    chords, lines = chords_between(loops, local, falls, rises, made.uv, made.edges)
    start = take(loops.offsets, local)
    lo, line = torch.sort(start + chords.p, stable=True)
    drawing = Insertion(
        faces, loops, ChordIntervals(lo, take(start + chords.q, line), line), lines, False
    )
    return draw_chords(mesh, cuts, drawing, unit, op, made=made, max_faces=max_faces)


def _divided(mesh: Mesh, cuts: EdgeCrossings) -> Arrangement:
    """The vertices and edges of a mesh after its edges are divided."""
    made = Arrangement(mesh.uv, mesh.edges)
    made.add_vertices(cuts.uv)
    made.add_edges(mesh.pieces(cuts.group_edge))
    mesh.shorten(made.edges, cuts.group_edge)
    return made


def draw_chords(
    mesh: Mesh,
    cuts: EdgeCrossings,
    drawing: Insertion,
    unit: Tensor,
    op: int,
    *,
    made: Arrangement | None = None,
    max_faces: int | None = None,
) -> Refinement:
    """Divide faces by chords; unit: (L,) of each line.

    made: the divided edges, if they are there already.
    """
    faces, loops, lines = drawing.faces, drawing.loops, drawing.lines
    if max_faces is not None:
        max_faces -= mesh.num_faces - faces.shape[0]
        _check_room(drawing, max_faces)
    made = made or _divided(mesh, cuts)
    ambiguities = short_chords(lines)
    left = weave(loops, drawing.spans, lines, made, distinct=drawing.distinct, max_faces=max_faces)
    if left.shape[0]:
        if max_faces is not None:
            max_faces -= sum(loop.count for loop in made.loops)
        some = loops.select(left)
        chords = drawing.spans.restrict(loops, left).chords(some)
        arrange(some, chords.by(unit), lines, made, max_faces=max_faces)
    return _assemble(mesh, faces, made, lines, unit, cuts, op, ambiguities, drawing.corners)


def _check_room(drawing: Insertion, room: int) -> None:
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
    cuts: EdgeCrossings,
    op: int,
    ambiguities: list[Ambiguities],
    gone: int | None,
) -> Refinement:
    """Untouched faces first, then the pieces of the cut ones, (K,) ascending.

    gone: how many corners the cut ones have, if that is known.
    """
    counts, corners = _without(mesh, faces, gone)
    crossing = _join(made.vertex_line, lines.start)
    edge_line = _join(made.edge_line, lines.start)
    new_vertices = made.num_vertices - mesh.num_vertices
    refined = Mesh(
        uv=made.uv,
        edges=made.edges,
        offsets=offsets_of(torch.cat([counts, *[loop.sizes() for loop in made.loops]])),
        corners=torch.cat([corners, *[loop.half for loop in made.loops]]),
        edge_layer=torch.cat(
            [
                mesh.edge_layer,
                take(mesh.edge_layer, cuts.group_edge),
                edge_line.new_full(edge_line.shape, op),
            ]
        ),
        edge_unit=torch.cat(
            [mesh.edge_unit, take(mesh.edge_unit, cuts.group_edge), take(unit, edge_line)]
        ),
        vertex_layer=torch.cat([mesh.vertex_layer, crossing.new_full((new_vertices,), op)]),
    )
    inside = InterpolatedVertices(
        take(lines.start, crossing), take(lines.end, crossing), _join(made.vertex_s, lines.error)
    )
    ambiguities += [Ambiguities(uv, "crossings too close to tell apart") for uv in made.ambiguities]
    return Refinement(
        refined, cuts.interpolated(), inside, ambiguities, lines=lines, woven=made.woven
    )


def _without(mesh: Mesh, faces: Tensor, gone: int | None) -> tuple[Tensor, Tensor]:
    """Sizes and corners of all faces but some, (K,) ascending: the runs between those.

    gone: how many corners those have, if that is known.
    """
    left, counts = mesh.num_faces - faces.shape[0], mesh.counts()
    if backend_of(faces.device).asynchronous and gone is not None:
        stays = torch.ones_like(counts, dtype=torch.bool).index_fill_(0, faces, False)
        total = mesh.corners.shape[0]
        entries = places_in(take(stays, owners_of(counts, total)), total - gone)
        return take(counts, places_in(stays, left)), take(mesh.corners, entries)
    begin, end = pad(faces + 1, (1, 0)), pad(faces, (0, 1), value=mesh.num_faces)
    kept = entries_of(begin, end, offsets_of(end - begin), left)
    begin, end = take(mesh.offsets, begin), take(mesh.offsets, end)
    entries = entries_of(begin, end, offsets_of(end - begin))
    return take(counts, kept), take(mesh.corners, entries)


def unrefined(mesh: Mesh, ambiguities: list[Ambiguities]) -> Refinement:
    """The mesh as it is."""
    none = mesh.edges[:0, 0]
    interpolated = InterpolatedVertices(none, none, mesh.uv[:0, 0])
    return Refinement(mesh, interpolated, interpolated, ambiguities)


def _join(parts: list[Tensor], like: Tensor) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else like[:0]
