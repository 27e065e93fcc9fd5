"""How large and how round regions are: the distances between the corners of each face."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.mesh import Mesh
from splinecam.ragged import lengths, take

__all__ = ["Shapes", "shapes"]


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

    All corners walk around their faces at once: after s steps each one has met the corner s places
    on, and half a round meets all pairs.

    >>> from splinecam.mesh import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> [f"{float(x):.3f}" for x in (shapes(square).perimeter, shapes(square).eccentricity)]
    ['4.000', '1.414']
    """
    at, following, owner = take(mesh.uv, mesh.corner_vertices()), mesh.next_corner(), mesh.owners()
    partner, size = following, take(mesh.counts(), owner)
    side = lengths(take(at, partner) - at)
    farthest, nearest, steps = side.clone(), side.clone(), 1
    corner = torch.arange(at.shape[0], device=at.device)
    while True:
        steps += 1
        going = (size >= 2 * steps).nonzero()[:, 0]
        if not going.shape[0]:
            break
        corner, size = take(corner, going), take(size, going)
        partner = take(following, take(partner, going))
        distance = lengths(take(at, partner) - take(at, corner))
        farthest[corner] = torch.maximum(take(farthest, corner), distance)
        nearest[corner] = torch.minimum(take(nearest, corner), distance)
    blank = side.new_empty(mesh.num_faces)
    return Shapes(
        perimeter=mesh.sums(side),
        diameter=blank.scatter_reduce(0, owner, farthest, "amax", include_self=False),
        nearest=blank.scatter_reduce(0, owner, nearest, "amin", include_self=False),
    )
