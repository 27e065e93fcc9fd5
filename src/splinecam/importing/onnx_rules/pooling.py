"""Maxima and means over windows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn

from splinecam.importing.onnx_nodes import Node, Refused, Value, named
from splinecam.importing.onnx_rules.convolution import Windows, require_room, windows_of
from splinecam.importing.onnx_rules.idle_axes import over_fewer_axes
from splinecam.importing.onnx_rules.linear import along_axis
from splinecam.importing.onnx_rules.registry import rule
from splinecam.importing.onnx_tensors import bounded

__all__: list[str] = []

_MAX: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_MEAN: dict[int, Any] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
_ALL_MAX: dict[int, Any] = {
    1: nn.AdaptiveMaxPool1d,
    2: nn.AdaptiveMaxPool2d,
    3: nn.AdaptiveMaxPool3d,
}
_ALL_MEAN: dict[int, Any] = {
    1: nn.AdaptiveAvgPool1d,
    2: nn.AdaptiveAvgPool2d,
    3: nn.AdaptiveAvgPool3d,
}


def _usual(windows: Windows) -> bool:
    """Whether torch's layers have these windows."""
    halves = (size // 2 for size in windows.kernel)
    small = all(pad <= half for pad, half in zip(windows.before, halves, strict=True))
    return windows.before == windows.after and small


def _places(windows: Windows, i: int, size: int, ceil: bool) -> Any:
    """The places that each window covers along an axis, (O, K); they may lie in the padding."""
    before, after, stride = windows.before[i], windows.after[i], windows.stride[i]
    bounded((size + before + after, windows.kernel[i]), "The windows of a pooling")
    room = size + before + after - windows.extent[i]
    if room < 0:
        raise Refused("its windows are larger than its input")
    count = (-(-room // stride) if ceil else room // stride) + 1
    if ceil and (count - 1) * stride >= size + before:  # it would begin in the padding behind
        count -= 1
    first = np.arange(count)[:, None] * stride - before
    return first + np.arange(windows.kernel[i]) * windows.dilation[i]


@rule("MaxPool", "1 to 3 dimensions; strided, padded, dilated; the values only")
def _max_pool(node: Node) -> Value:
    if any(node.uses[1:]):
        raise Refused("its indices are discontinuous")
    x = node.value()
    fewer = over_fewer_axes(node, x, node.get("kernel_shape", ()), _max_pool)
    if fewer is not None:
        return fewer
    windows = windows_of(node, x, node.get("kernel_shape"))
    require_room(windows, x.shape[2:])
    ceil = bool(node.get("ceil_mode", 0))
    if _usual(windows):
        layer = _MAX[len(windows.kernel)](
            windows.kernel, windows.stride, windows.before, windows.dilation, ceil_mode=ceil
        )
        tensor = node.emit(layer, x.tensor)
        return node.make(tensor, (1, *node.shape_of(tensor)))
    return _picked_maxima(node, x, windows, ceil)


def _picked_maxima(node: Node, x: Value, windows: Windows, ceil: bool) -> Value:
    """Maxima over windows that torch does not have, by the places that they cover."""
    channels, *sizes = x.shape[1:]
    plane, counts = np.arange(prod(sizes)).reshape(sizes), []
    for i, size in enumerate(sizes):
        places = _places(windows, i, size, ceil)
        inside = (places >= 0) & (places < size)
        if not inside.any(1).all():
            raise Refused("one of its windows holds nothing but padding")
        # Padding never wins: it is replaced by a place that the window covers.
        known = np.where(inside, places, np.where(inside, places, -1).max(1, keepdims=True))
        counts.append(len(known))
        bounded((channels, *plane.shape, *known.shape), f"The windows of {node.label}")
        plane = np.moveaxis(np.take(plane, known, axis=i), i + 1, -1)
    flat = node.reshaped(x.tensor, (channels, prod(sizes)))
    index = torch.from_numpy(np.ascontiguousarray(plane).reshape(-1))
    groups = node.call("index_select", named(flat), 2, index)
    groups = node.call("reshape", named(groups), [-1, channels, *counts, prod(windows.kernel)])
    return node.make(node.call("amax", named(groups), [-1], False), (1, channels, *counts))


@rule("AveragePool", "1 to 3 dimensions; strided, padded, dilated")
def _average_pool(node: Node) -> Value:
    x = node.value()
    fewer = over_fewer_axes(node, x, node.get("kernel_shape", ()), _average_pool)
    if fewer is not None:
        return fewer
    windows = windows_of(node, x, node.get("kernel_shape"))
    require_room(windows, x.shape[2:])
    ceil, padding = bool(node.get("ceil_mode", 0)), bool(node.get("count_include_pad", 0))
    if _usual(windows) and not ceil and set(windows.dilation) == {1}:
        layer = _MEAN[len(windows.kernel)](
            windows.kernel, windows.stride, windows.before, count_include_pad=padding
        )
        tensor = node.emit(layer, x.tensor)
        return node.make(tensor, (1, *node.shape_of(tensor)))
    tensor, counts = x.tensor, []
    for i, size in enumerate(x.shape[2:]):  # means over boxes are means along one axis and another
        places = _places(windows, i, size, ceil)
        inside = (places >= 0) & (places < size)
        counted = inside
        if padding:
            counted = (places >= -windows.before[i]) & (places < size + windows.after[i])
        if not counted.any(1).all():
            raise Refused("one of its windows holds nothing but padding")
        matrix = np.zeros(bounded((len(places), size), f"The windows of {node.label}"))
        np.add.at(matrix, (np.nonzero(inside)[0], places[inside]), 1.0)
        matrix /= counted.sum(1, keepdims=True)
        counts.append(len(places))
        weight = torch.from_numpy(matrix).to(node.writer.dtype)
        tensor = along_axis(node, tensor, i + 2, weight)
    return node.make(tensor, (1, x.shape[1], *counts))


@rule("GlobalAveragePool GlobalMaxPool")
def _global_pool(node: Node) -> Value:
    x = node.value()
    space = len(x.shape) - 2
    if space not in _ALL_MAX or x.shape[0] != 1:
        raise Refused(f"its input has the shape {x.shape}, not (1, channels, ...) with 1 to 3 axes")
    kinds = _ALL_MAX if node.kind == "GlobalMaxPool" else _ALL_MEAN
    return node.make(node.emit(kinds[space](1), x.tensor), (*x.shape[:2], *[1] * space))
