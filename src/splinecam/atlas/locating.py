"""The regions of an atlas in which inputs lie, found in the tiles whose boxes they are in."""

from __future__ import annotations

import torch
from torch import Tensor

from splinecam._util.tolerances import SAFETY, UV_ERROR
from splinecam.analysis.partition_data import in_plane
from splinecam.atlas.atlas_data import AtlasData
from splinecam.geometry.point_location import Locator, signed_distances
from splinecam.geometry.subdivision import Mesh

__all__ = ["locate"]

_FEW = 16  # points for which a tile's regions are looked through without a grid


def locate(atlas: AtlasData, x: Tensor) -> Tensor:
    """The region of each input (N, ...), (N,); -1 outside the domain or off its plane.

    The rules are those of ``Partition.locate``. A tile is read only if an input lies in its box.

    x: a batch of inputs (N, ...), a flat batch, or one input.
    """
    like = torch.zeros(0, dtype=torch.float64, device=atlas.device)
    uv, off = in_plane(atlas.domain, atlas.frame, x, like)
    slack = SAFETY * UV_ERROR
    found = torch.full(off.shape, -1, device=like.device)
    deepest = uv.new_full(off.shape, -torch.inf)
    for number, (left, low, right, high) in enumerate(atlas.boxes.tolist()):
        u, v = uv.unbind(1)
        near = (u >= left - slack) & (u <= right + slack) & (v >= low - slack) & (v <= high + slack)
        points = (near & ~off).nonzero()[:, 0]
        if points.shape[0]:
            mesh = atlas.tile(number).mesh
            region = _located(mesh, uv[points])
            points, region = points[region >= 0], region[region >= 0]
            depth = signed_distances(mesh, uv[points], region)
            # Of equally deep regions the one with the lowest number is found first.
            better = depth > deepest[points]
            points = points[better]
            deepest[points] = depth[better]
            found[points] = region[better] + int(atlas.first_region[number])
    return found


def _located(mesh: Mesh, uv: Tensor) -> Tensor:
    """The face of each point (N, 2), -1 outside, (N,)."""
    if uv.shape[0] > _FEW:
        return Locator(mesh)(uv)
    # A grid of all faces takes longer to make than it saves.
    box, slack = mesh.boxes()[:, None], SAFETY * UV_ERROR
    near = ((box[..., :2] <= uv + slack) & (box[..., 2:] >= uv - slack)).all(2).any(1)
    faces = near.nonzero()[:, 0]
    if not faces.shape[0]:
        return torch.full(uv.shape[:1], -1, device=uv.device)
    face = Locator(mesh.select(faces)[0])(uv)
    return torch.where(face < 0, -1, faces[face.clamp(min=0)])
