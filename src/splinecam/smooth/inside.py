"""How far a network may be from a plane inside of a polygon, with and without kinks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.geometry.domain import Domain
from splinecam.network.program import Program
from splinecam.smooth.circles import squared_radii
from splinecam.smooth.followed import Boxes
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds

__all__ = ["KinkedInside", "SmoothInside"]


@dataclass(frozen=True)
class SmoothInside:
    """Networks of smooth layers alone, whose bounds are known on the cells of a grid."""

    bounds: CellBounds

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (N, n) in polygons with corners (N, k, 2), see ``Inside``."""
        boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
        curvature, branch = self.bounds.largest(boxes).unbind(1)
        return curvature * (squared_radii(corners)[:, None] / 2), branch


@dataclass(frozen=True)
class KinkedInside:
    """Networks with kinks, each polygon of which is looked at by itself.

    A polygon that is crossed by kinks has the pieces of its centre. How far the network is beyond
    them follows from its values at the corners.
    """

    real: Program
    domain: Domain

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (N, n) in polygons with corners (N, k, 2), see ``Inside``."""
        low, high = corners.amin(1), corners.amax(1)
        boxes = Boxes((low + high) / 2, (high - low) / 2)
        found = follow(self.real, self.domain, boxes, corners)
        square = squared_radii(corners)
        bend = found.curvature * found.along(square / 2) + found.spread
        return bend.flatten(1), found.rounding.flatten(1)
