"""From which point convex faces are divided into triangles: one of their corners, or their mean."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam.geometry.subdivision import Mesh

__all__ = ["apexes"]

_MOST = 8  # corners of a face from which on its mean is taken
_FAT = 0.15  # the height of a triangle, relative to its longest side, that is enough


def apexes(mesh: Mesh) -> Tensor:
    """The corner of each face, from 0 on, that its triangles share; -1 for the mean, (F,).

    A corner takes two triangles fewer, but may make them thin, or even flat where other corners lie
    on one line with it. It is chosen if triangles are not thin, or less so than around the mean.
    """
    found = torch.full_like(mesh.counts(), -1)
    for face, vertex in mesh.by_size(backend_of(mesh.uv.device).numbers >> 4):
        k = vertex.shape[1]
        if k == 3:
            found[face] = 0
        elif k < _MOST:
            uv = take(mesh.uv, vertex.reshape(-1)).view(-1, k, 2)
            found[face] = _best_corner(uv)
    return found


def _best_corner(uv: Tensor) -> Tensor:
    """The best corner of polygons (N, k, 2), (N,); -1 where the mean is better."""
    k = uv.shape[1]
    corner = torch.arange(k, device=uv.device)
    ahead = (corner[:, None] + torch.arange(1, k, device=uv.device)) % k
    from_corners = _fatness(uv[:, :, None], uv[:, ahead[:, :-1]], uv[:, ahead[:, 1:]]).amin(2)
    from_mean = _fatness(uv.mean(1, keepdim=True), uv, uv.roll(-1, 1)).amin(1)
    best = from_corners.max(1)
    return torch.where(best.values >= from_mean.clamp(max=_FAT), best.indices, -1)


def _fatness(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The height of triangles with corners (..., 2) over their longest sides, relative to these."""
    sides = b - a, c - b, a - c
    longest = torch.stack([side.square().sum(-1) for side in sides])
    doubled = sides[0][..., 0] * sides[1][..., 1] - sides[0][..., 1] * sides[1][..., 0]
    return doubled / longest.amax(0)
