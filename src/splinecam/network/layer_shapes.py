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
    | {"abs", "neg", "sign", "clamp", *_MASKS}
)
_REDUCTIONS = ("amax", "amin", "mean.dim", "sum.dim_IntList")
_SAME = (
    *(nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.PReLU, nn.Softshrink, nn.Sigmoid, nn.Tanh),
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
