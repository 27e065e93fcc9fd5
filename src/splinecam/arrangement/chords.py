"""The chords along which functions vanish in faces, and the straight lines behind them.

The new vertices of all edges are listed in their order around the faces. So nothing is sorted but
the columns in faces that more than one function crosses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import (
    Columns,
    counts_of,
    entries_of,
    lengths,
    offsets_of,
    owners_of,
    places_in,
    take,
    take_each,
    take_rows,
)
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import UV_ERROR
from splinecam.arrangement.crossings import TWICE, Ambiguities, EdgeCrossings
from splinecam.geometry.subdivision import Mesh


@dataclass(frozen=True)
class FaceBoundaries:
    """Boundaries of F faces: offsets (F + 1,), and the half-edge at each corner (H,)."""

    offsets: Tensor
    half: Tensor

    @property
    def count(self) -> int:
        return int(self.offsets.shape[0]) - 1

    def sizes(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def select(self, faces: Tensor) -> FaceBoundaries:
        entries, counts = take_rows(self.offsets, faces)
        return FaceBoundaries(offsets_of(counts), self.half[entries])


@dataclass(frozen=True)
class Chords(Columns):
    """Chords, (N,): the face, the places p, q of both ends on the face's boundary, the line."""

    face: Tensor
    p: Tensor
    q: Tensor
    line: Tensor

    def sorted_by(self, unit: Tensor) -> Chords:
        """The chords ordered by face, then by the units (L,) of their lines, then by line."""
        order = torch.argsort(self.line)
        for key in (take(unit, self.line), self.face):
            order = take(order, torch.argsort(take(key, order), stable=True))
        return self.select(order)


@dataclass(frozen=True)
class ChordIntervals:
    """Chords as intervals of the flat face boundaries, (N,), ordered by their lower ends."""

    lo: Tensor  # the lower end
    hi: Tensor  # the upper end
    line: Tensor
    numbered: bool = False  # whether the lines are 0, 1, 2, ...

    def lines(self, chord: Tensor) -> Tensor:
        """The lines of some of the chords."""
        return chord if self.numbered else take(self.line, chord)

    def of_lines(self, values: Tensor) -> Tensor:
        """The values of the chords, (N,), from the values of the lines, (L,)."""
        return values if self.numbered else take(values, self.line)

    def faces(self, boundaries: FaceBoundaries) -> Tensor:
        """The face of each chord, (N,)."""
        return torch.searchsorted(boundaries.offsets, self.lo, right=True) - 1

    def chords(self, boundaries: FaceBoundaries) -> Chords:
        """The chords with places within the boundary of each face."""
        face = self.faces(boundaries)
        start = take(boundaries.offsets, face)
        return Chords(face, self.lo - start, self.hi - start, self.line)

    def restrict(self, boundaries: FaceBoundaries, kept: Tensor) -> ChordIntervals:
        """The chords of some faces, (K,) ascending, on the boundaries of these faces alone."""
        face = self.faces(boundaries)
        rank = torch.full_like(boundaries.offsets, -1)
        rank[kept] = torch.arange(kept.shape[0], device=kept.device)
        rank = take(rank, face)
        chosen = (rank >= 0).nonzero()[:, 0]
        begins = offsets_of(take(boundaries.sizes(), kept))
        shift = take(take(begins, rank.clamp_(min=0)) - take(boundaries.offsets, face), chosen)
        lo, hi = (take(place, chosen) + shift for place in (self.lo, self.hi))
        return ChordIntervals(lo, hi, take(self.line, chosen))


@dataclass(frozen=True)
class ChordLines:
    """The straight lines behind the chords."""

    start: Tensor  # (L,) end vertices
    end: Tensor  # (L,)
    a: Tensor  # (L, 2) their coordinates
    b: Tensor  # (L, 2)
    error: Tensor  # (L,) half the width of the strip in which the line lies

    def point(self, line: Tensor, s: Tensor) -> Tensor:
        """Points (N, 2) at the fractions s of some lines."""
        return torch.lerp(take(self.a, line), take(self.b, line), s[:, None])

    @cached_property
    def length(self) -> Tensor:
        """Length of each line, (L,)."""
        return lengths(self.b - self.a)

    @cached_property
    def table(self) -> Tensor:
        """Start, direction and error of each line, (5, L)."""
        start, direction = self.a[:, :2].T, (self.b - self.a)[:, :2].T
        return torch.cat([start, direction, self.error[None]])


@dataclass(frozen=True)
class ChordCrossings:
    """X crossings of N chords in general position, in order along each chord."""

    line: Tensor  # (N,) of each chord
    offsets: Tensor  # (N + 1,) its crossings
    other: Tensor  # (2X,) the line that crosses
    s: Tensor  # (2X,) the fraction of the chord
    chord: Tensor  # (X,) on which a vertex is placed
    place: Tensor  # (X,) its number among the (2X,)


@dataclass
class Arrangement:
    """All vertices (V, 2) and edges (E, 2) so far, and what the insertion of chords adds."""

    vertex_parts: list[Tensor]
    edge_parts: list[Tensor]
    vertex_line: list[Tensor] = field(default_factory=list)  # of new vertices
    vertex_s: list[Tensor] = field(default_factory=list)  # the fraction of the line
    edge_line: list[Tensor] = field(default_factory=list)  # of new edges
    faces: list[FaceBoundaries] = field(default_factory=list)  # the finished ones
    ambiguities: list[Tensor] = field(default_factory=list)  # places (N, 2) that are undecided
    crossings: ChordCrossings | None = None  # in general position; their vertices come first

    @property
    def num_vertices(self) -> int:
        return sum(int(part.shape[0]) for part in self.vertex_parts)

    @property
    def num_edges(self) -> int:
        return sum(int(part.shape[0]) for part in self.edge_parts)

    @property
    def uv(self) -> Tensor:
        return _joined(self.vertex_parts)

    @property
    def edges(self) -> Tensor:
        return _joined(self.edge_parts)


def _joined(parts: list[Tensor]) -> Tensor:
    """All parts as one tensor, which replaces the parts."""
    if len(parts) > 1:
        parts[:] = [torch.cat([part for part in parts if part.shape[0]] or parts[:1])]
    return parts[0]


def meet(lines: ChordLines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Where lines i and j cross, as fractions of i and of j, (2, N), and their rounding errors."""
    # First j, then i: a line divides the other one by its own direction.
    x, y, dx, dy, error = (part.view(2, -1) for part in _columns(lines, torch.cat([j, i])))
    gx, gy = x[0] - x[1], y[0] - y[1]
    area = dx[1] * dy[0] - dy[1] * dx[0]
    s = (gx * dy).sub_(gy * dx).div_(area).nan_to_num_(nan=0.5).clamp_(0, 1)
    # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
    strip = (error[0] + error[1]).div_(area.abs_()).nan_to_num_(nan=torch.inf)
    return s, (dx * dx).add_(dy * dy).sqrt_().mul_(strip)


def common_shift_and_error(lines: ChordLines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """How far the crossing with j may move along i, (N,): together with i, and with j alone."""
    _, _, ux, uy, own = _columns(lines, i)
    _, _, vx, vy, other = _columns(lines, j)
    area, dot = ux * vy - uy * vx, ux * vx + uy * vy
    common_shift = own * dot / (area * (ux * ux + uy * uy).sqrt())
    error = other * (vx * vx + vy * vy).sqrt() / area.abs()
    return torch.nan_to_num(common_shift, nan=0.0), torch.nan_to_num(error, nan=torch.inf)


def _columns(lines: ChordLines, index: Tensor) -> tuple[Tensor, ...]:
    """Start (x, y), direction (dx, dy) and error of lines (N,); a third coordinate is constant."""
    if backend_of(index.device).asynchronous:  # in one operation
        return take_each(lines.table, index)
    x, y = take(lines.a[:, 0], index), take(lines.a[:, 1], index)
    dx, dy = take(lines.b[:, 0], index).sub_(x), take(lines.b[:, 1], index).sub_(y)
    return x, y, dx, dy, take(lines.error, index)


_INT32 = 1 << 31


@dataclass(frozen=True)
class Zeros(Columns):
    """Corners at which functions pass through zero, (N,)."""

    corner: Tensor
    column: Tensor
    falling: Tensor  # whether they fall there, counter-clockwise around the face
    position_error: Tensor  # (N, 2)


@dataclass(frozen=True)
class FaceChords:
    """N chords in K faces, which they cut or whose edges are divided."""

    faces: Tensor  # (K,) ascending
    boundaries: FaceBoundaries  # of these faces along the divided edges
    intervals: ChordIntervals
    lines: ChordLines  # behind the chords
    column: Tensor  # (N,) the functions
    falling: Tensor  # (N,) whether the function falls at the chord's lower end
    distinct: bool  # whether no two chords can meet the boundary at one place
    ambiguities: list[Ambiguities]

    @property
    def old_corners(self) -> int | None:
        """How many corners the faces had, if each chord is known to have added two."""
        count = self.boundaries.half.shape[0] - 2 * self.intervals.lo.shape[0]
        return count if self.distinct else None

    def chord_faces(self) -> Tensor:
        """For each chord its place among the K faces, (N,) ascending."""
        return self.intervals.faces(self.boundaries)


@dataclass(frozen=True)
class _Marks(Columns):
    """Where functions vanish on edges or at corners, (N,)."""

    column: Tensor
    falling: Tensor  # along the edge, or around the face
    vertex: Tensor
    uv: Tensor  # (N, 2)
    position_error: Tensor  # (N, 2)


@dataclass(frozen=True)
class _Ends:
    """Marks in their order around the faces, (M,)."""

    mark: Tensor
    place: Tensor  # in the flat boundaries
    backward: Tensor  # 1 if the face passes the mark's edge from its end, else 0
    offsets: Tensor  # (K + 1,) the marks of each face


def find_chords(
    mesh: Mesh, crossings: EdgeCrossings, zeros: Zeros | None, m: int, wanted: Tensor | None = None
) -> FaceChords:
    """The chords of m functions; wanted: (N,) ascending, face * m + column of the only ones."""
    at_side = take(crossings.counts, mesh.corners >> 1)  # new vertices on the side after a corner
    before = offsets_of(at_side)
    counts = take(before, mesh.offsets).diff()
    if zeros is not None:
        owner = torch.searchsorted(mesh.offsets, zeros.corner, right=True) - 1
        counts.scatter_add_(0, owner, torch.ones_like(owner))
    faces = counts.nonzero()[:, 0]
    begin, end = take(mesh.offsets, faces), take(mesh.offsets[1:], faces)
    offsets = offsets_of(end - begin)
    corners, total = torch.stack([offsets[-1], before[-1]]).tolist()
    corner = entries_of(begin, end, offsets, corners)
    around = _Outlines.of(mesh, crossings, corner, take(at_side, corner), total)
    boundaries = FaceBoundaries(take(around.corner_place, offsets), around.half)
    once = wanted is not None
    distinct = crossings.distinct and zeros is None and not once
    if distinct:
        marks = _edge_marks(mesh, crossings)
        ends = _Ends(around.point, around.place, around.backward, offsets_of(take(counts, faces)))
    else:
        marks, ends = _all_ends(mesh, crossings, zeros, around, boundaries)
        if wanted is not None:
            ends = _wanted_ends(ends, faces, take(marks.column, ends.mark), m, wanted)
    lo, hi, twice = _pairs(ends, take(marks.column, ends.mark), m, distinct=distinct, once=once)
    both = torch.cat([lo, hi])
    mark, place = (take(x, both).view(2, -1) for x in (ends.mark, ends.place))
    line = torch.arange(lo.shape[0], device=lo.device)
    return FaceChords(
        faces,
        boundaries,
        ChordIntervals(place[0], place[1], line, numbered=True),
        _lines(marks, mark),
        column=take(marks.column, mark[0]),
        falling=take(marks.falling, mark[0]) ^ take(ends.backward, lo).bool(),
        distinct=distinct,
        ambiguities=[Ambiguities(mesh.means()[faces[twice]], TWICE)] if twice.shape[0] else [],
    )


# -- around the faces -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outlines:
    """The boundaries of some faces along the divided edges, one after the other."""

    half: Tensor  # the half-edges
    corner: Tensor  # (C,) the old corners
    corner_place: Tensor  # (C + 1,) their places
    point: Tensor  # (M,) the new vertices, in their order around the faces
    place: Tensor  # (M,)
    backward: Tensor  # (M,) 1 if the face passes the edge from its end, else 0

    @classmethod
    def of(
        cls, mesh: Mesh, crossings: EdgeCrossings, corner: Tensor, at_side: Tensor, total: int
    ) -> _Outlines:
        """The boundaries from corners (C,); at_side: (C,) of ``total`` new vertices after each."""
        half, count = take(mesh.corners, corner), corner.shape[0]
        corner_place = offsets_of(at_side + 1)
        start = corner_place[:-1]
        met = torch.arange(total, device=half.device)
        owner = owners_of(at_side, total)
        place = (met + 1).add_(owner)
        back, first = half & 1, take(crossings.first, half >> 1)
        before = start - torch.arange(count, device=half.device)  # points met before each corner
        base = (first - before).addcmul_(back, (at_side - 1).add_(before, alpha=2))
        backward = take(back, owner)
        point = take(base, owner).add_(met).addcmul_(backward, met, value=-2)
        # Point g begins the piece E + g of its edge, and ends the piece before that.
        pieces = 2 * mesh.num_edges
        boundary = half.new_empty(count + total)
        boundary.scatter_(0, place, (pieces - backward).add_(point, alpha=2))
        boundary.scatter_(0, start, torch.add(first, at_side).mul_(2).add_(pieces - 1))
        boundary.scatter_(0, torch.addcmul(start, at_side, back), half)
        return cls(boundary, corner, corner_place, point, place, backward)


def _edge_marks(mesh: Mesh, crossings: EdgeCrossings) -> _Marks:
    """The marks on edges; each is at the point of its own number if crossings are distinct."""
    points = crossings.points
    uv = points.uv if crossings.distinct else take(points.uv, crossings.point)
    vertex = crossings.point + mesh.num_vertices
    return _Marks(crossings.column, crossings.falling, vertex, uv, crossings.position_error)


def _all_ends(
    mesh: Mesh,
    crossings: EdgeCrossings,
    zeros: Zeros | None,
    around: _Outlines,
    boundaries: FaceBoundaries,
) -> tuple[_Marks, _Ends]:
    """The marks where several may share a vertex, and where some are at corners."""
    first = offsets_of(counts_of(crossings.point, crossings.points.count))
    begin, end = take(first, around.point), take(first[1:], around.point)
    mark = entries_of(begin, end, offsets_of(end - begin))
    owner = owners_of(end - begin, mark.shape[0])
    place, backward = take(around.place, owner), take(around.backward, owner)
    marks = _edge_marks(mesh, crossings)
    if zeros is not None:
        vertex = take(mesh.edges.view(-1), take(mesh.corners, zeros.corner))
        at = take(around.corner_place, torch.searchsorted(around.corner, zeros.corner))
        uv, error = take(mesh.uv, vertex), zeros.position_error
        index = torch.arange(vertex.shape[0], device=vertex.device) + marks.column.shape[0]
        marks = _Marks.join(marks, _Marks(zeros.column, zeros.falling, vertex, uv, error))
        mark, backward = torch.cat([mark, index]), torch.cat([backward, torch.zeros_like(index)])
        place, order = torch.sort(torch.cat([place, at]), stable=True)
        mark, backward = take(mark, order), take(backward, order)
    face = torch.searchsorted(boundaries.offsets, place, right=True) - 1
    return marks, _Ends(mark, place, backward, offsets_of(counts_of(face, boundaries.count)))


def _wanted_ends(ends: _Ends, faces: Tensor, column: Tensor, m: int, wanted: Tensor) -> _Ends:
    """The ends, with columns (M,), of the wanted chords face * m + column, (N,) ascending."""
    owner = owners_of(ends.offsets.diff(), column.shape[0])
    key = torch.add(column, take(faces, owner), alpha=m)
    near = torch.searchsorted(wanted, key).clamp_(max=wanted.shape[0] - 1)
    kept = (take(wanted, near) == key).nonzero()[:, 0]
    mark, place, backward = (take(x, kept) for x in (ends.mark, ends.place, ends.backward))
    counts = counts_of(take(owner, kept), faces.shape[0])
    return _Ends(mark, place, backward, offsets_of(counts))


# -- chords -----------------------------------------------------------------------------------


def _pairs(
    ends: _Ends, column: Tensor, m: int, *, distinct: bool, once: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The two ends (N,) of each chord, and the faces in which a column has several pairs."""
    # The ends of a column (M,) come in pairs, as signs alternate around a face. If ``once``, only
    # the first pair counts.
    index = torch.arange(column.shape[0], device=column.device)
    begin, end = ends.offsets[:-1], ends.offsets[1:]
    counts = end - begin
    if distinct and not backend_of(column.device).asynchronous:  # two ends alone are a pair
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
    again = (key[2::2] == key[:-2:2]).nonzero()[:, 0]
    chords, twice = index.shape[0] // 2, again
    if again.shape[0]:
        twice = take(several, key[2 * again].long() // m)
        if once:  # an end that is its own mate begins no chord
            chords -= again.shape[0]
            for end in (one[again + 1], two[again + 1]):
                mate[end] = end
    lo = places_in(mate > index, chords)
    return lo, take(mate, lo), twice


def _lines(marks: _Marks, ends: Tensor) -> ChordLines:
    """The lines between marks, (2, N)."""
    flat = ends.view(-1)
    a, b = take(marks.uv, flat).view(2, -1, marks.uv.shape[1])
    x, y = b[:, 0] - a[:, 0], b[:, 1] - a[:, 1]
    length = (x * x + y * y).sqrt_().clamp_(min=UV_ERROR)
    error_x, error_y = (take(part, flat).view(2, -1) for part in marks.position_error[:, :2].T)
    across = (error_x * y).sub_(error_y * x).abs_()
    # Across a line both ends are off by error / |gradient| at most; the better estimate counts.
    error = torch.minimum(*across).div_(length).add_(UV_ERROR)
    start, end = take(marks.vertex, flat).view(2, -1)
    return ChordLines(start, end, a, b, error)
