"""Small circles around polygons."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["squared_radii"]


def squared_radii(corners: Tensor) -> Tensor:
    """The squared radius of a circle around each polygon with corners (N, k, 2), (N,).

    It is the smallest one around a triangle, and that around the box of any other polygon.
    """
    if corners.shape[1] != 3:
        return (corners.amax(1) - corners.amin(1)).square().sum(1) / 4
    side = corners.roll(-1, 1) - corners
    squares = side.square().sum(2)
    doubled = side[:, 0, 0] * side[:, 1, 1] - side[:, 0, 1] * side[:, 1, 0]
    largest = squares.amax(1)
    # The circle through all three corners is the smallest one if no angle is obtuse.
    acute = 2 * largest < squares.sum(1)
    around = squares.prod(1) / (4 * torch.where(acute, doubled, 1.0).square())
    # The area of a thin triangle is rounded, but its circle is no smaller than the longest side.
    return torch.where(acute, torch.maximum(around, largest / 4), largest / 4)
