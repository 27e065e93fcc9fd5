"""Insert chords into convex faces one by one: robust, whatever rounding does.

Inside one face integers say everything about the chords: the places of their two ends on the
boundary. Two chords cross exactly when their ends alternate. So each face is split by one of its
chords; the others go to the left half, to the right half, or, if they cross it, to both:

        Q--------+            Q        the splitter P-Q is drawn from corner P to corner Q;
        |  .     |           /|        every chord that crosses it makes one new vertex on it,
     j--+---.----+--j   ->  v v        which is a corner of both halves from then on.
        |    .   |         /  |
        +-----P--+        P   P

All faces are split at the same time, and a face with k chords needs about 2 log2(k) rounds. Only
the order of the crossings along a splitter is a matter of floating point, and whatever rounding
does to it, the result is a proper subdivision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.arrays import lengths, offsets_of, owners_of, places_of, sort_rows, take
from splinecam._util.tolerances import SAFETY, UV_ERROR, cluster
from splinecam.arrangement.chords import (
    Arrangement,
    ChordLines,
    Chords,
    FaceBoundaries,
    common_shift_and_error,
    meet,
)
from splinecam.errors import LimitError


def insert_incrementally(
    boundaries: FaceBoundaries,
    chords: Chords,
    lines: ChordLines,
    out: Arrangement,
    *,
    max_faces: int | None = None,
) -> None:
    """Insert all chords into their faces of ``out``, up to so many faces."""
    work = _Insertion(boundaries, chords, lines, out)
    done = 0
    while work.chords.face.shape[0]:
        done += work.retire()
        if work.chords.face.shape[0]:
            if max_faces is not None and done + 2 * work.boundaries.count > max_faces:
                raise LimitError("too many regions")
            work.split()
    out.faces.append(work.boundaries)


def split_once(
    boundaries: FaceBoundaries, chords: Chords, lines: ChordLines, out: Arrangement
) -> FaceBoundaries:
    """Split every face i by chord i, for which p < q; it becomes faces 2i and 2i + 1.

    Left half:  P ... (old boundary) ... Q;   right half:  Q ... P; the chord closes both.
    """
    p, q, sizes, total = chords.p, chords.q, boundaries.sizes(), boundaries.half.shape[0]
    offsets = offsets_of(torch.stack([q - p + 1, sizes - q + p + 1], 1).view(-1))
    owner = owners_of(sizes, total)
    place = places_of(sizes, owner, boundaries.offsets)
    low, high = take(p, owner), take(q, owner)
    left = (place >= low) & (place < high)
    begin = take(offsets, 2 * owner + ~left)
    at = begin + torch.where(left, place - low, (place - high) % take(sizes, owner))
    half = boundaries.half.new_empty(total + 2 * p.shape[0]).scatter_(0, at, boundaries.half)
    new = 2 * (torch.arange(p.shape[0], device=p.device) + out.num_edges)
    half.scatter_(0, offsets[1::2] - 1, new + 1).scatter_(0, offsets[2::2] - 1, new)
    out.edge_parts.append(torch.stack([lines.start, lines.end], 1))
    return FaceBoundaries(offsets, half)


@dataclass(frozen=True)
class _Split:
    """One splitter for each of F faces, and where all N chords lie relative to it."""

    chord: Tensor  # (F,) the splitters
    origin: Tensor  # (F,) the place of P
    far: Tensor  # (F,) the place of Q, counted from P
    p: Tensor  # (N,) places of all chords' ends, counted from P
    q: Tensor  # (N,)
    side_p: Tensor  # (N,) +1 left, -1 right, 0 on the splitter
    side_q: Tensor  # (N,)
    crossing: Tensor  # (X,) the chords that cross their splitter

    @classmethod
    def of(cls, chords: Chords, sizes: Tensor) -> _Split:
        """Split every face by its most central chord."""
        chord, m, face = _most_central(chords, sizes), sizes[chords.face], chords.face
        origin = chords.p[chord]
        p, q = ((place - origin[face]) % m for place in (chords.p, chords.q))
        far = q[chord]
        side_p, side_q = _side(p, far[face]), _side(q, far[face])
        crossing = (side_p * side_q < 0).nonzero()[:, 0]
        return cls(chord, origin, far, p, q, side_p, side_q, crossing)


@dataclass(frozen=True)
class _Path:
    """The new vertices on every splitter."""

    rank: Tensor  # (X,) where each crossing chord meets its splitter: 0 is P, counts + 1 is Q
    counts: Tensor  # (F,)
    vertices: Tensor  # their numbers, in order


@dataclass
class _Insertion:
    """Faces and the chords that are still to be inserted into them."""

    boundaries: FaceBoundaries
    chords: Chords
    lines: ChordLines
    out: Arrangement

    def retire(self) -> int:
        """Drop chords along an edge; hand faces without chords over to ``out``, and count them."""
        sizes, c = self.boundaries.sizes(), self.chords
        gap = (c.q - c.p) % sizes[c.face]
        alive = (gap > 1) & (gap < sizes[c.face] - 1)
        if not bool(alive.all()):
            c = c.select(alive.nonzero()[:, 0])
        busy = torch.zeros(sizes.shape[0], dtype=torch.bool, device=sizes.device)
        busy[c.face] = True
        finished = (~busy).nonzero()[:, 0]
        if finished.shape[0]:
            self.out.faces.append(self.boundaries.select(finished))
            self.boundaries = self.boundaries.select(busy.nonzero()[:, 0])
            c = replace(c, face=(torch.cumsum(busy.long(), 0) - 1)[c.face])
        self.chords = c
        return int(finished.shape[0])

    def split(self) -> None:
        """Split every face by one chord, unless some splitters must be led through corners."""
        split = _Split.of(self.chords, self.boundaries.sizes())
        if self._lead_through_corners(split):
            return
        path = self._place_crossings(split)
        edges = self._add_edges(split, path)
        self.chords = self._divided_chords(split, path)
        self.boundaries = self._halves(split, path, edges)

    def _lead_through_corners(self, split: _Split) -> bool:
        """Whether a splitter P-Q passed a corner c closely; it is replaced by P-c and c-Q."""
        c, lines, crossing = self.chords, self.lines, split.crossing
        face = c.face[crossing]
        line = c.line[split.chord][face]
        ends = torch.stack([c.p[crossing], c.q[crossing]])
        corner = self._vertices(self.boundaries.offsets[face] + ends)
        d = lines.b[line] - lines.a[line]
        gap = self.out.uv[corner] - lines.a[line]
        distance = (gap[..., 0] * d[:, 1] - gap[..., 1] * d[:, 0]).abs() / lengths(d)
        # A corner that does not lie between the splitter's ends would lead it back and forth.
        s = (gap * d).sum(2) / (d * d).sum(1)
        low, high, _ = self._ends_on_lines(split, face)
        distance, nearer = torch.where((s > low) & (s < high), distance, torch.inf).min(0)
        # Only the splitter's own error counts, as the splitter would be moved.
        reach = lines.error[line] + UV_ERROR
        close = (distance <= SAFETY * reach).nonzero()[:, 0]
        if not close.shape[0]:
            return False
        one = close.new_full(split.chord.shape, crossing.shape[0])
        one.scatter_reduce_(0, face[close], close, "amin")  # one corner at a time in each face
        close = one[one < crossing.shape[0]]
        self._report(self.out.uv[corner[nearer[close], close]][distance[close] > reach[close]])
        led, place = split.chord[face[close]], ends[nearer[close], close]
        kept = torch.ones(c.face.shape[0], dtype=torch.bool, device=close.device)
        kept[led] = False
        whole = c.select(led)
        rest = c.select(kept.nonzero()[:, 0])
        self.chords = Chords.join(rest, replace(whole, q=place), replace(whole, p=place))
        return True

    def _report(self, places: Tensor) -> None:
        """Report places (N, 2) that rounding leaves undecided."""
        if places.shape[0]:
            self.out.ambiguities.append(places)

    def _vertices(self, corner: Tensor) -> Tensor:
        """The vertices at corners, which are places in the flat boundaries."""
        return self.out.edges.view(-1)[self.boundaries.half[corner]]

    def _end_vertices(self, split: _Split) -> list[Tensor]:
        """Vertices P and Q of every face's splitter, (F,) each."""
        starts, places = self.boundaries.offsets[:-1], (self.chords.p, self.chords.q)
        return [self._vertices(starts + place[split.chord]) for place in places]

    def _ends_on_lines(self, split: _Split, face: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where on its line each face's splitter starts and ends, and the error of that, (X,)."""
        line = self.chords.line[split.chord]
        a = self.lines.a[line]
        d = self.lines.b[line] - a
        square = (d * d).sum(1)
        low, high = (((self.out.uv[v] - a) * d).sum(1) / square for v in self._end_vertices(split))
        error = UV_ERROR / square.sqrt()
        return low[face], torch.maximum(low, high)[face], error[face]

    def _place_crossings(self, split: _Split) -> _Path:
        """Place the crossings on the splitters; rounding may make several of them one vertex."""
        crossing, faces = split.crossing, split.chord.shape[0]
        if not crossing.shape[0]:
            return _Path(crossing, split.chord.new_zeros(faces), crossing)
        face, other = self.chords.face[crossing], self.chords.line[crossing]
        line = self.chords.line[split.chord][face]
        s = meet(self.lines, line, other)[0][0]
        shift, error = common_shift_and_error(self.lines, line, other)
        low, high, end_error = self._ends_on_lines(split, face)
        slack = SAFETY * (error + end_error + shift.abs())
        outside = torch.maximum(low - s, s - high) > slack
        s = torch.minimum(torch.maximum(s, low), high)

        order = sort_rows(face, s)[0]
        face, line, s, error = face[order], line[order], s[order], error[order]
        group, best, ambiguous = cluster(face, s, error, shift[order])
        reach = (error + end_error[order])[best]
        from_p, from_q = s[best] - low[order][best], high[order][best] - s[best]
        at_p = from_p <= SAFETY * reach
        at_q = ~at_p & (from_q <= SAFETY * reach)
        ambiguous |= ((at_p & (from_p > reach)) | (at_q & (from_q > reach)))[group]
        ambiguous |= outside[order]
        self._report(self.lines.point(line[ambiguous], s[ambiguous]))

        inner, own = ~(at_p | at_q), face[best]
        counts = torch.bincount(own[inner], minlength=faces)
        place = torch.cumsum(inner.long(), 0) - offsets_of(counts)[own]
        place = torch.where(at_p, 0, torch.where(at_q, counts[own] + 1, place))
        rank = torch.empty_like(group)
        rank[order] = place[group]
        line, s = line[best[inner]], s[best[inner]]
        vertices = torch.arange(s.shape[0], device=s.device) + self.out.num_vertices
        self.out.vertex_parts.append(self.lines.point(line, s))
        self.out.vertex_line.append(line)
        self.out.vertex_s.append(s)
        return _Path(rank, counts, vertices)

    def _add_edges(self, split: _Split, path: _Path) -> Tensor:
        """Add the edges P-v1-...-vk-Q of every splitter; returns their offsets, (F + 1,)."""
        offsets = offsets_of(path.counts + 1)
        start = offsets + torch.arange(offsets.shape[0], device=offsets.device)
        vertex = start.new_empty(path.vertices.shape[0] + 2 * split.chord.shape[0])
        vertex[start[:-1]], vertex[start[1:] - 1] = self._end_vertices(split)
        face = owners_of(path.counts, path.vertices.shape[0])
        vertex[torch.arange(face.shape[0], device=face.device) + 2 * face + 1] = path.vertices
        edges = torch.stack([vertex[:-1], vertex[1:]], 1)
        real = torch.ones(edges.shape[0], dtype=torch.bool, device=edges.device)
        real[start[1:-1] - 1] = False  # from one splitter's Q to the next one's P
        edges = edges[real.nonzero()[:, 0]]
        self.out.edge_parts.append(edges)
        owner = owners_of(path.counts + 1, edges.shape[0])
        self.out.edge_line.append(self.chords.line[split.chord][owner])
        return offsets

    def _halves(self, split: _Split, path: _Path, edges: Tensor) -> FaceBoundaries:
        """The boundaries of both halves of every face; edges: (F + 1,) offsets of the new edges.

        Left half: P ... (old boundary) ... Q vk ... v1; right half: Q ... P v1 ... vk. Each is
        three runs of one pool: the old half-edges (two runs, as places wrap around), and the new
        ones, backwards for the left half.
        """
        m, old, far = self.boundaries.sizes(), self.boundaries.half, split.far
        last = self.out.num_edges
        new = 2 * torch.arange(last - int(edges[-1]), last, device=old.device)
        pool = torch.cat([old, new, new.flip(0) + 1])
        start, k = self.boundaries.offsets[:-1], path.counts + 1
        turn = (split.origin + far) % m  # place of Q
        forwards = old.shape[0] + edges[:-1]
        backwards = old.shape[0] + 2 * new.shape[0] - edges[1:]
        to_end_p, to_end_q = torch.minimum(far, m - split.origin), torch.minimum(m - far, m - turn)
        runs = [
            (to_end_p, start + split.origin),
            (far - to_end_p, start),
            (k, backwards),
            (to_end_q, start + turn),
            (m - far - to_end_q, start),
            (k, forwards),
        ]
        counts, sources = (torch.stack(x, 1).view(-1) for x in zip(*runs, strict=True))
        run = owners_of(counts)
        shift = sources - offsets_of(counts)[:-1]
        half = pool[shift[run] + torch.arange(run.shape[0], device=run.device)]
        return FaceBoundaries(offsets_of(counts.view(-1, 3).sum(1)), half)

    def _divided_chords(self, split: _Split, path: _Path) -> Chords:
        """The chords in the halves of the faces; a crossing chord is divided between both."""
        c, m = self.chords, self.boundaries.sizes()[self.chords.face]
        far, side = split.far[c.face], split.side_p + split.side_q
        # Places on the left half are counted from P, those on the right half from Q.
        in_left = Chords(2 * c.face, split.p, split.q, c.line)
        right_p, right_q = ((x - far) % m for x in (split.p, split.q))
        in_right = Chords(2 * c.face + 1, right_p, right_q, c.line)
        left, right = (in_left.select(split.crossing), in_right.select(split.crossing))
        far, m = far[split.crossing], m[split.crossing]
        k = path.counts[c.face[split.crossing]]
        on_left = (far + k + 1 - path.rank) % (far + k + 1)
        on_right = (m - far + path.rank) % (m - far + k + 1)
        starts_left = split.side_p[split.crossing] > 0
        return Chords.join(
            in_left.select((side > 0).nonzero()[:, 0]),
            in_right.select((side < 0).nonzero()[:, 0]),
            _ended(left, on_left, starts_left),
            _ended(right, on_right, ~starts_left),
        )


def _ended(chords: Chords, place: Tensor, begins: Tensor) -> Chords:
    """Chords that end at a place, (N,), or begin there unless they begin in this half."""
    p, q = torch.where(begins, chords.p, place), torch.where(begins, place, chords.q)
    return replace(chords, p=p, q=q)


def _side(place: Tensor, far: Tensor) -> Tensor:
    """+1 strictly between P (place 0) and Q, -1 beyond Q, 0 at either."""
    inner = (place > 0) & (place != far)
    return torch.where(inner, torch.where(place < far, 1, -1), 0)


def _most_central(c: Chords, sizes: Tensor) -> Tensor:
    """For every face the chord that halves its boundary best, (F,)."""
    m = sizes[c.face]
    score = (2 * ((c.q - c.p) % m) - m).abs()
    n = c.face.shape[0]
    key = score * n + torch.arange(n, device=score.device)
    least = key.new_full(sizes.shape, torch.iinfo(torch.int64).max)
    return least.scatter_reduce_(0, c.face, key, "amin") % n
