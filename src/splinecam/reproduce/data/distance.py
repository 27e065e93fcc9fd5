"""Signed distances to a closed surface and to the edge of a mask, negative inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from splinecam._util.text import optional
from splinecam.errors import DataError

if TYPE_CHECKING:
    from splinecam.reproduce.data.meshes import Mesh


_PAIRS = 1 << 22  # of points and triangles, at once: 32 MiB per array of numbers
_PLAIN = "donot_use_mm_for_euclid_dist"  # products of matrices would lose digits


def signed_distance(mesh: Mesh, points: Tensor) -> Tensor:
    """Return the distances (N,) of points (N, 3) to the triangles of a mesh, negative inside.

    The distances are exact up to rounding in float64. A point is inside if the triangles surround
    it by more than half (the generalised winding number), so that small holes do no harm. The
    result is in float64 on the device of the points.
    """
    points = points.to(torch.float64)
    corners = mesh.vertices.to(points)[mesh.triangles.to(points.device)]
    step = max(1, _PAIRS // len(corners))
    parts = [_distance(part, corners) for part in torch.split(points, step)]
    return torch.cat(parts)


def signed_distance_image(mask: Tensor) -> Tensor:
    """Return the distance of each pixel of a mask (H, W) to its edge, negative where it is True.

    The image is the square [-1, 1]^2. The edge lies half-way between pixels.
    """
    ndimage = optional("scipy.ndimage", "The distance of pixels", "reproduce")
    inside = np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask, dtype=bool)
    if inside.ndim != 2 or inside.all() or not inside.any():
        raise DataError(
            f"A mask has two axes and pixels on both sides; this one has the shape {inside.shape} "
            f"and {inside.sum()} pixels inside. Choose another threshold."
        )
    spacing = tuple(2 / length for length in inside.shape)
    within = ndimage.distance_transform_edt(inside, sampling=spacing)
    outside = ndimage.distance_transform_edt(~inside, sampling=spacing)
    half = min(spacing) / 2
    return torch.from_numpy(np.where(inside, half - within, outside - half))


def _distance(points: Tensor, corners: Tensor) -> Tensor:
    """Signed distances (N,) of points (N, 3) to triangles with corners (T, 3, 3)."""
    distance = _unsigned(points, corners)
    return torch.where(_winding(points, corners) > 0.5, -distance, distance)


def _unsigned(points: Tensor, corners: Tensor) -> Tensor:
    """Distances to the nearest triangle, computed for those that can be the nearest.

    The distance to a centre is at least that to its triangle, and exceeds it by at most the
    triangle's radius.
    """
    centres = corners.mean(1)
    radii = (corners - centres[:, None]).norm(dim=-1).amax(1)
    away = torch.cdist(points, centres, compute_mode=_PLAIN)
    nearest = away.amin(1, keepdim=True)
    point, triangle = (away - radii <= nearest * (1 + 1e-12)).nonzero(as_tuple=True)
    squares = _squared_distance(points[point], corners[triangle])
    best = nearest[:, 0].square()
    return best.scatter_reduce(0, point, squares, "amin", include_self=True).sqrt()


def _squared_distance(points: Tensor, corners: Tensor) -> Tensor:
    """Squared distances (K,) of points (K, 3), each to a triangle with corners (K, 3, 3)."""
    sides = corners.roll(-1, 1) - corners
    to_point = points[:, None] - corners
    lengths = sides.square().sum(-1)
    along = ((to_point * sides).sum(-1) / lengths.clamp_min(1e-300)).clamp(0, 1)
    to_sides = (to_point - along[..., None] * sides).square().sum(-1).amin(1)
    normal = torch.linalg.cross(sides[:, 0], -sides[:, 2])
    above = torch.linalg.cross(sides, to_point) @ normal[..., None]
    height = (to_point[:, 0] * normal).sum(-1)
    to_plane = height.square() / normal.square().sum(-1).clamp_min(1e-300)
    return torch.where((above[..., 0] > 0).all(1), to_plane, to_sides)


def _winding(points: Tensor, corners: Tensor) -> Tensor:
    """How often the triangles surround each point: the sum of their solid angles by 4 pi.

    The solid angle is by the formula of Van Oosterom and Strackee (1983): its numerator, a
    determinant, is linear in the point.
    """
    a, b, c = corners.unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    numerator = (a * normal).sum(-1) - points @ normal.T
    far = [torch.cdist(points, corner, compute_mode=_PLAIN) for corner in (a, b, c)]
    denominator = far[0] * far[1] * far[2]
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        side = (corners[:, i] - corners[:, j]).square().sum(-1)
        dot = (far[i].square() + far[j].square() - side) / 2
        denominator = denominator.addcmul(dot, far[k])
    return torch.atan2(numerator, denominator).sum(1) / (2 * torch.pi)
