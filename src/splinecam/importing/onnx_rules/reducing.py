"""Sums, means, maxima and minima over axes."""

from __future__ import annotations

from splinecam.importing.onnx_nodes import Node, Value, named
from splinecam.importing.onnx_rules.registry import rule

__all__: list[str] = []

_OPERATIONS = {
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceMean": "mean.dim",
    "ReduceSum": "sum.dim_IntList",
    "ReduceL1": "sum.dim_IntList",
}


@rule(" ".join(_OPERATIONS), "constant axes")
def _reduce(node: Node) -> Value:
    x = node.value()
    rank = len(x.shape)
    given = node.integers(1, "axes")
    if not given and node.get("noop_with_empty_axes", 0):
        return x if node.kind != "ReduceL1" else _absolute(node, x)
    axes = {node.axis(axis, rank) for axis in given or range(rank)}
    keep = bool(node.get("keepdims", 1))
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    x = _absolute(node, x) if node.kind == "ReduceL1" else x
    wide = sorted(axis for axis in axes if x.shape[axis] != 1)  # over one entry nothing happens
    if not wide:
        return node.make(x.tensor, shape)
    tensor, dims = node.dims(x, wide)
    return node.make(node.call(_OPERATIONS[node.kind], named(tensor), dims, False), shape)


def _absolute(node: Node, x: Value) -> Value:
    return Value(node.call("abs", named(x.tensor)), x.shape)
