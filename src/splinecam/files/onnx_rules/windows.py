"""Operations on windows: convolutions and their transposes, and pooling, with any padding.

JAX pools over all axes of an image, also over that of the channels, by windows of size 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.files.onnx_file import bounded
from splinecam.files.onnx_nodes import Node, Refused, Value, named
from splinecam.files.onnx_rules.linear import along_axis
from splinecam.files.onnx_rules.registry import filled, rule, unfilled
from splinecam.files.onnx_rules.shaping import sliced
from splinecam.network.ops.nonlinear import PRODUCT

_MOST = 3  # axes of space that layers of torch have
_PER_AXIS = ("kernel_shape", "strides", "dilations")


def over_fewer_axes(
    node: Node, x: Value, kernel: Sequence[int], run: Callable[[Node], Any]
) -> Value | None:
    """The result of a node whose idle axes become channels; None where torch has the layer.

    kernel: the sizes of the windows; run: the rule for the node with fewer axes.
    """
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
    tensor = node.call("permute", named(x.tensor), order)
    fewer = (channels, *sizes[1 + len(idle) :])
    inner = Node(
        node.kind,
        node.label,
        _reduced(node, kept, space, channels),
        [Value(node.reshaped(tensor, fewer), (1, *fewer)), *weights],
        node.uses,
        node.opset,
        node.writer,
        node.others,
    )
    found: Value = run(inner)
    wide = (*sizes[: 1 + len(idle)], *found.shape[2:])
    back = [order.index(i) for i in range(len(order))]
    tensor = node.call("permute", named(node.reshaped(found.tensor, wide)), back)
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


_CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED: dict[int, Any] = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_PADS: dict[int, Any] = {1: nn.ConstantPad1d, 2: nn.ConstantPad2d, 3: nn.ConstantPad3d}
_LARGEST = 2**31 - 1  # of the numbers of a window, as in torch


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
    space = len(x.shape) - 2
    if space not in _CONVOLUTIONS or x.shape[0] != 1:
        raise Refused(f"its input has the shape {x.shape}, not (1, channels, ...) with 1 to 3 axes")
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
    before, after = pads[:space], pads[space:]
    made = Windows(kernel, stride, dilation, before, after)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = _same(mode, x.shape[2:], made)
        return Windows(kernel, stride, dilation, before, after)
    return _valid(made, mode)


def require_room(windows: Windows, sizes: Sequence[int]) -> None:
    """Refuse windows that are larger than the input with its padding."""
    around = map(add, windows.before, windows.after)
    if any(
        size + pad < extent for size, pad, extent in zip(sizes, around, windows.extent, strict=True)
    ):
        raise Refused(f"its windows {windows.kernel} are larger than its input {tuple(sizes)}")


def _valid(windows: Windows, mode: str) -> Windows:
    if mode != "VALID":
        return windows
    zeros = (0,) * len(windows.kernel)
    return Windows(windows.kernel, windows.stride, windows.dilation, zeros, zeros)


def _same(mode: str, sizes: tuple[int, ...], windows: Windows) -> tuple[tuple[int, ...], ...]:
    """The padding for which the result has the size of the input, divided by the stride."""
    before, after = [], []
    for size, extent, stride in zip(sizes, windows.extent, windows.stride, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + extent - size)
        small = total // 2
        before.append(small if mode == "SAME_UPPER" else total - small)
        after.append(total - before[-1])
    return tuple(before), tuple(after)


def padded(node: Node, tensor: str, windows: Windows, fill: float = 0.0) -> str:
    """A tensor with the padding of windows around its axes of space."""
    pairs = list(zip(windows.before, windows.after, strict=True))
    if not any(map(any, pairs)):
        return tensor
    flat = tuple(n for pair in reversed(pairs) for n in pair)
    return node.emit(_PADS[len(pairs)](flat, fill), tensor)


def _weights(node: Node, x: Value) -> tuple[Tensor, Tensor | None]:
    if isinstance(node.given(1), Value):
        raise Refused(PRODUCT)
    weight, bias = node.constant(1, "weight"), node.optional(2, "bias")
    if weight.dim() != len(x.shape) or 0 in weight.shape:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    kernel = node.get("kernel_shape")
    if kernel is not None and tuple(kernel) != tuple(weight.shape[2:]):
        raise Refused(f"its kernel_shape {kernel} is not that of its weight")
    return weight, bias


@rule("Conv", "1 to 3 dimensions; strided, padded, dilated, grouped; constant weights")
def _conv(node: Node) -> Value:
    x = node.value()
    weight, bias = _weights(node, x)
    fewer = over_fewer_axes(node, x, weight.shape[2:], _conv)
    if fewer is not None:
        return fewer
    windows = windows_of(node, x, weight.shape[2:])
    require_room(windows, x.shape[2:])
    groups, outputs = node.get("group", 1), weight.shape[0]
    inputs = weight.shape[1] * groups
    if groups < 1 or inputs != x.shape[1] or outputs % groups:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    if bias is not None and bias.shape != (outputs,):
        raise Refused(f"its bias has the shape {tuple(bias.shape)}")
    tensor, padding = x.tensor, windows.before
    if windows.before != windows.after:
        tensor, padding = padded(node, tensor, windows), (0,) * len(windows.kernel)
    layer = unfilled(
        _CONVOLUTIONS[len(windows.kernel)],
        inputs,
        outputs,
        windows.kernel,
        windows.stride,
        padding,
        windows.dilation,
        groups,
        bias is not None,
    )
    tensor = node.emit(filled(layer, weight, bias), tensor)
    return node.make(tensor, (1, *node.shape_of(tensor)))


@rule("ConvTranspose", "1 to 3 dimensions; strided, padded, dilated, grouped; constant weights")
def _conv_transpose(node: Node) -> Value:
    x = node.value()
    weight, bias = _weights(node, x)
    plain = {key: item for key, item in node.attributes.items() if key != "auto_pad"}
    windows = windows_of(_with(node, plain), x, weight.shape[2:])
    groups, space = node.get("group", 1), len(windows.kernel)
    if groups < 1 or weight.shape[0] != x.shape[1] or weight.shape[0] % groups:
        raise Refused(f"its weight of shape {tuple(weight.shape)} does not fit the shape {x.shape}")
    extra = tuple(node.get("output_padding", (0,) * space))
    before, after = _transposed_pads(node, x, windows, extra)
    limits = map(max, windows.stride, windows.dilation)
    if min(*before, *after) < 0 or any(n >= most for n, most in zip(extra, limits, strict=True)):
        raise Refused("its output_shape or output_padding asks for more than its windows reach")
    symmetric = before == after
    layer = unfilled(
        _TRANSPOSED[space],
        weight.shape[0],
        weight.shape[1] * groups,
        windows.kernel,
        windows.stride,
        before if symmetric else (0,) * space,
        extra,
        groups,
        bias is not None,
        windows.dilation,
    )
    tensor = node.emit(filled(layer, weight, bias), x.tensor)
    if not symmetric:
        for i, size in enumerate(node.shape_of(tensor)[1:]):
            tensor = sliced(node, tensor, i + 2, before[i], size - after[i])
    return node.make(tensor, (1, *node.shape_of(tensor)))


def _with(node: Node, attributes: dict[str, Any]) -> Node:
    return Node(node.kind, node.label, attributes, node.inputs, node.uses, node.opset, node.writer)


def _transposed_pads(
    node: Node, x: Value, windows: Windows, extra: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut off at both ends of each axis, so that the result has the size it should have."""
    mode, sizes = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if sizes is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [n * stride for n, stride in zip(x.shape[2:], windows.stride, strict=True)]
    if sizes is None:
        zeros = (0,) * len(windows.kernel)
        return (zeros, zeros) if mode == "VALID" else (windows.before, windows.after)
    if len(sizes) != len(windows.kernel):
        raise Refused(f"its output_shape {sizes} does not fit")
    before, after = [], []
    for i, size in enumerate(sizes):
        whole = windows.stride[i] * (x.shape[2 + i] - 1) + extra[i] + windows.extent[i]
        total = whole - size
        small = total // 2
        before.append(small if mode == "SAME_UPPER" else total - small)
        after.append(total - before[-1])
    return tuple(before), tuple(after)


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
