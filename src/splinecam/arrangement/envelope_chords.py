"""Chosen chords in chosen faces: the differences of two units where they are wanted, only there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.csr import following, offsets_of, owners_of, take, take_rows
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.chords import Arrangement, FaceBoundaries
from splinecam.arrangement.incremental import split_once
from splinecam.arrangement.refinement import (
    TWICE,
    UNCLEAR,
    Ambiguities,
    EdgeCrossings,
    Ends,
    Refinement,
    boundaries,
    chords_between,
    cut_edges,
    draw,
    first_places,
    short_chords,
    unrefined,
)
from splinecam.arrangement.vertex_values import UnitDifferences, VertexValues
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel, SelectedChords

__all__ = ["Halves", "Wanted", "draw_strokes", "halve"]


@dataclass(frozen=True)
class Wanted:
    """Chords to draw, (N,), ascending: key, (face * n + one unit) * n + another one of n units.

    unit: (N,) the unit of their edges; op: their provenance; field, error: the values of all units,
    with their rounding (n,); kernel: of a GPU, which draws where nothing is close.
    """

    key: Tensor
    unit: Tensor
    op: int
    field: VertexValues
    error: Tensor
    kernel: GpuKernel | None = None
    max_faces: int | None = None

    @property
    def face(self) -> Tensor:
        return self.key // self.error.shape[0] ** 2

    def columns(self) -> tuple[UnitDifferences, Tensor]:
        """The differences of units that there are, and which of them each chord is of, (N,)."""
        n, error = self.error.shape[0], self.error
        code, column = torch.unique(self.key % n**2, return_inverse=True)
        first, second = code // n, code % n
        return UnitDifferences(self.field, first, second, error[first] + error[second]), column

    def strokes(self) -> SelectedChords:
        """The same for a GPU."""
        return SelectedChords(
            key=self.key,
            unit=self.unit,
            table=self.field.table,
            error=self.error,
            first_new=self.field.first,
            parents=self.field.ends,
            position_error=self.field.position_error,
            layer=self.op,
            max_faces=self.max_faces,
        )


@dataclass(frozen=True)
class _Strokes:
    """Where the chords begin and end; which: (N,) those of the wanted ones that were found.

    bare: other faces that have divided edges.
    """

    cuts: EdgeCrossings
    falls: Ends
    rises: Ends
    which: Tensor
    bare: Tensor
    ambiguities: list[Ambiguities]


def draw_strokes(mesh: Mesh, wanted: Wanted) -> Refinement:
    """Draw chords into the faces of a mesh."""
    if not wanted.key.shape[0]:
        return unrefined(mesh, [])
    if wanted.kernel is not None:
        fast = wanted.kernel.insert_chords(mesh, wanted.strokes())
        if not isinstance(fast, str):
            return Refinement(fast.mesh, fast.on_edges, fast.inside, [])
    pairs, column = wanted.columns()
    strokes = _strokes(mesh, pairs, wanted.face, column)
    if not strokes.falls.key.shape[0]:
        return unrefined(mesh, strokes.ambiguities)
    made = draw(
        mesh,
        strokes.cuts,
        strokes.falls,
        strokes.rises,
        strokes.falls.key // pairs.m,
        wanted.unit[strokes.which],
        wanted.op,
        bare=strokes.bare,
        max_faces=wanted.max_faces,
    )
    return replace(made, ambiguities=strokes.ambiguities + made.ambiguities)


@dataclass(frozen=True)
class Halves:
    """Faces (N,) cut in two: the left half keeps the number, the right one is new, (N,).

    ends: (N, 2) the end vertices of the chord; which: (N,) those of the wanted ones that were cut;
    births: the new vertices, all on edges, and blur, (W,), the errors of their places there.
    """

    mesh: Mesh
    interpolated: InterpolatedVertices
    position_error: Tensor
    face: Tensor
    new_face: Tensor
    ends: Tensor
    which: Tensor
    ambiguities: list[Ambiguities]


def halve(mesh: Mesh, wanted: Wanted) -> Halves:
    """Cut faces by one chord each."""
    face, op = wanted.face, wanted.op
    if wanted.kernel is not None:
        fast = wanted.kernel.halve(mesh, wanted.strokes())
        if not isinstance(fast, str):
            index = torch.arange(face.shape[0], device=face.device)
            made = fast.mesh, fast.on_edges, fast.position_error, face, mesh.num_faces + index
            return Halves(*made, fast.ends, index, [])
    pairs, column = wanted.columns()
    strokes = _strokes(mesh, pairs, face, column)
    cuts, m = strokes.cuts, pairs.m
    split = cuts.divide(mesh, op)
    cut_face = strokes.falls.key // m
    count = cut_face.shape[0]
    index = torch.arange(count, device=face.device)
    loops = boundaries(mesh, cuts, cut_face)
    ends = strokes.falls, strokes.rises
    chords, lines = chords_between(loops, index, *ends, split.uv, split.edges)
    out = Arrangement(split.uv, split.edges)
    halves = split_once(loops, chords, lines, out)
    bare = boundaries(mesh, cuts, strokes.bare)
    parts = [FaceBoundaries(mesh.offsets, mesh.corners), bare, halves]
    pool = FaceBoundaries(
        offsets_of(torch.cat([part.sizes() for part in parts])),
        torch.cat([part.half for part in parts]),
    )
    first_half = mesh.num_faces + strokes.bare.shape[0]
    row = torch.arange(mesh.num_faces, device=face.device)
    row[strokes.bare] = mesh.num_faces + torch.arange(strokes.bare.shape[0], device=face.device)
    row[cut_face] = first_half + 2 * index
    chosen = pool.select(torch.cat([row, first_half + 2 * index + 1]))
    refined = Mesh(
        uv=out.uv,
        edges=out.edges,
        offsets=chosen.offsets,
        corners=chosen.half,
        edge_layer=torch.cat([split.edge_layer, index.new_full((count,), op)]),
        edge_unit=torch.cat([split.edge_unit, wanted.unit[strokes.which]]),
        vertex_layer=split.vertex_layer,
    )
    return Halves(
        mesh=refined,
        interpolated=cuts.interpolated(),
        position_error=cuts.shift,
        face=cut_face,
        new_face=mesh.num_faces + index,
        ends=torch.stack([lines.start, lines.end], 1),
        which=strokes.which,
        ambiguities=strokes.ambiguities + short_chords(lines),
    )


def _strokes(mesh: Mesh, pairs: UnitDifferences, face: Tensor, column: Tensor) -> _Strokes:
    """Find the ends of the chords: face, column (N,), ordered by both, without repetitions."""
    m, wanted = pairs.m, face * pairs.m + column
    rows, counts = take_rows(mesh.offsets, face)
    owner = owners_of(counts, rows.shape[0])
    half = take(mesh.corners, rows)
    vertex, columns = take(mesh.edges.view(-1), half), take(column, owner)
    value, error = pairs.at(vertex, columns), take(pairs.error, columns)
    sign = (value > SAFETY * error).long() - (value < -SAFETY * error).long()
    after = following(offsets_of(counts), rows.shape[0])

    hit = (sign * take(sign, after) < 0).nonzero()[:, 0]
    side = take(half, hit)
    hits, origin = torch.unique((side >> 1) * m + take(columns, hit), return_inverse=True)
    cuts = cut_edges(mesh, pairs, hits // m, hits % m)
    index = torch.arange(hits.shape[0], device=hits.device)
    at = take(torch.empty_like(index).scatter_(0, cuts.given, index), origin)
    rank = take(cuts.group, at) - take(cuts.first, take(cuts.edge, at))
    start = take(first_places(mesh, cuts), rows)
    reverse = take(cuts.extra, side >> 1) - 1 - rank
    place = take(start, hit) + 1 + torch.where((side & 1) == 1, reverse, rank)

    zero, before, entering = _passed_zeros(sign, after)
    corner, previous = take(vertex, zero), take(vertex, before)
    shift = take(error, zero) / take(value, before).abs()
    position_error = shift[:, None] * (take(mesh.uv, previous) - take(mesh.uv, corner))
    both = torch.cat([hit, zero])
    ends = Ends(
        take(wanted, take(owner, both)),
        torch.cat([place, take(start, zero)]),
        torch.cat([take(cuts.position_error, at), position_error]),
    )
    falling = torch.cat([take(sign, hit) > 0, entering < 0])
    falls, rises, again = _one_each(ends, falling)
    unclear = ((sign == 0) & (value.abs() > error)).nonzero()[:, 0]
    ambiguities = [*cuts.ambiguities]
    if again.shape[0]:
        ambiguities.append(Ambiguities(mesh.means()[again // m], TWICE))
    if unclear.shape[0]:
        off = pairs.position_error(vertex[unclear], columns[unclear])
        unclear = unclear[value[unclear].abs() > error[unclear] + off]
    if unclear.shape[0]:
        ambiguities.append(Ambiguities(mesh.uv[torch.unique(vertex[unclear])], UNCLEAR))
    which = torch.searchsorted(wanted, falls.key)
    return _Strokes(cuts, falls, rises, which, _bare(mesh, cuts, falls.key // m), ambiguities)


def _passed_zeros(sign: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Corners at which a function passes through zero, those before them, and the sign beyond.

    Of a run of zeros the first corner stands for all.
    """
    first = ((sign != 0) & (take(sign, after) == 0)).nonzero()[:, 0]
    zero = take(after, first)
    walk = take(after, zero)
    while bool((take(sign, walk) == 0).any()):
        walk = torch.where(take(sign, walk) == 0, take(after, walk), walk)
    beyond = take(sign, walk)
    through = (beyond != take(sign, first)).nonzero()[:, 0]
    return take(zero, through), take(first, through), take(beyond, through)


def _one_each(ends: Ends, falling: Tensor) -> tuple[Ends, Ends, Tensor]:
    """Of each key, of which there are as many falls as rises, the first of both.

    Also the keys, (N,), of which there are more.
    """
    key, order = torch.sort(2 * ends.key + ~falling, stable=True)
    fresh = torch.ones_like(key, dtype=torch.bool)
    torch.ne(key[1:], key[:-1], out=fresh[1:])
    first = fresh.nonzero()[:, 0]
    again = key[~fresh] >> 1 if first.shape[0] < key.shape[0] else key[:0]
    order = take(order, first)
    one = [take(x, order) for x in (ends.key, ends.place, ends.position_error)]
    falls, rises = (Ends(*(x[k::2].contiguous() for x in one)) for k in (0, 1))
    return falls, rises, torch.unique(again) if again.shape[0] else again


def _bare(mesh: Mesh, cuts: EdgeCrossings, drawn: Tensor) -> Tensor:
    """Faces at divided edges in which nothing is drawn."""
    beside = torch.zeros(mesh.num_faces + 1, dtype=torch.bool, device=drawn.device)
    faces = take(mesh.halfedge_face().view(-1, 2), cuts.group_edge).view(-1)
    beside[faces] = True  # -1, outside, is the last
    beside.index_fill_(0, drawn, False)
    return beside[:-1].nonzero()[:, 0]
