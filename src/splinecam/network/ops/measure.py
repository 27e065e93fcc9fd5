"""Rounding-error bounds of operations of which nothing is known but that they can be run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.ops.bounds import Bound

__all__ = ["measured_bound"]

_PROBES = 24
_SMALLEST = -8.0  # as a power of two: many functions bend around zero, so some points lie there
_STRIDE = 2.0**20  # measured over this many rounding errors: far above rounding, and still tiny


def measured_bound(run: Callable[[Tensor], Tensor], bound: Bound) -> Bound:
    """The bounds of a result from those of the argument, (1, ...), measured at random points.

    Steps as large as the argument's errors e, with random signs, change a result with the
    coefficients W by ``sqrt(W^2 e^2)`` on average. Two equal steps change it equally, but for the
    rounding of the operation itself.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (_PROBES, *bound.magnitude.shape[1:])
    x, signs = torch.randn((2, *shape), generator=generator, dtype=torch.float64).to(bound.error)
    x[0], x[1] = 1, -1  # where sums are largest
    power = torch.linspace(-_SMALLEST, _SMALLEST, _PROBES, dtype=torch.float64).clamp(max=0).to(x)
    scale = torch.exp2(power).view(-1, *[1] * (x.dim() - 1))
    x = scale * x.clamp(-1, 1) * bound.magnitude
    step = _STRIDE * signs.sign() * bound.error
    first, second, third = (run(x + k * step) for k in range(3))
    magnitude = first.abs().amax(0, keepdim=True)
    error = 2 * (second - first).abs().amax(0, keepdim=True) / _STRIDE
    # Not the largest of them: a step may cross a border, where the slope changes.
    rounding = (first - 2 * second + third).abs().kthvalue(3 * _PROBES // 4, 0, keepdim=True).values
    return Bound(magnitude, error + torch.maximum(rounding, EPS * magnitude))
