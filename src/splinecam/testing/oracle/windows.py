"""Which units a maximum is taken over, written out one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import nn

from splinecam.errors import CaptureError

__all__ = ["ADAPTIVE_POOLS", "MAX_POOLS", "along", "halves", "windows"]

MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)


def windows(module: nn.Module, shape: tuple[int, ...]) -> list[list[int]]:
    """The units in every window of a pooling layer, for inputs ``(channels, *sizes)``."""
    out = module(torch.zeros(1, *shape)).shape[1:]  # how many windows there are, torch knows
    spans = [
        [_span(module, axis, size, place, places) for place in range(places)]
        for axis, (size, places) in enumerate(zip(shape[1:], out[1:], strict=True))
    ]
    groups = [
        [_unit(shape, (channel, *position)) for position in product(*window)]
        for channel in range(shape[0])
        for window in product(*spans)
    ]
    if not all(groups):
        raise CaptureError(f"the exact oracle found a window of {module} in the padding")
    return groups


def _span(module: Any, axis: int, size: int, place: int, places: int) -> list[int]:
    """The positions along one axis that one output sees; padding is not among them."""
    if isinstance(module, ADAPTIVE_POOLS):
        return list(range(place * size // places, math.ceil((place + 1) * size / places)))
    kernel, stride, padding, dilation = (
        value[axis] if isinstance(value, tuple) else value
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    positions = [place * stride - padding + step * dilation for step in range(kernel)]
    return [position for position in positions if 0 <= position < size]


def _unit(shape: Sequence[int], position: Sequence[int]) -> int:
    """The place of a position in the flattened tensor."""
    unit = 0
    for size, index in zip(shape, position, strict=True):
        unit = unit * size + index
    return unit


def along(shape: tuple[int, ...], dim: int) -> list[list[int]]:
    """The units that differ in one dimension only; the batch is dimension 0."""
    axis = dim - 1 if dim > 0 else dim + len(shape)
    others = [range(size) for k, size in enumerate(shape) if k != axis]
    return [
        [_unit(shape, (*rest[:axis], index, *rest[axis:])) for index in range(shape[axis])]
        for rest in product(*others)
    ]


def halves(shape: tuple[int, ...]) -> list[list[int]]:
    """Each unit of the first half with its partner in the second."""
    half = math.prod(shape) // 2
    return [[unit, unit + half] for unit in range(half)]
