"""Smooth functions of one variable as layers, also those that are written as several operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, fx

from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.capture.reading.stages import refs
from splinecam.network.capture.tracing.flat_graph import FlatGraph, arguments_of
from splinecam.network.curves import Curve, Hardswish, Mish, Power, Silu, Softsign
from splinecam.network.nonlinearities import Operation
from splinecam.network.ops import target_name
from splinecam.network.ops.rejected import MIXES
from splinecam.network.smooth_scalar import SmoothScalar, apply_curve
from splinecam.network.values import Ref

__all__ = ["Pattern", "add_curve", "add_smooth", "smooth_patterns"]


def add_smooth(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add an operation that is a smooth function of one variable, or say why it cannot be added."""
    active = [name for name, item in call.named.items() if builder.is_active(item)]
    if len(active) > 1 or not isinstance(call.named[active[0]], Ref):
        return f"its {active[-1]} depends on the input"
    curve = call.rule.curve(call.named)
    if isinstance(curve, str):
        return curve
    return add_curve(builder, call.node, curve, call.named[active[0]])


def add_curve(builder: GraphBuilder, node: fx.Node, curve: Curve, variable: Ref) -> str | None:
    """Add a node that applies a smooth function to a value, or say why it cannot be added."""
    values = node.meta["val"]
    rows = builder.batch.rows(values if isinstance(values, Tensor) else values[0])
    if rows is None:
        return MIXES
    builder.add_results(node)
    builder.add_layer(
        SmoothScalar,
        node,
        Operation(apply_curve, (Operation.VARIABLE, curve), {}),
        source=variable.name,
        result=next(refs(builder.values[node])).name,
        shape=builder.unit_shape(variable)[1:],
        curve=curve,
    )
    return None


# -- functions that are written as several operations ----------------------------------------------

Pattern = tuple[Curve, fx.Node]
"""A function, and the node that it is applied to."""

_Match = tuple[Curve, fx.Node, list[fx.Node]]  # and the nodes on the way


def smooth_patterns(
    graph: FlatGraph, needed: set[fx.Node], active: set[fx.Node], apart: Iterable[fx.Node]
) -> dict[fx.Node, Pattern]:
    """The nodes that make a smooth function of one variable out of other operations.

    Nodes that are only on the way to such a function are removed from ``needed``. active: the nodes
    that depend on the input; apart: nodes that are read in another way.
    """
    found: dict[fx.Node, Pattern] = {}
    skipped = set(apart)
    for node in graph.nodes:
        match = _PATTERNS.get(_op(node)) if node in needed and node not in skipped else None
        made = match(node) if match is not None else None
        if made is None:
            continue
        curve, x, inner = made
        if x not in active or not skipped.isdisjoint(inner):
            continue
        found[node] = curve, x
        for one in inner:  # the last of them first
            if all(user is node for user in one.users if user in needed):
                needed.discard(one)
    return found


def _op(node: Any) -> str:
    is_call = isinstance(node, fx.Node) and node.op == "call_function"
    return target_name(node.target).removeprefix("aten.") if is_call else ""


def _product(node: fx.Node) -> _Match | None:
    """``x * x``, ``x * sigmoid(x)``, ``x * hardsigmoid(x)`` and ``x * tanh(softplus(x))``."""
    first, second = _two(node)
    if first is second and isinstance(first, fx.Node):
        return Power(2), first, []
    for x, gate in ((first, second), (second, first)):
        if not isinstance(x, fx.Node):
            continue
        if _op(gate) in ("sigmoid", "special_expit") and _is_of(gate, x):
            return Silu(), x, [gate]
        if _op(gate) == "hardsigmoid" and _is_of(gate, x):
            return Hardswish(), x, [gate]
        if _op(gate) == "tanh":
            inner = gate.args[0]
            if _op(inner) == "softplus" and _is_of(inner, x) and _plain(inner):
                return Mish(), x, [gate, inner]
    return None


def _quotient(node: fx.Node) -> _Match | None:
    """``x / (1 + abs(x))``."""
    x, divisor = _two(node)
    if not isinstance(x, fx.Node) or _op(divisor) != "add" or node.kwargs.get("rounding_mode"):
        return None
    first, second = _two(divisor)
    for size, one in ((first, second), (second, first)):
        if one == 1 and divisor.kwargs.get("alpha", 1) == 1 and _op(size) in ("abs", "absolute"):
            return (Softsign(), x, [divisor, size]) if _is_of(size, x) else None
    return None


def _two(node: fx.Node) -> tuple[Any, Any]:
    """The two arguments of a sum, a product or a quotient."""
    first, second = node.args[:2]
    return first, second


def _is_of(node: Any, x: fx.Node) -> bool:
    return bool(node.args[0] is x)


def _plain(softplus: fx.Node) -> bool:
    arguments = arguments_of(softplus)
    return bool(arguments["beta"] == 1 and arguments["threshold"] >= 20)


_PATTERNS: dict[str, Callable[[fx.Node], _Match | None]] = {
    "mul": _product,
    "multiply": _product,
    "div": _quotient,
    "divide": _quotient,
    "true_divide": _quotient,
}
