"""Areas, volumes and angles of a surface, from sums over its faces, and distances to it.

The volume is that of the part of the box where the output is below the level. Its border are the
faces of the surface and parts of the box's sides, the caps. By the divergence theorem the volume is
a sum over both, and the area of a cap is a sum over its own border: edges of the surface on the
side, and stretches of the box's edges. So neither needs the inside of a cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam.solid.structure import Structure

_GUESSES, _POINTS = 4, 1 << 14  # triangles tried first, and points at a time, of distances


def crosses(points: Tensor, structure: Structure) -> Tensor:
    """The area of each face times its normal, (F, 3)."""
    anchor = points[structure.vertex[structure.offsets[:-1]]][structure.face]
    a, b = points[structure.vertex] - anchor, points[structure.end] - anchor
    total = points.new_zeros((structure.counts.shape[0], 3))
    return total.index_add_(0, structure.face, torch.linalg.cross(a, b) / 2)


def sums(values: Tensor, labels: Tensor, count: int) -> Tensor:
    """The sum of values (N,) with each label, (count,)."""
    return values.new_zeros(count).index_add_(0, labels, values)


def fluxes(points: Tensor, structure: Structure, origin: Tensor) -> Tensor:
    """The volume of the cone from the origin over each face, below 0 if seen from behind, (F,)."""
    anchor = points[structure.vertex[structure.offsets[:-1]]] - origin
    return (anchor * crosses(points, structure)).sum(1) / 3


def turns(points: Tensor, structure: Structure, normals: Tensor) -> Tensor:
    """The angle by which the normal turns at each edge between two faces, (E,), NaN on the border.

    It is above 0 where the side on which the output is smaller is convex.
    """
    first, found = structure.first, points.new_full((structure.first.shape[0],), torch.nan)
    inside = structure.twin[first] >= 0
    edge = first[inside]
    along = points[structure.end[edge]] - points[structure.vertex[edge]]
    one, other = (normals[structure.face[h]] for h in (edge, structure.twin[edge]))
    cross = torch.linalg.cross(one, other)
    sine = cross.norm(dim=1).copysign((cross * along).sum(1))
    found[inside] = torch.atan2(sine, (one * other).sum(1))
    return found


@dataclass(frozen=True, eq=False)
class Caps:
    """The borders of the caps, as directed segments that have their cap on the left from outside.

    side: (B,) of the box; start, end: (B,) numbers of the surface's vertices, and after them of the
    box's corners; normals: (P, 3) of the sides, outwards; areas: (P,) of the caps.
    """

    side: Tensor
    start: Tensor
    end: Tensor
    normals: Tensor
    areas: Tensor


def cap_areas(points: Tensor, caps: tuple[Tensor, Tensor, Tensor], normals: Tensor) -> Tensor:
    """The areas (P,) of caps, from their side, start and end (B,) each."""
    side, start, end = caps
    origin = points.new_zeros((normals.shape[0], 3))
    origin[side] = points[start]  # any point of the side
    a, b = points[start] - origin[side], points[end] - origin[side]
    double = (torch.linalg.cross(a, b) * normals[side]).sum(1)
    return sums(double / 2, side, normals.shape[0])


def distances(points: Tensor, corners: Tensor, tree: BoxTree) -> tuple[Tensor, Tensor]:
    """The distances of points (N, 3) from triangles (T, 3, 3), and the nearest triangle of each."""
    best = points.new_full((points.shape[0],), torch.inf)
    which = torch.full_like(best, -1, dtype=torch.long)
    for some in torch.split(tree.sorted(points), _POINTS):
        at, squared = points[some], best[some]
        own = which[some]

        def improve(point: Tensor, item: Tensor) -> None:
            found = _squared_distances(at[point], corners[item])  # noqa: B023
            squared.scatter_reduce_(0, point, found, "amin")  # noqa: B023
            hit = found <= squared[point]  # noqa: B023
            own[point[hit]] = item[hit]  # noqa: B023

        guess = tree.guesses(at, _GUESSES)
        index = torch.arange(at.shape[0])
        improve(index.repeat_interleave(guess.shape[1]), guess.reshape(-1))
        for point, item in tree.walk(at, squared, nearest=True):
            improve(point, item)
        best[some], which[some] = squared, own
    return best.sqrt(), which


def _squared_distances(p: Tensor, corners: Tensor) -> Tensor:
    """The squared distances of points (N, 3) from triangles (N, 3, 3), flat ones included."""
    a, after = corners, corners.roll(-1, 1)
    side, off = after - a, p[:, None] - a
    size = side.square().sum(2)
    share = ((off * side).sum(2) / torch.where(size > 0, size, 1)).clamp(0, 1)
    rim = (off - share[..., None] * side).square().sum(2).amin(1)
    normal = torch.linalg.cross(side[:, 0], side[:, 1])
    length = normal.square().sum(1)
    above = (torch.linalg.cross(side, off) * normal[:, None]).sum(2)
    inside = (above >= 0).all(1) & (length > 0)
    height = (off[:, 0] * normal).sum(1).square() / torch.where(length > 0, length, 1)
    return torch.where(inside, torch.minimum(height, rim), rim)
