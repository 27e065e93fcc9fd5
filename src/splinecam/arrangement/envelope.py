r"""Upper envelopes: who wins a group of affine functions where, face by face.

A function that wins at all corners of a convex face wins everywhere in it: the face is settled. If
it is not, the winner changes somewhere, and the border between two winners r and s is a piece of
the line f_r = f_s. Where the winner changes along an edge of the face, such a border begins:

        +---------+         +---------+        The left face has two winners: the chord is a border
        |    |    |         |  r  /   |        from end to end. In the right one the chord leaves
        |  r | s  |         |____/  s |        the border where a third function takes over, which
        |    |    |         |  t \    |        its ends, or the corners, show.
        +----P----+         +-----P---+
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.csr import blocks_of, following, lengths, offsets_of, owners_of, take_rows
from splinecam._util.tolerances import SAFETY
from splinecam.arrangement.groups import Groups
from splinecam.arrangement.vertex_values import VertexValues
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import Candidates, GpuKernel

__all__ = [
    "BLURRED",
    "CHORD",
    "SEVERAL",
    "CandidateFaces",
    "EnvelopeClassifier",
    "FaceStatus",
    "contests",
]

_BLOCK = 1 << 20  # numbers looked at in one go

SETTLED, CHORD, SEVERAL, BLURRED = range(4)
"""One winner; two, with one border between them; more; too close to call."""


@dataclass(frozen=True)
class CandidateFaces:
    """Groups of units, of which the largest wins, in faces: face, group (N,); units (N, R)."""

    face: Tensor
    group: Tensor
    units: Tensor

    def select(self, chosen: Tensor) -> CandidateFaces:
        """Some of them, (M,) indices."""
        return CandidateFaces(self.face[chosen], self.group[chosen], self.units[chosen])

    def renumbered(self, n: int) -> tuple[CandidateFaces, Tensor]:
        """The same with numbers among the units that they have, of n; also these units."""
        has = torch.zeros(n, dtype=torch.bool, device=self.units.device)
        has[self.units.view(-1)] = True
        number = torch.cumsum(has, 0) - 1
        return replace(self, units=number[self.units]), has.nonzero()[:, 0]

    def without(self, hopeless: Tensor) -> CandidateFaces:
        """Leave units out that cannot win, (N, R); as many as all contests can spare."""
        count = int((~hopeless).sum(1).max())
        order = hopeless.to(torch.int8).argsort(dim=1, stable=True)[:, :count]
        units, spare = self.units.gather(1, order), hopeless.gather(1, order)
        return replace(self, units=torch.where(spare, units[:, :1], units))


@dataclass(frozen=True)
class EnvelopeClassifier:
    """Says who wins: field: the values of all units; error: (n,) their rounding errors.

    kernel: does it in one go on a GPU.
    """

    field: VertexValues
    error: Tensor
    kernel: GpuKernel | None = None

    def at(self, vertex: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Values and tolerances (N, R) of units at vertices, (N, R) and (N,)."""
        return self.field.at(vertex, units), SAFETY * self.error[units]

    def judge(self, mesh: Mesh, contests: CandidateFaces) -> FaceStatus:
        """How the contests stand."""
        face, units = contests.face, contests.units
        if self.kernel is not None:
            return FaceStatus(*self.kernel.classify(self.contest(mesh, contests)))
        parts = [
            self._judge(mesh, face[rows], units[rows])
            for rows in self._blocks(mesh, units.shape[1], face)
        ]
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        return FaceStatus(*(torch.cat(field) for field in fields))

    def hopeless(self, mesh: Mesh, contests: CandidateFaces) -> Tensor:
        """Units that need not be looked at any more in the contests' faces, (N, R)."""
        face, units = contests.face, contests.units
        if self.kernel is not None:
            return self.kernel.dominated(self.contest(mesh, contests))
        return torch.cat(
            [
                _Around.of(mesh, face[rows], self, units[rows]).hopeless()
                for rows in self._blocks(mesh, units.shape[1], face)
            ]
        )

    def contest(self, mesh: Mesh, contests: CandidateFaces) -> Candidates:
        """The same for the kernel."""
        tolerance = SAFETY * self.error
        return Candidates(mesh, self.field.table, tolerance, contests.face, contests.units)

    def winner(self, mesh: Mesh, face: Tensor, units: Tensor) -> Tensor:
        """Which of the units (N, R) wins in the middle of each face, (N,)."""
        answers = [units[:0, 0]]
        for rows in self._blocks(mesh, units.shape[1], face):
            place = _Around.of(mesh, face[rows], self, units[rows]).sums().argmax(1, keepdim=True)
            answers.append(units[rows].gather(1, place)[:, 0])
        return torch.cat(answers)

    def _blocks(self, mesh: Mesh, size: int, face: Tensor) -> list[slice]:
        """Runs of rows whose faces have not too many corners together."""
        corners = mesh.offsets[face + 1] - mesh.offsets[face]
        return [slice(*run) for run in blocks_of(corners * size, _BLOCK)]

    def _judge(self, mesh: Mesh, face: Tensor, units: Tensor) -> FaceStatus:
        around = _Around.of(mesh, face, self, units)
        kind = torch.full_like(face, SETTLED)
        pair = face.new_zeros((face.shape[0], 2))
        side = mesh.uv.new_zeros(face.shape)
        unsettled = ~around.winning_all().any(1)
        open_ = unsettled.nonzero()[:, 0]
        if open_.shape[0]:
            found = _best_candidate(around.select(unsettled), mesh.uv)
            kind[open_], side[open_] = found.kind, found.side
            pair[open_] = units[open_].gather(1, found.pair)
        return FaceStatus(kind, pair, side)


@dataclass(frozen=True)
class FaceStatus:
    """How things stand in a face with a group, (N,) each.

    kind: SETTLED, CHORD, SEVERAL or BLURRED; pair: (N, 2) two members, between which a border
    begins at the face's boundary; side: how long the side is on which it begins.
    """

    kind: Tensor
    pair: Tensor
    side: Tensor


@dataclass(frozen=True)
class _Around:
    """Values (H, R) of groups at the corners of faces, with tolerances, and who may win there.

    counts: (N,) corners of each face; owner, vertex: (H,) the face and the vertex of each corner.
    """

    counts: Tensor
    owner: Tensor
    vertex: Tensor
    z: Tensor
    tolerance: Tensor
    wins: Tensor

    @classmethod
    def of(cls, mesh: Mesh, face: Tensor, judge: EnvelopeClassifier, units: Tensor) -> _Around:
        rows, counts = take_rows(mesh.offsets, face)
        owner = owners_of(counts, rows.shape[0])
        vertex = mesh.edges.view(-1)[mesh.corners[rows]]
        z, tolerance = judge.at(vertex, units[owner])
        return cls(counts, owner, vertex, z, tolerance, _may_win(z, tolerance))

    def winning_all(self) -> Tensor:
        """Which members win at all corners of each face, (N, R)."""
        return self._everywhere(self.wins)

    def sums(self) -> Tensor:
        """Sum of each member's values at the corners, (N, R)."""
        shape = (self.counts.shape[0], self.z.shape[1])
        return self.z.new_zeros(shape).index_add_(0, self.owner, self.z)

    def hopeless(self) -> Tensor:
        """Members that lose everywhere to the winner in the middle, or repeat another, (N, R)."""
        order = self.sums().argsort(dim=1, descending=True, stable=True)
        z, tolerance = (x.gather(1, order[self.owner]) for x in (self.z, self.tolerance))
        lost = self._everywhere(z + tolerance < (z - tolerance)[:, :1])
        same = self._everywhere(
            (z[:, :-1] - z[:, 1:]).abs() <= tolerance[:, :-1] + tolerance[:, 1:]
        )
        lost[:, 1:] |= same
        return torch.zeros_like(lost).scatter_(1, order, lost)

    def _everywhere(self, holds: Tensor) -> Tensor:
        """Where something holds at all corners of a face: (H, R) -> (N, R)."""
        count = torch.zeros(
            (self.counts.shape[0], holds.shape[1]), dtype=torch.int32, device=holds.device
        )
        return count.index_add_(0, self.owner, (~holds).to(torch.int32)) == 0

    def select(self, chosen: Tensor) -> _Around:
        """Only some of the faces, (N,) booleans."""
        kept = chosen[self.owner].nonzero()[:, 0]
        counts = self.counts[chosen.nonzero()[:, 0]]
        owner = owners_of(counts, kept.shape[0])
        z, tolerance, wins = self.z[kept], self.tolerance[kept], self.wins[kept]
        return _Around(counts, owner, self.vertex[kept], z, tolerance, wins)


def _may_win(z: Tensor, tolerance: Tensor) -> Tensor:
    """Which members no other one surely exceeds, (N, R)."""
    return z + tolerance >= (z - tolerance).amax(1, keepdim=True)


def _best_candidate(around: _Around, uv: Tensor) -> FaceStatus:
    """For faces with several winners the pair of members to cut by (places in the group)."""
    offsets = offsets_of(around.counts)
    after = following(offsets, around.owner.shape[0])
    first, second = _changes(around, after)
    corner = (first != second).nonzero()[:, 0]
    first, second, face = first[corner], second[corner], around.owner[corner]
    side = lengths(uv[around.vertex[after[corner]]] - uv[around.vertex[corner]])

    # Each candidate looks at all corners of its face.
    rows, counts = take_rows(offsets, face)
    which = owners_of(counts, rows.shape[0])
    a, b = first[which], second[which]
    z, tolerance, wins = around.z, around.tolerance, around.wins
    value = z[rows, a] - z[rows, b]
    slack = tolerance[rows, a] + tolerance[rows, b]
    sign = (value > slack).long() - (value < -slack).long()
    nothing = torch.zeros_like(face)
    above = nothing.index_add(0, which, (sign > 0).long())
    below = nothing.index_add(0, which, (sign < 0).long())
    others = nothing.index_add(0, which, (~(wins[rows, a] | wins[rows, b])).long())

    # Where the line meets an edge of a face with two winners, no third one may be above.
    beyond = following(offsets_of(counts), rows.shape[0])
    met = (sign * sign[beyond] < 0) & (others[which] == 0)
    met = met.nonzero()[:, 0]
    t = (value[met] / (value[met] - value[beyond[met]]))[:, None]
    end = torch.lerp(z[rows[met]], z[after[rows[met]]], t)
    fine = _may_win(end, tolerance[rows[met]])
    index = torch.arange(met.shape[0], device=met.device)
    fails = ~(fine[index, a[met]] | fine[index, b[met]])
    others = others.index_add(0, which[met], fails.long())
    valid = ((above > 0) & (below > 0)).nonzero()[:, 0]
    found = face[valid], others[valid] > 0, side[valid], first[valid], second[valid]
    return _choose(around.counts.shape[0], *found)


def _changes(around: _Around, after: Tensor) -> tuple[Tensor, Tensor]:
    """For each half-edge two members between which the winner changes there, (H,) each.

    Looked for from the middle of the half-edge to its end, then to its start, then at its end;
    the two are the same where nothing changes.
    """
    z, ahead, tolerance = around.z, around.z[after], around.tolerance
    middle = (z + ahead) / 2
    winner = middle.argmax(1, keepdim=True)
    forth, is_forth = _overtaker(middle, ahead, winner, tolerance)
    back, is_back = _overtaker(middle, z, winner, tolerance)
    winner = winner[:, 0]
    at_end = winner[after]
    return winner, torch.where(is_forth, forth, torch.where(is_back, back, at_end))


def _overtaker(
    start: Tensor, end: Tensor, winner: Tensor, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """The first member to exceed the winner on the way to the end, and whether there is one."""
    gain = end - end.gather(1, winner)
    exceeds = gain > tolerance + tolerance.gather(1, winner)
    gap = start.gather(1, winner) - start
    t = torch.where(exceeds, gap / (gap + gain), torch.inf)
    return t.argmin(1), exceeds.any(1)


def _choose(
    count: int, face: Tensor, several: Tensor, side: Tensor, first: Tensor, second: Tensor
) -> FaceStatus:
    """The best candidate of each face: one with two winners only, then that on the longest side.

    A line that begins in the middle of the longest side leaves no thin halves.
    """
    index = torch.arange(face.shape[0], device=face.device)
    rank = torch.empty_like(index)
    rank[side.argsort(descending=True, stable=True)] = index
    key = several.long() * face.shape[0] + rank
    none = 2 * face.shape[0]
    least = face.new_full((count,), none).scatter_reduce_(0, face, key, "amin")
    found = (least < none).nonzero()[:, 0]
    at = torch.empty_like(index)
    at[rank] = index
    best = at[least[found] % max(1, face.shape[0])]
    kind = face.new_full((count,), BLURRED)
    kind[found] = torch.where(several[best], SEVERAL, CHORD)
    pair = face.new_zeros((count, 2))
    pair[found] = torch.stack([first[best], second[best]], 1)
    length = side.new_zeros(count)
    length[found] = side[best]
    return FaceStatus(kind, pair, length)


def contests(
    mesh: Mesh, z: Tensor, groups: Groups, error: Tensor, low: Tensor, high: Tensor
) -> CandidateFaces:
    """Where the corners of a face have different winners in a group (of equals the first).

    z: (V, n) the units, with error and range (n,).
    """
    tolerance, members = SAFETY * error, groups.members
    group = _open_groups(members, tolerance, low, high)
    if not group.shape[0]:
        return CandidateFaces(group, group, members[group])
    if 2 * group.shape[0] > groups.count:  # looking at all is faster than picking most
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
    """Groups whose winner may change, (N,): several units can win, and are not equal everywhere.

    Of a pool behind ReLUs most windows are settled by the ranges, and many others are dead.
    """
    low, high, tolerance = low[members], high[members], tolerance[members]
    rival = high + tolerance >= (low - tolerance).amax(1, keepdim=True)
    top = torch.where(rival, high, -torch.inf).amax(1)
    bottom = torch.where(rival, low, torch.inf).amin(1)
    differ = top - bottom > 2 * tolerance.amin(1)
    return (differ & (rival.sum(1) > 1)).nonzero()[:, 0]


def _different_ends(
    mesh: Mesh, z: Tensor, tolerance: Tensor, groups: Groups
) -> tuple[Tensor, Tensor]:
    """Edges and groups that have another winner at each end."""
    count, size = groups.count, groups.members.shape[1]
    # A narrow tolerance: too many edges may be found, never too few.
    slack = 2 * tolerance[groups.members].amin(1)
    step = max(1, _BLOCK // max(1, count * size))
    blocks = [groups.winners(block, slack) for block in torch.split(z, step)]
    winner = torch.cat(blocks)
    found = []
    step = max(1, _BLOCK // max(1, count))
    for start in range(0, max(1, mesh.num_edges), step):  # a mesh may be empty
        a, b = mesh.edges[start : start + step].unbind(1)
        row, other = (winner.index_select(0, a) != winner.index_select(0, b)).nonzero().unbind(1)
        found.append((row + start, other))
    return torch.cat([row for row, _ in found]), torch.cat([other for _, other in found])
