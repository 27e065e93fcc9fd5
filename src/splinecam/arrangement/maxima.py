"""Cut a mesh along the upper envelopes of groups of functions: only where the winner changes.

1. Contested faces: those whose corners have different winners in a group (``envelope``).
2. Where a group has more than two winners in a face, no single chord will do: the face is cut in
   two by one of the lines, again and again, until each part sees two winners of each group at most.
3. Then all borders are chords from end to end, and are drawn at once.
4. The lines of step 2 went on where neither of their two functions wins: those parts are taken out
   again (``dissolve``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import counts_of, offsets_of, owners_of, places_in, take, take_rows
from splinecam.arrangement.dissolve import dissolve
from splinecam.arrangement.envelope import (
    BLURRED,
    CHORD,
    SEVERAL,
    CandidateFaces,
    EnvelopeClassifier,
    contests,
)
from splinecam.arrangement.envelope_chords import Halves, Wanted, draw_strokes, halve
from splinecam.arrangement.groups import Groups
from splinecam.arrangement.refinement import Ambiguities, Refinement, unrefined
from splinecam.arrangement.vertex_values import VertexValues
from splinecam.errors import LimitError
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh
from splinecam.kernels import GpuKernel

__all__ = ["refine_maxima"]

_WAITING = BLURRED + 1  # a contest with one border, in a face with more in another contest
_HELPER = -2  # edge_unit of an edge of the k-th helping line: _HELPER - k
_FEW = 4  # times more units than are compared: then the others are left out
_ASIDE = 0.381966  # a point of a line that is not half-way between anything

CLOSE = "the members of a maximum are too close to tell the largest"


def refine_maxima(
    mesh: Mesh,
    z: Tensor,
    groups: Groups,
    error: Tensor,
    low: Tensor,
    high: Tensor,
    op: int,
    *,
    max_faces: int | None = None,
    kernel: GpuKernel | None = None,
) -> Refinement:
    """Cut every face where the largest of a group changes.

    z: (V, n) values of the units, with rounding error and range (n,); kernel: of a GPU.
    """
    open_ = contests(mesh, z, groups, error, low, high)
    if not open_.face.shape[0]:
        return unrefined(mesh, [])
    few, used = open_.renumbered(z.shape[1])
    if used.shape[0] * _FEW < z.shape[1]:  # the others need not be known at new vertices
        z, error, open_ = z[:, used], error[used], few
    work = _Work(
        mesh,
        EnvelopeClassifier(VertexValues.of(z), error, kernel),
        op,
        open_,
        groups.count,
        max_faces,
    )
    while work.step():
        pass
    return work.finish()


@dataclass(frozen=True)
class _Helpers:
    """Helping lines, and the contests that may have a border along them, (N,) each."""

    line: Tensor
    contests: CandidateFaces


def _joined(parts: list[_Helpers]) -> list[_Helpers]:
    """The same in one part, if they are not many: fewer operations count more then."""
    widest = max(part.contests.units.shape[1] for part in parts)
    if (
        widest * sum(part.line.shape[0] for part in parts)
        > backend_of(parts[0].line.device).envelope_members
    ):
        return parts
    units = [part.contests.units for part in parts]  # a member may be there more than once
    units = [torch.cat([x, x[:, :1].expand(-1, widest - x.shape[1])], 1) for x in units]
    face, group, line = (
        torch.cat(some)
        for some in zip(*((p.contests.face, p.contests.group, p.line) for p in parts), strict=True)
    )
    return [_Helpers(line, CandidateFaces(face, group, torch.cat(units)))]


@dataclass
class _Work:
    """The mesh so far, and the contests still open in its faces.

    nobody: more than any group's number. chords: rows of face, two units and group, of the borders
    to be drawn in the end; lines: how many helping lines there are.
    """

    mesh: Mesh
    judge: EnvelopeClassifier
    op: int
    open: CandidateFaces
    nobody: int
    max_faces: int | None
    early: list[InterpolatedVertices] = field(default_factory=list)
    chords: list[Tensor] = field(default_factory=list)
    helpers: list[_Helpers] = field(default_factory=list)
    lines: int = 0
    ambiguities: list[Ambiguities] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old = self.mesh.num_vertices

    def step(self) -> bool:
        """Cut faces with more than two winners in two; False when there are none left."""
        if not self.open.face.shape[0]:
            return False
        verdict = self.judge.judge(self.mesh, self.open)
        kind, face, faces = verdict.kind, self.open.face, self.mesh.num_faces
        busy = torch.zeros(faces + 1, dtype=torch.bool, device=face.device)
        busy.index_fill_(0, torch.where(kind == SEVERAL, face, faces), True)
        kind = torch.where((kind == CHORD) & take(busy, face), _WAITING, kind)
        # What a GPU has to wait for comes in one go.
        sizes = torch.cat([counts_of(kind, _WAITING + 1), busy[:-1].sum()[None]]).tolist()
        order = kind.argsort(stable=True)
        _, settled, several, blurred, waiting = torch.split(order, sizes[:-1])
        self._doubt(face[blurred])
        row = [
            face[settled, None],
            verdict.pair[settled],
            self.open.group[settled, None],
        ]
        self.chords.append(torch.cat(row, 1))
        if not several.shape[0]:
            return False
        chosen = torch.cat([several, waiting]).sort().values
        self.open = self.open.select(chosen)
        self.open = self.open.without(self.judge.hopeless(self.mesh, self.open))
        several = places_in(kind[chosen] == SEVERAL, several.shape[0])
        best = self._longest(several, verdict.side[chosen], sizes[-1])
        self._halve(best, verdict.pair[chosen[best]])
        return True

    def _doubt(self, face: Tensor) -> None:
        if face.shape[0]:
            self.ambiguities.append(Ambiguities(self.mesh.means()[torch.unique(face)], CLOSE))

    def _longest(self, several: Tensor, side: Tensor, count: int) -> Tensor:
        """Of the contests with several winners one for each of so many faces, ordered by face."""
        order = several[side[several].argsort(stable=True)]
        rank = torch.arange(order.shape[0], device=order.device)
        last = order.new_full((self.mesh.num_faces,), -1)
        last.scatter_reduce_(0, self.open.face[order], rank, "amax")
        return order[last[places_in(last >= 0, count)]]

    def _halve(self, best: Tensor, pair: Tensor) -> None:
        """Cut the faces of these contests by the lines of the pairs (N, 2) of units."""
        count = best.shape[0]
        if self.max_faces is not None and self.mesh.num_faces + count > self.max_faces:
            raise LimitError("too many regions")
        marks = _HELPER - self.lines - torch.arange(count, device=best.device)
        halves = halve(self.mesh, self._wanted(self._keys(self.open.face[best], pair), marks))
        self.judge.field.grow(halves.interpolated, halves.position_error)
        self.early.append(halves.interpolated)
        self.ambiguities += halves.ambiguities
        self.mesh = halves.mesh
        self._hand_down(halves, pair[halves.which], count)
        self.lines += count

    def _keys(self, face: Tensor, pair: Tensor) -> Tensor:
        """Of the borders between pairs (N, 2) of units in faces (N,): see ``Wanted``."""
        n, (first, second) = self.judge.error.shape[0], pair.unbind(1)
        low, high = torch.minimum(first, second), torch.maximum(first, second)
        return (face * n + low) * n + high

    def _wanted(self, key: Tensor, unit: Tensor) -> Wanted:
        judge = self.judge
        units = judge.field, judge.error, judge.kernel
        return Wanted(key, unit, self.op, *units, self.max_faces)

    def _hand_down(self, halves: Halves, pair: Tensor, count: int) -> None:
        """Open contests go to both halves; note which of them may have a border on the line.

        pair: (N, 2) the units between which each line was drawn; count: how many were wanted.
        """
        number = halves.face.new_full((self.mesh.num_faces,), -1)
        number[halves.face] = torch.arange(halves.face.shape[0], device=number.device)
        which = number[self.open.face]
        left = self.open
        if pair.shape[0] < count:  # lines that vanished in rounding
            self._doubt(left.face[which < 0])
            cut = (which >= 0).nonzero()[:, 0]
            left, which = left.select(cut), which[cut]
        chosen = self._along(left, which, halves.ends, pair).nonzero()[:, 0]
        line = self.lines + halves.which[which]
        self.helpers.append(_Helpers(line[chosen], left.select(chosen)))
        right = replace(left, face=halves.new_face[which])
        both = zip(vars(left).values(), vars(right).values(), strict=True)
        self.open = CandidateFaces(*(torch.cat(pair) for pair in both))

    def _along(self, contests: CandidateFaces, cut: Tensor, ends: Tensor, pair: Tensor) -> Tensor:
        """Which contests may have a border along the lines that cut their faces, (N,).

        That is between their pair (L, 2), or two units that are equal between their ends (L, 2).
        """
        judge, units = self.judge, contests.units
        if judge.kernel is not None:
            given = judge.contest(self.mesh, contests), cut, ends, pair, _ASIDE
            return judge.kernel.tied_along_lines(*given)
        first, second = ((units == unit[:, None]).any(1) for unit in pair[cut].unbind(1))
        (a, tolerance), (b, _) = (judge.at(vertex, units) for vertex in ends[cut].unbind(1))
        order = torch.lerp(a, b, _ASIDE).argsort(1)
        slack = tolerance.gather(1, order)
        slack = slack[:, 1:] + slack[:, :-1]
        tied = torch.ones_like(slack, dtype=torch.bool)
        for values in (a, b):
            tied &= values.gather(1, order).diff(dim=1).abs() <= slack
        return (first & second) | tied.any(1)

    def finish(self) -> Refinement:
        """Draw the chords, then take out the helping lines where they are no borders."""
        chords = torch.cat(self.chords)
        face, group = chords[:, 0], chords[:, 3]
        key, row = torch.unique(self._keys(face, chords[:, 1:3]), return_inverse=True)
        unit = key.new_full(key.shape, self.nobody).scatter_reduce_(0, row, group, "amin")
        made = draw_strokes(self.mesh, self._wanted(key, unit))
        made = replace(
            made, ambiguities=self.ambiguities + made.ambiguities, early=tuple(self.early)
        )
        return self._without_needless(made) if self.lines else made

    def _without_needless(self, made: Refinement) -> Refinement:
        mesh, judge = made.mesh, self.judge
        judge.field.add_late(made.on_edges, made.inside)
        edge = (mesh.edge_unit <= _HELPER).nonzero()[:, 0]
        order = mesh.edge_unit[edge].argsort(descending=True)
        edge = edge[order]
        offsets = offsets_of(counts_of(_HELPER - mesh.edge_unit[edge], self.lines))
        beside = mesh.halfedge_face().view(-1, 2)
        unit = edge.new_full(edge.shape, self.nobody)
        for helpers in _joined(self.helpers):
            rows, counts = take_rows(offsets, helpers.line)
            which = owners_of(counts, rows.shape[0])
            units = helpers.contests.units[which]
            faces = beside[edge[rows]].T.reshape(-1)  # those to the left, then those to the right
            left, right = judge.winner(mesh, faces, units.repeat(2, 1)).view(2, -1)
            border = left != right
            group = helpers.contests.group[which]
            unit.scatter_reduce_(0, rows[border], group[border], "amin")
        mesh.edge_unit[edge] = unit
        mesh, kept = dissolve(mesh, edge[unit == self.nobody], self.old, judge.kernel)
        return replace(made, mesh=mesh, kept=kept)
