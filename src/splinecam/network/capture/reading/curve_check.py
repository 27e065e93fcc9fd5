"""The check of a registered smooth function: its values, slopes and bounds at many points."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.capture.reading.custom_op_check import Problem
from splinecam.network.capture.reading.probe import SLACK
from splinecam.network.capture.tracing.diagnosis import first_line
from splinecam.network.curves.taught import TaughtCurve

__all__ = ["check_curve"]

_SCALES = (0.01, 0.3, 4.0, 64.0)  # how far from zero points lie; all must be finite up to _NEAR
_NEAR = 8.0
_POINTS = 2048  # on each scale
_ROUNDING = 2.0**10 * EPS  # of a value, relative to the values around it


def check_curve(
    curve: TaughtCurve,
    run: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raise a Problem unless ``run``, on (B, *shape), applies the curve, and its bound holds."""
    _check_entries(curve, run, shape, device)
    z = _points(device)
    value, slope = _evaluated(curve, z)
    low, high = z[:-1], z[1:]
    limit = _limit(curve, low, high)
    width = high - low
    finite = value.isfinite() & slope.isfinite()
    known = finite[1:] & finite[:-1] & limit.isfinite()
    if not bool(known[low.abs() <= _NEAR].all()):
        where = float(low[(low.abs() <= _NEAR) & ~known][0])
        raise Problem(
            f"it has no bound near {where:.4g}: its value, its slope or its curvature= is not "
            "finite there. A function whose second derivative is not bounded cannot be replaced"
        )
    turn = (slope[1:] - slope[:-1]).abs()
    slack = 2.0**14 * EPS * (slope.abs()[1:] + slope.abs()[:-1] + 1)
    excess = turn - limit * width - slack
    if bool((known & (excess > 0)).any()):
        i = int(torch.where(known, excess / width, -torch.inf).argmax())
        raise Problem(
            f"its second derivative is {float(turn[i] / width[i]):.6g} near {float(low[i]):.4g}, "
            f"larger than curvature={float(limit[i]):.6g}: give a bound that holds everywhere"
        )
    size = torch.maximum(value[1:].abs(), value[:-1].abs())
    rounding = _ROUNDING * (size + z.abs()[1:] * slope.abs()[1:] + width)
    off = (value[1:] - value[:-1] - slope[:-1] * width).abs() - limit * width.square() / 2
    if bool((known & (off > rounding)).any()):
        i = int(torch.where(known, off - rounding, -torch.inf).argmax())
        raise Problem(
            f"between {float(low[i]):.6g} and {float(high[i]):.6g} it changes by "
            f"{float((value[i + 1] - value[i]).abs()):.3g}, more than its slope "
            f"{float(slope[i]):.3g} and curvature={float(limit[i]):.3g} allow: it jumps or bends "
            "there, or the bound is too small"
        )


def _check_entries(
    curve: TaughtCurve,
    run: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raise a Problem unless every entry of a result is the same function of its own entry."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, *shape, generator=generator, dtype=torch.float64).to(device)
    try:
        whole, alone = run(x), curve.value(x)
    except Exception as error:
        raise Problem(
            "registered with curvature=, it is run on tensors of any shape in float64, which "
            f"fails: {first_line(error)}"
        ) from error
    if whole.shape != x.shape or bool(((whole - alone).abs() > SLACK * alone.abs().max()).any()):
        raise Problem(
            "registered with curvature=, it must apply the same function of one variable to every "
            "entry, without regard to the others"
        )


def _points(device: torch.device) -> Tensor:
    """Points on several scales, in order."""
    generator = torch.Generator().manual_seed(0)
    some = [
        scale * (2 * torch.rand(_POINTS, generator=generator, dtype=torch.float64) - 1)
        for scale in _SCALES
    ]
    whole = torch.arange(-_NEAR, _NEAR + 1, dtype=torch.float64)  # where many functions change
    points: Tensor = torch.unique(torch.cat([*some, whole]))
    return points.to(device)


def _evaluated(curve: TaughtCurve, z: Tensor) -> tuple[Tensor, Tensor]:
    try:
        return curve.value(z), curve.slope(z)
    except Exception as error:
        raise Problem(
            f"registered with curvature=, it needs a derivative by autograd: {first_line(error)}"
        ) from error


def _limit(curve: TaughtCurve, low: Tensor, high: Tensor) -> Tensor:
    try:
        limit = curve.curvature_bound(low, high)
    except Exception as error:
        raise Problem(
            "its curvature= cannot be computed for tensors of the ends of intervals, "
            f"{tuple(low.shape)} each: {first_line(error)}"
        ) from error
    if bool((limit < 0).any()):
        raise Problem("its curvature= is negative: give a bound on the modulus")
    return limit
