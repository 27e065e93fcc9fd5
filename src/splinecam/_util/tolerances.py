"""All tolerances of the code base: when a value is zero, and when points are merged.

Every computed number carries an estimate ``e`` of its absolute rounding error, and its tolerance is
``SAFETY * e``. A value is zero if its modulus is at most its tolerance. Two points of a line are
merged if their distance is at most the sum of their tolerances (``cluster``), and so are regions
whose affine maps differ by no more (``engine.merge``). What lies between ``e`` and ``SAFETY * e``
is larger than rounding explains and too small to be resolved: it is decided in the same way, and
reported as ambiguous.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 2.0**-52

# The same for functions in single precision, whose fast versions are off by some ulp.
SINGLE_EPS = 2.0**-22

# How far two ways to compute a convolution in float64 may differ, in itself and relatively.
CONVOLUTION_PRECISION = 1e-10

# Tolerances are estimated errors times this factor: of zeros, and of merges of points and regions.
# The true errors stay below the estimates, so that the factor covers them twice over.
SAFETY = 8.0

# The largest rounding error of a layer in a model's own precision is measured at a few inputs. It
# is taken as this many times as large, and as no less than a few roundings of the largest value.
MEASURED = 2.0
FEW_ROUNDINGS = 4.0

# The rounding error of a coordinate in the engine's frame, where the domain spans about [-1, 1].
UV_ERROR = 2 * EPS

# The distance in the engine's frame up to which features of two partitions count as touching. It
# is thousands of rounding errors, as vertices of lines that meet at small angles are less precise.
OVERLAY_SLACK = 2.0**-40

# The precision of slopes that are fitted to vertex values, relative to the steepest slope. Regions
# that are too thin for it get the network's own derivative instead. So do neighbours that look the
# same, unless their slopes have the second precision: they may be merged.
SLOPE_PRECISION = 1e-8
MERGE_PRECISION = 1e-10

# The precision that validate() demands: of the sum of all areas, of outputs relative to their
# spread, and of slopes relative to the steepest slope.
AREA_PRECISION = 1e-10
VALUE_PRECISION = 1e-9
JACOBIAN_PRECISION = 1e-6

# validate() does not check regions within this distance of a place that the partition reports as
# unresolved, in the engine's frame.
UNRESOLVED_REACH = 2.0**-20

# Faces of this width in the engine's frame are not divided further where a partition is refined.
# Narrower faces have no room for new vertices, which rounding moves off the sides.
THINNEST = 2.0**-36

# The relative distance from a plane up to which points lie in it.
PLANAR = 1e-9

# The sine of the angle between lines, or planes, up to which their crossing has no gradient. The
# height of triangles relative to the extent, times sines of corners, up to which slopes have none.
PARALLEL = 1e-9
THIN_SLOPES = 1e-6

# The largest rounding error of a polygon's corners, relative to its extent.
MAX_CORNER_ERROR = 2.0**-7

# The relative width up to which a polygon is degenerate.
DEGENERATE = 1e-12

# The relative length below which the direction of a polygon's side is rounded too much to define a
# plane.
SHORT_SIDE = 2.0**-10

# The range of widths of a domain in which areas and squared distances are normal float64 numbers.
SMALLEST_DOMAIN = 1e-140
LARGEST_DOMAIN = 1e150

# The range of widths of a body in which volumes and squared areas are normal float64 numbers.
SMALLEST_SOLID = 1e-70
LARGEST_SOLID = 1e70

# The rounding error beyond which a value may be so large that differences of values overflow.
LARGEST_ERROR = 2.0**960


def cluster(
    line: Tensor, s: Tensor, error: Tensor, common_shift: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Merge the points of each line whose distance is within their tolerances.

    line: (N,) ascending; s: (N,) positions, ascending within a line; error: (N,) their rounding
    errors; common_shift: (N,) how far an error of the line itself moves each position. All points
    of the line move together, so only differences of the common shift matter.
    Returns the cluster of each point (N,), the most precise member of each cluster (C,), and
    whether each point is farther from that member than rounding explains (N,).

    An imprecise point (of lines that meet at a tiny angle) joins the nearest more precise one, and
    never merges two precise points with each other.
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
        best = _most_precise(label, error[best], best)
    best_of = best[group]
    explained = error + error[best_of] + (common_shift - common_shift[best_of]).abs()
    ambiguous = (s - s[best_of]).abs() > explained
    return group, best, ambiguous


def touching(line: Tensor, s: Tensor, error: Tensor, common_shift: Tensor | None = None) -> Tensor:
    """Whether neighbouring points lie on one line and within their tolerances, (N - 1,)."""
    reach = error[1:] + error[:-1]
    if common_shift is not None:
        reach += common_shift.diff().abs()
    return (line[1:] == line[:-1]) & (s.diff() <= SAFETY * reach)


def _joins(touch: Tensor, s: Tensor, error: Tensor) -> Tensor:
    """Whether each point joins its left neighbour: the less precise of a pair joins its nearest."""
    gap = torch.where(touch, s[1:] - s[:-1], torch.inf)
    outer = gap.new_full((1,), torch.inf)
    left, right = torch.cat([outer, gap]), torch.cat([gap, outer])
    prefers_left = left <= right
    worse_is_right = error[1:] >= error[:-1]
    pair = touch & torch.where(worse_is_right, prefers_left[1:], ~prefers_left[:-1])
    # The closest pair is always merged, so that every pass makes progress.
    pair |= touch & prefers_left[1:] & (right[:-1] <= left[:-1])
    return torch.cat([pair.new_zeros(1), pair])


def _most_precise(label: Tensor, error: Tensor, best: Tensor) -> Tensor:
    """The member with the smallest error of each cluster, the first of equal ones, (C,)."""
    count = int(label[-1]) + 1
    least = error.new_full((count,), torch.inf).scatter_reduce_(0, label, error, "amin")
    candidate = torch.where(error <= least[label], best, torch.iinfo(torch.int64).max)
    return candidate.new_full((count,), torch.iinfo(torch.int64).max).scatter_reduce_(
        0, label, candidate, "amin"
    )
