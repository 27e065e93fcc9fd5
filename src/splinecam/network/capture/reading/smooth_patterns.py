"""Smooth functions of one variable that a model writes as several operations.

Products of a value and a gate (``x * sigmoid(1.702 * x)``, GELU by erf or by tanh), squares
``x * x`` and ``x / (1 + abs(x))`` are found in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isclose, pi, sqrt
from typing import Any

from torch import Tensor, fx

from splinecam._util.tolerances import EPS
from splinecam.network.capture.tracing.flat_graph import FlatGraph, arguments_of
from splinecam.network.curves import (
    Curve,
    Gelu,
    GeluTanh,
    Hardswish,
    Mish,
    Power,
    Scaled,
    Silu,
    Softsign,
)
from splinecam.network.ops import target_name

__all__ = ["Patterns", "smooth_patterns"]

_PRODUCTS, _QUOTIENTS = ("mul", "multiply"), ("div", "divide", "true_divide")
_SIGMOIDS = ("sigmoid", "special_expit")
_CUBIC = 0.044715


@dataclass(frozen=True)
class Patterns:
    """The nodes that make a smooth function, each with the function and what it is applied to.

    weights: whether a number in one of the functions is a weight of the model.
    """

    found: dict[fx.Node, tuple[Curve, fx.Node]] = field(default_factory=dict)
    weights: bool = False


_Match = tuple[Curve, fx.Node, list[fx.Node]]  # the function, its variable, the nodes on the way


def smooth_patterns(
    graph: FlatGraph, needed: set[fx.Node], active: set[fx.Node], apart: Iterable[fx.Node]
) -> Patterns:
    """The smooth functions in a graph that are written as several operations.

    Nodes that are only on the way to such a function are removed from ``needed``. active: the nodes
    that depend on the input; apart: nodes that are read in another way.
    """
    found: dict[fx.Node, tuple[Curve, fx.Node]] = {}
    skipped, matcher, weights = set(apart), _Matcher(graph), False
    place = {node: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        matcher.used_weight = False
        made = matcher.match(node) if node in needed and node not in skipped else None
        if made is None:
            continue
        curve, x, inner = made
        if x not in active or not skipped.isdisjoint(inner):
            continue
        found[node] = curve, x
        weights = weights or matcher.used_weight
        _drop(node, sorted(set(inner), key=place.__getitem__), needed)
    return Patterns(found, weights)


def _drop(node: fx.Node, inner: list[fx.Node], needed: set[fx.Node]) -> None:
    """Remove the nodes on the way to a function that nothing else uses."""
    gone = {node}
    for one in reversed(inner):
        if all(user in gone for user in one.users if user in needed):
            needed.discard(one)
            gone.add(one)


class _Matcher:
    """Finds out which function a node computes."""

    def __init__(self, graph: FlatGraph) -> None:
        self.graph = graph
        self.used_weight = False

    def match(self, node: fx.Node) -> _Match | None:
        """The function that a product or a quotient computes, if it is a known one."""
        name = _op(node)
        if name in _PRODUCTS:
            return self._product(node)
        return self._softsign(node) if name in _QUOTIENTS else None

    def _product(self, node: fx.Node) -> _Match | None:
        first, second = _two(node)
        if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
            return None
        if first is second:
            return Power(2), first, []
        for outer, gate in ((first, second), (second, first)):
            for core, share, way in self._multiples(gate):
                gated = self._gated(core)
                if gated is not None:
                    return self._joined(outer, share, gated, [*way, core])
        return None

    def _joined(
        self, outer: fx.Node, share: float, gated: _Match, way: list[fx.Node]
    ) -> _Match | None:
        """A multiple of the variable times a multiple of a gate."""
        curve, x, inner = gated
        for base, factor, passed in self._multiples(outer):
            for other, rate, others in self._multiples(x):
                if base is other:
                    nodes = [*way, *inner, *passed, *others]
                    return _scaled(curve, share * factor, rate), base, nodes
        return None

    def _gated(self, gate: fx.Node) -> _Match | None:
        """The function of x that x times a gate is, with x for what the gate is applied to."""
        name, source = _op(gate), gate.args[0] if gate.args else None
        if not isinstance(source, fx.Node):
            return None
        if name in _SIGMOIDS:
            return Silu(), source, []
        if name == "hardsigmoid":
            return Hardswish(), source, []
        if name == "tanh" and _op(source) == "softplus" and _plain(source):
            return Mish(), _first(source), [source]
        if name in ("relu6", "hardtanh", "clamp"):
            shifted = self._plus(source, 3.0)
            return (Scaled(Hardswish(), 6.0), shifted, [source]) if shifted and _six(gate) else None
        raised = self._plus(gate, 1.0)
        if raised is not None and _op(raised) in ("erf", "special_erf"):
            return Scaled(Gelu(), sqrt(2), sqrt(2)), _first(raised), [raised]
        if raised is not None and _op(raised) == "tanh":
            return self._gelu_tanh(raised)
        return None

    def _gelu_tanh(self, tanh: fx.Node) -> _Match | None:
        """``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
        for total, rate, way in self._multiples(_first(tanh)):
            if _op(total) != "add" or not isclose(rate, sqrt(2 / pi), rel_tol=4 * EPS):
                continue
            first, second = _two(total)
            for x, cubic in ((first, second), (second, first)):
                for power, factor, others in self._multiples(cubic):
                    known = isclose(factor, _CUBIC, rel_tol=4 * EPS) and _op(power) == "pow"
                    if known and _two(power) == (x, 3):
                        return Scaled(GeluTanh(), 2.0), x, [tanh, total, *way, *others, power]
        return None

    def _softsign(self, node: fx.Node) -> _Match | None:
        x, divisor = _two(node)
        if not isinstance(x, fx.Node) or node.kwargs.get("rounding_mode"):
            return None
        size = self._plus(divisor, 1.0)
        if size is None or _op(size) not in ("abs", "absolute") or size.args[0] is not x:
            return None
        return Softsign(), x, [size, divisor]

    # -- multiples and sums with numbers

    def _number(self, item: Any) -> float | None:
        """The number that an argument is, which may be a constant of the model."""
        if isinstance(item, (int, float)):
            return float(item)
        value = self.graph.constants.get(item, (None, None))[1] if _is_node(item) else None
        if not isinstance(value, Tensor) or value.numel() != 1:
            return None
        self.used_weight = True
        return float(value.detach())

    def _plus(self, node: Any, number: float) -> Any:
        """The node that a number is added to, if that is what a node does."""
        if _op(node) != "add" or node.kwargs.get("alpha", 1) != 1:
            return None
        for one, other in (node.args[:2], node.args[1::-1]):
            if _is_node(one) and self._number(other) == number:
                return one
        return None

    def _multiples(self, node: Any) -> Iterator[tuple[fx.Node, float, list[fx.Node]]]:
        """The nodes of which a node is a multiple, each with the factor and those on the way."""
        factor, way = 1.0, list[fx.Node]()
        while _is_node(node):
            yield node, factor, list(way)
            way.append(node)
            name = _op(node)
            if name not in (*_PRODUCTS, *_QUOTIENTS) or node.kwargs.get("rounding_mode"):
                return
            one, other = _two(node)
            number = self._number(other)
            if number is None and name in _PRODUCTS:
                one, number = other, self._number(one)
            if number is None or number == 0:
                return
            factor, node = (factor * number if name in _PRODUCTS else factor / number), one


def _scaled(curve: Curve, share: float, rate: float) -> Curve:
    """``share z`` times the gate of ``rate z``, for a function z times its gate."""
    factor, inner = share / rate, rate
    if isinstance(curve, Scaled):
        factor, inner, curve = factor * curve.factor, inner * curve.rate, curve.base
    factor, inner = (1.0 if isclose(x, 1, rel_tol=4 * EPS) else x for x in (factor, inner))
    return curve if factor == inner == 1 else Scaled(curve, factor, inner)


def _is_node(item: Any) -> bool:
    return isinstance(item, fx.Node)


def _op(node: Any) -> str:
    is_call = isinstance(node, fx.Node) and node.op == "call_function"
    return target_name(node.target).removeprefix("aten.") if is_call else ""


def _first(node: fx.Node) -> Any:
    return node.args[0]


def _two(node: fx.Node) -> tuple[Any, Any]:
    first, second = node.args[:2]
    return first, second


def _plain(softplus: fx.Node) -> bool:
    arguments = arguments_of(softplus)
    return bool(arguments["beta"] == 1 and arguments["threshold"] >= 20)


def _six(gate: fx.Node) -> bool:
    """Whether a gate cuts off below 0 and above 6."""
    arguments = arguments_of(gate)
    low = arguments.get("min_val", arguments.get("min", 0))
    return bool(low == 0 and arguments.get("max_val", arguments.get("max", 6)) == 6)
