"""Distances of points from segments, and winding numbers, where segments may be very short.

The direction of a segment that is about as short as rounding is unknown, so that the line through
it is useless. Nothing here needs that line: distances are those of the closest points of segments,
and a polygon contains a point if its winding number around the point is not zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["closest", "crossings"]


def closest(points: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """The closest points of segments (N, 2, 2) to points (N, 2).

    Returns the fraction t of the segment and the squared distance, (N,) each.
    """
    (ax, ay), (bx, by) = (gap.unbind(1) for gap in (ends - points[:, None]).unbind(1))
    dx, dy = (ends[:, 1] - ends[:, 0]).unbind(1)
    full, along = dx * dx + dy * dy, -(ax * dx + ay * dy)
    t = (along / torch.where(full > 0, full, 1.0)).clamp(0, 1)
    # Differences from the nearer end lose fewer digits.
    late = t > 0.5
    ux, uy = torch.where(late, bx, ax), torch.where(late, by, ay)
    cross = ux * dy - uy * dx
    beyond = (along <= 0) | (along >= full)
    return t, torch.where(beyond, ux * ux + uy * uy, cross * cross / full)


def crossings(points: Tensor, ends: Tensor) -> Tensor:
    """Whether segments (N, 2, 2) cross the rays from points (N, 2) to the right, (N,).

    Returns 1 for a segment that crosses upwards, -1 downwards, and 0 for none. The sum around a
    polygon is its winding number around the point. The reversed segment gives the opposite number,
    whatever the rounding, so that exactly one of several polygons without gaps and overlaps winds
    around a point between them. That polygon contains the point up to rounding.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> sides = torch.stack([square, square.roll(-1, 0)], 1)
    >>> int(crossings(torch.tensor([[0.5, 0.5]]).expand(4, 2), sides).sum())
    1
    """
    (ax, ay), (bx, by) = (end.unbind(1) for end in ends.unbind(1))
    x, y = points.unbind(1)
    above, below = by > y, ay > y
    # Both directions compute from the lower end, so that they round alike.
    px, py = torch.where(above, ax, bx), torch.where(above, ay, by)
    dx, dy = torch.where(above, bx, ax) - px, torch.where(above, by, ay) - py
    left = (x - px) * dy < (y - py) * dx
    return (above.long() - below.long()) * left
