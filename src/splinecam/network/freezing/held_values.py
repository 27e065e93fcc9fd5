"""Which values of a graph are held, and what all values are at one input, in float64.

Only products and quotients of activations stand between a network and functions of one variable.
A divisor is always held. All factors of a product but one are held: first factors from a softmax,
then from a reciprocal or an inverse root. Other factors are gates: first from a sigmoid, then from
other functions. What leads to held values alone, as queries and keys do, leaves the network.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, fx

from splinecam.errors import CaptureError
from splinecam.network.capture.models import widened
from splinecam.network.capture.reading.graph_builder import in_float64
from splinecam.network.capture.tracing import flat_graph as flat
from splinecam.network.capture.tracing.flat_graph import SYMBOLIC, FlatGraph
from splinecam.network.ops import registry as ops
from splinecam.network.ops.registry import rule_of, target_name
from splinecam.network.values import resolve

POINTS = 2  # a batch of one may be taken for something else, as in squeeze()


def anchor_values(graph: FlatGraph, at: Tensor) -> dict[fx.Node, Any]:
    """The values of all nodes for a batch of ``POINTS`` points that all are the anchor."""
    values: dict[fx.Node, Any] = {graph.x: at[None].expand(POINTS, *at.shape).double()}
    for node, (_, value) in graph.constants.items():
        values[node] = widened(value) if isinstance(value, Tensor) else value
    needed = graph.needed()
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "call_function" and node in needed:
                values[node] = _computed(graph, values, node, at.device)
    return values


def _computed(
    graph: FlatGraph, values: dict[fx.Node, Any], node: fx.Node, device: torch.device
) -> Any:
    """The value of a node, from the values of the nodes before it."""
    value: Any = node.meta.get("val")
    if type(value) in SYMBOLIC:
        return resolve(graph.batch.number(node, values), {}, POINTS, device)

    def argument(item: Any) -> Any:
        if isinstance(item, fx.Node):
            if item not in values:
                raise CaptureError(
                    f"the graph holds a value that cannot be read: {item.name}. Please report this"
                )
            return values[item]
        return resolve(graph.batch.size(item), {}, POINTS, device)

    call: Any = fx.node.map_aggregate((node.args, node.kwargs), argument)
    args, kwargs = call
    graph.batch.count_masked(value, args[1] if len(args) > 1 else None)
    target, rule = node.target, rule_of(node.target)
    if isinstance(rule, ops.AffineRule) and rule.reshapes:  # a view may not fit what lies elsewhere
        return args[0].reshape(graph.batch.shape_at(value, POINTS))
    assert callable(target)
    return in_float64(target(*args, **kwargs))


Kind = Literal["attention pattern", "denominator", "gate"]
_Label = Kind | Literal["function", "mask"] | None

_ORDER: tuple[_Label, ...] = ("attention pattern", "denominator", "gate", "function", None)
_PATTERNS = frozenset({"aten.softmax", "aten._softmax", "aten._safe_softmax"})
_INVERSES = frozenset({"aten.rsqrt", "aten.reciprocal"})
_POWERS = frozenset({"aten.pow", "aten.float_power"})
_ENTRYWISE = frozenset(
    f"aten.{name}" for name in ("add", "sub", "rsub", "mul", "div", "neg", "clone", "pow", "square")
)
_SIGNS = frozenset({"aten.sign", "aten.heaviside"})
_SQUASHES = frozenset(f"aten.{name}" for name in ("sigmoid", "hardsigmoid", "tanh", "hardtanh"))


@dataclass
class HeldValues:
    """What is held, and what is still computed.

    uses: the held values that a node reads; kinds: what each held value is; origins: the node
    after which each is named, as the softmax of a pattern; live: the nodes that the output
    still depends on; refused: products without a factor to be held.
    """

    uses: dict[fx.Node, set[fx.Node]] = field(default_factory=dict)
    kinds: dict[fx.Node, Kind] = field(default_factory=dict)
    origins: dict[fx.Node, fx.Node] = field(default_factory=dict)
    live: set[fx.Node] = field(default_factory=set)
    refused: list[fx.Node] = field(default_factory=list)


def choose_held(graph: FlatGraph, active: set[fx.Node], gates: bool) -> HeldValues:
    """The values of a graph that are held; gates: hold also a factor of other products."""
    origins = _Origins(active)
    for node in graph.nodes:
        if node in active:
            origins.add(node)
    held, waiting = HeldValues(), [graph.output]
    while waiting:
        node = waiting.pop()
        if node in held.live:
            continue
        held.live.add(node)
        if node in active and node is not graph.x:
            _hold(held, node, origins, gates)
        unread = held.uses.get(node, set()) | flat.shape_arguments(node)
        waiting += [source for source in node.all_input_nodes if source not in unread]
    place = {node: i for i, node in enumerate(graph.nodes)}
    held.kinds = {node: held.kinds[node] for node in sorted(held.kinds, key=place.__getitem__)}
    held.refused.sort(key=place.__getitem__)
    return held


def _hold(held: HeldValues, node: fx.Node, origins: _Origins, gates: bool) -> None:
    """Choose the arguments of a node that are held."""
    rule = rule_of(node.target)
    if not isinstance(rule, ops.AffineRule):
        return
    chosen: dict[fx.Node, Kind] = {}
    for divisor in origins.among(node, rule.factor):
        chosen[divisor] = "denominator"
    factors = list(dict.fromkeys(origins.among(node, rule.product)))
    masked = any(origins.labels[factor] == "mask" for factor in factors)
    entrywise = target_name(node.target) in _ENTRYWISE
    # A product as x * f(x) is a function of one variable.
    alone = entrywise and len({origins.sources[factor] for factor in factors}) == 1
    if len(factors) > 1 and not masked and not alone:
        factors.sort(key=lambda factor: _ORDER.index(origins.labels[factor]))
        for factor in factors[:-1]:
            label = origins.labels[factor]
            if label in ("attention pattern", "denominator"):
                chosen[factor] = label
            elif gates:
                chosen[factor] = "gate"
            else:
                held.refused.append(node)
                return
    if chosen:
        held.uses[node] = set(chosen)
        for value, kind in chosen.items():
            held.kinds.setdefault(value, kind)
            held.origins[value] = origins.named[value]


class _Origins:
    """What the values of a graph come from.

    labels: what a value is, as a factor of a product; named: the node that makes it so;
    sources: the value that a value depends on entry by entry.
    """

    def __init__(self, active: set[fx.Node]) -> None:
        self.active = active
        self.labels: dict[fx.Node, _Label] = {}
        self.named: dict[fx.Node, fx.Node] = {}
        self.sources: dict[fx.Node, fx.Node] = {}

    def among(self, node: fx.Node, names: tuple[str, ...]) -> list[fx.Node]:
        """The activations in some of a node's arguments, which are given by name."""
        named = flat.arguments_of(node) if names else {}
        found = [part for name in names for part in flat.nodes_in(named.get(name))]
        return [part for part in found if part in self.active]

    def add(self, node: fx.Node) -> None:
        """Record one more node, after the nodes that it reads."""
        inputs = [n for n in node.all_input_nodes if n in self.active]
        inputs = [n for n in inputs if n not in flat.shape_arguments(node)]
        label = self.labels[node] = self._label(node, inputs)
        keeps = inputs and label is not None and self.labels[inputs[0]] == label
        moves = isinstance(rule_of(node.target), ops.AffineRule) or label != "function"
        self.named[node] = self.named[inputs[0]] if keeps and moves else node
        self.sources[node] = self._source(node, inputs)

    def _label(self, node: fx.Node, inputs: list[fx.Node]) -> _Label:
        name, rule = target_name(node.target), rule_of(node.target)
        if not inputs:
            return None
        value = node.meta.get("val")
        masks = isinstance(value, Tensor) and not value.is_floating_point()
        if masks or isinstance(rule, ops.ComparisonRule) or name in _SIGNS:
            return "mask"
        if name in _PATTERNS:
            return "attention pattern"
        exponent = node.args[1] if name in _POWERS else None
        if name in _INVERSES or (isinstance(exponent, (int, float)) and exponent < 0):
            return "denominator"
        if not isinstance(rule, ops.AffineRule) and node.target is not operator.getitem:
            before = self.labels[inputs[0]]
            if before in ("attention pattern", "denominator"):
                return before
            return "gate" if name in _SQUASHES else "function"
        if isinstance(rule, ops.AffineRule):
            divisors = self.among(node, rule.factor)
            if divisors and _is_sum_of(divisors[0], inputs[0]):
                return "attention pattern"
            inputs = [n for n in inputs if n not in divisors] or inputs
            if len(self.among(node, rule.product)) > 1:
                return None
        labels = {self.labels[n] for n in inputs}
        return labels.pop() if len(labels) == 1 else None

    def _source(self, node: fx.Node, inputs: list[fx.Node]) -> fx.Node:
        """The value on which a node depends entry by entry, or the node itself."""
        sources = {self.sources[n] for n in inputs}
        rule = rule_of(node.target)
        function = isinstance(rule, (ops.PiecewiseRule, ops.RejectedRule)) or (
            isinstance(rule, ops.TerminalRule) and rule.elementwise
        )
        conversion = isinstance(rule, ops.AffineRule) and rule.identity
        entrywise = function or conversion or target_name(node.target) in _ENTRYWISE
        if len(sources) != 1 or not entrywise or isinstance(rule, (ops.MaximumRule, ops.SortRule)):
            return node
        (source,) = sources
        return source if _shape(source) == _shape(node) else node


def _is_sum_of(divisor: fx.Node, value: fx.Node) -> bool:
    """Whether a divisor is the sum of a value over some dimension, up to its shape and a guard."""
    while divisor is not value:
        name = target_name(divisor.target)
        if name == "aten.sum":
            return value in divisor.all_input_nodes
        follows = name in ("aten.add", "aten.clamp", "aten.clamp_min", "aten.expand_as")
        rule = rule_of(divisor.target)
        follows = follows or (isinstance(rule, ops.AffineRule) and (rule.exact or rule.reshapes))
        if not follows or not divisor.all_input_nodes:
            return False
        divisor = divisor.all_input_nodes[0]
    return False


def _shape(node: fx.Node) -> list[str] | None:
    value = node.meta.get("val")
    return [str(size) for size in value.shape] if isinstance(value, Tensor) else None
