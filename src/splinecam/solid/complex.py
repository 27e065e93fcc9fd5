"""A complex of vertices, edges, faces and cells in three dimensions, cut function by function.

A cell is a convex body, a face a cycle of half-edges with at most two cells beside it. New vertices
lie on edges that both of their faces share, so that the complex has no gaps whatever rounding does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import (
    following,
    offsets_of,
    owners_of,
    places_in,
    take,
    take_rows,
)
from splinecam._util.tolerances import EPS
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
        new = partial(torch.tensor, device=solid.corners.device)
        sizes = new([len(side) for side in solid.sides])
        count = new(range(len(solid.sides)))
        arrays = SolidArrays(
            edges=new(list(number)),
            edge_layer=new([SIDE] * len(number)),
            face_offsets=offsets_of(sizes),
            corners=new(corners),
            face_layer=torch.full_like(count, SIDE),
            face_unit=count,
            cell_offsets=new([0, len(count)]),
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
        found = self.arrays.sides.new_full((2 * self.num_faces,), -1)
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

    def select(self, cells: Tensor) -> tuple[Complex, Tensor | None]:
        """The cells where a mask (C,) is set, and the vertices that are left, None if all are."""
        a = self.arrays
        lengths, counts = a.face_offsets.diff(), a.cell_offsets.diff()
        side = take(cells, owners_of(counts, a.sides.shape[0]))
        face = _marked(a.sides >> 1, side, self.num_faces)
        corner = take(face, owners_of(lengths, a.corners.shape[0]))
        edge = _marked(a.corners >> 1, corner, a.edges.shape[0])
        vertex = _marked(a.edges, edge[:, None].expand(-1, 2), self.num_vertices)
        masks = cells, side, face, corner, edge, vertex
        totals = torch.stack([torch.count_nonzero(mask) for mask in masks]).tolist()
        if totals[0] == self.num_cells:
            return self, None
        face_at, edge_at, vertex_at = (torch.cumsum(x, 0) - 1 for x in (face, edge, vertex))
        cells, side, face, corner, edge, vertex = map(places_in, masks, totals)
        sides, halves = take(a.sides, side), take(a.corners, corner)
        arrays = SolidArrays(
            take(vertex_at, take(a.edges, edge).view(-1)).view(-1, 2),
            take(a.edge_layer, edge),
            offsets_of(take(lengths, face)),
            2 * take(edge_at, halves >> 1) + (halves & 1),
            take(a.face_layer, face),
            take(a.face_unit, face),
            offsets_of(take(counts, cells)),
            2 * take(face_at, sides >> 1) + (sides & 1),
        )
        return Complex(take(self.uvw, vertex), arrays), vertex

    def sizes(self) -> tuple[Tensor, Tensor, Tensor]:
        """The volume of each cell, the area of its faces, and the volume's rounding error, (C,)."""
        offsets, vertices = self.cell_corners()
        middle = take(self.uvw, take(vertices, offsets[:-1]))  # any point of the cell
        owner = owners_of(self.arrays.cell_offsets.diff(), self.arrays.sides.shape[0])
        rows, counts = take_rows(self.arrays.face_offsets, self.arrays.sides >> 1)
        which = owners_of(counts, rows.shape[0])
        points = take(self.uvw, take(self.corner_vertices(), rows)) - middle[owner[which]]
        starts = offsets_of(counts)
        first = points[starts[:-1]]
        after = points[following(starts, len(points))]
        # Of three sides of a triangle, the two shorter ones span its area with the least rounding.
        sides = torch.stack([points - first[which], after - points, after - first[which]])
        longest = sides.norm(dim=2).argmax(0)[:, None]
        one, two = (torch.where(longest == k, sides[2], sides[k]) for k in range(2))
        turns = torch.linalg.cross(one, two)
        # The faces' areas, times their normals.
        area = points.new_zeros((len(counts), 3)).index_add_(0, which, turns) / 2
        signs = 1.0 - 2.0 * (self.arrays.sides & 1)
        none = points.new_zeros(self.num_cells)
        volumes = none.index_add(0, owner, signs * (first * area).sum(1) / 3)
        off = EPS * first.norm(dim=1)[which] * one.norm(dim=1) * two.norm(dim=1)
        error = none.index_add(0, owner[which], off)
        return volumes, none.index_add(0, owner, area.norm(dim=1)), error


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


def _marked(numbers: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Which of the numbers below ``count`` occur where some are chosen."""
    mask = torch.zeros(count + 1, dtype=torch.bool, device=numbers.device)
    mask[torch.where(chosen, numbers, count)] = True
    return mask[:count]
