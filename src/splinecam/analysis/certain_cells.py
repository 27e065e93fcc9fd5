"""Where a condition on outputs holds for certain, if these are known within bounds only.

A limit on outputs is met for certain where it is met by more than the bounds of the outputs allow,
weighted by the moduli of its coefficients; and broken for certain where it is broken by more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import blocks_of, following, lengths, take
from splinecam.analysis.band import Band, band_of
from splinecam.analysis.output_constraints import UNDECIDED, Constraints
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.clipping import ConvexPolygons, joined
from splinecam.importing.properties import OutputCondition

__all__ = ["CertainCells", "certain_cells"]


@dataclass(frozen=True)
class CertainCells:
    """Convex cells on which a condition holds for certain, fails for certain, or is undecided.

    partition: what was asked; settled: (F,) the status of regions that are not divided, UNDECIDED
    for the others; polygons: the cells of these, whose sources are their regions; status: (P,) of
    each cell.
    """

    partition: PartitionData
    settled: Tensor
    polygons: ConvexPolygons
    status: Tensor

    def area(self, status: int) -> float:
        """The area of everything with a status."""
        part = self.partition
        cells = self.polygons.areas()[self.status == status].sum() * part.frame.scale**2
        whole = part.areas[self.settled == status].sum() if status != UNDECIDED else 0.0
        return float(cells + whole)

    def any(self, status: int) -> bool:
        """Whether anything has a status; regions that are divided count by their cells."""
        whole = status != UNDECIDED and bool((self.settled == status).any())
        return whole or bool((self.status == status).any())

    @cached_property
    def band(self) -> Band:
        """The undecided cells."""
        found = self.polygons.select((self.status == UNDECIDED).nonzero()[:, 0])
        return band_of(self.partition, [(found.offsets, found.uv, found.source)])

    def widest(self, status: int, n: int) -> Tensor:
        """Points in the middle of the widest cells with a status, at most n, in the plane."""
        mesh = self.partition.mesh
        cells = self.polygons.select((self.status == status).nonzero()[:, 0])
        if status != UNDECIDED:
            whole = (self.settled == status).nonzero()[:, 0]
            values = cells.values.new_zeros((mesh.num_vertices, cells.values.shape[1]))
            cells = joined([cells, ConvexPolygons.of_faces(mesh, whole, values)])
        owner = cells.owners
        around = lengths(take(cells.uv, following(cells.offsets, len(owner))) - cells.uv)
        zero = cells.uv.new_zeros(len(cells))
        width = cells.areas() / zero.index_add(0, owner, around)
        best = cells.select(width.argsort(descending=True)[:n])
        total = best.uv.new_zeros((len(best), 2)).index_add_(0, best.owners, best.uv)
        return self.partition.frame.to_plane(total / best.counts[:, None])


def certain_cells(part: PartitionData, condition: OutputCondition) -> CertainCells:
    """Divide the regions in which it is not the same everywhere whether a condition is certain."""
    constraints = Constraints.of(part, condition)
    z = constraints.at_vertices(part)
    slack = part.region_bounds @ constraints.A.abs().T + constraints.tolerance
    mesh = part.mesh
    corner, owner, counts = mesh.corner_vertices(), mesh.owners(), mesh.counts()
    limit = max(1, backend_of(z.device).numbers // max(1, z.shape[1]))
    settled = constraints.status(_sides(z, corner, owner, slack, counts))
    open_ = (settled == UNDECIDED).nonzero()[:, 0]
    found = [ConvexPolygons.of_faces(mesh, open_[:0], z[:, :0])]
    status = [settled[:0]]
    for first, last in blocks_of(take(counts, open_), limit) if len(open_) else []:
        cells = ConvexPolygons.of_faces(mesh, open_[first:last], z)
        for k in range(z.shape[1]):
            cells = _divided(cells, k, slack[:, k])
        middle = cells.values.new_zeros((len(cells), z.shape[1]))
        middle.index_add_(0, cells.owners, cells.values).div_(cells.counts[:, None])
        near = take(slack, cells.source)
        sides = (middle > near).to(torch.int8) - (middle < -near).to(torch.int8)
        status.append(constraints.status(sides))
        found.append(ConvexPolygons(cells.offsets, cells.uv, cells.values[:, :0], cells.source))
    return CertainCells(part, settled, joined(found), torch.cat(status))


def _sides(z: Tensor, corner: Tensor, owner: Tensor, slack: Tensor, counts: Tensor) -> Tensor:
    """Signs of functions z (V, K) that are beyond the slack (F, K) at all corners, else 0."""
    found = []
    for k in range(z.shape[1]):
        values, near = take(z[:, k], corner), take(slack[:, k], owner)
        clear = (values > near).long() - (values < -near).long()
        total = torch.zeros_like(counts).index_add_(0, owner, clear)
        found.append((total == counts).to(torch.int8) - (total == -counts).to(torch.int8))
    none = torch.zeros((len(counts), 0), dtype=torch.int8, device=z.device)
    return torch.stack(found, 1) if found else none


def _divided(cells: ConvexPolygons, k: int, slack: Tensor) -> ConvexPolygons:
    """Cells divided where the k-th function is as far from zero as the slack (F,) of a region."""
    parts, rest = [], cells
    for sign in (1, -1):
        near = take(slack, rest.source)[rest.owners]
        clear, rest = rest.split(sign * rest.values[:, k] - near)
        parts.append(clear)
    return joined([*parts, rest])
