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

from splinecam.cutting import Births, Doubts, Refinement, unrefined
from splinecam.dissolve import dissolve
from splinecam.envelope import BLURRED, CHORD, SEVERAL, Groups, Verdict, contested
from splinecam.errors import LimitError
from splinecam.field import Field, Pairs
from splinecam.mesh import Mesh
from splinecam.ragged import offsets_of, owners_of, take_rows
from splinecam.strokes import Halves, draw_strokes, halve

__all__ = ["refine_maxima"]

_HELPER = -2  # edge_unit of an edge of the k-th helping line: _HELPER - k
_ASIDE = 0.381966  # a point of a line that is not half-way between anything

CLOSE = "the members of a maximum are too close to tell the largest"


def refine_maxima(
    mesh: Mesh,
    z: Tensor,
    members: Tensor,
    error: Tensor,
    low: Tensor,
    high: Tensor,
    op: int,
    *,
    max_faces: int | None = None,
) -> Refinement:
    """Cut every face where the largest of a group changes.

    z: (V, n) values, with rounding error and range (n,); members: (G, R) the units of each group.
    """
    groups = Groups(members, error, Field(z, z[:0]))
    face, group = contested(mesh, groups, low, high)
    if not face.shape[0]:
        return unrefined(mesh, [])
    work = _Work(mesh, groups, op, face, group, max_faces)
    while work.step():
        pass
    return work.finish()


@dataclass
class _Work:
    """The mesh so far, and the groups still open in its faces, (N,) each.

    chords: faces, pairs and groups of the borders to be drawn in the end. helpers: of every helping
    line the groups that may have borders along it, as rows of (line, group).
    """

    mesh: Mesh
    groups: Groups
    op: int
    face: Tensor
    group: Tensor
    max_faces: int | None
    early: list[Births] = field(default_factory=list)
    chords: list[Tensor] = field(default_factory=list)
    helpers: list[Tensor] = field(default_factory=list)
    lines: int = 0
    doubts: list[Doubts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old = self.mesh.num_vertices

    def step(self) -> bool:
        """Cut faces with more than two winners in two; False when there are none left."""
        if not self.face.shape[0]:
            return False
        verdict = self.groups.judge(self.mesh, self.face, self.group)
        if bool((verdict.kind == BLURRED).any()):
            blurred = self.face[verdict.kind == BLURRED]
            self.doubts.append(Doubts(self.mesh.means()[torch.unique(blurred)], CLOSE))
        busy = torch.zeros(self.mesh.num_faces, dtype=torch.bool, device=self.face.device)
        busy[self.face[verdict.kind == SEVERAL]] = True
        ready = ((verdict.kind == CHORD) & ~busy[self.face]).nonzero()[:, 0]
        entry = torch.cat([self.face[ready, None], verdict.pair[ready], self.group[ready, None]], 1)
        self.chords.append(entry)
        self._keep(((verdict.kind >= CHORD) & (verdict.kind != BLURRED) & busy[self.face]), verdict)
        return bool(self.face.shape[0])

    def _keep(self, chosen: Tensor, verdict: Verdict) -> None:
        """Go on with some of the open groups: cut their faces by the most central line."""
        index = chosen.nonzero()[:, 0]
        self.face, self.group = self.face[index], self.group[index]
        if not index.shape[0]:
            return
        kind, pair, skew = verdict.kind[index], verdict.pair[index], verdict.skew[index]
        several = (kind == SEVERAL).nonzero()[:, 0]
        count = several.shape[0]
        key = skew[several] * count + torch.arange(count, device=skew.device)
        most = torch.iinfo(torch.int64).max
        least = key.new_full((self.mesh.num_faces,), most)
        least.scatter_reduce_(0, self.face[several], key, "amin")
        face = (least < most).nonzero()[:, 0]
        if self.max_faces is not None and self.mesh.num_faces + face.shape[0] > self.max_faces:
            raise LimitError("too many regions")
        best = several[least[face] % count]
        self._halve(face, torch.sort(pair[best], 1).values)

    def _halve(self, face: Tensor, pair: Tensor) -> None:
        """Cut the faces (N,), ascending, by the lines of the pairs (N, 2) of units."""
        unique, column = torch.unique(pair, dim=0, return_inverse=True)
        number = torch.arange(face.shape[0], device=face.device)
        marks = _HELPER - self.lines - number
        halves = halve(self.mesh, self._pairs(unique), face, column, marks, self.op)
        self.groups.field.grow(halves.births)
        self.early.append(halves.births)
        self.doubts += halves.doubts
        self.mesh = halves.mesh
        self._hand_down(halves)
        self.lines += face.shape[0]

    def _pairs(self, pair: Tensor) -> Pairs:
        first, second = pair.unbind(1)
        error = self.groups.error
        return Pairs(self.groups.field, first, second, error[first] + error[second])

    def _hand_down(self, halves: Halves) -> None:
        """Open groups go to both halves; note which of them may have a border along the line."""
        number = self.face.new_full((self.mesh.num_faces,), -1)
        number[halves.face] = torch.arange(halves.face.shape[0], device=number.device)
        which = number[self.face]
        if bool((which < 0).any()):  # a line that vanished in rounding
            lost = torch.unique(self.face[which < 0])
            self.doubts.append(Doubts(self.mesh.means()[lost], CLOSE))
        cut = (which >= 0).nonzero()[:, 0]
        which, group, face = which[cut], self.group[cut], self.face[cut]
        along = self._tied_along(halves.ends[which], group)
        self.helpers.append(torch.stack([self.lines + halves.which[which], group], 1)[along])
        self.face = torch.cat([face, halves.new_face[which]])
        self.group = torch.cat([group, group])

    def _tied_along(self, ends: Tensor, group: Tensor) -> Tensor:
        """Whether two members of a group are equal all along the lines with ends (N, 2), (N,)."""
        (a, tolerance), (b, _) = (self.groups.at(vertex, group) for vertex in ends.unbind(1))
        order = torch.lerp(a, b, _ASIDE).argsort(1)
        slack = tolerance.gather(1, order)
        slack = slack[:, 1:] + slack[:, :-1]
        tied = torch.ones_like(slack, dtype=torch.bool)
        for values in (a, b):
            tied &= values.gather(1, order).diff(dim=1).abs() <= slack
        return tied.any(1)

    def finish(self) -> Refinement:
        """Draw the chords, then take out the helping lines where they are no borders."""
        entries = torch.cat(self.chords)
        entries[:, 1:3] = entries[:, 1:3].sort(1).values
        pair, column = torch.unique(entries[:, 1:3], dim=0, return_inverse=True)
        count = max(1, pair.shape[0])
        key, row = torch.unique(entries[:, 0] * count + column, return_inverse=True)
        unit = entries.new_full((key.shape[0],), self.groups.members.shape[0])
        unit.scatter_reduce_(0, row, entries[:, 3], "amin")
        made = draw_strokes(
            self.mesh,
            self._pairs(pair),
            key // count,
            key % count,
            unit,
            self.op,
            max_faces=self.max_faces,
        )
        made = replace(made, doubts=self.doubts + made.doubts, early=tuple(self.early))
        return self._without_needless(made) if self.lines else made

    def _without_needless(self, made: Refinement) -> Refinement:
        mesh, groups = made.mesh, self.groups
        groups.field.late = (made.on_edges, made.inside)
        edge = (mesh.edge_unit <= _HELPER).nonzero()[:, 0]
        line = _HELPER - mesh.edge_unit[edge]
        helpers = torch.cat(self.helpers)
        helpers = helpers[helpers[:, 0].argsort()]
        offsets = offsets_of(torch.bincount(helpers[:, 0], minlength=self.lines))
        rows, counts = take_rows(offsets, line)
        which, group = owners_of(counts, rows.shape[0]), helpers[rows, 1]
        left, right = mesh.halfedge_face().view(-1, 2)[edge][which].unbind(1)
        border = ~groups.agree(mesh, left, right, group)
        unit = edge.new_full(edge.shape, groups.members.shape[0])
        unit.scatter_reduce_(0, which[border], group[border], "amin")
        mesh.edge_unit[edge] = unit
        needless = edge[unit == groups.members.shape[0]]
        mesh, kept = dissolve(mesh, needless, self.old)
        return replace(made, mesh=mesh, kept=kept)
