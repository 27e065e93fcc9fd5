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
    index = torch.arange(2 * x, device=i.device)
    slot = torch.empty_like(sequence).scatter_(0, sequence, index)
    second = (sequence >= x).long()
    offsets = i.new_zeros(n + 1)
    offsets[1:].scatter_add_(0, chord, torch.ones_like(chord))
    torch.cumsum(offsets, 0, out=offsets)
    close = _close(take(lines.length(), spans.line), chord, along, error).nonzero()[:, 0]
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
    for first, last in blocks_of(candidates, _PAIRS[lo.device.type]):
        begin, end = (0, int(offsets[-1])) if last - first == n else offsets[[first, last]].tolist()
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
    nodes = _nodes(segments, c)
    if nodes is None:
        return False
    begin, offsets = nodes
    first_edge, first_vertex = out.num_edges, out.num_vertices
    index = torch.arange(spans.lo.shape[0], device=c.i.device)
    head, tail = c.offsets[:-1] + index, c.offsets[1:] + index  # first and last piece of a chord
    piece = torch.arange(c.chord.shape[0], device=c.i.device) + c.chord  # that ends at each slot
    count = index.shape[0] + piece.shape[0]
    path = index.new_empty(2 * count)
    path.scatter_(0, 2 * head, take(lines.start, spans.line))
    path.scatter_(0, 2 * tail + 1, take(lines.end, spans.line))
    vertex = c.crossing + first_vertex
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
    out.woven = Woven(spans.line, c.offsets, crossed, c.along, c.i, c.slot[: c.i.shape[0]])

    half = loops.half.new_empty(loops.half.shape[0] + 2 * count)
    size = segments.size.shape[0]
    moved = take(begin[:size] - segments.start, segments.at)
    moved += torch.arange(moved.shape[0], device=moved.device)
    half.scatter_(0, moved, loops.half)
    ends = begin[:size] + segments.size
    half.scatter_(0, take(ends, segments.lo - 1), 2 * (head + first_edge))
    half.scatter_(0, take(ends, segments.hi - 1), 2 * (tail + first_edge) + 1)
    leaving = 2 * (piece + first_edge)
    half.scatter_(0, begin[size:], torch.stack([leaving + 2, leaving + 1], 1).view(-1))
    out.loops.append(Loops(offsets, half))
    return True


def _nodes(segments: _Segments, c: _Crossings) -> tuple[Tensor, Tensor] | None:
    """Where in the new boundaries each segment and piece begins, and the offsets of the faces.

    Nodes are the segments, each with the piece that leaves the boundary after it, and the pieces
    that leave a crossing, two for each slot: towards hi, and towards lo.
    """
    size, x = segments.size.shape[0], c.i.shape[0]
    leaders = torch.cat([segments.first, segments.lo, size + 2 * c.slot[:x]])
    current, face = leaders, torch.arange(leaders.shape[0], device=leaders.device)
    following = _following(segments, c)
    walk = [(current, face)]
    while True:  # all faces are walked around at once
        current = take(following, current)
        going = (current >= 0).nonzero()[:, 0]
        if not going.shape[0]:
            break
        current, face = take(current, going), take(face, going)
        walk.append((current, face))
    node, face = (torch.cat(part) for part in zip(*walk, strict=True))
    if node.shape[0] != following.shape[0]:  # no subdivision has such crossings
        return None
    counts = torch.zeros_like(leaders).scatter_add_(0, face, torch.ones_like(face))
    lengths = torch.tensor([part[0].shape[0] for part in walk], device=node.device)
    rows = offsets_of(counts)
    place = take(rows, face) + owners_of(lengths, node.shape[0])
    ordered = torch.empty_like(node).scatter_(0, place, node)
    weight = torch.ones_like(node)
    weight[:size] += segments.size
    weight[(segments.first - 1) % size] -= 1  # no piece leaves after the last segment of a face
    begin = offsets_of(take(weight, ordered))
    return torch.empty_like(node).scatter_(0, ordered, begin[:-1]), take(begin, rows)


def _following(segments: _Segments, c: _Crossings) -> Tensor:
    """The node after each, -1 where a face is closed.

    A segment's piece leaves from the end with which the next segment begins; the last segment of a
    face has none, and is closed by the first. Pieces that reach the lower end of a chord close a
    face, as do those that come down j to a crossing.
    """
    size = segments.size.shape[0]
    following = segments.lo.new_full((size + 4 * c.i.shape[0],), -1)
    if not c.i.shape[0]:
        return following.scatter_(0, segments.lo - 1, segments.hi)
    up = size + 2 * c.other + c.second  # the node after a piece that comes to a slot from lo
    down = (size + 2 * c.other + 2) * (1 - c.second) - 1  # and from hi
    crossed = (c.offsets[1:] > c.offsets[:-1]).nonzero()[:, 0]
    first, last = take(c.offsets, crossed), take(c.offsets[1:], crossed) - 1
    towards_hi, towards_lo = following[size:].view(-1, 2).unbind(1)
    towards_hi[:-1] = up[1:]
    towards_hi[last] = take(segments.hi, crossed)
    towards_lo[1:] = down[:-1]
    towards_lo[first] = -1
    from_lo = segments.hi.scatter(0, crossed, take(up, first))
    from_hi = torch.full_like(segments.lo, -1).scatter_(0, crossed, take(down, last))
    following.scatter_(0, segments.lo - 1, from_lo)
    return following.scatter_(0, segments.hi - 1, from_hi)
