"""What ``weave`` and ``arrange`` work on: face boundaries, chords, and the lines behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from splinecam.ragged import lengths, offsets_of, take, take_rows

__all__ = ["Arrangement", "Chords", "Lines", "Loops", "Woven", "drift_and_error", "meet"]


@dataclass
class Loops:
    """Face boundaries: offsets (F + 1,), and the half-edge at each corner (H,)."""

    offsets: Tensor
    half: Tensor

    def sizes(self) -> Tensor:
        return self.offsets[1:] - self.offsets[:-1]

    def select(self, faces: Tensor) -> Loops:
        entries, counts = take_rows(self.offsets, faces)
        return Loops(offsets_of(counts), self.half[entries])


@dataclass
class Chords:
    """Chords to draw, (N,): the face, the places p, q of the ends on its boundary, the line."""

    face: Tensor
    p: Tensor
    q: Tensor
    line: Tensor

    def select(self, chosen: Tensor) -> Chords:
        return Chords(self.face[chosen], self.p[chosen], self.q[chosen], self.line[chosen])


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

    def length(self) -> Tensor:
        """Length of each line, (L,)."""
        return lengths(self.b - self.a)


@dataclass(frozen=True)
class Woven:
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


@dataclass
class Arrangement:
    """All vertices (V, 2) and edges (E, 2), and what drawing the chords made, part by part.

    Of each new vertex its line and the fraction of it; of each new edge its line; the finished
    faces; the places (N, 2) that rounding could not settle; the crossings of ``weave``, whose
    vertices come first.
    """

    uv: Tensor
    edges: Tensor
    vertex_line: list[Tensor] = field(default_factory=list)
    vertex_s: list[Tensor] = field(default_factory=list)
    edge_line: list[Tensor] = field(default_factory=list)
    loops: list[Loops] = field(default_factory=list)
    doubts: list[Tensor] = field(default_factory=list)
    woven: Woven | None = None


def meet(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where lines i and j cross, as fractions of i and of j, and the rounding errors of those."""
    ai, aj = take(lines.a, i), take(lines.a, j)
    (ux, uy), (vx, vy), (gx, gy) = (
        _in_plane(d) for d in (take(lines.b, i) - ai, take(lines.b, j) - aj, aj - ai)
    )
    area = ux * vy - uy * vx
    s = torch.nan_to_num((gx * vy - gy * vx) / area, nan=0.5).clamp(0, 1)
    t = torch.nan_to_num((gx * uy - gy * ux) / area, nan=0.5).clamp(0, 1)
    # A strip of width w around j, met at the angle of i and j, is |dj| / |area| * w long on i.
    strip = torch.nan_to_num(
        (take(lines.error, i) + take(lines.error, j)) / area.abs(), nan=torch.inf
    )
    return s, t, strip * (vx * vx + vy * vy).sqrt(), strip * (ux * ux + uy * uy).sqrt()


def drift_and_error(lines: Lines, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """How far the crossing with j may lie elsewhere on i, (N,): with i itself, and with j alone.

    A line i that is off by a little meets all lines j elsewhere at once: at a right angle at the
    same fraction, at other angles by so much earlier or later.
    """
    ux, uy = _in_plane(take(lines.b, i) - take(lines.a, i))
    vx, vy = _in_plane(take(lines.b, j) - take(lines.a, j))
    area, dot = ux * vy - uy * vx, ux * vx + uy * vy
    length = (ux * ux + uy * uy).sqrt()
    drift = take(lines.error, i) * dot / (area * length)
    error = take(lines.error, j) * (vx * vx + vy * vy).sqrt() / area.abs()
    return torch.nan_to_num(drift, nan=0.0), torch.nan_to_num(error, nan=torch.inf)


def _in_plane(d: Tensor) -> tuple[Tensor, Tensor]:
    """Both coordinates of differences (N, 2); a third one is zero, as a mesh has one height."""
    return d[:, 0], d[:, 1]
