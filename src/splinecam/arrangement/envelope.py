r"""How a max-pool picks its winner: which unit of a group is the largest where, face by face.

The maximum of affine functions is their upper envelope. A function that wins at all corners of a
convex face wins everywhere in it: the face is settled. If it is not, the winner changes somewhere,
and the border between two winners r and s is a piece of the line f_r = f_s. Where the winner
changes along an edge of the face, such a border begins:

        +---------+         +---------+        The left face has two winners: the chord is a border
        |    |    |         |  r  /   |        from end to end. In the right one the chord leaves
        |  r | s  |         |____/  s |        the border where a third function takes over, which
        |    |    |         |  t \    |        its ends, or the corners, show.
        +----P----+         +-----P---+

The largest of affine functions is convex. A function that is the largest at both ends of a segment
is the largest all along it. Otherwise the winners of the two ends cross at a point, at which either
both are the largest, or another function is; then it divides the segment into two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import prod

import torch
from torch import Tensor

from splinecam._util import arrays
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.crossings import VertexValues
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels.gpu import GpuKernel
from splinecam.kernels.kernel import Candidates

_INT8 = 1 << 7


@dataclass(frozen=True, eq=False)
class Groups:
    """G groups of R units each, of which the largest wins."""

    members: Tensor  # (G, R) the units
    shape: tuple[int, ...]  # how the result arranges the groups
    ids: Callable[[Tensor], Tensor] | None = None  # winners (B, *shape) of units (B, n), if faster
    some: bool = False  # whether this is a selection of groups, which is hardly regular

    def winners(self, z: Tensor, slack: Tensor) -> Tensor:
        """A number for the largest unit of each group, (B, G); the first within slack (G,)."""
        if self.ids is not None:
            return self.ids(z).view(-1, self.count)
        columns, slack = list(self.columns(z)), slack.view(self.shape)
        best = reduce(torch.maximum, columns) - slack
        size = len(columns)
        kind = torch.int8 if size < _INT8 else torch.int16
        first = torch.full_like(best, size - 1, dtype=kind)
        for r in range(size - 2, -1, -1):
            first.masked_fill_(columns[r] >= best, r)
        return first.view(-1, self.count)

    def columns(self, z: Tensor) -> Iterator[Tensor]:
        """The first members of all groups of units z (B, n), then the second, ...: (B, *shape)."""
        for r, (start, steps) in enumerate(self._strides):
            if start < 0 or not z.is_contiguous():
                yield z.index_select(1, self.members[:, r]).view(-1, *self.shape)
            else:
                size, step = (z.shape[0], *self.shape), (z.shape[1], *steps)
                yield z.as_strided(size, step, z.storage_offset() + start)

    @cached_property
    def _strides(self) -> list[tuple[int, tuple[int, ...]]]:
        """The first unit of each column and the strides to the next; first is -1 if they vary."""
        if self.some:
            return [(-1, ())] * self.members.shape[1]
        found = []
        table = self.members.view(*self.shape, self.members.shape[1]).cpu()
        for column in table.unbind(-1):
            start = int(column[(0,) * column.dim()])
            expected, steps = column.new_tensor(start), []
            for dim, size in enumerate(self.shape):
                step = int(column.movedim(dim, 0)[-1].flatten()[0]) - start
                steps.append(step // max(1, size - 1))
                expected = expected[..., None] + torch.arange(size, device="cpu") * steps[-1]
            regular = min(steps, default=0) >= 0 and torch.equal(expected, column)
            found.append((start if regular else -1, tuple(steps)))
        return found

    def select(self, chosen: Tensor) -> Groups:
        """Only some of the groups, (N,)."""
        return Groups(self.members[chosen], (int(chosen.shape[0]),), some=True)

    @property
    def count(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class WinnerChanges:
    """Changes of the largest function along S segments, (N,) each, in no particular order."""

    row: Tensor  # the segment
    s: Tensor  # the fraction of the segment
    error: Tensor  # how far rounding may shift it
    before: Tensor  # the largest function on this side
    after: Tensor  # the largest function on the other side
    begin: Tensor  # (S,) the largest functions at the ends of all segments
    end: Tensor  # (S,)
    inexact: Tensor  # (M,) segments on which rounding may matter


def _end_winners(first: Tensor, last: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest functions behind the first and before the last ends, and unclear rows (M,)."""
    # The other end tells functions apart that tie at one end; one that ties at both wins at both.
    a, b = (here + slack >= (here - slack).amax(1, keepdim=True) for here in (first, last))
    begin = last.masked_fill(~a, -torch.inf).argmax(1)
    end = first.masked_fill(~b, -torch.inf).argmax(1)
    both = a & b
    through, tied = both.int().argmax(1), both.any(1)
    unclear = torch.zeros_like(tied)
    if int(a.sum()) + int(b.sum()) > 2 * len(tied):
        unclear = (a.sum(1) > 1) | (b.sum(1) > 1)
    chosen = torch.where(tied, through, begin), torch.where(tied, through, end)
    return *chosen, unclear.nonzero()[:, 0]


def winner_changes(first: Tensor, last: Tensor, error: Tensor) -> WinnerChanges:
    """All changes of the largest of R functions along N segments.

    first, last: (N, R) the values at the ends; error: (N, R) or (R,) their rounding errors.

    >>> first, last = torch.tensor([[3.0, 2.0, 0.0]]), torch.tensor([[0.0, 2.0, 3.0]])
    >>> found = winner_changes(first, last, torch.zeros(3))
    >>> sorted(zip(found.s.tolist(), found.before.tolist(), found.after.tolist()))
    [(0.3333333333333333, 0, 1), (0.6666666666666666, 1, 2)]
    """
    first, last = first.double(), last.double()
    error = error.expand(first.shape).to(first)
    begin, end, unclear = _end_winners(first, last, SAFETY * error)
    a, b, inexact = begin, end, [unclear]
    row = (a != b).nonzero()[:, 0]
    a, b = a[row], b[row]
    found: list[tuple[Tensor, ...]] = []
    for _ in range(first.shape[1]):
        if not row.shape[0]:
            break
        f, g, e = first[row], last[row], error[row]
        fall = _pick(f, a) - _pick(f, b)
        change = fall + _pick(g, b) - _pick(g, a)
        s = (fall / change).nan_to_num(nan=0.5).clamp(0, 1)
        value = torch.lerp(f, g, s[:, None])
        value[torch.arange(row.shape[0], device=row.device), b] = -torch.inf  # equal to that of a
        best = value.argmax(1)
        excess = _pick(value, best) - _pick(value, a)
        slack = SAFETY * (_pick(e, best) + _pick(e, a))
        divided = excess > slack
        inexact.append(row[(best != a) & (excess.abs() <= slack)])
        shift = (_pick(e, a) + _pick(e, b)) / change.abs()
        done = ~divided
        found.append((row[done], s[done], shift[done], a[done], b[done]))
        row, a, best, b = row[divided], a[divided], best[divided], b[divided]
        row, a, b = torch.cat([row, row]), torch.cat([a, best]), torch.cat([best, b])
    if not found:
        none = row[:0]
        found.append((none, first.new_zeros(0), first.new_zeros(0), none, none))
    row, s, shift, before, after = (torch.cat(part) for part in zip(*found, strict=True))
    return WinnerChanges(row, s, shift, before, after, begin, end, torch.cat(inexact))


def _pick(table: Tensor, column: Tensor) -> Tensor:
    """One entry of each row, (N,)."""
    return table.gather(1, column[:, None])[:, 0]


_BLOCK = 1 << 20  # numbers that are compared at a time

SETTLED, CHORD, SEVERAL, UNDECIDED = range(4)
"""One winner; two, with one border between them; more; too close to tell."""


@dataclass(frozen=True)
class CandidateFaces(arrays.Columns):
    """Faces in which the winner of a group may change: face, group (N,); units (N, R)."""

    face: Tensor
    group: Tensor
    units: Tensor

    def renumbered(self, n: int) -> tuple[CandidateFaces, Tensor]:
        """The candidates with numbers among the units, of n, that occur; also these units."""
        has = torch.zeros(n, dtype=torch.bool, device=self.units.device)
        has[self.units.view(-1)] = True
        number = torch.cumsum(has, 0) - 1
        return replace(self, units=number[self.units]), has.nonzero()[:, 0]

    def without(self, dominated: Tensor) -> CandidateFaces:
        """The candidates without as many of the dominated units, (N, R), as all can spare."""
        count = int((~dominated).sum(1).max())
        order = dominated.to(torch.int8).argsort(dim=1, stable=True)[:, :count]
        units, spare = self.units.gather(1, order), dominated.gather(1, order)
        return replace(self, units=torch.where(spare, units[:, :1], units))


@dataclass(frozen=True)
class FaceStatus(arrays.Columns):
    """How many winners a group has in a face, (N,) each."""

    kind: Tensor  # SETTLED, CHORD, SEVERAL or UNDECIDED
    pair: Tensor  # (N, 2) two units whose border begins at the face's boundary
    side: Tensor  # the length of the side on which it begins


@dataclass(frozen=True)
class EnvelopeClassifier:
    """Finds the winners of groups in faces."""

    values: VertexValues  # of all units at the vertices
    error: Tensor  # (n,) their rounding errors
    gpu: GpuKernel | None = None

    def at(self, vertex: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Values and tolerances (N, R) of units at vertices, (N, R) and (N,)."""
        return self.values.at(vertex, units), SAFETY * self.error[units]

    def classify(self, mesh: Mesh, candidates: CandidateFaces) -> FaceStatus:
        """The status of each candidate."""
        if self.gpu is not None:
            return FaceStatus(*self.gpu.classify(self.for_gpu(mesh, candidates)))
        face, units = candidates.face, candidates.units
        parts = [
            _status(self._around(mesh, face[rows], units[rows]), units[rows], mesh.uv)
            for rows in self._blocks(mesh, face, units)
        ]
        return FaceStatus.join(*parts)

    def dominated(self, mesh: Mesh, candidates: CandidateFaces) -> Tensor:
        """Units that lose to another one in all of a candidate's face, or repeat it, (N, R)."""
        if self.gpu is not None:
            return self.gpu.dominated(self.for_gpu(mesh, candidates))
        face, units = candidates.face, candidates.units
        blocks = self._blocks(mesh, face, units)
        return torch.cat([self._around(mesh, face[b], units[b]).dominated() for b in blocks])

    def winner(self, mesh: Mesh, face: Tensor, units: Tensor) -> Tensor:
        """Which of the units (N, R) wins in the middle of each face, (N,)."""
        answers = [units[:0, 0]]
        for rows in self._blocks(mesh, face, units):
            place = self._around(mesh, face[rows], units[rows]).sums.argmax(1, keepdim=True)
            answers.append(units[rows].gather(1, place)[:, 0])
        return torch.cat(answers)

    def for_gpu(self, mesh: Mesh, candidates: CandidateFaces) -> Candidates:
        """The candidates as the steps for a GPU take them."""
        tolerance = SAFETY * self.error
        return Candidates(mesh, self.values.table, tolerance, candidates.face, candidates.units)

    def _blocks(self, mesh: Mesh, face: Tensor, units: Tensor) -> list[slice]:
        """Runs of rows whose faces have not too many corners together."""
        corners = mesh.offsets[face + 1] - mesh.offsets[face]
        return [slice(*run) for run in arrays.blocks_of(corners * units.shape[1], _BLOCK)]

    def _around(self, mesh: Mesh, face: Tensor, units: Tensor) -> _Around:
        rows, counts = arrays.take_rows(mesh.offsets, face)
        owner = arrays.owners_of(counts, rows.shape[0])
        vertex = mesh.edges.view(-1)[mesh.corners[rows]]
        return _Around(counts, owner, vertex, *self.at(vertex, units[owner]))


@dataclass(frozen=True)
class _Around:
    """Values of groups at the corners of N faces."""

    counts: Tensor  # (N,) corners of each face
    owner: Tensor  # (H,) the face of each corner
    vertex: Tensor  # (H,)
    z: Tensor  # (H, R)
    tolerance: Tensor  # (H, R)

    @cached_property
    def offsets(self) -> Tensor:
        return arrays.offsets_of(self.counts)

    @cached_property
    def after(self) -> Tensor:
        """The corner after each one around its face, (H,)."""
        return arrays.following(self.offsets, self.owner.shape[0])

    @property
    def sums(self) -> Tensor:
        """Sum of each member's values at the corners, (N, R)."""
        shape = (self.counts.shape[0], self.z.shape[1])
        return self.z.new_zeros(shape).index_add_(0, self.owner, self.z)

    def dominated(self) -> Tensor:
        """Members that lose everywhere to the winner in the middle, or repeat another, (N, R)."""
        order = self.sums.argsort(dim=1, descending=True, stable=True)
        z, tolerance = (x.gather(1, order[self.owner]) for x in (self.z, self.tolerance))
        lost = self.everywhere(z + tolerance < (z - tolerance)[:, :1])
        slack = tolerance[:, :-1] + tolerance[:, 1:]
        lost[:, 1:] |= self.everywhere((z[:, :-1] - z[:, 1:]).abs() <= slack)
        return torch.zeros_like(lost).scatter_(1, order, lost)

    def everywhere(self, holds: Tensor) -> Tensor:
        """Where something holds at all corners of a face: (H, R) -> (N, R)."""
        shape = (self.counts.shape[0], holds.shape[1])
        count = torch.zeros(shape, dtype=torch.int32, device=holds.device)
        return count.index_add_(0, self.owner, (~holds).to(torch.int32)) == 0

    def select(self, faces: Tensor, corners: Tensor) -> _Around:
        """Only some faces, (M,), with their corners."""
        counts = self.counts[faces]
        owner = arrays.owners_of(counts, corners.shape[0])
        vertex, z, tolerance = (x[corners] for x in (self.vertex, self.z, self.tolerance))
        return _Around(counts, owner, vertex, z, tolerance)


def _may_win(z: Tensor, tolerance: Tensor) -> Tensor:
    """Which members no other one surely exceeds, (N, R)."""
    return z + tolerance >= (z - tolerance).amax(1, keepdim=True)


def _status(around: _Around, units: Tensor, uv: Tensor) -> FaceStatus:
    """The status of each face: settled, if one member may win at all corners."""
    count = around.counts.shape[0]
    kind = units.new_full((count,), SETTLED)
    pair, side = units.new_zeros((count, 2)), uv.new_zeros(count)
    wins = _may_win(around.z, around.tolerance)
    open_ = ~around.everywhere(wins).any(1)
    rows = open_.nonzero()[:, 0]
    if rows.shape[0]:
        corners = open_[around.owner].nonzero()[:, 0]
        found = _best_border(around.select(rows, corners), wins[corners], uv)
        kind[rows], side[rows] = found.kind, found.side
        pair[rows] = units[rows].gather(1, found.pair)
    return FaceStatus(kind, pair, side)


@dataclass(frozen=True)
class _Borders(arrays.Columns):
    """Borders that may begin on sides of faces, (C,): face, side length, and two members."""

    face: Tensor
    side: Tensor
    first: Tensor
    second: Tensor


def _best_border(around: _Around, wins: Tensor, uv: Tensor) -> FaceStatus:
    """For faces with several winners the pair of members to cut by (places in the group)."""
    first, second = _changes(around)
    corner = (first != second).nonzero()[:, 0]
    vertex = around.vertex
    side = arrays.lengths(uv[vertex[around.after[corner]]] - uv[vertex[corner]])
    borders = _Borders(around.owner[corner], side, first[corner], second[corner])
    divides, others = _compared(around, wins, borders)
    valid = divides.nonzero()[:, 0]
    return _choose(around.counts.shape[0], borders.select(valid), others[valid])


def _changes(around: _Around) -> tuple[Tensor, Tensor]:
    """For each half-edge two members between which the winner changes there, or one twice, (H,)."""
    # A change is looked for from the middle of the half-edge to its end, to its start, at its end.
    z, ahead, tolerance = around.z, around.z[around.after], around.tolerance
    middle = (z + ahead) / 2
    winner = middle.argmax(1, keepdim=True)
    to_end, at_end = _overtaker(middle, ahead, winner, tolerance)
    to_start, at_start = _overtaker(middle, z, winner, tolerance)
    winner = winner[:, 0]
    other = torch.where(at_start, to_start, winner[around.after])
    return winner, torch.where(at_end, to_end, other)


def _overtaker(
    start: Tensor, end: Tensor, winner: Tensor, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """The first member to exceed the winner on the way to the end, and whether there is one."""
    gain = end - end.gather(1, winner)
    exceeds = gain > tolerance + tolerance.gather(1, winner)
    gap = start.gather(1, winner) - start
    t = torch.where(exceeds, gap / (gap + gain), torch.inf)
    return t.argmin(1), exceeds.any(1)


def _compared(around: _Around, wins: Tensor, borders: _Borders) -> tuple[Tensor, Tensor]:
    """Whether the line of each border divides its face, and whether others win there, (C,)."""
    z, tolerance = around.z, around.tolerance
    rows, counts = arrays.take_rows(around.offsets, borders.face)
    which = arrays.owners_of(counts, rows.shape[0])
    a, b = borders.first[which], borders.second[which]
    value = z[rows, a] - z[rows, b]
    slack = tolerance[rows, a] + tolerance[rows, b]
    sign = (value > slack).long() - (value < -slack).long()
    loses = ~(wins[rows, a] | wins[rows, b])
    above, below, others = (
        torch.zeros_like(counts).index_add_(0, which, flag.long())
        for flag in (sign > 0, sign < 0, loses)
    )

    # Where the line meets an edge of a face with two winners, no third one may be above.
    beyond = arrays.following(arrays.offsets_of(counts), rows.shape[0])
    met = ((sign * sign[beyond] < 0) & (others[which] == 0)).nonzero()[:, 0]
    t = (value[met] / (value[met] - value[beyond[met]]))[:, None]
    end = torch.lerp(z[rows[met]], z[around.after[rows[met]]], t)
    wins = _may_win(end, tolerance[rows[met]])
    fails = ~wins.gather(1, torch.stack([a[met], b[met]], 1)).any(1)
    others = others.index_add(0, which[met], fails.long())
    return (above > 0) & (below > 0), others > 0


def _choose(count: int, borders: _Borders, several: Tensor) -> FaceStatus:
    """The best border of each face: one between the only two winners, on the longest side."""
    face, side, size = borders.face, borders.side, borders.face.shape[0]
    index = torch.arange(size, device=face.device)
    at = side.argsort(descending=True, stable=True)  # the middle of a long side: no thin halves
    rank = torch.empty_like(index)
    rank[at] = index
    least = face.new_full((count,), 2 * size)
    least.scatter_reduce_(0, face, several.long() * size + rank, "amin")
    found = (least < 2 * size).nonzero()[:, 0]
    best = at[least[found] % max(1, size)]
    kind = face.new_full((count,), UNDECIDED)
    kind[found] = torch.where(several[best], SEVERAL, CHORD)
    pair = face.new_zeros((count, 2))
    pair[found] = torch.stack([borders.first[best], borders.second[best]], 1)
    length = side.new_zeros(count)
    length[found] = side[best]
    return FaceStatus(kind, pair, length)


# -- faces to look at -------------------------------------------------------------------------


def find_candidates(
    mesh: Mesh, z: Tensor, groups: Groups, error: Tensor, low: Tensor, high: Tensor
) -> CandidateFaces:
    """The faces whose corners have different winners in a group of units z (V, n)."""
    tolerance, members = SAFETY * error, groups.members
    group = _open_groups(members, tolerance, low, high)
    if not group.shape[0]:
        return CandidateFaces(group, group, members[group])
    if 2 * group.shape[0] > groups.count:  # all of them are faster than a selection of most
        group = torch.arange(groups.count, device=group.device)
    else:
        groups = groups.select(group)
    count = group.shape[0]
    edge, column = _different_ends(mesh, z, tolerance, groups)
    faces = mesh.halfedge_face().view(-1, 2)[edge]
    key = torch.unique((faces * count + column[:, None])[faces >= 0])
    group = group[key % count]
    return CandidateFaces(key // count, group, members[group])


def _open_groups(members: Tensor, tolerance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Groups whose winner may change, (N,): several units can win, and differ somewhere."""
    low, high, tolerance = low[members], high[members], tolerance[members]
    rival = high + tolerance >= (low - tolerance).amax(1, keepdim=True)
    top = torch.where(rival, high, -torch.inf).amax(1)
    differ = top - torch.where(rival, low, torch.inf).amin(1) > 2 * tolerance.amin(1)
    return (differ & (rival.sum(1) > 1)).nonzero()[:, 0]


def _different_ends(
    mesh: Mesh, z: Tensor, tolerance: Tensor, groups: Groups
) -> tuple[Tensor, Tensor]:
    """Edges and groups that have another winner at each end."""
    count, size = groups.count, groups.members.shape[1]
    # A narrow tolerance: too many edges may be found, never too few.
    slack = 2 * tolerance[groups.members].amin(1)
    step = max(1, _BLOCK // max(1, count * size))
    winner = torch.cat([groups.winners(block, slack) for block in torch.split(z, step)])
    found = []
    step = max(1, _BLOCK // max(1, count))
    for start in range(0, max(1, mesh.num_edges), step):  # a mesh may be empty
        a, b = (winner.index_select(0, end) for end in mesh.edges[start : start + step].unbind(1))
        row, group = (a != b).nonzero().unbind(1)
        found.append((row + start, group))
    return torch.cat([edge for edge, _ in found]), torch.cat([group for _, group in found])
