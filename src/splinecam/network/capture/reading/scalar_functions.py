"""Functions of one variable as layers: piecewise linear, smooth, or written as several calls.

Products of a value and a gate (``x * sigmoid(1.702 * x)``, GELU by erf or by tanh), squares
``x * x`` and ``x / (1 + abs(x))`` are found in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf, isclose, pi, prod, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from splinecam._util.tolerances import EPS
from splinecam.network import nonlinearities as layers
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall, UnevenRows
from splinecam.network.capture.tracing.flat_graph import FlatGraph, arguments_of
from splinecam.network.curves import formulas
from splinecam.network.curves.curve import Curve, Scaled, scaled
from splinecam.network.ops.nonlinear import MIXES
from splinecam.network.ops.registry import Knots, target_name
from splinecam.network.values import Operation, Ref, Rows


def add_function(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add a function of one variable with its knots, or say why it cannot be added."""
    node, rule, one_row = call.node, call.rule, builder.constants.one_row
    source = next(name for name in rule.source if builder.is_active(call.named.get(name)))
    try:
        named = {key: one_row(item) for key, item in call.named.items()}
        kwargs = {key: one_row(item) for key, item in call.kwargs.items()}
        call = replace(call, args=tuple(map(one_row, call.args)), kwargs=kwargs)
    except UnevenRows:
        return MIXES
    rows = builder.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    shape = builder.batch.shape_at(node.meta["val"], 1)
    z = torch.zeros(shape, dtype=torch.float64, device=builder.device)
    constant = next((named.get(name) for name in rule.source if name != source), None)
    knots = rule.knots
    if callable(knots):
        knots = knots(named | {source: z, "constant": constant})
    if isinstance(knots, str):
        return knots
    ref = builder.expand(node, named[source])
    levels, slopes = spread_knots(knots, shape, rows, builder.device)
    builder.add_results(node)
    operation = operation_of(rule.run or node.target, call, rows, rows)
    fields = {"levels": levels, "slopes": slopes, "exact": rule.exact}
    builder.add_layer(layers.PiecewiseScalar, node, operation, ref.name, **fields)
    return None


def operation_of(
    run: Any, call: NodeCall, rows: Rows, result_rows: Rows, part: int | None = None
) -> Operation:
    """A call whose one activation is its variable."""

    def argument(item: Any) -> Any:
        return Operation.VARIABLE if isinstance(item, Ref) else item

    named = {key: argument(item) for key, item in call.kwargs.items()}
    return Operation(run, tuple(map(argument, call.args)), named, rows, result_rows, part)


def spread_knots(
    knots: Knots, shape: list[int], rows: Rows, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Levels (K, n) and slopes (K + 1, n) of all units; idle knots are dropped."""
    if _all_equal(*knots):
        columns = (np.array(numbers, dtype=np.float64).reshape(-1, 1) for numbers in knots)
        same = [torch.from_numpy(column.repeat(prod(shape), 1)).to(device) for column in columns]
        return same[0], same[1]

    def spread(value: float | Tensor) -> Tensor:
        wide = torch.as_tensor(value, dtype=torch.float64, device=device).expand(shape)
        return rows.out(wide).reshape(-1)

    levels, slopes = ([spread(value) for value in values] for values in knots)
    for k, level in enumerate(levels):
        # Nothing lies below minus infinity, above infinity, or between two equal levels.
        slopes[k] = torch.where(level == -inf, slopes[k + 1], slopes[k])
        if k + 1 < len(levels):
            empty = level == levels[k + 1]
            slopes[k + 1] = torch.where(empty, slopes[k], slopes[k + 1])
    for k in range(len(levels)):
        slopes[k + 1] = torch.where(levels[k] == inf, slopes[k], slopes[k + 1])
    return _without_idle(levels, slopes)


def _all_equal(levels: tuple[Any, ...], slopes: tuple[Any, ...]) -> bool:
    """Whether all units have the same knots, and no knot is dropped or moved."""
    if any(isinstance(value, Tensor) for value in (*levels, *slopes)):
        return False
    ascending = all(low < high for low, high in pairwise((-inf, *levels, inf)))
    return ascending and all(before != after for before, after in pairwise(slopes))


def _without_idle(levels: list[Tensor], slopes: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The knots at which some unit changes its slope, stacked."""
    if not levels:
        return slopes[0].new_empty(0, slopes[0].numel()), torch.stack(slopes)
    level, slope = torch.stack(levels), torch.stack(slopes)
    idle = slope[1:] == slope[:-1]
    order = idle.to(torch.int8).argsort(dim=0, stable=True)
    level = torch.where(idle, inf, level).gather(0, order)
    # The slope after each remaining knot follows it; the idle ones repeat the last slope.
    slope = torch.cat([slope[:1], slope[1:].gather(0, order)])
    for k in range(len(levels)):
        slope[k + 1] = torch.where(level[k] == inf, slope[k], slope[k + 1])
    used = (level != inf).any(1)
    return level[used], torch.cat([slope[:1], slope[1:][used]])


def add_pairs(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add the larger or the smaller of two activations, which changes where they are equal."""
    node = call.node
    if builder.batch.rows(node.meta["val"]) is None:
        return MIXES
    pairs = [pair for pair in call.rule.pairs if call.named.get(pair[0]) is not None]
    value = call.named["self"]
    for name, smallest in pairs:
        result = node.name if name == pairs[-1][0] else f"{node.name}.{name}"
        _add_pair(builder, node, (value, call.named[name]), smallest, result)
        value = Ref(result)
    builder.add_results(node)
    return None


def _add_pair(
    builder: GraphBuilder, node: fx.Node, pair: tuple[Any, Any], smallest: bool, result: str
) -> None:
    both, example = f"{result}.pair", node.meta["val"]
    builder.add_value(both, node, torch.stack([example, example], -1))
    builder.add_value(result, node, example)
    ref = builder.add_step(both, _stacked, (*pair, builder.batch.shape(example)), plain=1)
    members = torch.arange(builder.unit_shape(ref).numel(), device=builder.device).view(-1, 2)
    operation = Operation(torch.amin if smallest else torch.amax, (Operation.VARIABLE, -1), {})
    fields = {"result": result, "members": members, "smallest": smallest}
    builder.add_layer(layers.MaxNonlinearity, node, operation, both, **fields)


def _stacked(first: Any, second: Any, shape: list[int]) -> Tensor:
    """Two values side by side in a last dimension; one of them may be a number."""
    like = first if isinstance(first, Tensor) else second
    wide = [torch.as_tensor(x, dtype=like.dtype, device=like.device) for x in (first, second)]
    return torch.stack([x.expand(shape) for x in wide], -1)


def add_smooth(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add an operation that is a smooth function of one variable, or say why it cannot be added."""
    active = [name for name, item in call.named.items() if builder.is_active(item)]
    if len(active) > 1 or not isinstance(call.named[active[0]], Ref):
        return f"its {active[-1]} depends on the input"
    curve = call.rule.curve
    if not isinstance(curve, Curve):
        curve = curve(call.named)
    if isinstance(curve, str):
        return curve
    return add_curve(builder, call.node, curve, call.named[active[0]])


def add_curve(builder: GraphBuilder, node: fx.Node, curve: Curve, variable: Ref) -> str | None:
    """Add a node that applies a smooth function to a value, or say why it cannot be added."""
    values = node.meta["val"]
    rows = builder.batch.rows(values if isinstance(values, Tensor) else values[0])
    if rows is None:
        return MIXES
    curve = curve.to(builder.device)
    builder.add_results(node)
    operation = Operation(layers.apply_curve, (Operation.VARIABLE, curve), {})
    builder.add_layer(layers.SmoothScalar, node, operation, variable.name, curve=curve)
    return None


_PRODUCTS, _QUOTIENTS = ("mul", "multiply"), ("div", "divide", "true_divide")
_SIGMOIDS = ("sigmoid", "special_expit")
_CUBIC = 0.044715

Patterns = dict[fx.Node, tuple[Curve, fx.Node]]
"""The nodes that make a smooth function, each with the function and what it is applied to."""

_Match = tuple[Curve, fx.Node, list[fx.Node]]  # the function, its variable, the nodes on the way


def smooth_patterns(
    graph: FlatGraph, needed: set[fx.Node], active: set[fx.Node], apart: Iterable[fx.Node]
) -> tuple[Patterns, bool]:
    """The smooth functions in a graph that are written as several operations.

    Nodes that only lead to such a function are removed from ``needed``. apart: nodes that are
    read in another way. The second result says whether a function has a weight of the model for
    a number.
    """
    found: Patterns = {}
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
        gone = {node}
        for one in sorted(set(inner), key=place.__getitem__, reverse=True):
            if all(user in gone for user in one.users if user in needed):
                needed.discard(one)  # nothing else uses it
                gone.add(one)
    return found, weights


class _Matcher:
    """Finds out which function a node computes."""

    def __init__(self, graph: FlatGraph) -> None:
        self.graph = graph
        self.used_weight = False

    def match(self, node: fx.Node) -> _Match | None:
        """The function that a product or a quotient computes, if it is a known one."""
        name = op_name(node)
        if name in _PRODUCTS:
            return self._product(node)
        return self._softsign(node) if name in _QUOTIENTS else None

    def _product(self, node: fx.Node) -> _Match | None:
        first, second = node.args[:2]
        if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
            return None
        if first is second:
            return formulas.power(2), first, []
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
        name, source = op_name(gate), gate.args[0] if gate.args else None
        if not isinstance(source, fx.Node):
            return None
        if name in _SIGMOIDS:
            return formulas.SILU, source, []
        if name == "hardsigmoid":
            return formulas.HARDSWISH, source, []
        if name == "tanh" and op_name(source) == "softplus":
            given = arguments_of(source)
            plain = given["beta"] == 1 and given["threshold"] >= 20
            return (formulas.MISH, given["self"], [source]) if plain else None
        if name in ("relu6", "hardtanh", "clamp"):
            given, shifted = arguments_of(gate), self._plus(source, 3.0)
            low = given.get("min_val", given.get("min", 0))
            high = given.get("max_val", given.get("max", 6))
            between = shifted and low == 0 and high == 6
            return (scaled(formulas.HARDSWISH, 6.0), shifted, [source]) if between else None
        raised = self._plus(gate, 1.0)
        if raised is not None and op_name(raised) in ("erf", "special_erf"):
            return scaled(formulas.GELU, sqrt(2), sqrt(2)), raised.args[0], [raised]
        if raised is not None and op_name(raised) == "tanh":
            return self._gelu_tanh(raised)
        return None

    def _gelu_tanh(self, tanh: fx.Node) -> _Match | None:
        """``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``."""
        for total, rate, way in self._multiples(tanh.args[0]):
            if op_name(total) != "add" or not isclose(rate, sqrt(2 / pi), rel_tol=4 * EPS):
                continue
            terms: Any = total.args[:2]
            for x, cubic in (terms, terms[::-1]):
                for cube, factor, others in self._multiples(cubic):
                    known = isclose(factor, _CUBIC, rel_tol=4 * EPS) and op_name(cube) == "pow"
                    if known and cube.args[:2] == (x, 3):
                        nodes = [tanh, total, *way, *others, cube]
                        return scaled(formulas.GELU_TANH, 2.0), x, nodes
        return None

    def _softsign(self, node: fx.Node) -> _Match | None:
        x, divisor = node.args[:2]
        if not isinstance(x, fx.Node) or node.kwargs.get("rounding_mode"):
            return None
        size = self._plus(divisor, 1.0)
        if size is None or op_name(size) not in ("abs", "absolute") or size.args[0] is not x:
            return None
        return formulas.SOFTSIGN, x, [size, divisor]

    def _number(self, item: Any) -> float | None:
        """The number that an argument is, which may be a constant of the model."""
        if isinstance(item, (int, float)):
            return float(item)
        known = self.graph.constants.get(item) if isinstance(item, fx.Node) else None
        value = None if known is None else known[1]
        if not isinstance(value, Tensor) or value.numel() != 1:
            return None
        self.used_weight = True
        return float(value.detach())

    def _plus(self, node: Any, number: float) -> Any:
        """The node that a number is added to, if that is what a node does."""
        if op_name(node) != "add" or node.kwargs.get("alpha", 1) != 1:
            return None
        for one, other in (node.args[:2], node.args[1::-1]):
            if isinstance(one, fx.Node) and self._number(other) == number:
                return one
        return None

    def _multiples(self, node: Any) -> Iterator[tuple[fx.Node, float, list[fx.Node]]]:
        """Yield nodes that a node is a multiple of, with the factors and the nodes between."""
        factor, way = 1.0, list[fx.Node]()
        while isinstance(node, fx.Node):
            yield node, factor, list(way)
            way.append(node)
            name = op_name(node)
            if name not in (*_PRODUCTS, *_QUOTIENTS) or node.kwargs.get("rounding_mode"):
                return
            one, other = node.args[:2]
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
    return curve if factor == inner == 1 else scaled(curve, factor, inner)


def op_name(node: Any) -> str:
    """The name of the ATen operation that a node calls; nothing for other values."""
    is_call = isinstance(node, fx.Node) and node.op == "call_function"
    return target_name(node.target).removeprefix("aten.") if is_call else ""
