"""How large and how round regions are: the distances between the corners of each face."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.geometry.subdivision import Mesh

__all__ = ["Shapes", "shapes"]

_BLOCK = 1 << 20  # corners looked at in one go


@dataclass(frozen=True)
class Shapes:
    """Per face, (F,) each: its perimeter, the largest and the smallest distance of two corners."""

    perimeter: Tensor
    diameter: Tensor
    nearest: Tensor

    @property
    def eccentricity(self) -> Tensor:
        """The largest over the smallest distance between two corners, (F,)."""
        return self.diameter / self.nearest


def shapes(mesh: Mesh) -> Shapes:
    """Distances between all pairs of corners of each face, in the mesh's coordinates.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> [f"{float(x):.3f}" for x in (shapes(square).perimeter, shapes(square).eccentricity)]
    ['4.000', '1.414']
    """
    found = Shapes(*mesh.uv.new_empty((3, mesh.num_faces)))
    for face, vertex in mesh.by_size(_BLOCK):
        k = vertex.shape[1]
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        perimeter, farthest, nearest = uv.new_zeros(()), uv.new_zeros(()), uv.new_tensor(torch.inf)
        for step in range(1, k // 2 + 1):  # half a round meets all pairs
            distance = _lengths(uv - uv.roll(-step, 1))
            perimeter = distance.sum(1) if step == 1 else perimeter
            farthest = torch.maximum(farthest, distance.amax(1))
            nearest = torch.minimum(nearest, distance.amin(1))
        found.perimeter[face], found.diameter[face] = perimeter, farthest
        found.nearest[face] = nearest
    return found


def _lengths(d: Tensor) -> Tensor:
    return (d[..., 0].square() + d[..., 1].square()).sqrt()
