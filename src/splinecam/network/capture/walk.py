"""Walk through modules whose forward is known, which is far quicker than to export them.

The result is the graph that ``torch.export`` would give, call by call. Only torch's own layers in
``nn.Sequential``, in the state in which torch made them, are walked through: hooks, methods that
were replaced, parametrisations, modes of torch and whatever else may change what a module
computes lead to ``torch.export``.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook

from splinecam.network.capture.flat import FlatGraph
from splinecam.network.capture.layers import LAYERS, Unusual, Walk
from splinecam.network.capture.modes import any_mode
from splinecam.network.capture.shapes import FirstDimension
from splinecam.network.ops.register import taught_class

__all__ = ["walked"]

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__", "__iter__", "forward")


def walked(model: nn.Module, input_shape: tuple[int, ...]) -> FlatGraph | None:
    """The graph of a chain or a tree of torch's own layers; None for any other model."""
    if _has_any_global_hook() or any_mode():  # type: ignore[no-untyped-call]
        return None
    walk = Walk(input_shape)
    try:
        output = _through(walk, model, "", walk.x)
    except Exception:  # torch.export finds out what is wrong, and where
        return None
    tensors = [tensor for _, tensor in walk.constants.values()]
    if len(walk.nodes) == 1 or not _alike(tensors):
        return None
    return FlatGraph(walk.nodes, walk.x, output, walk.constants, FirstDimension())


def _alike(tensors: list[Tensor]) -> bool:
    """Whether all weights are ordinary tensors of one floating-point type on one device."""
    first = tensors[0] if tensors else None
    return first is None or all(
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype is first.dtype
        and tensor.dtype in _FLOATS
        and tensor.device == first.device
        and tensor.layout is torch.strided
        and not tensor.is_meta
        for tensor in tensors
    )


def _through(walk: Walk, module: nn.Module, path: str, x: fx.Node) -> fx.Node:
    """What a module makes of a value."""
    kind, state = type(module), vars(module)
    own = any(hasattr(kind, name) for name in state)  # in place of what its class has
    if own or any(state[hooks] for hooks in _HOOKS):
        raise Unusual
    if kind not in walk.kinds:
        if not _unchanged(kind) or taught_class(module) is not None:
            raise Unusual
        walk.kinds.add(kind)
    layer = LAYERS.get(kind)
    if layer is not None:
        walk.enter(module, path)
        return layer(walk, module, x)
    if kind.forward is not nn.Sequential.forward:
        raise Unusual
    for name, child in module._modules.items():
        x = _through(walk, child, f"{path}.{name}" if path else name, x)  # type: ignore[arg-type]
    return x


def _unchanged(kind: type) -> bool:
    """Whether the methods that a call goes through are those that torch has written."""
    functions: Any = [getattr(kind, name, None) for name in chain(_CALLS, ("_conv_forward",))]
    return all(
        function is None or function.__code__.co_filename.startswith(_TORCH)
        for function in functions
    )
