"""The shapes of results of layers, without running them.

Tensors without data (on the device ``meta``) tell the shape of any result. But for many simple
operations torch then imports its compiler, which takes seconds; for these, shapes are computed
here. Where inputs do not fit a layer, torch is asked, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam.network.layer_graph import Call

__all__ = ["blank_result", "call_result"]

_META = torch.device("meta")
_MASKS = ("gt.Tensor", "lt.Tensor", "ge.Tensor", "le.Tensor", "logical_not")
_ENTRYWISE = frozenset(
    {"add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum", "where.self"}
    | {"abs", "neg", "sign", "clamp", "erf", "exp", "sin", "cos", "elu", "pow.Tensor_Scalar"}
    | {*_MASKS}
)
_REDUCTIONS = ("amax", "amin", "mean.dim", "sum.dim_IntList")
_SAME = (
    *(nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.PReLU, nn.Softshrink, nn.Sigmoid, nn.Tanh),
    *(nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.ELU, nn.CELU, nn.Hardswish),
    *(nn.Softmax, nn.LogSoftmax, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def call_result(operation: str, target: Any, arguments: Sequence[Any]) -> Tensor:
    """What an operation makes of tensors without data.

    >>> blank = torch.empty(2, 3, device="meta")
    >>> call_result("add.Tensor", torch.ops.aten.add.Tensor, [blank, blank[:1]]).shape
    torch.Size([2, 3])
    """
    tensors = [item for item in arguments if isinstance(item, Tensor)]
    if operation in _ENTRYWISE:
        shape = np.broadcast_shapes(*(tuple(tensor.shape) for tensor in tensors))
        floating = [tensor.dtype for tensor in tensors if tensor.dtype != torch.bool]
        dtype = torch.bool if operation in _MASKS or not floating else floating[0]
        return torch.empty(shape, dtype=dtype, device=_META)
    if operation in _REDUCTIONS and not arguments[2]:
        x, dims, _ = arguments
        gone = {dim % x.dim() for dim in dims}
        left = [size for i, size in enumerate(x.shape) if i not in gone]
        return torch.empty(left, dtype=x.dtype, device=_META)
    if operation == "cat" and _fit_together(*arguments):
        parts, dim = arguments
        sizes = list(parts[0].shape)
        sizes[dim] = sum(part.shape[dim] for part in parts)
        return torch.empty(sizes, dtype=parts[0].dtype, device=_META)
    result: Tensor = target(*arguments)
    return result


def blank_result(layer: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """What a layer makes of tensors without data, whatever device its weights are on.

    >>> blank_result(nn.Linear(3, 5), [torch.empty(2, 3, device="meta")]).shape
    torch.Size([2, 5])
    """
    x = inputs[0]
    if isinstance(layer, Call):
        blank = {
            name: torch.empty(buffer.shape, dtype=buffer.dtype, device=_META)
            for name, buffer in layer.named_buffers()
        }
        arguments = layer.bound(inputs, blank.__getitem__)
        return call_result(layer.operation, layer.target, arguments)
    if isinstance(layer, _SAME) and _channels(layer) in (None, *x.shape[1:2]):
        return x
    if isinstance(layer, nn.Linear) and x.shape[-1] == layer.in_features:
        return torch.empty((*x.shape[:-1], layer.out_features), dtype=x.dtype, device=_META)
    if isinstance(layer, _ADAPTIVE) and layer.output_size == 1:
        shape = (*x.shape[:2], *[1] * (x.dim() - 2))
        return torch.empty(shape, dtype=x.dtype, device=_META)
    windowed = _windowed(layer, tuple(x.shape))
    if windowed is not None and min(windowed) > 0:
        return torch.empty(windowed, dtype=x.dtype, device=_META)
    held = dict(layer.named_parameters()) | dict(layer.named_buffers())
    state = {name: torch.empty_like(tensor, device=_META) for name, tensor in held.items()}
    with torch.no_grad():
        result: Tensor = torch.func.functional_call(layer, state, tuple(inputs))
    return result


def _channels(layer: nn.Module) -> int | None:
    """How many channels the inputs of a layer must have; None if any number will do."""
    if isinstance(layer, nn.PReLU):
        return layer.num_parameters if layer.num_parameters > 1 else None
    count = getattr(layer, "num_features", None)
    return None if count is None else int(count)


def _fit_together(parts: Sequence[Tensor], dim: int) -> bool:
    """Whether tensors have the same sizes but for that along which they are joined."""
    rank = parts[0].dim()
    others = {tuple(size for i, size in enumerate(part.shape) if i != dim % rank) for part in parts}
    return len(others) == 1


# -- layers with windows ----------------------------------------------------------------------

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def _windowed(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of what a convolution or a pooling returns; None if torch must say it."""
    if isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED)):
        if shape[1] != layer.in_channels or isinstance(layer.padding, str):
            return None
        sizes = [_size_of(layer, i, size) for i, size in enumerate(shape[2:])]
        return (shape[0], layer.out_channels, *sizes)
    if isinstance(layer, _POOLS):
        space = range(len(shape) - 2)
        wide = any(2 * _along(layer, "padding", i) > _along(layer, "kernel_size", i) for i in space)
        if layer.ceil_mode or wide:
            return None
        return (*shape[:2], *(_size_of(layer, i, shape[2 + i]) for i in space))
    return None


def _size_of(layer: nn.Module, axis: int, size: int) -> int:
    """The size of the result along an axis of space."""
    stride, pad = _along(layer, "stride", axis), _along(layer, "padding", axis)
    reach = _along(layer, "dilation", axis) * (_along(layer, "kernel_size", axis) - 1)
    if isinstance(layer, _TRANSPOSED):
        return (size - 1) * stride - 2 * pad + reach + _along(layer, "output_padding", axis) + 1
    return (size + 2 * pad - reach - 1) // stride + 1


def _along(layer: nn.Module, name: str, axis: int) -> int:
    """A number that a layer has for each axis, or for all of them; means have no dilation."""
    given: Any = getattr(layer, name, 1)
    return int(given if isinstance(given, int) else given[axis])
