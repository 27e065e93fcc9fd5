"""Faces that functions cross: their boundaries along the divided edges, and the chords.

The new vertices of all edges are met in the order in which one goes around the faces, so that
nothing needs to be sorted but the columns of faces that more than one function crosses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import entries_of, offsets_of, owners_of, places_in, take
from splinecam._util.tolerances import UV_ERROR
from splinecam.arrangement.chords import ChordIntervals, FaceBoundaries, Lines
from splinecam.arrangement.refinement import TWICE, Ambiguities, EdgeCrossings, Insertion
from splinecam.geometry.subdivision import Mesh

__all__ = ["FaceChords", "Zeros", "cross_faces"]

_INT32 = 1 << 31


@dataclass(frozen=True)
class Zeros:
    """Corners at which functions pass through zero, (N,): corner, column, and blur (N, 2).

    falling: whether they fall there, counter-clockwise around the face.
    """

    corner: Tensor
    column: Tensor
    falling: Tensor
    position_error: Tensor


@dataclass(frozen=True)
class FaceChords:
    """Chords ready to be drawn, (N,): their columns, and which of the ends are their lower ones."""

    drawing: Insertion
    column: Tensor
    ambiguities: list[Ambiguities]
    marks: _Marks
    ends: _Ends
    lower: Tensor

    @property
    def falling(self) -> Tensor:
        """Whether the function of each chord falls at its lower end, (N,)."""
        falling = take(self.marks.falling, take(self.ends.mark, self.lower))
        return falling ^ take(self.ends.backward, self.lower).bool()


@dataclass(frozen=True)
class _Marks:
    """Where functions vanish on edges or at corners, (N,): column, vertex, and uv, blur (N, 2).

    falling: whether they fall there, along the edge or around the face.
    """

    column: Tensor
    falling: Tensor
    vertex: Tensor
    uv: Tensor
    position_error: Tensor


@dataclass(frozen=True)
class _Ends:
    """Marks in the order in which they are met around the faces, (M,).

    place: in the flat boundary; backward: whether the mark's edge is passed from its end, as 0 or
    1. offsets: (K + 1,) those of each face.
    """

    mark: Tensor
    place: Tensor
    backward: Tensor
    offsets: Tensor


def cross_faces(mesh: Mesh, cuts: EdgeCrossings, zeros: Zeros | None, m: int) -> FaceChords:
    """Find the chords of m functions; zeros: where these vanish at corners."""
    beside = take(cuts.extra, mesh.corners >> 1)  # new vertices on the side after each corner
    before = offsets_of(beside)
    counts = take(before, mesh.offsets).diff()
    if zeros is not None:
        owner = torch.searchsorted(mesh.offsets, zeros.corner, right=True) - 1
        counts.scatter_add_(0, owner, torch.ones_like(owner))
    faces = counts.nonzero()[:, 0]
    begin, end = take(mesh.offsets, faces), take(mesh.offsets[1:], faces)
    offsets = offsets_of(end - begin)
    corners, total = torch.stack([offsets[-1], before[-1]]).tolist()
    corner = entries_of(begin, end, offsets, corners)
    extra = take(beside, corner)
    place = offsets_of(extra + 1)  # where each corner stands in the flat boundary
    half = take(mesh.corners, corner)
    boundary, group, at, backward = _walk(mesh, cuts, half, extra, place, total)
    loops = FaceBoundaries(take(place, offsets), boundary)
    marks = _Marks(
        cuts.column, cuts.falling, cuts.group + mesh.num_vertices, cuts.uv, cuts.position_error
    )
    distinct = cuts.distinct and zeros is None
    if distinct:
        met = _Ends(group, at, backward, offsets_of(take(counts, faces)))
    else:
        zero = None if zeros is None else take(place, torch.searchsorted(corner, zeros.corner))
        marks, met = _all_marks(mesh, cuts, marks, zeros, zero, loops, group, at, backward)
    lo, hi, again = _pairs(met, take(marks.column, met.mark), m, distinct)
    ambiguities = [Ambiguities(mesh.means()[faces[again]], TWICE)] if again.shape[0] else []
    both = torch.cat([lo, hi])
    ends, places = (take(x, both).view(2, -1) for x in (met.mark, met.place))
    line = torch.arange(lo.shape[0], device=lo.device)
    spans = ChordIntervals(places[0], places[1], line, plain=True)
    drawing = Insertion(faces, loops, spans, _lines(marks, ends), distinct)
    return FaceChords(drawing, take(marks.column, ends[0]), ambiguities, marks, met, lo)


def _walk(
    mesh: Mesh, cuts: EdgeCrossings, half: Tensor, extra: Tensor, place: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Go around faces: half-edges, new vertices on them, and place of each corner, (C,).

    count: how many new vertices are met.

    Returns the half-edges of the divided boundaries, and the groups (M,) in the order in which they
    are met, their places and whether they are met backwards.
    """
    corners = half.shape[0]
    met = torch.arange(count, device=half.device)
    place = place[:-1]
    owner = owners_of(extra, met.shape[0])
    at = (met + 1).add_(owner)
    back, first = half & 1, take(cuts.first, half >> 1)
    before = place - torch.arange(corners, device=half.device)  # groups met before each corner
    base = (first - before).addcmul_(back, (extra - 1).add_(before, alpha=2))
    backward = take(back, owner)
    group = take(base, owner).add_(met).addcmul_(backward, met, value=-2)
    # Group g begins the piece E + g of its edge, and ends the one before that.
    pieces = 2 * mesh.num_edges
    boundary = half.new_empty(corners + met.shape[0])
    boundary.scatter_(0, at, (pieces - backward).add_(group, alpha=2))
    boundary.scatter_(0, place, torch.add(first, extra).mul_(2).add_(pieces - 1))
    boundary.scatter_(0, torch.addcmul(place, extra, back), half)
    return boundary, group, at, backward


def _all_marks(
    mesh: Mesh,
    cuts: EdgeCrossings,
    hits: _Marks,
    zeros: Zeros | None,
    zero_place: Tensor | None,
    loops: FaceBoundaries,
    group: Tensor,
    place: Tensor,
    backward: Tensor,
) -> tuple[_Marks, _Ends]:
    """The marks where several may share a vertex, and where some are at corners."""
    first = offsets_of(torch.bincount(cuts.group, minlength=cuts.t.shape[0]))
    begin, end = take(first, group), take(first[1:], group)
    mark = entries_of(begin, end, offsets_of(end - begin))
    owner = owners_of(end - begin, mark.shape[0])
    place, backward = take(place, owner), take(backward, owner)
    marks = _Marks(
        hits.column, hits.falling, hits.vertex, take(cuts.uv, cuts.group), hits.position_error
    )
    if zeros is not None and zero_place is not None:
        vertex = take(mesh.edges.view(-1), take(mesh.corners, zeros.corner))
        more = (zeros.column, zeros.falling, vertex, take(mesh.uv, vertex), zeros.position_error)
        index = torch.arange(vertex.shape[0], device=vertex.device) + marks.column.shape[0]
        marks = _Marks(*(torch.cat(x) for x in zip(vars(marks).values(), more, strict=True)))
        mark, backward = torch.cat([mark, index]), torch.cat([backward, torch.zeros_like(index)])
        place, order = torch.sort(torch.cat([place, zero_place]), stable=True)
        mark, backward = take(mark, order), take(backward, order)
    face = torch.searchsorted(loops.offsets, place, right=True) - 1
    counts = torch.bincount(face, minlength=loops.count)
    return marks, _Ends(mark, place, backward, offsets_of(counts))


def _pairs(ends: _Ends, column: Tensor, m: int, distinct: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The two ends of each chord, in the order of the first, (N,) each.

    Around a face signs alternate, so that a column's ends come in pairs. Also the faces in which
    there is more than one pair of some column.
    """
    index = torch.arange(column.shape[0], device=column.device)
    begin, end = ends.offsets[:-1], ends.offsets[1:]
    counts = end - begin
    if distinct and not backend_of(column.device).asynchronous:  # two marks alone are a pair
        several = (counts > 2).nonzero()[:, 0]
        begin, end, counts = (take(x, several) for x in (begin, end, counts))
        entry = entries_of(begin, end, offsets_of(counts))
        column = take(column, entry)
    else:
        several, entry = index[: counts.shape[0]], index
    key = torch.add(column, owners_of(counts, entry.shape[0]), alpha=m)
    key, order = torch.sort(key.int() if several.shape[0] * m < _INT32 else key, stable=True)
    entry = take(entry, order)
    one, two = entry[0::2], entry[1::2]
    mate = (index ^ 1).scatter_(0, one, two).scatter_(0, two, one)
    lo = places_in(mate > index, index.shape[0] // 2)
    again = (key[2::2] == key[:-2:2]).nonzero()[:, 0]
    if again.shape[0]:
        again = take(several, key[2 * again].long() // m)
    return lo, take(mate, lo), again


def _lines(marks: _Marks, ends: Tensor) -> Lines:
    """The lines between marks, (2, N).

    Across a line both ends are blurred by error / |gradient|; the estimate is the better the more
    steeply the line meets the edge, so the smaller one counts.
    """
    flat = ends.view(-1)
    a, b = take(marks.uv, flat).view(2, -1, marks.uv.shape[1])
    x, y = b[:, 0] - a[:, 0], b[:, 1] - a[:, 1]
    length = (x * x + y * y).sqrt_().clamp_(min=UV_ERROR)
    along, aside = (
        take(position_error, flat).view(2, -1)
        for position_error in marks.position_error[:, :2].unbind(1)
    )
    across = (along * y).sub_(aside * x).abs_()
    error = torch.minimum(*across).div_(length).add_(UV_ERROR)
    start, end = take(marks.vertex, flat).view(2, -1)
    return Lines(start, end, a, b, error)
