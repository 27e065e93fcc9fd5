r"""Draw chords in general position: every crossing of every face at once.

    lo_i < lo_j < hi_i < hi_j  around the face      The four ways out of a crossing are met
                                                    counter-clockwise as hi_i, hi_j, lo_i, lo_j:
          hi_j    lo_i                              the same cyclic order as on the boundary. So the
             \   /                                   next half-edge of every half-edge is known
               x                                    without looking at an angle, and the faces are
             /   \                                   the cycles of ``next``.
          hi_i    lo_j

Faces in which two things come closer than rounding can tell (chords that share an end, three chords
through almost one point) are left to ``arrange``, which draws one chord at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.chords import Arrangement, Chords, Lines, Loops, Woven, meet
from splinecam.errors import LimitError
from splinecam.links import cycles
from splinecam.predicates import SAFETY, UV_ERROR
from splinecam.ragged import argsort_rows, blocks_of, offsets_of, owners_of, places_of, take

__all__ = ["weave"]

_PAIRS = 1 << 22  # pairs of chords looked at in one go


def weave(
    loops: Loops,
    chords: Chords,
    lines: Lines,
    out: Arrangement,
    *,
    max_faces: int | None = None,
) -> Tensor:
    """Draw the chords of all faces in general position into ``out``; returns the other faces."""
    faces = torch.arange(loops.offsets.shape[0] - 1, device=loops.half.device)
    left = faces[:0]
    tight = _crowded(loops, chords)
    while True:
        if bool(tight.any()):
            left = torch.cat([left, faces[tight]])
            rank = torch.cumsum((~tight).long(), 0) - 1
            kept = (~tight).nonzero()[:, 0]
            loops, faces = loops.select(kept), faces[kept]
            chords = chords.select((~tight[chords.face]).nonzero()[:, 0])
            chords.face = rank[chords.face]
        if not faces.shape[0]:
            return left
        crossings = _crossings(loops, chords, lines, max_faces)
        tight = crossings.tight
        if not bool(tight.any()):
            break
    _draw(loops, crossings, lines, out)
    return torch.sort(left).values


def _crowded(loops: Loops, chords: Chords) -> Tensor:
    """Faces (F,) with two chord ends at one corner, or a chord between neighbouring corners."""
    start, sizes = loops.offsets[:-1][chords.face], loops.sizes()[chords.face]
    ends = torch.bincount(
        torch.cat([start + chords.p, start + chords.q]), minlength=loops.half.shape[0]
    )
    gap = chords.q - chords.p
    short = (
        (gap < 2) | (gap > sizes - 2) | (ends[start + chords.p] > 1) | (ends[start + chords.q] > 1)
    )
    crowded = torch.zeros(loops.offsets.shape[0] - 1, dtype=torch.bool, device=short.device)
    crowded[chords.face[short]] = True
    return crowded


@dataclass(frozen=True)
class _Crossings:
    """Chords ordered by their lower end, and all their crossings.

    Per chord, (N,): line, lo and hi (places in the flat boundary), count of crossings.
    Per crossing, (X,): chords i and j, its fraction s on i, its rank along i and along j.
    other, along: (2X,) the crossing chords and their fractions, in order along each chord.
    tight: (F,) faces in which rounding leaves the order of some crossings open.
    """

    line: Tensor
    lo: Tensor
    hi: Tensor
    count: Tensor
    i: Tensor
    j: Tensor
    s: Tensor
    rank_i: Tensor
    rank_j: Tensor
    other: Tensor
    along: Tensor
    tight: Tensor


def _crossings(loops: Loops, chords: Chords, lines: Lines, max_faces: int | None) -> _Crossings:
    start = loops.offsets[:-1][chords.face]
    at = loops.half.new_full(loops.half.shape, -1)
    at[start + chords.p] = torch.arange(chords.p.shape[0], device=at.device)
    lower = at >= 0
    order = at[lower.nonzero()[:, 0]]
    chords, start = chords.select(order), start[order]
    lo, hi, line = start + chords.p, start + chords.q, chords.line
    n = lo.shape[0]
    room = None if max_faces is None else max_faces - (loops.offsets.shape[0] - 1) - n
    i, j = _pairs(lo, hi, torch.cumsum(lower.long(), 0), room)
    x = i.shape[0]
    s_i, s_j, error_i, error_j = meet(lines, take(line, i), take(line, j))
    chord, s, error = (torch.cat(pair) for pair in ((i, j), (s_i, s_j), (error_i, error_j)))
    sequence = argsort_rows(chord, s)
    chord, s, error = take(chord, sequence), take(s, sequence), take(error, sequence)
    count = torch.bincount(chord, minlength=n)
    rank = torch.empty_like(sequence)
    rank[sequence] = places_of(count, chord, offsets_of(count))
    close = _close(lines.length()[line], chord, s, error)
    tight = torch.zeros(loops.offsets.shape[0] - 1, dtype=torch.bool, device=close.device)
    tight[chords.face[chord[close]]] = True
    other = take(torch.cat([j, i]), sequence)
    return _Crossings(line, lo, hi, count, i, j, s_i, rank[:x], rank[x:], other, s, tight)


def _pairs(lo: Tensor, hi: Tensor, rank: Tensor, room: int | None) -> tuple[Tensor, Tensor]:
    """Chords i < j whose ends alternate; rank: how many chords begin up to each place.

    Each makes a face; as soon as there are more than there is room for, that is an error.
    """
    candidates = rank[hi] - rank[lo]  # chords that begin between the ends of each
    offsets = offsets_of(candidates)
    found = []
    total = 0
    if room is not None and room < 0:
        raise LimitError("too many regions")
    for first, last in blocks_of(candidates, _PAIRS):
        owner = owners_of(candidates[first:last]) + first
        place = torch.arange(owner.shape[0], device=lo.device) + offsets[first]
        other = owner + 1 + place - take(offsets, owner)
        crossing = (take(hi, other) > take(hi, owner)).nonzero()[:, 0]
        total += crossing.shape[0]
        if room is not None and total > room:
            raise LimitError("too many regions")
        found.append((take(owner, crossing), take(other, crossing)))
    return torch.cat([a for a, _ in found]), torch.cat([b for _, b in found])


def _close(length: Tensor, chord: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Entries too close to their neighbour along the chord, or to an end of the chord, (N,)."""
    end = error + take(UV_ERROR / length, chord)
    close: Tensor = torch.minimum(s, 1 - s) <= SAFETY * end
    close[1:] |= (chord[1:] == chord[:-1]) & (s[1:] - s[:-1] <= SAFETY * (error[1:] + error[:-1]))
    return close


def _draw(loops: Loops, c: _Crossings, lines: Lines, out: Arrangement) -> None:
    """Make the vertices, edges and faces of chords whose crossings are all in order."""
    n, x, first_edge = c.line.shape[0], c.i.shape[0], out.edges.shape[0]
    first = offsets_of(c.count + 1)
    edge_i, edge_j = take(first, c.i) + c.rank_i, take(first, c.j) + c.rank_j
    vertex = torch.arange(x, device=c.i.device) + out.uv.shape[0]
    path = torch.empty((int(first[n]), 2), dtype=torch.int64, device=vertex.device)
    path[first[:-1], 0], path[first[1:] - 1, 1] = lines.start[c.line], lines.end[c.line]
    for edge in (edge_i, edge_j):
        path[edge, 1] = vertex
        path[edge + 1, 0] = vertex
    out.edges = torch.cat([out.edges, path])
    out.edge_line.append(take(c.line, owners_of(c.count + 1, path.shape[0])))
    line = take(c.line, c.i)
    out.uv = torch.cat([out.uv, lines.point(line, c.s)])
    out.vertex_line.append(line)
    out.vertex_s.append(c.s)
    meetings = offsets_of(c.count)
    place = take(meetings, c.i) + c.rank_i
    out.woven = Woven(c.line, meetings, take(c.line, c.other), c.along, c.i, place)
    following = _next(loops, c, first, edge_i, edge_j)
    offsets, members = cycles(following)
    new = torch.arange(2 * path.shape[0], device=vertex.device) + 2 * first_edge
    out.loops.append(Loops(offsets, take(torch.cat([loops.half, new]), members)))


def _next(loops: Loops, c: _Crossings, first: Tensor, edge_i: Tensor, edge_j: Tensor) -> Tensor:
    """The half-edge after each: the old boundary's come first, then those of the new edges."""
    size = loops.half.shape[0]
    following = torch.arange(1, size + 2 * int(first[-1]) + 1, device=loops.half.device)
    following[loops.offsets[1:] - 1] = loops.offsets[:-1]
    before = torch.arange(-1, size - 1, device=loops.half.device)
    before[loops.offsets[:-1]] = loops.offsets[1:] - 1

    def forth(edge: Tensor) -> Tensor:
        return size + 2 * edge

    def back(edge: Tensor) -> Tensor:
        return size + 2 * edge + 1

    head, tail = first[:-1], first[1:] - 1
    following[before[c.lo]] = forth(head)
    following[back(head)] = c.lo
    following[before[c.hi]] = back(tail)
    following[forth(tail)] = c.hi
    following[forth(edge_i)] = forth(edge_j + 1)
    following[forth(edge_j)] = back(edge_i)
    following[back(edge_i + 1)] = back(edge_j)
    following[back(edge_j + 1)] = forth(edge_i + 1)
    return following
