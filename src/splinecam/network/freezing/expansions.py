"""Normalisations, attention and gated units, written out as products and quotients.

Each function takes ``emit``, which adds a call to the graph and returns its result, and the
arguments of the operation. It returns what stands for the results of the operation, or None for a
call that stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from splinecam.network.capture.reading.graph_builder import Emitter
from splinecam.network.capture.tracing.flat_graph import FlatGraph, arguments_of
from splinecam.network.ops import Call, target_name

__all__ = ["expand"]

_ATEN = torch.ops.aten

Write = Callable[[Emitter, Call], Any]


def expand(graph: FlatGraph) -> FlatGraph:
    """The graph with every such operation written out; its nodes are changed in place."""
    output = graph.output
    for node in list(graph.nodes):
        write = _WRITTEN_OUT.get(target_name(node.target)) if node.op == "call_function" else None
        results = write(Emitter(node), arguments_of(node)) if write else None
        if results is None:
            continue
        if isinstance(results, tuple):
            for user in list(node.users):
                if user.target is operator.getitem:
                    user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
                    output = results[user.args[1]] if user is output else output  # type: ignore[index]
        else:
            node.replace_all_uses_with(results)
            output = results if node is output else output
    nodes = list(output.graph.nodes)
    return FlatGraph(nodes, graph.x, output, graph.constants, graph.batch)


# -- normalisation ---------------------------------------------------------------------------------


def _normalised(emit: Emitter, x: Any, dims: list[int], eps: float, *, centred: bool = True) -> Any:
    """A value divided by its standard deviation over dimensions: the result, mean and divisor."""
    mean = emit(_ATEN.mean.dim, x, dims, True) if centred else None
    x = emit(_ATEN.sub.Tensor, x, mean) if centred else x
    square = emit(_ATEN.mean.dim, emit(_ATEN.mul.Tensor, x, x), dims, True)
    scale = emit(_ATEN.rsqrt.default, emit(_ATEN.add.Scalar, square, eps))
    return emit(_ATEN.mul.Tensor, x, scale), mean, scale


def _scaled(emit: Emitter, x: Any, weight: Any, bias: Any, shape: list[int] | None = None) -> Any:
    """A value times a weight plus a bias, which are given a shape first."""
    for target, constant in ((_ATEN.mul.Tensor, weight), (_ATEN.add.Tensor, bias)):
        if constant is not None:
            shaped = constant if shape is None else emit(_ATEN.reshape.default, constant, shape)
            x = emit(target, x, shaped)
    return x


def _layer_norm(emit: Emitter, call: Call) -> Any:
    return _native_layer_norm(emit, call)[0]


def _native_layer_norm(emit: Emitter, call: Call) -> Any:
    dims = list(range(-len(call["normalized_shape"]), 0))
    x, mean, scale = _normalised(emit, call["input"], dims, call["eps"])
    return _scaled(emit, x, call["weight"], call["bias"]), mean, scale


def _rms_norm(emit: Emitter, call: Call) -> Any:
    dims = list(range(-len(call["normalized_shape"]), 0))
    eps = call["eps"]
    if eps is None:
        eps = torch.finfo(call["input"].meta["val"].dtype).eps
    x, _, scale = _normalised(emit, call["input"], dims, eps, centred=False)
    return _scaled(emit, x, call["weight"], None), scale


def _grouped(emit: Emitter, call: Call, groups: int) -> Any:
    shape = emit.shape(call["input"])
    x = emit(_ATEN.unflatten.int, call["input"], 1, [groups, shape[1] // groups])
    x, mean, scale = _normalised(emit, x, list(range(2, len(shape) + 1)), call["eps"])
    x = emit(_ATEN.flatten.using_ints, x, 1, 2)
    per_channel = [shape[1], *([1] * (len(shape) - 2))]
    return _scaled(emit, x, call["weight"], call["bias"], per_channel), mean, scale


def _group_norm(emit: Emitter, call: Call) -> Any:
    return _grouped(emit, call, call["num_groups"])[0]


def _native_group_norm(emit: Emitter, call: Call) -> Any:
    return _grouped(emit, call, call["group"])


def _instance_norm(emit: Emitter, call: Call) -> Any:
    if not call["use_input_stats"] or call["running_mean"] is not None:
        return None
    return _grouped(emit, call, emit.shape(call["input"])[1])[0]


# -- attention and gates ---------------------------------------------------------------------------


def _attention(emit: Emitter, call: Call) -> Any:
    """Softmax of the scaled products of queries and keys, times the values."""
    q, k, v = call["query"], call["key"], call["value"]
    if call.get("enable_gqa"):
        each = emit.shape(q)[-3] // emit.shape(k)[-3]
        k, v = (emit(_ATEN.repeat_interleave.self_int, x, each, -3) for x in (k, v))
    scale = call.get("scale")
    scale = emit.shape(q)[-1] ** -0.5 if scale is None else scale
    keys = emit(_ATEN.transpose.int, k, -2, -1)
    scores = emit(_ATEN.matmul.default, emit(_ATEN.mul.Tensor, q, scale), keys)
    if call.get("is_causal"):
        later = emit(_ATEN.triu.default, emit(_ATEN.full_like.default, scores, -torch.inf), 1)
        scores = emit(_ATEN.add.Tensor, scores, later)
    mask = call.get("attn_mask")
    if mask is not None and mask.meta["val"].dtype == torch.bool:
        hidden = emit(_ATEN.logical_not.default, mask)
        scores = emit(_ATEN.masked_fill.Scalar, scores, hidden, -torch.inf)
    elif mask is not None:
        scores = emit(_ATEN.add.Tensor, scores, mask)
    weights = emit(_ATEN._safe_softmax.default, scores, -1)
    if call.get("dropout_p"):  # in training mode, which is refused
        weights = emit(_ATEN.dropout.default, weights, call["dropout_p"], True)
    return emit(_ATEN.matmul.default, weights, v)


def _first_of_attention(emit: Emitter, call: Call) -> Any:
    return (_attention(emit, call),)


def _glu(emit: Emitter, call: Call) -> Any:
    x, dim = call["self"], call["dim"]
    half = emit.shape(x)[dim] // 2
    value = emit(_ATEN.slice.Tensor, x, dim, 0, half)
    gate = emit(_ATEN.slice.Tensor, x, dim, half, 2 * half)
    return emit(_ATEN.mul.Tensor, value, emit(_ATEN.sigmoid.default, gate))


_WRITTEN_OUT: dict[str, Write] = {
    "aten.layer_norm": _layer_norm,
    "aten.native_layer_norm": _native_layer_norm,
    "aten.rms_norm": lambda emit, call: _rms_norm(emit, call)[0],
    "aten._fused_rms_norm": _rms_norm,
    "aten.group_norm": _group_norm,
    "aten.native_group_norm": _native_group_norm,
    "aten.instance_norm": _instance_norm,
    "aten.scaled_dot_product_attention": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu": _first_of_attention,
    "aten._scaled_dot_product_attention_math": _first_of_attention,
    "aten.glu": _glu,
}
