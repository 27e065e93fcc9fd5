r"""Draw chords in general position: every crossing of every face at once.

    lo_i < lo_j < hi_i < hi_j  around the face      The four ways out of a crossing are met
                                                    counter-clockwise as hi_i, hi_j, lo_i, lo_j:
          hi_j    lo_i                              the same cyclic order as on the boundary. So
             \   /                                   what follows each stretch of the boundary and
               x                                    each piece of a chord is known without looking
             /   \                                   at an angle, and the faces are the cycles of
          hi_i    lo_j                              ``_following``.

Where each cycle begins is known as well. Seen from the boundary's first corner all chords run from
lo to hi as lines run from left to right, and a face has one leftmost place: the crossing from which
it opens towards hi_i and hi_j, the lower end of a chord, or the first corner.

Faces in which two things come closer than rounding can tell (chords that share an end, three chords
through almost one point) are left to ``arrange``, which draws one chord at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import blocks_of, counts_of, offsets_of, owners_of, sort_rows, take
from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.arrangement.chords import (
    Arrangement,
    ChordCrossings,
    ChordIntervals,
    FaceBoundaries,
    Lines,
    meet,
)
from splinecam.errors import LimitError

__all__ = ["weave"]

_LEAPS = 4

_INT32 = 1 << 31


def weave(
    loops: FaceBoundaries,
    spans: ChordIntervals,
    lines: Lines,
    out: Arrangement,
    *,
    distinct: bool = False,
    max_faces: int | None = None,
) -> Tensor:
    """Draw the chords of all faces in general position into ``out``; returns the other faces.

    distinct: whether all chords are known to end at different places, no two of them neighbours.
    """
    faces = torch.arange(loops.count, device=loops.half.device)
    left = faces[:0]
    tight = None if distinct else _crowded(loops, spans)
    while True:
        if tight is not None and bool(tight.any()):
            left = torch.cat([left, faces[tight]])
            kept = (~tight).nonzero()[:, 0]
            loops, spans, faces = loops.select(kept), spans.restrict(loops, kept), faces[kept]
        if not faces.shape[0]:
            return left
        segments = _Segments.of(loops, spans)
        crossings = _crossings(loops, spans, segments, lines, max_faces)
        tight = crossings.tight
        if tight is None:
            break
    if not _draw(loops, spans, segments, crossings, lines, out):
        return torch.sort(torch.cat([left, faces])).values
    return torch.sort(left).values


def _crowded(loops: FaceBoundaries, spans: ChordIntervals) -> Tensor:
    """Faces (F,) with two chord ends at one corner, or a chord between neighbouring corners."""
    face = spans.faces(loops)
    ends = counts_of(torch.cat([spans.lo, spans.hi]), loops.half.shape[0])
    gap = spans.hi - spans.lo
    short = (gap < 2) | (gap > loops.sizes()[face] - 2)
    short |= (ends[spans.lo] > 1) | (ends[spans.hi] > 1)
    crowded = torch.zeros(loops.count, dtype=torch.bool, device=short.device)
    crowded[face[short]] = True
    return crowded


@dataclass(frozen=True)
class _Segments:
    """The boundaries, cut where chords end: each face has one segment more than chord ends.

    at: (H,) the segment of each place; start, size: (S,) of each segment; first: (F,) those that
    begin with a face; lo, hi: (N,) those that begin with the ends of each chord.
    """

    at: Tensor
    start: Tensor
    size: Tensor
    first: Tensor
    lo: Tensor
    hi: Tensor

    @classmethod
    def of(cls, loops: FaceBoundaries, spans: ChordIntervals) -> _Segments:
        begins, places = loops.offsets[:-1], loops.half.shape[0]
        before = loops.half.new_zeros(places + 1)  # the segment of the place before each
        before[:1].fill_(-1)
        at = before[1:].scatter_(0, begins[1:], 1)
        one = torch.ones_like(spans.lo)
        at.scatter_add_(0, spans.lo, one).scatter_add_(0, spans.hi, one)
        torch.cumsum(at, 0, out=at)
        first = take(before, begins).add_(1)
        lo, hi = take(at, spans.lo), take(at, spans.hi)
        start = begins.new_empty(begins.shape[0] + 2 * lo.shape[0] + 1)
        start.scatter_(0, first, begins).scatter_(0, lo, spans.lo).scatter_(0, hi, spans.hi)
        start[-1:].fill_(places)
        return cls(at, start[:-1], start[1:] - start[:-1], first, lo, hi)


# -- crossings --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Crossings:
    """The X crossings of N chords; each is met twice, by chord i < j, and so has two slots.

    Per crossing, (X,): chords i and j, its fraction s on i, its slots on i and on j. Per slot,
    (2X,), in order along each chord: chord, fraction along it, the crossing, whether the chord is
    the crossing's j, and the other slot. offsets: (N + 1,) the slots of each chord. tight: (F,)
    faces in which rounding leaves the order of some crossings open, None if there are none.
    """

    i: Tensor
    j: Tensor
    s: Tensor
    slot: Tensor
    chord: Tensor
    along: Tensor
    crossing: Tensor
    second: Tensor
    other: Tensor
    offsets: Tensor
    tight: Tensor | None


def _crossings(
    loops: FaceBoundaries,
    spans: ChordIntervals,
    segments: _Segments,
    lines: Lines,
    max_faces: int | None,
) -> _Crossings:
    n = spans.lo.shape[0]
    room = None if max_faces is None else max_faces - loops.count - n
    i, j = _pairs(segments, room)
    x = i.shape[0]
    s, error = meet(lines, spans.lines(i), spans.lines(j))
    sequence, chord, along = sort_rows(torch.cat([i, j]), s.view(-1), n)
    error = take(error.view(-1), sequence)
    short = torch.int32 if 2 * x < _INT32 else torch.int64
    index = torch.arange(2 * x, dtype=short, device=i.device)
    slot = torch.empty_like(index).scatter_(0, sequence, index)
    second = (sequence >= x).to(short)
    offsets = i.new_zeros(n + 1)
    offsets[1:].scatter_add_(0, chord, torch.ones_like(chord))
    torch.cumsum(offsets, 0, out=offsets)
    close = _close(spans.along(lines.length), chord, along, error).nonzero()[:, 0]
    tight = None
    if close.shape[0]:
        tight = torch.zeros(loops.count, dtype=torch.bool, device=close.device)
        tight[spans.faces(loops)[chord[close]]] = True
    return _Crossings(
        i=i,
        j=j,
        s=s[0],
        slot=slot,
        chord=chord,
        along=along,
        crossing=torch.sub(sequence, second, alpha=x),
        second=second,
        other=take(torch.cat([slot[x:], slot[:x]]), sequence),
        offsets=offsets,
        tight=tight,
    )


def _pairs(segments: _Segments, room: int | None) -> tuple[Tensor, Tensor]:
    """Chords i < j whose ends alternate.

    Each makes a face; as soon as there are more than there is room for, that is an error.
    """
    lo, hi = segments.lo, segments.hi
    n = lo.shape[0]
    begun = torch.zeros_like(segments.size).scatter_(0, lo, 1)
    torch.cumsum(begun, 0, out=begun)
    after = torch.arange(1, n + 1, device=lo.device)
    candidates = take(begun, hi) - after  # chords that begin between the ends of each
    offsets = offsets_of(candidates)
    base = after - offsets[:-1]
    found = []
    total = 0
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
    """Runs of rows, first and last + 1, with some million entries each: first and last + 1."""
    rows, total, limit = counts.shape[0], int(offsets[-1]), backend_of(counts.device).chord_pairs
    if total <= limit:
        return [(0, rows, 0, total)]
    runs = torch.tensor(blocks_of(counts, limit), device=counts.device)
    return [(*run, *ends) for run, ends in zip(runs.tolist(), offsets[runs].tolist(), strict=True)]


def _close(length: Tensor, chord: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Entries too close to their neighbour along the chord, or to an end of the chord, (N,)."""
    error = SAFETY * error
    close = torch.minimum(s, 1 - s) <= take((SAFETY * UV_ERROR) / length, chord).add_(error)
    near = s.diff() <= error[1:] + error[:-1]
    close[1:].logical_or_(near.logical_and_(chord[1:] == chord[:-1]))
    return close


# -- faces ------------------------------------------------------------------------------------


def _draw(
    loops: FaceBoundaries,
    spans: ChordIntervals,
    segments: _Segments,
    c: _Crossings,
    lines: Lines,
    out: Arrangement,
) -> bool:
    """Make the vertices, edges and faces of chords whose crossings are all in order.

    Returns whether that was possible; if not, nothing is made.
    """
    n, x = spans.lo.shape[0], c.i.shape[0]
    ends = torch.arange(n + 1, device=c.i.device).add_(c.offsets)  # where chords' pieces begin
    piece = torch.arange(2 * x, device=c.i.device).add_(c.chord)  # that ends at each slot
    pieces = _Pieces.of(ends, piece)
    made = _faces(loops, segments, c, pieces, 2 * out.num_edges)
    if made is None:
        return False
    path = ends.new_empty(pieces.count)
    path.scatter_(0, pieces.head, spans.along(lines.start))
    path.scatter_(0, pieces.tail, spans.along(lines.end))
    vertex = c.crossing + out.num_vertices
    path.scatter_(0, pieces.below, vertex).scatter_(0, pieces.above, vertex)
    owner = ends.new_empty(n + 2 * x).scatter_(0, ends[:-1], spans.line)
    owner.scatter_(0, piece.add_(1), spans.lines(c.chord))
    line = spans.lines(c.i)
    out.add_vertices(lines.point(line, c.s))
    out.add_edges(path.view(-1, 2))
    out.edge_line.append(owner)
    out.vertex_line.append(line)
    out.vertex_s.append(c.s)
    crossed = spans.lines(take(c.chord, c.other))
    out.woven = ChordCrossings(spans.line, c.offsets, crossed, c.along, c.i, c.slot[:x].long())
    out.loops.append(made)
    return True


@dataclass(frozen=True)
class _Pieces:
    """The half-edges 2p, towards hi, and 2p + 1, towards lo, of the pieces of all chords.

    Those that leave the ends of each chord, head and tail (N,), and each slot, above and below
    (2X,); that which comes to the slot from below, up (2X,).
    """

    head: Tensor
    tail: Tensor
    up: Tensor
    above: Tensor
    below: Tensor

    @classmethod
    def of(cls, begin: Tensor, piece: Tensor) -> _Pieces:
        """begin: (N + 1,) the first piece of each chord; piece: (2X,) the one before each slot."""
        begin, piece = 2 * begin, 2 * piece
        return cls(begin[:-1], begin[1:] - 1, piece, piece + 2, piece + 1)

    @property
    def count(self) -> int:
        return 2 * int(self.head.shape[0] + self.above.shape[0])


def _faces(
    loops: FaceBoundaries, segments: _Segments, c: _Crossings, pieces: _Pieces, first: int
) -> FaceBoundaries | None:
    """The boundaries of the new faces, or None if the crossings are not those of a subdivision.

    Nodes are the segments, each with the piece that leaves the boundary after it, and the pieces
    that leave a crossing, two for each slot: towards hi, and towards lo; they are counted from 1.
    first: the first new half-edge.
    """
    size, total = segments.size.shape[0], loops.half.shape[0] + pieces.count
    leaving = _leaving(segments, pieces)
    following = take(_after(segments, c, pieces), leaving)
    weight = following.new_ones(size + 2)  # half-edges of a segment, and of all other nodes
    weight.scatter_(0, segments.first, 0)  # no piece leaves the last segment of the face before
    weight[size : size + 1].zero_()
    weight[1:-1].add_(segments.size)
    start = torch.cat([segments.first, segments.lo, c.slot[: c.i.shape[0]] * 2 + size]).add_(1)
    around = _walk if backend_of(start.device).walks_faces else _leap
    found = around(following, weight, start, leaving.add_(first), total)
    if found is None:
        return None
    made, end = found
    moved = take(end - weight[1:-1] - segments.start, segments.at)
    moved += torch.arange(moved.shape[0], device=moved.device)
    made.half.scatter_(0, moved, loops.half)
    return made


def _leaving(segments: _Segments, pieces: _Pieces) -> Tensor:
    """The half-edge of a piece with which each node ends; the last segment of a face has none."""
    size = segments.size.shape[0]
    leaving = segments.lo.new_full((size + 1 + 2 * pieces.above.shape[0],), pieces.count)
    leaving.scatter_(0, segments.lo, pieces.head).scatter_(0, segments.hi, pieces.tail)
    torch.stack([pieces.above, pieces.below], 1, out=leaving[size + 1 :].view(-1, 2))
    return leaving


def _after(segments: _Segments, c: _Crossings, pieces: _Pieces) -> Tensor:
    """The node after each half-edge of a piece, and after none: 0 where a face is closed.

    Half-edges that reach the lower end of a chord close a face, as do those that come down j to a
    crossing.
    """
    size = segments.size.shape[0]
    short = torch.int32 if size + pieces.count < _INT32 else torch.int64
    after = torch.zeros(pieces.count + 1, dtype=short, device=c.i.device)
    after.scatter_(0, pieces.tail - 1, (segments.hi + 1).to(short))
    up = torch.add(c.second, c.other, alpha=2).add_(size + 1).to(short)
    down = (up + 1).mul_(1 - c.second)
    return after.scatter_(0, pieces.up, up).scatter_(0, pieces.above + 1, down)


def _walk(
    following: Tensor, weight: Tensor, start: Tensor, leaving: Tensor, total: int
) -> tuple[FaceBoundaries, Tensor] | None:
    """Walk around all faces at once, from their first nodes, (F,): their boundaries.

    These have the half-edges with which nodes end; those of the segments are still to be filled in,
    over what the last ones of faces, with which none leaves, wrote. Also where each segment ends.
    """
    node, most = start.to(following.dtype), weight.shape[0] - 1
    face = torch.arange(node.shape[0], device=node.device) << 32  # and how far one has come
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


def _leap(
    following: Tensor, weight: Tensor, start: Tensor, leaving: Tensor, total: int
) -> tuple[FaceBoundaries, Tensor] | None:
    """What ``_walk`` gives, from the distances of all nodes to the last ones of their faces."""
    count, most = following.shape[0], weight.shape[0] - 1
    index = torch.arange(count, dtype=following.dtype, device=following.device)
    step = torch.where(following == 0, index, following)
    ahead = take(weight, following.clamp(max=most))
    for _ in range(0, count.bit_length(), _LEAPS):
        for _ in range(_LEAPS):
            ahead, step = ahead + take(ahead, step), take(step, step)
        offsets = offsets_of((take(weight, start.clamp(max=most)) + take(ahead, start)).long())
        last = take(step, start).long()
        face = take(torch.full_like(index, -1).scatter_(0, last, index[: last.shape[0]]), step[1:])
        if torch.stack([face.amin(), offsets[-1]]).tolist() == [0, total]:
            end = take(offsets[1:], face) - ahead[1:]
            half = end.new_empty(total).scatter_(0, end - 1, leaving[1:])
            return FaceBoundaries(offsets, half), end[: most - 1]
    return None
