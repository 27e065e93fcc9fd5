"""Face boundaries, the chords that cut faces, and the straight lines behind the chords."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import lengths, offsets_of, take, take_each, take_rows

__all__ = [
    "Arrangement",
    "ChordCrossings",
    "ChordIntervals",
    "Chords",
    "FaceBoundaries",
    "Lines",
    "common_shift_and_error",
    "meet",
]


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
class Chords:
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

    def select(self, chosen: Tensor) -> Chords:
        return Chords(*(part[chosen] for part in vars(self).values()))

    @classmethod
    def join(cls, *parts: Chords) -> Chords:
        return cls(*map(torch.cat, zip(*(vars(part).values() for part in parts), strict=True)))


@dataclass(frozen=True)
class ChordIntervals:
    """Chords as intervals of the flat face boundaries, (N,): lower end, upper end, and line.

    Intervals are ordered by their lower ends. numbered: whether the lines are 0, 1, 2, ...
    """

    lo: Tensor
    hi: Tensor
    line: Tensor
    numbered: bool = False

    def lines(self, chord: Tensor) -> Tensor:
        """The lines of some of the chords."""
        return chord if self.numbered else take(self.line, chord)

    def of_lines(self, values: Tensor) -> Tensor:
        """The values of the chords, (N,), given those of the lines, (L,)."""
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
class Lines:
    """The straight lines behind the chords: end vertices (L,) and their coordinates (L, 2).

    error: (L,) half the width of the strip in which rounding lets the line lie.
    """

    start: Tensor
    end: Tensor
    a: Tensor
    b: Tensor
    error: Tensor

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
    """The crossings of chords in general position, in order along each chord.

    line: (N,) of each chord; offsets: (N + 1,) its crossings. Each crossing occurs on two chords,
    (2X,): other, the line that crosses, and s, the fraction of the chord. Per vertex, (X,): chord,
    the one that it is placed on, and place, its number among the (2X,).
    """

    line: Tensor
    offsets: Tensor
    other: Tensor
    s: Tensor
    chord: Tensor
    place: Tensor


@dataclass
class Arrangement:
    """All vertices (V, 2) and edges (E, 2) so far, and what the insertion of chords adds.

    vertex_line, vertex_s: of each new vertex its line and the fraction of it; edge_line: of each
    new edge its line; faces: the finished faces; ambiguities: places (N, 2) that rounding leaves
    undecided; crossings: those of chords in general position, whose vertices come first.
    """

    vertex_parts: list[Tensor]
    edge_parts: list[Tensor]
    vertex_line: list[Tensor] = field(default_factory=list)
    vertex_s: list[Tensor] = field(default_factory=list)
    edge_line: list[Tensor] = field(default_factory=list)
    faces: list[FaceBoundaries] = field(default_factory=list)
    ambiguities: list[Tensor] = field(default_factory=list)
    crossings: ChordCrossings | None = None

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


def meet(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Where lines i and j cross, as fractions of i and of j, (2, N), and their rounding errors."""
    # Of j and of i: a line divides the other one by its own direction.
    x, y, dx, dy, error = (part.view(2, -1) for part in _columns(lines, torch.cat([j, i])))
    gx, gy = x[0] - x[1], y[0] - y[1]
    area = dx[1] * dy[0] - dy[1] * dx[0]
    s = (gx * dy).sub_(gy * dx).div_(area).nan_to_num_(nan=0.5).clamp_(0, 1)
    # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
    strip = (error[0] + error[1]).div_(area.abs_()).nan_to_num_(nan=torch.inf)
    return s, (dx * dx).add_(dy * dy).sqrt_().mul_(strip)


def common_shift_and_error(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """How far the crossing with j may move along i, (N,): together with i, and with j alone.

    A line i that is off its place meets all lines j elsewhere at once: at a right angle at the same
    fraction, at other angles earlier or later.
    """
    _, _, ux, uy, own = _columns(lines, i)
    _, _, vx, vy, other = _columns(lines, j)
    area, dot = ux * vy - uy * vx, ux * vx + uy * vy
    length = (ux * ux + uy * uy).sqrt()
    common_shift = own * dot / (area * length)
    error = other * (vx * vx + vy * vy).sqrt() / area.abs()
    return torch.nan_to_num(common_shift, nan=0.0), torch.nan_to_num(error, nan=torch.inf)


def _columns(lines: Lines, index: Tensor) -> tuple[Tensor, ...]:
    """Start (x, y), direction (dx, dy) and error of lines (N,), each (N,).

    A third coordinate does not matter: it is the height of a mesh, and the same everywhere.
    """
    if backend_of(index.device).asynchronous:  # in one operation
        return take_each(lines.table, index)
    x, y = take(lines.a[:, 0], index), take(lines.a[:, 1], index)
    dx, dy = take(lines.b[:, 0], index).sub_(x), take(lines.b[:, 1], index).sub_(y)
    return x, y, dx, dy, take(lines.error, index)
