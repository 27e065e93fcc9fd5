"""What ``weave`` and ``arrange`` work on: face boundaries, chords, and the lines behind them."""

from __future__ import annotations

from dataclasses import dataclass
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
    "drift_and_error",
    "meet",
]


@dataclass
class FaceBoundaries:
    """Face boundaries: offsets (F + 1,), and the half-edge at each corner (H,)."""

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


@dataclass
class Chords:
    """Chords to draw, (N,): the face, the places p, q of the ends on its boundary, the line."""

    face: Tensor
    p: Tensor
    q: Tensor
    line: Tensor

    def by(self, unit: Tensor) -> Chords:
        """Ordered by face, then by the lines' units (L,), then by line."""
        order = torch.argsort(self.line)
        for key in (take(unit, self.line), self.face):
            order = take(order, torch.argsort(take(key, order), stable=True))
        return self.select(order)

    def select(self, chosen: Tensor) -> Chords:
        return Chords(self.face[chosen], self.p[chosen], self.q[chosen], self.line[chosen])


@dataclass(frozen=True)
class ChordIntervals:
    """Chords in the order of their lower ends, (N,): both ends in the flat boundary, and the line.

    Beside the faces' boundaries, so that face and places within it follow. plain: whether the lines
    are known to be 0, 1, 2, ...
    """

    lo: Tensor
    hi: Tensor
    line: Tensor
    plain: bool = False

    def lines(self, chord: Tensor) -> Tensor:
        """The lines of some of the chords."""
        return chord if self.plain else take(self.line, chord)

    def along(self, values: Tensor) -> Tensor:
        """Of values of the lines (L,) those of the chords, (N,)."""
        return values if self.plain else take(values, self.line)

    def faces(self, loops: FaceBoundaries) -> Tensor:
        """The face of each chord, (N,)."""
        return torch.searchsorted(loops.offsets, self.lo, right=True) - 1

    def chords(self, loops: FaceBoundaries) -> Chords:
        """The same with places within each face."""
        face = self.faces(loops)
        start = take(loops.offsets, face)
        return Chords(face, self.lo - start, self.hi - start, self.line)

    def restrict(self, loops: FaceBoundaries, kept: Tensor) -> ChordIntervals:
        """Only the chords of some of the faces, (K,) ascending, whose boundaries come alone."""
        face = self.faces(loops)
        rank = torch.full_like(loops.offsets, -1)
        rank[kept] = torch.arange(kept.shape[0], device=kept.device)
        rank = take(rank, face)
        chosen = (rank >= 0).nonzero()[:, 0]
        begins = offsets_of(take(loops.sizes(), kept))
        shift = take(take(begins, rank.clamp_(min=0)) - take(loops.offsets, face), chosen)
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
    """The crossings of chords in general position, as one meets them along each chord.

    line: (N,) of each chord, offsets: (N + 1,) its crossings; each crossing is met twice, (2X,):
    other, the line that crosses, and s, the fraction of the chord. The X vertices: chord, the one
    on which the vertex is placed, and place, where it is met there.
    """

    line: Tensor
    offsets: Tensor
    other: Tensor
    s: Tensor
    chord: Tensor
    place: Tensor


class Arrangement:
    """All vertices (V, 2) and edges (E, 2), and what drawing the chords made, part by part.

    Of each new vertex its line and the fraction of it; of each new edge its line; the finished
    faces; the places (N, 2) that rounding could not settle; the crossings of ``weave``, whose
    vertices come first.
    """

    def __init__(self, uv: Tensor, edges: Tensor) -> None:
        self._uv, self._edges = [uv], [edges]
        self.num_vertices, self.num_edges = int(uv.shape[0]), int(edges.shape[0])
        self.vertex_line: list[Tensor] = []
        self.vertex_s: list[Tensor] = []
        self.edge_line: list[Tensor] = []
        self.loops: list[FaceBoundaries] = []
        self.ambiguities: list[Tensor] = []
        self.woven: ChordCrossings | None = None

    def add_vertices(self, uv: Tensor) -> None:
        """More vertices, which are joined to the others when these are asked for."""
        self._uv.append(uv)
        self.num_vertices += uv.shape[0]

    def add_edges(self, edges: Tensor) -> None:
        """More edges."""
        self._edges.append(edges)
        self.num_edges += edges.shape[0]

    @property
    def uv(self) -> Tensor:
        return _joined(self._uv)

    @property
    def edges(self) -> Tensor:
        return _joined(self._edges)


def _joined(parts: list[Tensor]) -> Tensor:
    """All parts as one, which from then on is the only one."""
    if len(parts) > 1:
        parts[:] = [torch.cat([part for part in parts if part.shape[0]] or parts[:1])]
    return parts[0]


def meet(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """Where lines i and j cross, as fractions of i and of j, (2, N), and their rounding errors."""
    # Of j and of i: what a line cuts the other one by is its own direction.
    x, y, dx, dy, error = (part.view(2, -1) for part in _columns(lines, torch.cat([j, i])))
    gx, gy = x[0] - x[1], y[0] - y[1]
    area = dx[1] * dy[0] - dy[1] * dx[0]
    s = (gx * dy).sub_(gy * dx).div_(area).nan_to_num_(nan=0.5).clamp_(0, 1)
    # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
    strip = (error[0] + error[1]).div_(area.abs_()).nan_to_num_(nan=torch.inf)
    return s, (dx * dx).add_(dy * dy).sqrt_().mul_(strip)


def drift_and_error(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """How far the crossing with j may lie elsewhere on i, (N,): with i itself, and with j alone.

    A line i that is off by a little meets all lines j elsewhere at once: at a right angle at the
    same fraction, at other angles by so much earlier or later.
    """
    _, _, ux, uy, own = _columns(lines, i)
    _, _, vx, vy, other = _columns(lines, j)
    area, dot = ux * vy - uy * vx, ux * vx + uy * vy
    length = (ux * ux + uy * uy).sqrt()
    common_shift = own * dot / (area * length)
    error = other * (vx * vx + vy * vy).sqrt() / area.abs()
    return torch.nan_to_num(common_shift, nan=0.0), torch.nan_to_num(error, nan=torch.inf)


def _columns(lines: Lines, index: Tensor) -> tuple[Tensor, ...]:
    """Where lines (N,) start, and their directions, by coordinate; and their errors.

    A third coordinate does not matter: it is the height of a mesh, and the same everywhere.
    """
    if backend_of(index.device).asynchronous:  # in one operation
        return take_each(lines.table, index)
    x, y = take(lines.a[:, 0], index), take(lines.a[:, 1], index)
    dx, dy = take(lines.b[:, 0], index).sub_(x), take(lines.b[:, 1], index).sub_(y)
    return x, y, dx, dy, take(lines.error, index)
