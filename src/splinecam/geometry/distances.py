"""How far points are from segments, and on which side of them, where segments may be very short.

The direction of a segment that is about as short as rounding is unknown, so that the line through
it is of no use far away. Nothing here needs that line: distances are those of closest points of
segments, and a polygon holds a point if it winds around the point.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["closest", "crossings"]


def closest(points: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Where on its segment (N, 2, 2) each point (N, 2) has its closest point, and how far off.

    Returns the fraction t and the squared distance, (N,) each.
    """
    (ax, ay), (bx, by) = (gap.unbind(1) for gap in (ends - points[:, None]).unbind(1))
    dx, dy = (ends[:, 1] - ends[:, 0]).unbind(1)
    full, along = dx * dx + dy * dy, -(ax * dx + ay * dy)
    t = (along / torch.where(full > 0, full, 1.0)).clamp(0, 1)
    # Seen from the end that is nearer, where coordinates lose fewer digits.
    late = t > 0.5
    ux, uy = torch.where(late, bx, ax), torch.where(late, by, ay)
    cross = ux * dy - uy * dx
    beyond = (along <= 0) | (along >= full)
    return t, torch.where(beyond, ux * ux + uy * uy, cross * cross / full)


def crossings(points: Tensor, ends: Tensor) -> Tensor:
    """How segments (N, 2, 2) cross the rays from points (N, 2) to the right: 1 upwards, -1 down.

    Returns whole numbers (N,). Their sum around a polygon is the number of times that it winds
    around the point. A segment gives the opposite number when it is turned round, whatever the
    rounding, so that exactly one of several polygons without gaps and overlaps holds a point
    between them. The polygon that does so contains the point, or the point is off it by rounding.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> sides = torch.stack([square, square.roll(-1, 0)], 1)
    >>> int(crossings(torch.tensor([[0.5, 0.5]]).expand(4, 2), sides).sum())
    1
    """
    (ax, ay), (bx, by) = (end.unbind(1) for end in ends.unbind(1))
    x, y = points.unbind(1)
    above, below = by > y, ay > y
    # Both directions look from the lower end, so that both round alike.
    px, py = torch.where(above, ax, bx), torch.where(above, ay, by)
    dx, dy = torch.where(above, bx, ax) - px, torch.where(above, by, ay) - py
    left = (x - px) * dy < (y - py) * dx
    return (above.long() - below.long()) * left
