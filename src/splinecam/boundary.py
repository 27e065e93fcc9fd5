r"""Where the network's decision changes: exact segments, computed region by region.

On a region every output is affine, so its values at the corners say everything: where one output
wins at all corners it wins everywhere, and the tie of two outputs is one chord, of which the part
is kept on which no third output is larger.

        1-----1
       /     . \       Corners marked with the output that wins there:
      1    .    2      the chord of the pair (1, 2) is the boundary.
       \ .     /
        2-----2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from splinecam.predicates import EPS, SAFETY
from splinecam.ragged import offsets_of, owners_of, places_of, take_rows

__all__ = ["WinnerCells", "boundary_segments", "winner_cells"]


class Faces(Protocol):
    """What is needed of a partition: its faces, the outputs at their corners, their errors (n,)."""

    @property
    def vertices(self) -> Tensor: ...
    @property
    def face_offsets(self) -> Tensor: ...
    @property
    def face_vertices(self) -> Tensor: ...
    @property
    def values(self) -> Tensor: ...
    @property
    def value_error(self) -> Tensor: ...


def boundary_segments(part: Faces, level: float = 0.0) -> Tensor:
    """The decision boundary as segments ``(S, 2, 2)`` in plane coordinates.

    One output: where it equals ``level``. Several: where the two largest tie. Of a tie that fills
    an area, the edge of that area is returned.
    """
    scene = _scene(part, level)
    inside, along = scene.split()
    return torch.cat([scene.chords(inside), scene.borders(along)])


@dataclass(frozen=True)
class WinnerCells:
    """Convex cells on each of which one output wins: the regions, split by the boundary.

    Corners ``uv: (H, 2)`` in CSR form with ``offsets: (C + 1,)``; per cell its region ``face``, the
    ``winner`` and by how much it wins at the corners' mean, ``lead``, all (C,).
    """

    uv: Tensor
    offsets: Tensor
    face: Tensor
    winner: Tensor
    lead: Tensor


def winner_cells(part: Faces, level: float = 0.0) -> WinnerCells:
    """The regions split where the winning output changes; winner 1 is above ``level``, 0 below."""
    scene = _scene(part, level)
    inside, _ = scene.split()
    counts = scene.offsets[1:] - scene.offsets[:-1]
    whole = torch.ones_like(counts, dtype=torch.bool).index_fill_(0, inside, False)
    faces = whole.nonzero().squeeze(1)
    entries, count = take_rows(scene.offsets, faces)
    vertex, row = scene.corner[entries], owners_of(count)
    votes = scene.z.new_zeros(len(faces), scene.z.shape[1])
    # The mean decides for a face on which one output wins or ties at every corner.
    mean = votes.index_add_(0, row, scene.z[vertex]) / count[:, None]
    best = mean.topk(2, 1)
    cut = scene.winner_parts(inside)
    return WinnerCells(
        torch.cat([scene.uv[vertex], cut.uv]),
        offsets_of(torch.cat([count, cut.offsets[1:] - cut.offsets[:-1]])),
        torch.cat([faces, cut.face]),
        torch.cat([best.indices[:, 0], cut.winner]),
        torch.cat([best.values[:, 0] - best.values[:, 1], cut.lead]),
    )


def _scene(part: Faces, level: float) -> _Scene:
    z = part.values
    if z.shape[1] == 1:
        z = torch.cat([torch.zeros_like(z), z - level], 1)
    scale = max(float(z.abs().max()), abs(level)) if len(z) else 0.0
    error = 2 * (float(part.value_error.max()) + EPS * scale)
    return _Scene(part.vertices, part.face_offsets, part.face_vertices, z, SAFETY * error)


@dataclass(frozen=True)
class _Scene:
    """uv: (V, 2), faces in CSR form, outputs z: (V, n), and how close two outputs are a tie."""

    uv: Tensor
    offsets: Tensor
    corner: Tensor
    z: Tensor
    tol: float

    def split(self) -> tuple[Tensor, Tensor]:
        """Faces that the boundary runs through, and faces with ties at two corners or more."""
        best, winner = self.z.max(1)
        tied = (self.z >= best[:, None] - self.tol).sum(1) > 1
        counts = self.offsets[1:] - self.offsets[:-1]
        face = owners_of(counts)
        first = winner[self.corner[self.offsets[:-1]]][face]
        mixed = torch.zeros_like(counts).index_add_(
            0, face, ((winner[self.corner] != first) | tied[self.corner]).long()
        )
        faces = mixed.nonzero().squeeze(1)
        if not len(faces):
            return faces, faces
        # A face with one winner at all corners, ties included, has no boundary inside.
        alone = ~(self._common(faces) > 0)
        ties = torch.zeros_like(counts).index_add_(0, face, tied[self.corner].long())
        return faces[alone], (ties > 1).nonzero().squeeze(1)

    def _winners(self, vertex: Tensor) -> Tensor:
        """Which outputs are largest, ties included: (N, n)."""
        z = self.z[vertex]
        return z >= z.amax(1, keepdim=True) - self.tol

    def _common(self, faces: Tensor) -> Tensor:
        """How many outputs win at all corners of each face."""
        entries, counts = take_rows(self.offsets, faces)
        wins = self._winners(self.corner[entries])
        votes = torch.zeros(len(faces), wins.shape[1], dtype=torch.int64, device=wins.device)
        votes.index_add_(0, owners_of(counts), wins.long())
        return (votes == counts[:, None]).sum(1)

    def borders(self, faces: Tensor) -> Tensor:
        """Region edges along which outputs tie that differ in a region beside it."""
        entries, counts = take_rows(self.offsets, faces)
        a = self.corner[entries]
        b = self.corner[_following(entries, counts)]
        shared = self._winners(a) & self._winners(b)
        chosen = (shared.sum(1) > 1).nonzero().squeeze(1)
        a, b, shared = a[chosen], b[chosen], shared[chosen]
        entries, counts = take_rows(self.offsets, faces[owners_of(counts)[chosen]])
        z, row = self.z[self.corner[entries]], owners_of(counts)
        high = torch.where(shared[row], z, -torch.inf).amax(1)
        low = torch.where(shared[row], z, torch.inf).amin(1)
        apart = torch.zeros_like(a).index_add_(0, row, (high - low > self.tol).long()) > 0
        pair = torch.stack([torch.minimum(a, b), torch.maximum(a, b)], 1)[apart]
        return self.uv[torch.unique(pair, dim=0)]

    def chords(self, faces: Tensor) -> Tensor:
        """The boundary inside the given faces: for each pair of outputs the tie, then clipped."""
        pairs = self._pairs(faces)
        ends = self._ends(pairs)
        kept = ends.found
        start, stop = self._clip(pairs, ends)
        kept = kept & (stop - start > SAFETY * EPS)
        p, q = self._at(ends.p), self._at(ends.q)
        direction = q - p
        segments = torch.stack([p + start[:, None] * direction, p + stop[:, None] * direction], 1)
        # Unclipped ends stay bit-equal to those of the neighbouring region.
        segments[:, 1] = torch.where((stop == 1)[:, None], q, segments[:, 1])
        return segments[kept]

    def _pairs(self, faces: Tensor) -> _Pairs:
        """All pairs i < j of outputs that can win somewhere in a face."""
        entries, counts = take_rows(self.offsets, faces)
        z, face = self.z[self.corner[entries]], owners_of(counts)
        shape = (len(faces), z.shape[1])
        index = face[:, None].expand_as(z)
        low = z.new_full(shape, torch.inf).scatter_reduce_(0, index, z, "amin")
        high = z.new_full(shape, -torch.inf).scatter_reduce_(0, index, z, "amax")
        rivals = high >= low.amax(1, keepdim=True) - self.tol
        row, output = rivals.nonzero(as_tuple=True)
        start = offsets_of(rivals.sum(1))
        partner, count = take_rows(start, row)
        first = owners_of(count)
        ordered = output[first] < output[partner]
        first, partner = first[ordered], partner[ordered]
        return _Pairs(faces[row[first]], row[first], output[first], output[partner], start, output)

    def _ends(self, pairs: _Pairs) -> _Ends:
        """Where the tie of each pair meets the border of its face."""
        entries, counts = take_rows(self.offsets, pairs.face)
        pair = owners_of(counts)
        a, b = self.corner[entries], self.corner[_following(entries, counts)]
        i, j = pairs.i[pair], pairs.j[pair]
        ga, gb = self.z[a, i] - self.z[a, j], self.z[b, i] - self.z[b, j]
        ga, gb = self._snap(ga), self._snap(gb)
        hit = (ga == 0) | (ga * gb < 0)
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        # From the smaller vertex on: both faces of an edge compute the same point.
        g_low, g_high = torch.where(a < b, ga, gb), torch.where(a < b, gb, ga)
        t = torch.where(ga * gb < 0, g_low / (g_low - g_high), (a != low).to(ga.dtype))
        places = places_of(counts, pair, offsets_of(counts))
        end = (low, high, t)
        size = ga.abs()
        p = _best(pair, torch.where(hit, -places.to(ga.dtype), -torch.inf), len(counts))
        at = self._at(end)
        distance = torch.linalg.vector_norm(at - at[p][pair], dim=1)
        q = _best(pair, torch.where(hit, distance, -torch.inf), len(counts))
        signs = torch.zeros(2, len(counts), dtype=torch.int64, device=a.device)
        signs[0].index_add_(0, pair, (ga > 0).long())
        signs[1].index_add_(0, pair, (ga < 0).long())
        found = (signs > 0).all(0) & hit[p] & hit[q] & (p != q)
        off = a[_best(pair, size, len(counts))]
        return _Ends(_pick(end, p), _pick(end, q), off, found)

    def _clip(self, pairs: _Pairs, ends: _Ends) -> tuple[Tensor, Tensor]:
        """The part of each chord, as fractions, on which no third output is larger."""
        rival, counts = take_rows(pairs.start, pairs.row)
        pair = owners_of(counts)
        other, i, j = pairs.rival[rival], pairs.i[pair], pairs.j[pair]
        h0 = self._snap(self._lead(_pick(ends.p, pair), i, other))
        h1 = self._snap(self._lead(_pick(ends.q, pair), i, other))
        cross = h0 / torch.where(h0 == h1, 1, h0 - h1)
        enters, leaves = (h0 < 0) & (h1 > 0), (h0 > 0) & (h1 < 0)
        third = (other != i) & (other != j)
        never = third & ~enters & ~leaves & ((h0 < 0) | (h1 < 0))
        # Of several pairs that tie along the same chord only the first is drawn.
        off = ends.off[pair]
        differs = (self.z[off, other] - self.z[off, i]).abs() > self.tol
        tied = third & (h0 == 0) & (h1 == 0)
        never |= tied & ((other < i) | ((other < j) & differs))
        start = torch.where(third & enters, cross, torch.where(never, torch.inf, 0.0))
        stop = torch.where(third & leaves, cross, 1.0)
        size = len(pairs.face)
        lo = start.new_zeros(size).scatter_reduce_(0, pair, start, "amax")
        hi = stop.new_ones(size).scatter_reduce_(0, pair, stop, "amin")
        return torch.where(lo.isinf(), 0.0, lo), torch.where(lo.isinf(), 0.0, hi)

    def winner_parts(self, faces: Tensor) -> WinnerCells:
        """The parts of the given faces that each output wins: clipped by one rival at a time."""
        entries, counts = take_rows(self.offsets, faces)
        n = self.z.shape[1]
        entries, counts = entries.repeat(n), counts.repeat(n)
        winner = torch.arange(n, device=faces.device).repeat_interleave(len(faces))
        cells = _Polygons(self.uv[self.corner[entries]], self.z[self.corner[entries]], counts)
        for rival in range(n):
            row = owners_of(cells.counts)
            cells = cells.clip(
                self._snap(cells.z.gather(1, winner[row, None])[:, 0] - cells.z[:, rival])
            )
        row = owners_of(cells.counts)
        total = cells.z.new_zeros(len(winner), n).index_add_(0, row, cells.z)
        mean = total / cells.counts.clamp(min=1)[:, None]
        own = mean.gather(1, winner[:, None])
        lead = own[:, 0] - mean.scatter(1, winner[:, None], -torch.inf).amax(1)
        kept = (cells.counts > 2) & (lead > 0)
        return WinnerCells(
            cells.uv[kept[row]],
            offsets_of(cells.counts[kept]),
            faces.repeat(n)[kept],
            winner[kept],
            lead[kept],
        )

    def _snap(self, g: Tensor) -> Tensor:
        return torch.where(g.abs() <= self.tol, 0.0, g)

    def _at(self, end: _End) -> Tensor:
        a, b, t = end
        exact = torch.where((t == 1)[:, None], self.uv[b], self.uv[a])
        inner = self.uv[a] + t[:, None] * (self.uv[b] - self.uv[a])
        return torch.where(((t == 0) | (t == 1))[:, None], exact, inner)

    def _lead(self, end: _End, i: Tensor, other: Tensor) -> Tensor:
        """By how much output i exceeds the other one at a point of an edge."""
        a, b, t = end
        ga = self.z[a, i] - self.z[a, other]
        gb = self.z[b, i] - self.z[b, other]
        return ga + t * (gb - ga)


@dataclass(frozen=True)
class _Polygons:
    """Polygons with corners uv: (H, 2) and outputs z: (H, n) there, counts: (C,) corners each."""

    uv: Tensor
    z: Tensor
    counts: Tensor

    def clip(self, g: Tensor) -> _Polygons:
        """Keep the part on which the affine function with corner values ``g: (H,)`` is >= 0."""
        following = _following(torch.arange(len(g), device=g.device), self.counts)
        h = g[following]
        keep, cross = g >= 0, g * h < 0
        t = (g / torch.where(cross, g - h, 1))[:, None]
        made = [x + t * (x[following] - x) for x in (self.uv, self.z)]
        # Each corner is followed by the crossing on its edge, if there is one.
        flags = torch.stack([keep, cross], 1)
        uv, z = (
            torch.stack([old, new], 1)[flags]
            for old, new in zip((self.uv, self.z), made, strict=True)
        )
        counts = torch.zeros_like(self.counts).index_add_(0, owners_of(self.counts), flags.sum(1))
        return _Polygons(uv, z, counts)


# A point of an edge: the vertices a and b, and the fraction of the way from a to b.
_End = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class _Pairs:
    """Pairs of outputs (i, j), each with its face and that face's row of rivals (CSR)."""

    face: Tensor
    row: Tensor
    i: Tensor
    j: Tensor
    start: Tensor
    rival: Tensor


@dataclass(frozen=True)
class _Ends:
    """Both ends of each chord, the corner farthest off it in value, and whether there is one."""

    p: _End
    q: _End
    off: Tensor
    found: Tensor


def _pick(end: _End, index: Tensor) -> _End:
    a, b, t = end
    return a[index], b[index], t[index]


def _following(entries: Tensor, counts: Tensor) -> Tensor:
    """The entry after each one in its row, cyclically."""
    owner = owners_of(counts)
    last = offsets_of(counts)[1:][owner] - 1
    wraps = torch.arange(len(entries), device=entries.device) == last
    return torch.where(wraps, entries - counts[owner] + 1, entries + 1)


def _best(row: Tensor, score: Tensor, rows: int) -> Tensor:
    """The index of the first entry with the largest score of each row."""
    top = score.new_full((rows,), -torch.inf).scatter_reduce_(0, row, score, "amax")
    index = torch.arange(len(row), device=row.device)
    index = torch.where(score == top[row], index, len(row))
    return index.new_full((rows,), len(row)).scatter_reduce_(0, row, index, "amin")
