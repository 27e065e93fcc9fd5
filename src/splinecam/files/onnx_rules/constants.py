"""Constants, shapes, operations on constants alone, and reductions over axes.

All whole numbers are int64, and all floating-point numbers have the type of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.files.onnx_file import dtype_of_code
from splinecam.files.onnx_nodes import Node, Refused, Value
from splinecam.files.onnx_rules.registry import fold, rule


@fold("Constant")
def _constant(node: Node, items: list[Any]) -> Any:
    found, floating = node.attributes, node.writer.dtype
    if "value" in found:
        return found["value"]
    for name, dtype in (("float", floating), ("floats", floating), ("int", None), ("ints", None)):
        if f"value_{name}" in found:
            return torch.tensor(found[f"value_{name}"], dtype=dtype or torch.long)
    raise Refused("it is sparse, or holds text")


def _shape(node: Node) -> Tensor:
    shape = tuple(node.given(0).shape)
    if node.kind == "Size":
        return torch.tensor(prod(shape))
    return torch.tensor(shape[node.get("start", 0) : node.get("end")], dtype=torch.long)


rule("Shape Size", "a constant")(_shape)
fold("Shape Size")(lambda node, items: _shape(node))


@fold("ConstantOfShape")
def _constant_of_shape(node: Node, items: list[Any]) -> Tensor:
    shape = node.bounded([int(n) for n in items[0].flatten().tolist()])
    fill = node.get("value")
    if fill is None:
        return torch.zeros(shape, dtype=node.writer.dtype)
    if fill.numel() != 1:
        raise Refused("its value is not a single number")
    return torch.full(shape, fill.item(), dtype=fill.dtype)


@rule("ConstantOfShape", "constant shape")
def _shape_must_be_constant(node: Node) -> Value:
    raise Refused("its shape depends on the input of the network")


@fold("Cast CastLike")
def _cast(node: Node, items: list[Any]) -> Any:
    dtype = items[1].dtype if node.kind == "CastLike" else dtype_of_code(node.get("to", 1))
    if dtype is None:
        raise Refused("it makes text, or numbers of a type that is not supported")
    if dtype.is_floating_point:
        return items[0].to(node.writer.dtype)
    return items[0].to(torch.bool if dtype == torch.bool else torch.long)


@fold("Range")
def _range(node: Node, items: list[Any]) -> Any:
    start, limit, delta = (float(item) for item in items)
    if delta == 0:
        raise Refused("its step is 0")
    count = max(0, -int(-(limit - start) // delta)) if abs(limit - start) < 2**53 else -1
    node.bounded((count,))
    return items[0] + torch.arange(count, dtype=items[0].dtype) * items[2]


@fold("EyeLike")
def _eye(node: Node, items: list[Any]) -> Tensor:
    rows, columns = node.bounded(items[0].shape)
    ones = torch.ones(rows, columns, dtype=node.writer.dtype)
    return ones.tril(node.get("k", 0)).triu(node.get("k", 0))


_SAME = "Pow Sqrt Exp Log Reciprocal Floor Ceil Round Sign Add Sub Mul"
_PLAIN: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name.lower()) for name in _SAME.split()},
    "Div": lambda a, b: torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc"),
    "Mod": torch.remainder,
    "Where": lambda chosen, a, b: torch.where(chosen.to(torch.bool), a, b),
    "Equal": torch.eq,
    "Greater": torch.gt,
    "Less": torch.lt,
    "GreaterOrEqual": torch.ge,
    "LessOrEqual": torch.le,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Not": torch.logical_not,
}


@fold(" ".join(_PLAIN))
def _plain(node: Node, items: list[Any]) -> Tensor:
    node.bounded(np.broadcast_shapes(*(tuple(item.shape) for item in items)))
    whole = not items[0].is_floating_point()
    if node.kind in ("Div", "Mod") and whole and bool((items[1] == 0).any()):
        raise Refused("it divides whole numbers by 0")
    return _PLAIN[node.kind](*items)


@fold("ReduceProd")
def _reduce_prod(node: Node, items: list[Any]) -> Tensor:
    x: Tensor = items[0]
    axes = node.integers(1, "axes") or list(range(x.dim()))
    keep = bool(node.get("keepdims", 1))
    for axis in sorted((node.axis(axis, x.dim()) for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


@fold("DequantizeLinear")
def _dequantize(node: Node, items: list[Any]) -> Any:
    x, scale = items[0], items[1]
    if scale.dim() == 1 and x.dim() > 0:
        axis = node.axis(node.get("axis", 1), x.dim())
        wide = [-1 if i == axis else 1 for i in range(x.dim())]
    elif scale.dim() == 0 or scale.numel() == 1:
        wide = [1] * x.dim()
    else:
        raise Refused("scales by blocks are not supported")
    zero = items[2].reshape(wide) if len(items) > 2 and items[2] is not None else 0
    return (x - zero).to(scale.dtype) * scale.reshape(wide)


_REDUCTIONS = {
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceMean": "mean.dim",
    "ReduceSum": "sum.dim_IntList",
    "ReduceL1": "sum.dim_IntList",
}


@rule(" ".join(_REDUCTIONS), "constant axes")
def _reduce(node: Node) -> Value:
    x = node.value()
    rank = len(x.shape)
    given = node.integers(1, "axes")
    if node.kind == "ReduceL1":
        x = Value(node.call("abs", x.tensor), x.shape)
    if not given and node.get("noop_with_empty_axes", 0):
        return x
    axes = {node.axis(axis, rank) for axis in given or range(rank)}
    keep = bool(node.get("keepdims", 1))
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    wide = sorted(axis for axis in axes if x.shape[axis] != 1)  # over one entry nothing happens
    if not wide:
        return node.make(x.tensor, shape)
    tensor, dims = node.dims(x, wide)
    return node.make(node.call(_REDUCTIONS[node.kind], tensor, dims, False), shape)
