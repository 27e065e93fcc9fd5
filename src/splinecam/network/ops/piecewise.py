"""The piecewise-linear operations of one variable, and masks: where they change.

A mask is a comparison of activations. It may choose between values that agree at its border.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from torch import Tensor

from splinecam.network.ops.affine import TRAINING
from splinecam.network.ops.registry import Call, Comparison, Knots, Piecewise, register


def _fixed(*levels: float, slopes: tuple[float, ...]) -> Any:
    def knots(call: Call) -> Knots:
        return Knots(levels, slopes)

    return knots


def _leaky_relu(call: Call) -> Knots:
    return Knots((0.0,), (call.get("negative_slope", 0.01), 1.0))


def _prelu(call: Call) -> Knots:
    z, weight = call["self"], call["weight"]
    if weight.numel() > 1 and z.dim() > 1 and weight.dim() == 1:
        weight = weight.view(1, -1, *([1] * (z.dim() - 2)))
    return Knots((0.0,), (weight, 1.0))


def _rrelu(call: Call) -> Knots | str:
    if call.get("training"):
        return TRAINING
    return Knots((0.0,), ((call.get("lower", 1 / 8) + call.get("upper", 1 / 3)) / 2, 1.0))


def _between(low: Any, high: Any, slope: float = 1.0) -> Knots:
    """The identity cut off below ``low`` and above ``high``; constant if they leave no room."""
    middle: Any = slope
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        middle = torch.where(torch.as_tensor(low < high), slope, 0.0).to(torch.float64)
    elif low >= high:
        middle = 0.0
    return Knots((low, high), (0.0, middle, 0.0))


def _clamp(call: Call) -> Knots:
    low, high = call.get("min"), call.get("max")
    return _between(-inf if low is None else low, inf if high is None else high)


def _hardtanh(call: Call) -> Knots:
    return _between(call.get("min_val", -1.0), call.get("max_val", 1.0))


def _softshrink(call: Call) -> Knots:
    width = call.get("lambd", 0.5)
    return Knots((-width, width), (1.0, 0.0, 1.0))


def _threshold(call: Call) -> Knots | str:
    if call["threshold"] != call["value"]:
        return "it jumps at its threshold: discontinuous unless threshold equals value"
    return Knots((float(call["threshold"]),), (0.0, 1.0))


def _maximum(call: Call) -> Knots:
    return Knots((call["constant"],), (0.0, 1.0))


def _minimum(call: Call) -> Knots:
    return Knots((call["constant"],), (1.0, 0.0))


register("relu", Piecewise(_fixed(0.0, slopes=(0.0, 1.0)), notes="knot 0"))
register("relu6", Piecewise(_fixed(0.0, 6.0, slopes=(0.0, 1.0, 0.0)), notes="knots 0 and 6"))
register("abs absolute", Piecewise(_fixed(0.0, slopes=(-1.0, 1.0)), notes="knot 0"))
register("leaky_relu", Piecewise(_leaky_relu, exact=False, notes="knot 0"))
register("prelu _prelu_kernel", Piecewise(_prelu, exact=False, notes="knot 0, slope per channel"))
register("rrelu", Piecewise(_rrelu, exact=False, notes="knot 0; eval mode"))
register("hardtanh", Piecewise(_hardtanh, notes="knots at both ends"))
register(
    "clamp clip clamp_min clamp_max",
    Piecewise(
        _clamp,
        pairs=(("min", False), ("max", True)),
        notes="knots at the given ends; or ends that are activations",
    ),
)


def _hardsigmoid(x: Tensor) -> Tensor:
    """The derivative in torch's own version is rounded to float32, also in float64."""
    return (x + 3).clamp(0, 6) / 6


register(
    "hardsigmoid",
    Piecewise(
        _fixed(-3.0, 3.0, slopes=(0.0, 1 / 6, 0.0)),
        exact=False,
        run=_hardsigmoid,
        notes="knots -3 and 3",
    ),
)
register("softshrink", Piecewise(_softshrink, exact=False, notes="knots at plus and minus lambda"))
register("threshold", Piecewise(_threshold, notes="only where threshold equals value"))
register(
    "maximum fmax max.other",
    Piecewise(
        _maximum,
        source=("self", "other"),
        pairs=(("other", False),),
        notes="with a constant, or of two activations",
    ),
)
register(
    "minimum fmin min.other",
    Piecewise(
        _minimum,
        source=("self", "other"),
        pairs=(("other", True),),
        notes="with a constant, or of two activations",
    ),
)

register("gt ge greater greater_equal", Comparison(("self", "other")))
register("lt le less less_equal", Comparison(("other", "self")))
register("logical_not bitwise_not", Comparison(None, notes="of a mask"))
register(
    "sign sgn",
    Comparison(None, signed=True, notes="times a value that is zero where the sign changes"),
)
