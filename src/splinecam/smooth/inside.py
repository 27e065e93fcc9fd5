"""How far a network may be from a plane inside of a polygon, with and without kinks.

``closely`` looks at triangles, and also says how long their sides are, (N, 3): the longest are to
be divided. Sides count by the second derivative along them, or by what is gained at kinks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam.geometry.domain import Domain
from splinecam.network.program import Program
from splinecam.smooth.circles import squared_radii
from splinecam.smooth.followed import Boxes, Followed
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds
from splinecam.smooth.region_bounds import outputs_at

__all__ = ["KinkedInside", "SmoothInside"]

_UNITS = 8  # of a network, whose values at three points cost about as much as a look at bounds
_VISIBLE = 2.0**-8  # of a bound: what along a side of a triangle is worth dividing it


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
        return self._bounds(corners, False)[:2]

    def closely(self, corners: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same in triangles, with the sides that are to be divided."""
        bend, branch, found = self._bounds(corners, True)
        worst = (bend / goal).argmax(1)
        place = torch.arange(len(worst), device=worst.device), worst
        a, b, c = found.form.flatten(2)[:, *place, None]
        u, v = (corners.roll(-1, 1) - corners).unbind(2)
        sides = a * u * u + 2 * b * u * v + c * v * v
        crossed = found.spread.flatten(1)[place] > bend[place] / 2
        some = (crossed & (bend > goal).any(1)).nonzero()[:, 0]
        if len(some):
            sides[some] = self._across_kinks(corners[some], bend[place][some], worst[some])
        return bend, branch, sides

    def _across_kinks(self, corners: Tensor, bend: Tensor, worst: Tensor) -> Tensor:
        """How far an output, by its number (N,), is from linear along each side, (N, 3).

        That tells which sides cross kinks. Where there is little to see, long sides count more.
        """
        ahead = corners.roll(-1, 1)
        points = torch.cat([corners, (corners + ahead) / 2], 1)
        values = outputs_at(self.real, self.domain, points.view(-1, 2)).view(len(corners), 6, -1)
        z = values.gather(2, worst[:, None, None].expand(-1, 6, 1))[:, :, 0]
        off = (z[:, 3:] - (z[:, :3] + z[:, :3].roll(-1, 1)) / 2).abs()
        length = (ahead - corners).square().sum(2)
        return off + _VISIBLE * bend[:, None] * length / length.amax(1, keepdim=True)

    def _bounds(self, corners: Tensor, closely: bool) -> tuple[Tensor, Tensor, Followed]:
        low, high = corners.amin(1), corners.amax(1)
        boxes = Boxes((low + high) / 2, (high - low) / 2)
        found = follow(self.real, self.domain, boxes, corners, closely)
        bend = found.bulge(boxes.extents(corners, closely)) + found.spread
        return bend.flatten(1), found.rounding.flatten(1), found


@dataclass(frozen=True)
class SmoothInside:
    """Networks of smooth layers alone, whose bounds are known on the cells of a grid."""

    bounds: CellBounds
    alone: KinkedInside

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds (N, n) in polygons with corners (N, k, 2), see ``Inside``."""
        boxes = torch.cat([corners.amin(1), corners.amax(1)], 1)
        curvature, branch = self.bounds.largest(boxes).unbind(1)
        return curvature * (squared_radii(corners)[:, None] / 2), branch

    def closely(self, corners: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds (N, n) in triangles, by a look at those that are far beyond the goal, (N, n)."""
        costly = 1 + sum(self.alone.real.widths) / _UNITS
        bend, branch = self(corners)
        sides = (corners.roll(-1, 1) - corners).square().sum(2)
        some = (~(bend <= costly * goal).all(1)).nonzero()[:, 0]
        if len(some):
            close, rounding, across = self.alone.closely(corners[some], goal[some])
            better = (close / goal[some]).amax(1) < (bend[some] / goal[some]).amax(1)
            sides[some] = torch.where(better[:, None], across, sides[some])
            bend[some] = torch.fmin(bend[some], close)
            branch[some] = torch.fmin(branch[some], rounding)
        return bend, branch, sides
