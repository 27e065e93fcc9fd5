"""The cells of a preimage: regions cut along the limits of a condition, inside or outside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.analysis.output_constraints import INSIDE, OUTSIDE, UNDECIDED, Constraints
from splinecam.analysis.partition_data import PartitionData
from splinecam.arrangement.functions import Functions
from splinecam.arrangement.overlay import Overlay, overlay
from splinecam.arrangement.refine import refine
from splinecam.arrangement.refinement import Refinement, unrefined
from splinecam.geometry.subdivision import Mesh
from splinecam.importing.properties import OutputCondition

__all__ = ["PreimageCells", "area_of", "preimage_cells"]

_FEW = 1 << 12  # faces whose areas are computed one by one, which rounds less if they are tiny


@dataclass(frozen=True, eq=False)
class PreimageCells:
    """Convex cells on which a condition holds everywhere, nowhere, or to within rounding.

    overlay: the cells, with the functions of ``constraints`` at its vertices; status: (C,) of each
    cell, INSIDE, OUTSIDE or UNDECIDED; member: (C,) whether a cell belongs to the preimage, where
    functions that vanish to within rounding count as zero; settled: (F,) the status of regions that
    the overlay leaves out, UNDECIDED for the others.
    """

    constraints: Constraints
    overlay: Overlay
    status: Tensor
    member: Tensor
    settled: Tensor

    @property
    def mesh(self) -> Mesh:
        return self.overlay.mesh

    def touches(self) -> bool:
        """Whether the condition holds anywhere, to within rounding."""
        sides = self.constraints.point_sides(self.overlay.z)
        return bool((self.settled == INSIDE).any()) or bool(
            (self.constraints.status(sides) != OUTSIDE).any()
        )

    def thin(self) -> tuple[Tensor, Tensor]:
        """Edges (N,) and vertices (M,) on which the condition holds without an area beside them.

        Functions that vanish to within rounding count as zero. The cells have to be those of all
        regions.
        """
        mesh = self.mesh
        holds = self.constraints.holds(self.constraints.point_sides(self.overlay.z))
        somewhere = holds.any(1)
        beside = mesh.halfedge_face().view(-1, 2)
        at_area = ((beside >= 0) & self.member[beside.clamp(min=0)]).any(1)
        a, b = mesh.edges.unbind(1)
        maybe = (somewhere[a] & somewhere[b] & ~at_area).nonzero()[:, 0]
        edge = maybe[(holds[a[maybe]] & holds[b[maybe]]).any(1)]
        somewhere[mesh.edges[edge].view(-1)] = False
        somewhere[mesh.edges[at_area].view(-1)] = False
        return edge, somewhere.nonzero()[:, 0]


def preimage_cells(
    part: PartitionData, condition: OutputCondition, *, whole: bool
) -> PreimageCells:
    """The cells of the regions in which a condition changes, or of all if ``whole``."""
    constraints = Constraints.of(part, condition)
    z = constraints.at_vertices(part)
    live = constraints.within(z)
    if live is not constraints:
        constraints, z = live, live.at_vertices(part)
    settled = constraints.status(constraints.undivided_sides(part.mesh, z))
    faces = None
    if whole:
        settled = torch.zeros_like(settled)
    else:
        faces = (settled == UNDECIDED).nonzero()[:, 0]
    error = constraints.error
    wanted = (z.amin(0) < -error) & (z.amax(0) > error)

    def cut(mesh: Mesh, values: Tensor, layer: int) -> Refinement:
        unit = torch.arange(values.shape[1], device=values.device)
        zero = torch.zeros_like(error)
        if not mesh.num_faces:
            return unrefined(mesh, [])
        return refine(mesh, Functions(values, unit, zero, error, wanted, unit), layer)

    found = overlay(part.mesh, z, cut, faces)
    sides = constraints.cell_sides(found.mesh, found.z)
    status, member = constraints.status(sides), constraints.holds(sides).any(1)
    return PreimageCells(constraints, found, status, member, settled)


def area_of(mesh: Mesh, chosen: Tensor) -> float:
    """The area of the faces that a mask (F,) chooses; of many, it follows from their border."""
    number = int(chosen.sum())
    if number <= _FEW:
        some = mesh.select(chosen.nonzero()[:, 0])[0] if number else None
        return 0.0 if some is None else float(some.areas_and_centroids()[0].sum())
    beside = mesh.halfedge_face().view(-1, 2)
    left, right = ((beside[:, k] >= 0) & chosen[beside[:, k].clamp(min=0)] for k in (0, 1))
    edge = (left != right).nonzero()[:, 0]
    p, q = mesh.uv[mesh.edges[edge]].unbind(1)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    return float(torch.where(left[edge], cross, -cross).sum()) / 2
