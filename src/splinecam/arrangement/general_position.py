r"""Insert chords in general position: all crossings of all faces at once.

    lo_i < lo_j < hi_i < hi_j  around the face      Around a crossing the four directions come
                                                    counter-clockwise as hi_i, hi_j, lo_i, lo_j:
          hi_j    lo_i                              the cyclic order of the ends on the boundary.
             \   /                                   So what follows each stretch of the boundary
               x                                    and each piece of a chord is known without
             /   \                                   computing an angle, and the faces are the
          hi_i    lo_j                              cycles of "the next half-edge".

Where each cycle begins is known as well. Seen from the boundary's first corner, all chords run from
lo to hi as from left to right, and a face has one leftmost place: the crossing from which it opens
towards hi_i and hi_j, the lower end of a chord, or the first corner.

Faces in which rounding cannot tell two places apart (chords that share an end, three chords through
almost one point) are left to ``incremental``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import blocks_of, counts_of, offsets_of, owners_of, sort_rows, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.arrangement.chords import (
    Arrangement,
    ChordCrossings,
    ChordIntervals,
    ChordLines,
    FaceBoundaries,
    meet,
)
from splinecam.errors import LimitError

_DOUBLINGS = 4  # of steps, before a GPU is asked whether they were enough
_INT32 = 1 << 31


def insert_at_once(
    boundaries: FaceBoundaries,
    intervals: ChordIntervals,
    lines: ChordLines,
    out: Arrangement,
    *,
    distinct: bool = False,
    max_faces: int | None = None,
) -> Tensor:
    """Insert the chords of all faces in general position into ``out``; returns the other faces."""
    faces = torch.arange(boundaries.count, device=boundaries.half.device)
    left = faces[:0]
    degenerate = None if distinct else _degenerate(boundaries, intervals)
    while True:
        if degenerate is not None and bool(degenerate.any()):
            left = torch.cat([left, faces[degenerate]])
            kept = (~degenerate).nonzero()[:, 0]
            intervals, faces = intervals.restrict(boundaries, kept), faces[kept]
            boundaries = boundaries.select(kept)
        if not faces.shape[0]:
            break
        segments = _Segments.of(boundaries, intervals)
        crossings = _crossings(boundaries, intervals, segments, lines, max_faces)
        degenerate = crossings.degenerate
        if degenerate is None:
            if not _insert(boundaries, intervals, segments, crossings, lines, out):
                left = torch.cat([left, faces])
            break
    return torch.sort(left).values


def _degenerate(boundaries: FaceBoundaries, intervals: ChordIntervals) -> Tensor:
    """Faces (F,) with two chord ends at one corner, or a chord between neighbouring corners."""
    face = intervals.faces(boundaries)
    ends = counts_of(torch.cat([intervals.lo, intervals.hi]), boundaries.half.shape[0])
    gap = intervals.hi - intervals.lo
    shared = (ends[intervals.lo] > 1) | (ends[intervals.hi] > 1)
    shared |= (gap < 2) | (gap > boundaries.sizes()[face] - 2)
    found = torch.zeros(boundaries.count, dtype=torch.bool, device=face.device)
    found[face[shared]] = True
    return found


@dataclass(frozen=True)
class _Segments:
    """The boundaries, divided where chords end: a face has one segment more than chord ends."""

    at: Tensor  # (H,) the segment of each place
    start: Tensor  # (S,) of each segment
    size: Tensor  # (S,)
    first: Tensor  # (F,) the first segment of each face
    lo: Tensor  # (N,) the segments that begin with the lower ends of chords
    hi: Tensor  # (N,) the same for the upper ends

    @classmethod
    def of(cls, boundaries: FaceBoundaries, intervals: ChordIntervals) -> _Segments:
        begins, places = boundaries.offsets[:-1], boundaries.half.shape[0]
        before = boundaries.half.new_zeros(places + 1)  # the segment of the place before each
        before[:1].fill_(-1)
        at = before[1:].scatter_(0, begins[1:], 1)
        one = torch.ones_like(intervals.lo)
        at.scatter_add_(0, intervals.lo, one).scatter_add_(0, intervals.hi, one)
        torch.cumsum(at, 0, out=at)
        first = take(before, begins).add_(1)
        lo, hi = take(at, intervals.lo), take(at, intervals.hi)
        start = begins.new_empty(begins.shape[0] + 2 * lo.shape[0] + 1)
        start.scatter_(0, first, begins).scatter_(0, lo, intervals.lo).scatter_(0, hi, intervals.hi)
        start[-1:].fill_(places)
        return cls(at, start[:-1], start[1:] - start[:-1], first, lo, hi)


# -- crossings --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Crossings:
    """The X crossings of N chords; each is on two chords i < j, and so has two slots."""

    i: Tensor  # (X,)
    s: Tensor  # (X,) the fraction of i
    slot: Tensor  # (2X,) the slots on i, then on j
    chord: Tensor  # (2X,) of each slot, in order along each chord
    along: Tensor  # (2X,) the fraction of the chord
    crossing: Tensor  # (2X,)
    second: Tensor  # (2X,) whether the chord is the crossing's j
    other: Tensor  # (2X,) the slot on the other chord
    offsets: Tensor  # (N + 1,) the slots of each chord
    degenerate: Tensor | None  # (F,) faces in which rounding leaves the order undecided


def _crossings(
    boundaries: FaceBoundaries,
    intervals: ChordIntervals,
    segments: _Segments,
    lines: ChordLines,
    max_faces: int | None,
) -> _Crossings:
    n = intervals.lo.shape[0]
    room = None if max_faces is None else max_faces - boundaries.count - n
    i, j = _pairs(segments, room)
    x = i.shape[0]
    s, error = meet(lines, intervals.lines(i), intervals.lines(j))
    sequence, chord, along = sort_rows(torch.cat([i, j]), s.view(-1), n)
    error = take(error.view(-1), sequence)
    short = torch.int32 if 2 * x < _INT32 else torch.int64
    index = torch.arange(2 * x, dtype=short, device=i.device)
    slot = torch.empty_like(index).scatter_(0, sequence, index)
    second = (sequence >= x).to(short)
    close = _close(intervals.of_lines(lines.length), chord, along, error).nonzero()[:, 0]
    degenerate = None
    if close.shape[0]:
        degenerate = torch.zeros(boundaries.count, dtype=torch.bool, device=close.device)
        degenerate[intervals.faces(boundaries)[chord[close]]] = True
    return _Crossings(
        i=i,
        s=s[0],
        slot=slot,
        chord=chord,
        along=along,
        crossing=torch.sub(sequence, second, alpha=x),
        second=second,
        other=take(torch.cat([slot[x:], slot[:x]]), sequence),
        offsets=offsets_of(counts_of(chord, n)),
        degenerate=degenerate,
    )


def _pairs(segments: _Segments, room: int | None) -> tuple[Tensor, Tensor]:
    """The pairs of chords i < j whose ends alternate around their face, at most ``room``."""
    lo, hi = segments.lo, segments.hi
    n = lo.shape[0]
    begun = torch.zeros_like(segments.size).scatter_(0, lo, 1)
    torch.cumsum(begun, 0, out=begun)
    after = torch.arange(1, n + 1, device=lo.device)
    candidates = take(begun, hi) - after  # chords that begin between the ends of each
    offsets = offsets_of(candidates)
    base = after - offsets[:-1]
    found, total = [], 0
    if room is not None and room < 0:
        raise LimitError("too many regions")
    for first, last, begin, end in _blocks(candidates, offsets):
        owner = owners_of(candidates[first:last], end - begin)
        owner = owner + first if first else owner
        other = torch.arange(begin, end, device=lo.device) + take(base, owner)
        crossing = (take(hi, other) > take(hi, owner)).nonzero()[:, 0]
        total += crossing.shape[0]
        if room is not None and total > room:
            raise LimitError("too many regions")
        found.append((take(owner, crossing), take(other, crossing)))
    if len(found) == 1:
        return found[0]
    return torch.cat([a for a, _ in found]), torch.cat([b for _, b in found])


def _blocks(counts: Tensor, offsets: Tensor) -> list[tuple[int, int, int, int]]:
    """Runs of rows and of their entries: (first row, last row + 1, first entry, last entry + 1)."""
    rows, total, limit = counts.shape[0], int(offsets[-1]), backend_of(counts.device).chord_pairs
    if total <= limit:
        return [(0, rows, 0, total)]
    runs = torch.tensor(blocks_of(counts, limit), device=counts.device)
    return [(*run, *ends) for run, ends in zip(runs.tolist(), offsets[runs].tolist(), strict=True)]


def _close(length: Tensor, chord: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Slots too close to their neighbour along the chord, or to an end of the chord, (2X,)."""
    error = SAFETY * error
    close = torch.minimum(s, 1 - s) <= take((SAFETY * UV_ERROR) / length, chord).add_(error)
    near = s.diff() <= error[1:] + error[:-1]
    close[1:].logical_or_(near.logical_and_(chord[1:] == chord[:-1]))
    return close


# -- faces ------------------------------------------------------------------------------------


def _insert(
    boundaries: FaceBoundaries,
    intervals: ChordIntervals,
    segments: _Segments,
    c: _Crossings,
    lines: ChordLines,
    out: Arrangement,
) -> bool:
    """Make the vertices, edges and faces of chords; False if they make no subdivision."""
    n, x = intervals.lo.shape[0], c.i.shape[0]
    ends = torch.arange(n + 1, device=c.i.device).add_(c.offsets)  # first piece of each chord
    piece = torch.arange(2 * x, device=c.i.device).add_(c.chord)  # the one before each slot
    pieces = _Pieces.of(ends, piece)
    made = _faces(boundaries, segments, c, pieces, 2 * out.num_edges)
    if made is None:
        return False
    path = ends.new_empty(pieces.count)
    path.scatter_(0, pieces.head, intervals.of_lines(lines.start))
    path.scatter_(0, pieces.tail, intervals.of_lines(lines.end))
    vertex = c.crossing + out.num_vertices
    path.scatter_(0, pieces.below, vertex).scatter_(0, pieces.above, vertex)
    owner = ends.new_empty(n + 2 * x).scatter_(0, ends[:-1], intervals.line)
    owner.scatter_(0, piece.add_(1), intervals.lines(c.chord))
    line = intervals.lines(c.i)
    out.vertex_parts.append(lines.point(line, c.s))
    out.edge_parts.append(path.view(-1, 2))
    out.edge_line.append(owner)
    out.vertex_line.append(line)
    out.vertex_s.append(c.s)
    other, place = intervals.lines(take(c.chord, c.other)), c.slot[:x].long()
    out.crossings = ChordCrossings(intervals.line, c.offsets, other, c.along, c.i, place)
    out.faces.append(made)
    return True


@dataclass(frozen=True)
class _Pieces:
    """The half-edges 2p, towards hi, and 2p + 1, towards lo, of the pieces of all chords."""

    head: Tensor  # (N,) leaves the lower end of each chord
    tail: Tensor  # (N,) leaves the upper end
    up: Tensor  # (2X,) reaches each slot from below
    above: Tensor  # (2X,) these two leave each slot
    below: Tensor  # (2X,)

    @classmethod
    def of(cls, begin: Tensor, piece: Tensor) -> _Pieces:
        """From the first piece of each chord, (N + 1,), and the piece before each slot, (2X,)."""
        begin, piece = 2 * begin, 2 * piece
        return cls(begin[:-1], begin[1:] - 1, piece, piece + 2, piece + 1)

    @property
    def count(self) -> int:
        return 2 * int(self.head.shape[0] + self.above.shape[0])


def _faces(
    boundaries: FaceBoundaries, segments: _Segments, c: _Crossings, pieces: _Pieces, first: int
) -> FaceBoundaries | None:
    """The boundaries of the new faces, or None if the crossings make no subdivision.

    Nodes, counted from 1, are the segments, each with the piece that leaves the boundary after it,
    and the pieces that leave a crossing, two per slot: towards hi and towards lo. first: the first
    new half-edge.
    """
    size, total = segments.size.shape[0], boundaries.half.shape[0] + pieces.count
    # The half-edge of a piece that ends each node; the last segment of a face has none.
    leaving = segments.lo.new_full((size + 1 + 2 * pieces.above.shape[0],), pieces.count)
    leaving.scatter_(0, segments.lo, pieces.head).scatter_(0, segments.hi, pieces.tail)
    torch.stack([pieces.above, pieces.below], 1, out=leaving[size + 1 :].view(-1, 2))
    following = take(_after(segments, c, pieces), leaving)
    weight = following.new_ones(size + 2)  # half-edges of a segment, and of all other nodes
    weight.scatter_(0, segments.first, 0)  # no piece leaves the last segment of the face before
    weight[size : size + 1].zero_()
    weight[1:-1].add_(segments.size)
    start = torch.cat([segments.first, segments.lo, c.slot[: c.i.shape[0]] * 2 + size]).add_(1)
    follow = _by_walking if backend_of(start.device).walks_faces else _by_doubling
    found = follow(following, weight, start, leaving.add_(first), total)
    if found is None:
        return None
    made, end = found
    moved = take(end - weight[1:-1] - segments.start, segments.at)
    moved += torch.arange(moved.shape[0], device=moved.device)
    made.half.scatter_(0, moved, boundaries.half)
    return made


def _after(segments: _Segments, c: _Crossings, pieces: _Pieces) -> Tensor:
    """The node after each half-edge of a piece, and after none: 0 where a face is closed."""
    size = segments.size.shape[0]
    short = torch.int32 if size + pieces.count < _INT32 else torch.int64
    after = torch.zeros(pieces.count + 1, dtype=short, device=c.i.device)
    after.scatter_(0, pieces.tail - 1, (segments.hi + 1).to(short))
    up = torch.add(c.second, c.other, alpha=2).add_(size + 1).to(short)
    down = (up + 1).mul_(1 - c.second)
    return after.scatter_(0, pieces.up, up).scatter_(0, pieces.above + 1, down)


def _by_walking(
    following: Tensor, weight: Tensor, start: Tensor, leaving: Tensor, total: int
) -> tuple[FaceBoundaries, Tensor] | None:
    """The boundaries of all faces, followed node by node from their first nodes, (F,).

    They have the half-edges that end nodes. The caller fills in the half-edges of the segments,
    also over what the last nodes of faces have written. Also where each segment ends.
    """
    node, most = start.to(following.dtype), weight.shape[0] - 1
    face = torch.arange(node.shape[0], device=node.device) << 32  # and the distance so far
    walk = []
    while node.shape[0]:
        steps = take(weight, node.clamp(max=most))
        face = face + steps
        walk.append((node, face, steps))
        node = take(following, node)
        going = node.nonzero()[:, 0]
        node, face = take(node, going), take(face, going)
    node, face, steps = (torch.cat(part) for part in zip(*walk, strict=True))
    if node.shape[0] != following.shape[0] - 1:
        return None
    end = face & (_INT32 - 1)
    face >>= 32
    offsets = offsets_of(end.new_zeros(start.shape).scatter_add_(0, face, steps.long()))
    end += take(offsets, face)
    half = end.new_empty(total).scatter_(0, end - 1, take(leaving, node))
    ends = end.new_empty(most + 1).scatter_(0, node.clamp(max=most).long(), end)
    return FaceBoundaries(offsets, half), ends[1:-1]


def _by_doubling(
    following: Tensor, weight: Tensor, start: Tensor, leaving: Tensor, total: int
) -> tuple[FaceBoundaries, Tensor] | None:
    """The result of ``_by_walking``, from each node's distance to the last node of its face."""
    count, most = following.shape[0], weight.shape[0] - 1
    index = torch.arange(count, dtype=following.dtype, device=following.device)
    step = torch.where(following == 0, index, following)
    ahead = take(weight, following.clamp(max=most))
    for _ in range(0, count.bit_length(), _DOUBLINGS):
        for _ in range(_DOUBLINGS):
            ahead, step = ahead + take(ahead, step), take(step, step)
        offsets = offsets_of((take(weight, start.clamp(max=most)) + take(ahead, start)).long())
        last = take(step, start).long()
        face = take(torch.full_like(index, -1).scatter_(0, last, index[: last.shape[0]]), step[1:])
        if torch.stack([face.amin(), offsets[-1]]).tolist() == [0, total]:
            end = take(offsets[1:], face) - ahead[1:]
            half = end.new_empty(total).scatter_(0, end - 1, leaving[1:])
            return FaceBoundaries(offsets, half), end[: most - 1]
    return None
