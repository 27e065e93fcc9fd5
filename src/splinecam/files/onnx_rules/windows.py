"""Operations on windows: convolutions and their transposes, and pooling, with any padding.

JAX pools over all axes of an image, with windows of size 1 along the axis of the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import lt, sub
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.files.onnx_file import bounded
from splinecam.files.onnx_nodes import Node, Refused, Value
from splinecam.files.onnx_rules.linear import along_axis
from splinecam.files.onnx_rules.registry import filled, rule, unfilled
from splinecam.files.onnx_rules.shaping import sliced
from splinecam.network.ops.nonlinear import PRODUCT

_MOST = 3  # axes of space that layers of torch have
_LARGEST = 2**31 - 1  # of the numbers of a window, as in torch
_SAME = ("SAME_UPPER", "SAME_LOWER")
_PER_AXIS = ("kernel_shape", "strides", "dilations")


def over_fewer_axes(
    node: Node, x: Value, kernel: Sequence[int], run: Callable[[Node], Any]
) -> Value | None:
    """The result of a node whose idle axes become channels; None where torch has the layer."""
    space, idle = len(x.shape) - 2, _idle_axes(node, kernel)
    kept = [i for i in range(space) if i not in idle]
    if space <= _MOST or len(kernel) != space or not 1 <= len(kept) <= _MOST or x.shape[0] != 1:
        return None
    order = [0, 1, *(i + 2 for i in (*idle, *kept))]
    sizes = [x.shape[i] for i in order[1:]]
    channels = prod(sizes[: 1 + len(idle)])
    weights = _repeated(node, x, channels, kept)
    if weights is None:
        return None
    tensor = node.call("permute", x.tensor, order)
    fewer = (channels, *sizes[1 + len(idle) :])
    inputs = [Value(node.reshaped(tensor, fewer), (1, *fewer)), *weights]
    attributes = _reduced(node, kept, space, channels)
    found: Value = run(replace(node, attributes=attributes, inputs=inputs))
    wide = (*sizes[: 1 + len(idle)], *found.shape[2:])
    back = [order.index(i) for i in range(len(order))]
    tensor = node.call("permute", node.reshaped(found.tensor, wide), back)
    return node.make(tensor, (1, *(wide[i - 1] for i in back[1:])))


def _idle_axes(node: Node, kernel: Sequence[int]) -> list[int]:
    """The axes along which windows have size 1, and stand at every place."""
    space = len(kernel)
    strides, pads = node.get("strides", [1] * space), node.get("pads", [0] * 2 * space)
    if len(strides) != space or len(pads) != 2 * space:
        return []
    return [
        i for i in range(space) if kernel[i] == strides[i] == 1 and pads[i] == pads[i + space] == 0
    ]


def _repeated(node: Node, x: Value, channels: int, kept: list[int]) -> list[Any] | None:
    """The weights of a convolution for as many channels; only one channel can be repeated."""
    if node.kind != "Conv":
        return []
    weight, bias = node.constant(1, "weight"), node.optional(2, "bias")
    if x.shape[1] != 1 or tuple(weight.shape[:2]) != (1, 1):
        return None
    small = weight.reshape(1, 1, *(weight.shape[2 + i] for i in kept))
    found: list[Tensor] = [small.expand(channels, *small.shape[1:]).clone()]
    return found if bias is None else [*found, bias.reshape(-1).expand(channels).clone()]


def _reduced(node: Node, kept: list[int], space: int, channels: int) -> dict[str, Any]:
    """The attributes of the node with fewer axes."""
    found = dict(node.attributes)
    for name in _PER_AXIS:
        if name in found:
            found[name] = [found[name][i] for i in kept]
    if "pads" in found:
        found["pads"] = [found["pads"][i] for i in (*kept, *(i + space for i in kept))]
    return found | ({"group": channels} if node.kind == "Conv" else {})


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or a pooling, along each of the axes of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """How many places a window reaches over."""
        pairs = zip(self.kernel, self.dilation, strict=True)
        return tuple((size - 1) * step + 1 for size, step in pairs)


def windows_of(node: Node, x: Value, kernel: Any) -> Windows:
    """The windows that the attributes of a node describe."""
    space = _space(x)
    kernel = tuple(kernel or ())
    ones = (1,) * space
    stride, dilation = tuple(node.get("strides", ones)), tuple(node.get("dilations", ones))
    pads = tuple(node.get("pads", (0,) * (2 * space)))
    mode = node.get("auto_pad", "NOTSET")
    if not len(kernel) == len(stride) == len(dilation) == len(pads) // 2 == space:
        raise Refused("its kernel, strides, dilations and pads do not fit")
    if min(*kernel, *stride, *dilation) < 1 or min(pads) < 0:
        raise Refused("its kernel, strides, dilations or pads are negative")
    if max(*kernel, *stride, *dilation, *pads) > _LARGEST:
        raise Refused("its kernel, strides, dilations or pads are gigantic")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Refused(f"its auto_pad {mode!r} is unknown")
    if mode == "VALID":
        pads = (0,) * (2 * space)
    windows = Windows(kernel, stride, dilation, pads[:space], pads[space:])
    if mode in _SAME:  # the result has the size of the input, divided by the stride
        sizes = zip(x.shape[2:], windows.extent, stride, strict=True)
        totals = [max(0, (-(-n // step) - 1) * step + extent - n) for n, extent, step in sizes]
        before, after = _sides(mode, totals)
        windows = replace(windows, before=before, after=after)
    return windows


def _space(x: Value) -> int:
    """The number of axes of space of an image."""
    if not 1 <= len(x.shape) - 2 <= _MOST or x.shape[0] != 1:
        raise Refused(f"its input has the shape {x.shape}, not (1, channels, ...) with 1 to 3 axes")
    return len(x.shape) - 2


def _sides(mode: str, totals: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shares of paddings before and after each axis."""
    before = tuple(n // 2 if mode == "SAME_UPPER" else n - n // 2 for n in totals)
    return before, tuple(map(sub, totals, before))


def _fitting_windows(node: Node, x: Value, kernel: Any) -> Windows:
    """The windows of a node, which are no larger than the input with its padding."""
    windows, sizes = windows_of(node, x, kernel), x.shape[2:]
    rooms = map(sum, zip(sizes, windows.before, windows.after, strict=True))
    if any(map(lt, rooms, windows.extent)):
        raise Refused(f"its windows {windows.kernel} are larger than its input {sizes}")
    return windows


def _kind(name: str, space: int) -> Any:
    """The class of torch's layers for a number of axes of space, such as ``nn.Conv2d``."""
    return getattr(nn, f"{name}{space}d")


def _image(node: Node, layer: nn.Module, tensor: str) -> Value:
    """The result of a layer that makes an image."""
    tensor = node.emit(layer, tensor)
    return node.make(tensor, (1, *node.shape_of(tensor)))


def _weights(node: Node, x: Value) -> tuple[Tensor, Tensor | None]:
    if isinstance(node.given(1), Value):
        raise Refused(PRODUCT)
    weight, bias = node.constant(1, "weight"), node.optional(2, "bias")
    if weight.dim() != len(x.shape) or 0 in weight.shape:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    kernel = node.get("kernel_shape")
    if kernel is not None and tuple(kernel) != tuple(weight.shape[2:]):
        raise Refused(f"its kernel_shape {kernel} does not fit its weight")
    return weight, bias


@rule("Conv", "1 to 3 dimensions; strided, padded, dilated, grouped; constant weights")
def _conv(node: Node) -> Value:
    x = node.value()
    weight, bias = _weights(node, x)
    fewer = over_fewer_axes(node, x, weight.shape[2:], _conv)
    if fewer is not None:
        return fewer
    windows = _fitting_windows(node, x, weight.shape[2:])
    groups, outputs = node.get("group", 1), weight.shape[0]
    inputs = weight.shape[1] * groups
    if groups < 1 or inputs != x.shape[1] or outputs % groups:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    if bias is not None and bias.shape != (outputs,):
        raise Refused(f"its bias has the shape {tuple(bias.shape)}")
    tensor, padding = x.tensor, windows.before
    if windows.before != windows.after:
        pairs = list(zip(windows.before, windows.after, strict=True))
        sides = tuple(n for pair in reversed(pairs) for n in pair)
        tensor = node.emit(_kind("ConstantPad", len(pairs))(sides, 0.0), tensor)
        padding = (0,) * len(pairs)
    how = windows.kernel, windows.stride, padding, windows.dilation, groups, bias is not None
    layer = unfilled(_kind("Conv", len(windows.kernel)), inputs, outputs, *how)
    return _image(node, filled(layer, weight, bias), tensor)


@rule("ConvTranspose", "1 to 3 dimensions; strided, padded, dilated, grouped; constant weights")
def _conv_transpose(node: Node) -> Value:
    x = node.value()
    weight, bias = _weights(node, x)
    plain = {key: item for key, item in node.attributes.items() if key != "auto_pad"}
    windows = windows_of(replace(node, attributes=plain), x, weight.shape[2:])
    groups, space = node.get("group", 1), len(windows.kernel)
    if groups < 1 or weight.shape[0] != x.shape[1] or weight.shape[0] % groups:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    extra = tuple(node.get("output_padding", (0,) * space))
    before, after = _transposed_pads(node, x, windows, extra)
    limits = map(max, windows.stride, windows.dilation)
    if min(*before, *after) < 0 or any(n >= most for n, most in zip(extra, limits, strict=True)):
        raise Refused("its output_shape or output_padding asks for more than its windows reach")
    symmetric = before == after
    padding = before if symmetric else (0,) * space
    how = windows.kernel, windows.stride, padding, extra, groups, bias is not None, windows.dilation
    channels = weight.shape[0], weight.shape[1] * groups
    layer = unfilled(_kind("ConvTranspose", space), *channels, *how)
    tensor = node.emit(filled(layer, weight, bias), x.tensor)
    if not symmetric:
        for i, size in enumerate(node.shape_of(tensor)[1:]):
            tensor = sliced(node, tensor, i + 2, before[i], size - after[i])
    return node.make(tensor, (1, *node.shape_of(tensor)))


def _transposed_pads(
    node: Node, x: Value, windows: Windows, extra: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut off at both ends of each axis to give the result its size."""
    mode, sizes = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if sizes is None and mode in _SAME:
        sizes = [n * stride for n, stride in zip(x.shape[2:], windows.stride, strict=True)]
    if sizes is None:
        zeros = (0,) * len(windows.kernel)
        return (zeros, zeros) if mode == "VALID" else (windows.before, windows.after)
    if len(sizes) != len(windows.kernel):
        raise Refused(f"its output_shape {sizes} does not fit")
    whole = [
        windows.stride[i] * (n - 1) + extra[i] + windows.extent[i]
        for i, n in enumerate(x.shape[2:])
    ]
    return _sides(mode, list(map(sub, whole, sizes)))


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
@rule("AveragePool", "1 to 3 dimensions; strided, padded, dilated")
def _pool(node: Node) -> Value:
    if node.kind == "MaxPool" and any(node.uses[1:]):
        raise Refused("its indices are discontinuous")
    x, kernel = node.value(), node.get("kernel_shape")
    fewer = over_fewer_axes(node, x, kernel or (), _pool)
    if fewer is not None:
        return fewer
    windows, ceil = _fitting_windows(node, x, kernel), bool(node.get("ceil_mode", 0))
    if node.kind != "MaxPool":
        return _means(node, x, windows, ceil)
    if not _usual(windows):
        return _picked_maxima(node, x, windows, ceil)
    how = windows.kernel, windows.stride, windows.before, windows.dilation
    return _image(node, _kind("MaxPool", len(windows.kernel))(*how, ceil_mode=ceil), x.tensor)


def _picked_maxima(node: Node, x: Value, windows: Windows, ceil: bool) -> Value:
    """Maxima over the places that windows cover, for windows that torch does not have."""
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
    groups = node.call("index_select", flat, 2, index)
    groups = node.call("reshape", groups, [-1, channels, *counts, prod(windows.kernel)])
    return node.make(node.call("amax", groups, [-1], False), (1, channels, *counts))


def _means(node: Node, x: Value, windows: Windows, ceil: bool) -> Value:
    padding = bool(node.get("count_include_pad", 0))
    if _usual(windows) and not ceil and set(windows.dilation) == {1}:
        how = windows.kernel, windows.stride, windows.before
        kind = _kind("AvgPool", len(windows.kernel))
        return _image(node, kind(*how, count_include_pad=padding), x.tensor)
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
    x, space = node.value(), _space(node.value())
    name = "AdaptiveMaxPool" if node.kind == "GlobalMaxPool" else "AdaptiveAvgPool"
    return node.make(node.emit(_kind(name, space)(1), x.tensor), (*x.shape[:2], *[1] * space))
