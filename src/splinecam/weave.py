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

from splinecam.chords import Arrangement, Lines, Loops, Spans, Woven, meet
from splinecam.errors import LimitError
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.ragged import blocks_of, offsets_of, owners_of, sort_rows, take

__all__ = ["weave"]

# Pairs of chords looked at in one go.
_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 27}

# Steps around all faces before those that are done are left out: a GPU has to wait for that.
_STRIDE = {"cpu": 1, "cuda": 4}

_INT32 = 1 << 31


def weave(
    loops: Loops,
    spans: Spans,
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


def _crowded(loops: Loops, spans: Spans) -> Tensor:
    """Faces (F,) with two chord ends at one corner, or a chord between neighbouring corners."""
    face = spans.faces(loops)
    ends = torch.bincount(torch.cat([spans.lo, spans.hi]), minlength=loops.half.shape[0])
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
    def of(cls, loops: Loops, spans: Spans) -> _Segments:
        begins, places = loops.offsets[:-1], loops.half.shape[0]
        at = loops.half.new_zeros(places).scatter_(0, begins, 1)
        at[:1] = 0  # so that they are counted from 0
        one = torch.ones_like(spans.lo)
        at.scatter_add_(0, spans.lo, one).scatter_add_(0, spans.hi, one)
        torch.cumsum(at, 0, out=at)
        first = torch.zeros_like(begins)
        first[1:] = take(at, begins[1:] - 1) + 1
        lo, hi = take(at, spans.lo), take(at, spans.hi)
        start = begins.new_empty(begins.shape[0] + 2 * lo.shape[0] + 1)
        start.scatter_(0, first, begins).scatter_(0, lo, spans.lo).scatter_(0, hi, spans.hi)
        start[-1:] = places
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
    loops: Loops, spans: Spans, segments: _Segments, lines: Lines, max_faces: int | None
) -> _Crossings:
    n = spans.lo.shape[0]
    room = None if max_faces is None else max_faces - loops.count - n
    i, j = _pairs(segments, room)
    x = i.shape[0]
    s_i, s_j, error_i, error_j = meet(lines, take(spans.line, i), take(spans.line, j))
    sequence, chord, along = sort_rows(torch.cat([i, j]), torch.cat([s_i, s_j]), n)
    error = take(torch.cat([error_i, error_j]), sequence)
    short = torch.int32 if 2 * x < _INT32 else torch.int64
    index = torch.arange(2 * x, dtype=short, device=i.device)
    slot = torch.empty_like(index).scatter_(0, sequence, index)
    second = (sequence >= x).to(short)
    offsets = i.new_zeros(n + 1)
    offsets[1:].scatter_add_(0, chord, torch.ones_like(chord))
    torch.cumsum(offsets, 0, out=offsets)
    close = _close(take(lines.length, spans.line), chord, along, error).nonzero()[:, 0]
    tight = None
    if close.shape[0]:
        tight = torch.zeros(loops.count, dtype=torch.bool, device=close.device)
        tight[spans.faces(loops)[chord[close]]] = True
    return _Crossings(
        i=i,
        j=j,
        s=s_i,
        slot=slot,
        chord=chord,
        along=along,
        crossing=sequence - x * second,
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
    rows, total, limit = counts.shape[0], int(offsets[-1]), _PAIRS[counts.device.type]
    if total <= limit:
        return [(0, rows, 0, total)]
    runs = torch.tensor(blocks_of(counts, limit), device=counts.device)
    return [(*run, *ends) for run, ends in zip(runs.tolist(), offsets[runs].tolist(), strict=True)]


def _close(length: Tensor, chord: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Entries too close to their neighbour along the chord, or to an end of the chord, (N,)."""
    end = error + take(UV_ERROR / length, chord)
    close: Tensor = torch.minimum(s, 1 - s) <= SAFETY * end
    close[1:] |= (chord[1:] == chord[:-1]) & (s[1:] - s[:-1] <= SAFETY * (error[1:] + error[:-1]))
    return close


# -- faces ------------------------------------------------------------------------------------


def _draw(
    loops: Loops,
    spans: Spans,
    segments: _Segments,
    c: _Crossings,
    lines: Lines,
    out: Arrangement,
) -> bool:
    """Make the vertices, edges and faces of chords whose crossings are all in order.

    Returns whether that was possible; if not, nothing is made.
    """
    index = torch.arange(spans.lo.shape[0], device=c.i.device)
    head, tail = c.offsets[:-1] + index, c.offsets[1:] + index  # first and last piece of a chord
    piece = torch.arange(c.chord.shape[0], device=c.i.device) + c.chord  # that ends at each slot
    made = _faces(loops, segments, c, _leaving(segments, head, tail, piece, 2 * out.num_edges))
    if made is None:
        return False
    count = index.shape[0] + piece.shape[0]
    path = index.new_empty(2 * count)
    path.scatter_(0, 2 * head, take(lines.start, spans.line))
    path.scatter_(0, 2 * tail + 1, take(lines.end, spans.line))
    vertex = c.crossing + out.num_vertices
    path.scatter_(0, 2 * piece + 1, vertex).scatter_(0, 2 * piece + 2, vertex)
    owner = index.new_empty(count).scatter_(0, head, spans.line)
    owner.scatter_(0, piece + 1, take(spans.line, c.chord))
    line = take(spans.line, c.i)
    out.add_vertices(lines.point(line, c.s))
    out.add_edges(path.view(-1, 2))
    out.edge_line.append(owner)
    out.vertex_line.append(line)
    out.vertex_s.append(c.s)
    crossed = take(spans.line, take(c.chord, c.other))
    place = c.slot[: c.i.shape[0]].long()
    out.woven = Woven(spans.line, c.offsets, crossed, c.along, c.i, place)
    out.loops.append(made)
    return True


def _leaving(segments: _Segments, head: Tensor, tail: Tensor, piece: Tensor, first: int) -> Tensor:
    """The half-edge with which each node ends; the last segment of a face has none.

    head, tail: (N,) the first and last piece of each chord; piece: (2X,) the one before each slot;
    first: the first new half-edge.
    """
    size = segments.size.shape[0]
    leaving = piece.new_zeros(size + 2 * piece.shape[0] + 1)
    leaving.scatter_(0, segments.lo, 2 * head + first).scatter_(
        0, segments.hi, 2 * tail + first + 1
    )
    towards_hi, towards_lo = leaving[size + 1 :].view(-1, 2).unbind(1)
    torch.add(first + 2, piece, alpha=2, out=towards_hi)
    torch.add(first + 1, piece, alpha=2, out=towards_lo)
    return leaving


def _faces(loops: Loops, segments: _Segments, c: _Crossings, leaving: Tensor) -> Loops | None:
    """The boundaries of the new faces, or None if the crossings are not those of a subdivision.

    Nodes are the segments, each with the piece that leaves the boundary after it, and the pieces
    that leave a crossing, two for each slot: towards hi, and towards lo; they are counted from 1.
    """
    size, x = segments.size.shape[0], c.i.shape[0]
    following = _following(segments, c)
    weight = following.new_ones(size + 2)  # half-edges of a segment, and of all other nodes
    weight[1:-1] += segments.size
    last = torch.where(segments.first == 0, size, segments.first)
    weight.scatter_add_(0, last, weight.new_full(last.shape, -1))  # no piece leaves these
    weight[0] = following[0] = 0  # one who has come around stays there
    node = torch.cat([segments.first, segments.lo, c.slot[:x] * 2 + size]).to(weight.dtype).add_(1)
    face = torch.arange(node.shape[0], device=node.device) << 32  # and how far one has come
    walk, stride = [], _STRIDE[node.device.type]
    while node.shape[0]:  # all faces are walked around at once
        for _ in range(stride):
            steps = take(weight, node.clamp(max=size + 1))
            face = face + steps
            walk.append((node, face, steps))
            node = take(following, node)
        going = node.nonzero()[:, 0]
        node, face = take(node, going), take(face, going)
    node, face, steps = (torch.cat(part) for part in zip(*walk, strict=True))
    if stride > 1:
        real = node.nonzero()[:, 0]
        node, face, steps = take(node, real), take(face, real), take(steps, real)
    if node.shape[0] != following.shape[0] - 1:
        return None
    end = face & (_INT32 - 1)
    face >>= 32
    sizes = face.new_zeros(walk[0][0].shape).scatter_add_(0, face, steps.long())
    offsets = offsets_of(sizes)
    place = take(offsets, face).add_(end)
    half = offsets.new_empty(loops.half.shape[0] + leaving.shape[0])
    half.scatter_(0, place - 1, take(leaving, node))
    # Afterwards, as the last segments of faces wrote what is not there over their own end.
    ends = offsets.new_empty(size + 2).scatter_(0, node.clamp(max=size + 1).long(), place)
    begin = ends[1:-1] - weight[1:-1]
    moved = take(begin.sub_(segments.start), segments.at)
    moved += torch.arange(moved.shape[0], device=moved.device)
    half.scatter_(0, moved, loops.half)
    return Loops(offsets, half[: int(offsets[-1])])


def _following(segments: _Segments, c: _Crossings) -> Tensor:
    """The node after each, 0 where a face is closed; node 0 is none.

    A segment's piece leaves from the end with which the next segment begins; the last segment of a
    face has none, and is closed by the first. Pieces that reach the lower end of a chord close a
    face, as do those that come down j to a crossing.
    """
    size, count = segments.size.shape[0], segments.size.shape[0] + 4 * c.i.shape[0] + 1
    short = torch.int32 if count < _INT32 else torch.int64
    following = torch.zeros(count, dtype=short, device=c.i.device)
    hi = (segments.hi + 1).to(short)
    if not c.i.shape[0]:
        return following.scatter_(0, segments.lo, hi)
    # Nodes after pieces that come to a slot from lo, and from hi.
    up = (c.other * 2 + c.second).add_(size + 1).to(short)
    down = (c.other * 2).add_(size + 2).mul_(1 - c.second).to(short)
    crossed = (c.offsets[1:] > c.offsets[:-1]).nonzero()[:, 0]
    first, last = take(c.offsets, crossed), take(c.offsets[1:], crossed) - 1
    towards_hi, towards_lo = following[size + 1 :].view(-1, 2).unbind(1)
    towards_hi[:-1] = up[1:]
    towards_hi.scatter_(0, last, take(hi, crossed))
    towards_lo[1:] = down[:-1]
    towards_lo.scatter_(0, first, 0)
    following.scatter_(0, segments.lo, hi.scatter(0, crossed, take(up, first)))
    return following.scatter_(0, take(segments.hi, crossed), take(down, last))
