"""The winner, which is the largest output, in each part of the domain, and the borders between.

Of outputs that are equal on a whole face, the first one wins. A border is an edge between two
winners, or an edge along which the winner ties with an output that loses beside the edge, such as
the line x = 0 for the outputs 0 and -|x|.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.arrays import blocks_of, owners_of, take, take_rows
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Ambiguities, Functions, Signs, all_bits
from splinecam.arrangement.envelope import Groups
from splinecam.arrangement.maxima import refine_maxima
from splinecam.arrangement.refine import Refinement, refine, refine_compiled
from splinecam.arrangement.zero_sets import Overlay, overlay
from splinecam.geometry.subdivision import Mesh, kept
from splinecam.kernels.gpu import gpu_kernel_for
from splinecam.kernels.kernel import LayerFunctions, kernel_for
from splinecam.questions.partition_data import PartitionData

_BLOCK = 1 << 22  # numbers in a block

CLOSE = "two outputs are too close to tell the larger one"


@dataclass(frozen=True)
class Winners:
    """The winner of every face of an overlay.

    overlay: the mesh, cut where the winner changes, with the outputs at its vertices; error: (n,)
    their rounding errors; winner, tied: (F,) of each face, and whether another output equals it
    there; close: (V,) whether another output equals the largest one at a vertex; settled: the
    winner of each original face that the overlay leaves out, or -1.
    """

    overlay: Overlay
    error: Tensor
    winner: Tensor
    tied: Tensor
    close: Tensor
    settled: Tensor

    def kept(self) -> Winners:
        """The same in ordinary tensors instead of those of inference mode."""
        made = self.overlay
        tensors = (kept(made.z), kept(made.source), kept(made.face))
        own = (self.error, self.winner, self.tied, self.close, self.settled)
        return Winners(Overlay(made.mesh.kept(), *tensors, made.ambiguities), *map(kept, own))

    def borders(self) -> tuple[Tensor, Tensor, Tensor]:
        """The edges (N,) at which winners meet, ascending, with their classes and sides, (N, 2).

        The classes tie, the lower one first; the sides win left and right, -1 outside.
        """
        beside = self.overlay.mesh.halfedge_face().view(-1, 2)
        outside = beside < 0
        winner = take(self.winner, beside.clamp(min=0).view(-1)).view(-1, 2)
        sides = torch.where(outside, -1, winner)
        between = ((sides[:, 0] != sides[:, 1]) & ~outside.any(1)).nonzero()[:, 0]
        touching, rival = self._touching(sides, beside)
        edge = torch.cat([between, touching])
        own = sides[touching].amax(1)
        pairs = torch.cat([sides[between], torch.stack([own, rival], 1)]).sort(1).values
        order = edge.argsort()
        edge = edge[order]
        return edge, pairs[order], sides[edge]

    def _touching(self, sides: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
        """Edges in or at the border of one winner's area where another output ties, the lowest."""
        mesh, z = self.overlay.mesh, self.overlay.z
        tied = take(self.close, mesh.edges.view(-1)).view(-1, 2).all(1)
        same = (sides[:, 0] == sides[:, 1]) | (sides < 0).any(1)
        edge = (tied & same & (self.overlay.source >= 0)).nonzero()[:, 0]
        found = [(edge[:0], edge[:0])]
        for block in torch.split(edge, max(1, _BLOCK // z.shape[1])):
            own = sides[block].amax(1)
            ends = torch.stack([self._equal(mesh.edges[block, k], own) for k in (0, 1)]).all(0)
            # No border runs through an area on which both are equal.
            tied_beside = [self._tied_on(beside[block, k], own) for k in (0, 1)]
            rivals = ends & ~(tied_beside[0] & tied_beside[1])
            rivals.scatter_(1, own[:, None], False)
            chosen = rivals.any(1).nonzero()[:, 0]
            found.append((block[chosen], rivals[chosen].int().argmax(1)))
        return torch.cat([e for e, _ in found]), torch.cat([k for _, k in found])

    def _equal(self, vertex: Tensor, own: Tensor) -> Tensor:
        """Which outputs equal the given ones (N,) at vertices (N,), (N, n)."""
        z = take(self.overlay.z, vertex)
        slack = SAFETY * (self.error + self.error[own][:, None])
        return (z - z.gather(1, own[:, None])).abs() <= slack

    def _tied_on(self, face: Tensor, own: Tensor) -> Tensor:
        """Which outputs equal the given ones (N,) on whole faces (N,), all outside, (N, n)."""
        mesh = self.overlay.mesh
        inside = (face >= 0).nonzero()[:, 0]
        rows, counts = take_rows(mesh.offsets, face[inside])
        which = inside[owners_of(counts, rows.shape[0])]
        differs = ~self._equal(mesh.corner_vertices()[rows], own[which])
        number = differs.new_zeros((face.shape[0], differs.shape[1]), dtype=torch.int32)
        return number.index_add_(0, which, differs.int()) == 0


def find_winners(part: PartitionData, *, smallest: bool, level: float, whole: bool) -> Winners:
    """The winners of all faces, or if not ``whole`` of the disputed ones; see ``Scores.of``."""
    scores = Scores.of(part, smallest=smallest, level=level)
    error = scores.error
    winner, _, unclear = leads = find_leads(scores.z, error)
    faces, settled = None, torch.full_like(part.mesh.offsets[1:], -1)
    if not whole:
        faces = disputed(part.mesh, leads)
        faces = faces[part.complete[faces]]
        first = take(part.mesh.corners, part.mesh.offsets[:-1])
        settled = take(winner, take(part.mesh.edges.view(-1), first))
        settled[faces] = -1
    made = overlay(part.mesh, scores.z, scores.cut, faces)
    if unclear.shape[0]:
        made.ambiguities.append(Ambiguities(part.mesh.uv[unclear], CLOSE))
    leads = find_leads(made.z, error)
    winner, tied = face_winners(made.mesh, made.z, error, leads)
    return Winners(made, error, winner, tied, leads[1], settled)


@dataclass(frozen=True)
class Scores:
    """Numbers of which the largest one wins: z: (V, n) at vertices; error, low, high: (n,)."""

    z: Tensor
    error: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, part: PartitionData, *, smallest: bool, level: float) -> Scores:
        """The outputs, or if ``smallest`` their opposites; 0 and a single one less the level."""
        z, error = part._outputs, part._value_error
        if z.shape[1] == 1:
            z = torch.cat([torch.zeros_like(z), z - level], 1)
            error = torch.cat([torch.zeros_like(error), error + EPS * abs(level)])
        if smallest:
            z = -z
        low, high = z.amin(0), z.amax(0)
        return cls(z, error + EPS * torch.maximum(low.abs(), high.abs()), low, high)

    def cut(self, mesh: Mesh, z: Tensor, layer: int) -> Refinement:
        """Divide the faces of a part of the mesh, with values z, where the winner changes."""
        made = self._cut_by_one(mesh, z, layer) if z.shape[1] == 2 else None
        if made is not None:
            return made
        groups = Groups(torch.arange(z.shape[1], device=z.device)[None], (1,))
        return refine_maxima(mesh, z, groups, self.error, self.low, self.high, layer)

    def _cut_by_one(self, mesh: Mesh, z: Tensor, layer: int) -> Refinement | None:
        """The same for two outputs, which one chord divides in a face; None: a tie is too close."""
        lead, error = (z[:, 1] - z[:, 0])[:, None], self.error.sum()[None]
        if z.dtype != torch.float64 or bool((lead.abs() <= SAFETY * error).any()):
            return None
        above, kernel = (lead > 0).long(), kernel_for(z.device)
        if kernel is not None:
            chord = LayerFunctions(lead, above, error, None, layer, None, None)
            return refine_compiled(kernel, mesh, chord)
        unit = torch.zeros_like(above[:1, 0])
        signs = Signs(above, 1 - above, all_bits(1, z.device), clear=True)
        functions = Functions(lead, unit, 0 * error, error, unit == 0, unit, known_signs=signs)
        return refine(mesh, functions, layer, gpu=gpu_kernel_for(z.device))


Leads = tuple[Tensor, Tensor, Tensor]
"""The winner at each vertex (V,), whether another output equals it, and unclear vertices (N,)."""


def find_leads(z: Tensor, error: Tensor) -> Leads:
    """The leads of values z (V, n) with errors (n,); unclear vertices may have a tie or not."""
    found = []
    for block in torch.split(z, max(1, _BLOCK // z.shape[1])):
        best, winner = block.max(1)
        gap, slack = best[:, None] - block, error + error[winner][:, None]
        equal = gap <= SAFETY * slack
        found.append((winner, equal.sum(1) > 1, (equal & (gap > slack)).any(1)))
    winner, close, unclear = (torch.cat(column) for column in zip(*found, strict=True))
    return winner, close, unclear.nonzero()[:, 0]


def disputed(mesh: Mesh, leads: Leads) -> Tensor:
    """The faces at whose corners different outputs win, or several tie."""
    winner, close, _ = leads
    key = torch.where(close, -1, winner)
    a, b = take(key, mesh.edges.view(-1)).view(-1, 2).unbind(1)
    edge = ((a != b) | (a < 0)).nonzero()[:, 0]
    faces: Tensor = torch.unique(mesh.halfedge_face().view(-1, 2)[edge])
    return faces[faces >= 0]


def face_winners(mesh: Mesh, z: Tensor, error: Tensor, leads: Leads) -> tuple[Tensor, Tensor]:
    """The winner of each face, and whether another output equals it on all of the face."""
    corner, owner = mesh.corner_vertices(), mesh.owners()
    at_vertex, close, _ = leads
    winner = take(at_vertex, take(corner, mesh.offsets[:-1]))
    # Where all corners agree and one of them has no tie, the winner is known.
    unlike = (take(at_vertex, corner) != take(winner, owner)).int()
    clear = (~take(close, corner)).int()
    tally = torch.zeros((2, mesh.num_faces), dtype=torch.int32, device=z.device)
    tally[0].index_add_(0, owner, unlike)
    tally[1].index_add_(0, owner, clear)
    tied = torch.zeros_like(winner, dtype=torch.bool)
    open_ = ((tally[0] > 0) | (tally[1] == 0)).nonzero()[:, 0]
    counts, limit = take(mesh.counts(), open_), max(1, _BLOCK // z.shape[1])
    for first, last in blocks_of(counts, limit) if open_.shape[0] else []:
        faces = open_[first:last]
        rows, count = take_rows(mesh.offsets, faces)
        values, which = take(z, corner[rows]), owners_of(count, rows.shape[0])
        total = values.new_zeros((len(faces), z.shape[1])).index_add_(0, which, values)
        best = total.argmax(1)
        slack = SAFETY * (error + error[best][:, None])
        gap = (values - values.gather(1, best[which][:, None])).abs()
        differs = torch.zeros_like(total).index_add_(0, which, (gap > slack[which]).to(gap)) > 0
        # Outputs that equal the largest at all corners equal it on the face: the first one wins.
        winner[faces], tied[faces] = (~differs).int().argmax(1), (~differs).sum(1) > 1
    return winner, tied
