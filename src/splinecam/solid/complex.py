"""A complex of vertices, edges, faces and cells in three dimensions, cut function by function.

A cell is a convex body, a face a cycle of half-edges with at most two cells beside it. New vertices
lie on edges that both of their faces share, so that the complex has no gaps whatever rounding does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import following, offsets_of, owners_of, take, take_rows
from splinecam.geometry.solids import Solid
from splinecam.kernels import solid_gpu
from splinecam.kernels.solid import (
    Bounded,
    CutArrays,
    SolidArrays,
    cell_corners,
    cut_solid,
    gathered,
)
from splinecam.kernels.solid_gpu import gpu_of

SIDE = -1  # the layer of faces on the sides of the body
AUXILIARY = -2  # of faces that are no borders of linear regions


@dataclass(frozen=True, eq=False)
class Complex:
    """Cells in three dimensions; uvw: (V, 3)."""

    uvw: Tensor
    arrays: SolidArrays

    @classmethod
    def of(cls, solid: Solid) -> Complex:
        """A convex body as the only cell."""
        halves = [
            (a, b) for side in solid.sides for a, b in zip(side, side[1:] + side[:1], strict=False)
        ]
        number = {pair: k for k, pair in enumerate(p for p in halves if p[0] < p[1])}
        corners = [2 * number[min(p), max(p)] + (p[0] > p[1]) for p in halves]
        sizes = torch.tensor([len(side) for side in solid.sides])
        count = torch.arange(len(solid.sides))
        arrays = SolidArrays(
            edges=torch.tensor(list(number)),
            edge_layer=torch.full((len(number),), SIDE),
            face_offsets=offsets_of(sizes),
            corners=torch.tensor(corners),
            face_layer=torch.full_like(count, SIDE),
            face_unit=count,
            cell_offsets=torch.tensor([0, len(count)]),
            sides=2 * count,
        )
        return cls(solid.corners.to(torch.float64), arrays)

    @property
    def num_vertices(self) -> int:
        return self.uvw.shape[0]

    @property
    def num_faces(self) -> int:
        return self.arrays.face_layer.shape[0]

    @property
    def num_cells(self) -> int:
        return self.arrays.cell_offsets.shape[0] - 1

    def cell_corners(self) -> tuple[Tensor, Tensor]:
        """The vertices of each cell: offsets (C + 1,), and vertices."""
        gpu = gpu_of(self.uvw)
        if gpu is not None:
            return solid_gpu.cell_corners(gpu, self.arrays)
        return cell_corners(self.arrays, self.num_vertices)

    def corner_vertices(self) -> Tensor:
        """The vertices of all faces, face by face, (H,)."""
        return take(self.arrays.edges.reshape(-1), self.arrays.corners)

    def beside(self) -> Tensor:
        """The cells on the inner and on the outer side of each face, (F, 2), -1 for none."""
        found = torch.full((2 * self.num_faces,), -1)
        counts = self.arrays.cell_offsets.diff()
        found[self.arrays.sides] = owners_of(counts, self.arrays.sides.shape[0])
        return found.view(-1, 2)

    def cut(
        self,
        z: Tensor,
        tolerance: Tensor,
        label: Tensor,
        layer: int,
        bounded: Bounded | None = None,
    ) -> Cut:
        """Cut the cells along the zero sets of functions z (V, m); see ``cut_solid``."""
        gpu = gpu_of(self.uvw)
        if gpu is None:
            made = cut_solid(self.arrays, z, tolerance, label, layer, bounded)
        else:
            made = solid_gpu.cut_solid(gpu, self.arrays, z, tolerance, label, layer)
        return Cut(Complex(_gathered(self.uvw, made), made.solid), made)

    def at_once(self, z: Tensor, tolerance: Tensor) -> int:
        """How many of the functions (V, m) are to be cut first: on a CPU all of them."""
        gpu = gpu_of(self.uvw)
        if gpu is None:
            return z.shape[1]
        return solid_gpu.functions_at_once(gpu, self.arrays, z, tolerance)

    def select(self, cells: Tensor) -> tuple[Complex, Tensor]:
        """Some of the cells (N,), and which vertices are left."""
        a = self.arrays
        rows, sizes = take_rows(a.cell_offsets, cells)
        sides = take(a.sides, rows)
        face, face_at = _used(sides >> 1, self.num_faces)
        rows, lengths = take_rows(a.face_offsets, face)
        corners = take(a.corners, rows)
        edge, edge_at = _used(corners >> 1, a.edges.shape[0])
        ends = take(a.edges, edge)
        vertex, vertex_at = _used(ends.view(-1), self.num_vertices)
        arrays = SolidArrays(
            take(vertex_at, ends.view(-1)).view(-1, 2),
            take(a.edge_layer, edge),
            offsets_of(lengths),
            2 * take(edge_at, corners >> 1) + (corners & 1),
            take(a.face_layer, face),
            take(a.face_unit, face),
            offsets_of(sizes),
            2 * take(face_at, sides >> 1) + (sides & 1),
        )
        return Complex(take(self.uvw, vertex), arrays), vertex

    def sizes(self) -> tuple[Tensor, Tensor]:
        """The volume of each cell, and the area of its faces, (C,)."""
        offsets, vertices = self.cell_corners()
        middle = take(self.uvw, take(vertices, offsets[:-1]))  # any point of the cell
        owner = owners_of(self.arrays.cell_offsets.diff(), self.arrays.sides.shape[0])
        rows, counts = take_rows(self.arrays.face_offsets, self.arrays.sides >> 1)
        which = owners_of(counts, rows.shape[0])
        points = take(self.uvw, take(self.corner_vertices(), rows)) - middle[owner[which]]
        starts = offsets_of(counts)
        first = points[starts[:-1]]
        steps = points[following(starts, len(points))] - points
        turns = torch.linalg.cross(points - first[which], steps)
        # The faces' areas, times their normals.
        area = points.new_zeros((len(counts), 3)).index_add_(0, which, turns) / 2
        signs = 1.0 - 2.0 * (self.arrays.sides & 1)
        none = points.new_zeros(self.num_cells)
        volumes = none.index_add(0, owner, signs * (first * area).sum(1) / 3)
        return volumes, none.index_add(0, owner, area.norm(dim=1))


class Cut(NamedTuple):
    """A complex after a cut, and how it was made."""

    complex: Complex
    made: CutArrays

    def carry(self, rows: Tensor) -> Tensor:
        """Values at the vertices that are left, from those (V, ...) at the old ones."""
        return _gathered(rows, self.made)


def _gathered(rows: Tensor, made: CutArrays) -> Tensor:
    gpu = gpu_of(rows)
    return gathered(rows, made) if gpu is None else solid_gpu.gathered(gpu, rows, made)


def _used(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The numbers below ``count`` that occur, ascending, and the place of each among them."""
    mask = torch.zeros(count, dtype=torch.bool)
    mask[numbers] = True
    return mask.nonzero()[:, 0], mask.long().cumsum_(0).sub_(1)
