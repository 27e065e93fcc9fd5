"""Convolutions and their transposes, with any padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from torch import Tensor, nn

from splinecam.importing.onnx_nodes import Node, Refused, Value
from splinecam.importing.onnx_rules.idle_axes import over_fewer_axes
from splinecam.importing.onnx_rules.layers import filled, unfilled
from splinecam.importing.onnx_rules.registry import rule
from splinecam.importing.onnx_rules.shaping import sliced
from splinecam.network.ops.rejected import PRODUCT

__all__ = ["Windows", "padded", "require_room", "windows_of"]

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
