"""The groups of units that a maximum is taken over."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError

__all__ = ["ADAPTIVE_POOLS", "MAX_POOLS", "along", "halves", "windows"]

MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)


def windows(module: nn.Module, shape: tuple[int, ...]) -> list[list[int]]:
    """Return the units in every window of a pooling layer, for inputs ``(channels, *sizes)``."""
    out = module(torch.zeros(1, *shape)).shape[1:]  # torch knows how many windows there are
    spans = [
        [_span(module, axis, size, place, places) for place in range(places)]
        for axis, (size, places) in enumerate(zip(shape[1:], out[1:], strict=True))
    ]
    groups = [
        [int(channel[position]) for position in product(*window)]
        for channel in _units(shape)
        for window in product(*spans)
    ]
    if not all(groups):
        raise CaptureError(f"the exact oracle found a window of {module} in the padding")
    return groups


def _span(module: Any, axis: int, size: int, place: int, places: int) -> list[int]:
    """Return the positions along one axis in the window of one output, without padding."""
    if isinstance(module, ADAPTIVE_POOLS):
        return list(range(place * size // places, math.ceil((place + 1) * size / places)))
    kernel, stride, padding, dilation = (
        value[axis] if isinstance(value, tuple) else value
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    positions = [place * stride - padding + step * dilation for step in range(kernel)]
    return [position for position in positions if 0 <= position < size]


def along(shape: tuple[int, ...], dim: int) -> list[list[int]]:
    """Return the groups of units that differ in one dimension only; the batch is dimension 0."""
    axis = dim - 1 if dim > 0 else dim
    groups: list[list[int]] = _units(shape).movedim(axis, -1).reshape(-1, shape[axis]).tolist()
    return groups


def halves(shape: tuple[int, ...]) -> list[list[int]]:
    """Return each unit of the first half with its partner in the second."""
    half = math.prod(shape) // 2
    return [[unit, unit + half] for unit in range(half)]


def _units(shape: tuple[int, ...]) -> Tensor:
    """Number the units of a shape in their flat order."""
    return torch.arange(math.prod(shape)).reshape(shape)
