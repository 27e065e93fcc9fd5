"""The only tolerances in the code base: how signs are decided and when points are one point.

Every computed number carries an estimate ``e`` of its absolute rounding error. A value is zero when
it lies within ``SAFETY * e`` of zero, and two points of a line are one point when they lie within
the sum of their tolerances. What lies between ``e`` and ``SAFETY * e`` is too far off for rounding
alone and too close to be told apart: it is decided the same way, and reported.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "AREA_PRECISION",
    "BLURRED",
    "DEGENERATE",
    "EPS",
    "JACOBIAN_PRECISION",
    "LARGEST",
    "PLANAR",
    "SAFETY",
    "SLOPE_PRECISION",
    "SMALLEST",
    "UNRESOLVED_REACH",
    "UV_ERROR",
    "VALUE_PRECISION",
    "cluster",
    "touching",
]

EPS = 2.0**-52

# Estimated errors times this are tolerances. The true error stays below the estimate, so that the
# factor leaves room for it twice over.
SAFETY = 8.0

# Rounding of a coordinate in the engine's frame, where the domain spans about [-1, 1].
UV_ERROR = 2 * EPS

# Slopes fitted to vertex values must be this precise, relative to the steepest; regions too thin
# for that get the network's own derivative instead.
SLOPE_PRECISION = 1e-10

# What validate() demands: of the areas' sum, of outputs relative to their spread, and of slopes
# relative to the steepest.
AREA_PRECISION = 1e-10
VALUE_PRECISION = 1e-9
JACOBIAN_PRECISION = 1e-6

# validate() does not hold regions to account that lie within this distance of a place which the
# partition itself reports as unresolved (in the engine's frame).
UNRESOLVED_REACH = 2.0**-20

# Relative distance off the plane at which given points do not span a 2-D domain.
PLANAR = 1e-9

# Rounding of a polygon's corners, relative to its extent, beyond which its shape is lost.
BLURRED = 2.0**-7

# Relative width below which a polygon is no polygon.
DEGENERATE = 1e-12

# How wide a polygon may be, so that areas and squared distances are normal numbers of float64.
SMALLEST = 1e-140
LARGEST = 1e150


def cluster(
    line: Tensor, s: Tensor, error: Tensor, common_shift: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Unite the points of each line that cannot be told apart.

    line: (N,) ascending; s: (N,) ascending within a line; error: (N,) rounding error of s; drift:
    (N,) how far s moves with the line itself, if that is off its place: all its points move at
    once, so that only their differences count.
    Returns the cluster of each point (N,), the best-known member of each cluster (C,), and whether
    each point is farther from that member than rounding explains (N,).

    A badly known point (lines that meet at a tiny angle) joins the nearest better-known one, and
    never glues two well-known points together.
    """
    group = torch.arange(s.shape[0], device=s.device)
    best = group
    if s.shape[0] < 2 or not bool(touching(line, s, error, common_shift).any()):
        return group, best, torch.zeros_like(s, dtype=torch.bool)
    common_shift = torch.zeros_like(s) if common_shift is None else common_shift
    while True:
        touch = touching(line[best], s[best], error[best], common_shift[best])
        if not bool(touch.any()):
            break
        start = ~_joins(touch, s[best], error[best])
        label = torch.cumsum(start.long(), 0) - 1
        group = label[group]
        best = _narrowest(label, error[best], best)
    best_of = best[group]
    explained = error + error[best_of] + (common_shift - common_shift[best_of]).abs()
    doubtful = (s - s[best_of]).abs() > explained
    return group, best, doubtful


def touching(line: Tensor, s: Tensor, error: Tensor, common_shift: Tensor | None = None) -> Tensor:
    """For each neighbouring pair: on one line and within both tolerances, as in ``cluster``."""
    reach = error[1:] + error[:-1]
    if common_shift is not None:
        reach += common_shift.diff().abs()
    return (line[1:] == line[:-1]) & (s.diff() <= SAFETY * reach)


def _joins(touch: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Which points join their left neighbour: the worse-known of a pair picks its nearest one."""
    gap = torch.where(touch, s[1:] - s[:-1], torch.inf)
    outer = gap.new_full((1,), torch.inf)
    left, right = torch.cat([outer, gap]), torch.cat([gap, outer])
    prefers_left = left <= right
    worse_is_right = error[1:] >= error[:-1]
    pair = touch & torch.where(worse_is_right, prefers_left[1:], ~prefers_left[:-1])
    # The closest pair of all is always taken, so every pass makes progress.
    pair |= touch & prefers_left[1:] & (right[:-1] <= left[:-1])
    return torch.cat([pair.new_zeros(1), pair])


def _narrowest(label: Tensor, error: Tensor, best: Tensor) -> Tensor:
    """The member with the smallest error of each run of labels (the first of equals)."""
    count = int(label[-1]) + 1
    least = error.new_full((count,), torch.inf).scatter_reduce_(0, label, error, "amin")
    candidate = torch.where(error <= least[label], best, torch.iinfo(torch.int64).max)
    return candidate.new_full((count,), torch.iinfo(torch.int64).max).scatter_reduce_(
        0, label, candidate, "amin"
    )
