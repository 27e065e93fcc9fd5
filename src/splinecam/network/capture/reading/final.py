"""The final softmax, sigmoid or tanh of a model, which is left out together with what follows it.

Changes of shape, logarithms, and a scale and a shift that are the same for all outputs may follow.
As long as they preserve the order of all outputs, or reverse it, decisions can be read off from the
values that the function is applied to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map_only

from splinecam.errors import CaptureError
from splinecam.network.capture.reading.graph_builder import GraphBuilder, UnevenRows
from splinecam.network.capture.reading.scalar_functions import op_name
from splinecam.network.capture.tracing.flat_graph import FlatGraph, arguments_of
from splinecam.network.ops.nonlinear import MIXES, SMOOTH
from splinecam.network.ops.registry import AffineRule, TerminalRule, rule_of
from splinecam.network.values import Ref, Rows, resolve

_UNEQUAL = (
    "it comes after the final {label} and does not treat all outputs alike, so that decisions "
    "change if the {label} is left out: use one scale and one shift for all outputs, or return "
    "what the {label} is applied to"
)
_RANGES = {"softmax": (0.0, 1.0), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
_OF_LOGARITHMS = (-inf, 0.0)
_MOVES = (
    *("permute", "transpose", "t", "numpy_T", "mT", "movedim", "moveaxis", "swapaxes", "swapdims"),
    *("adjoint", "contiguous", "clone", "alias"),
)
_FOLLOWERS = (
    *("mul", "multiply", "div", "divide", "true_divide", "add", "sub", "subtract", "rsub"),
    *("neg", "negative", "log", "exp"),
)
_VARIABLE = Ref("z")

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Final:
    """What was left out of a model, whose output is ``final(y)`` for the program's output y."""

    calls: tuple[Call, ...]
    order: Tensor  # where each unit of the function's input, (B, *shape), stands in y
    shape: tuple[int, ...]
    rows: Rows
    negated: bool  # whether y has the opposite sign

    def __call__(self, y: Tensor) -> Tensor:
        flat = y.reshape(y.shape[0], -1)[:, self.order.to(y.device)]
        flat = -flat if self.negated else flat
        z: Any = self.rows.back(flat.view(-1, *self.shape))
        for call in self.calls:
            z = _run(call, z, y.shape[0], y.device)
        result: Tensor = z
        return result


def _run(call: Call, z: Any, batch: int, device: torch.device) -> Any:
    """A call with z for its variable."""
    moved = tree_map_only(Tensor, lambda constant: constant.to(device), call)
    run, args, kwargs = resolve(moved, {_VARIABLE.name: z}, batch, device)
    return run(*args, **kwargs)


def tail_of(graph: FlatGraph, needed: set[fx.Node], active: set[fx.Node]) -> Tail | None:
    """The nodes from a final softmax, sigmoid or tanh to the output, if there are any."""
    nodes: list[fx.Node] = []
    node: Any = graph.output
    while node is not None and node.op == "call_function" and len(needed & set(node.users)) <= 1:
        nodes.append(node)
        rule = rule_of(node.target)
        if isinstance(rule, TerminalRule):
            example = node.args[0].meta["val"]
            rows, dim = graph.batch.rows(example), arguments_of(node).get("dim")
            if rows is None or (dim is not None and dim % example.dim() == rows.dim):
                return None
            return Tail(nodes[::-1], rule.label)
        node = _before(node, active)
    return None


def _before(node: fx.Node, active: set[fx.Node]) -> Any:
    """The node that a follower is applied to, or None if the node is no follower."""
    if _is_move(node):
        return node.args[0]
    if op_name(node) not in _FOLLOWERS or node.kwargs.get("rounding_mode"):
        return None
    (*others, before) = sorted(
        (item for item in node.args if isinstance(item, fx.Node)), key=active.__contains__
    )
    alike = before.meta["val"].shape == node.meta["val"].shape
    return before if alike and active.isdisjoint(others) else None


def _is_move(node: fx.Node) -> bool:
    """Whether a node changes nothing but the shape, or takes the first of several results."""
    if node.target is operator.getitem:
        return bool(node.args[1] == 0)
    rule = rule_of(node.target)
    shaped = isinstance(rule, AffineRule) and (rule.reshapes or rule.identity)
    return shaped or op_name(node) in _MOVES


class Tail:
    """The nodes from a final function to the output, read one after the other."""

    def __init__(self, nodes: list[fx.Node], label: str) -> None:
        self.nodes = nodes
        self.label = label
        self._range = _RANGES.get(label, _OF_LOGARITHMS)
        self._negated = False
        self._calls: list[Call] = []
        self._moves: list[Call] = []  # the calls among them that move values about
        self._source: Any = None

    def read(self, builder: GraphBuilder, node: fx.Node, args: Any, kwargs: dict[str, Any]) -> bool:
        """Read the next node; False if it has to be applied to what is left of the output."""
        i = self.nodes.index(node)
        before: Any = node.args[0] if i == 0 else self.nodes[i - 1]
        value, target = builder.values[before], node.target

        def marked(item: Any, given: Any) -> Any:
            return _VARIABLE if given is before else item

        args = tuple(map(marked, args, node.args))
        kwargs = {key: marked(item, node.kwargs[key]) for key, item in kwargs.items()}
        if i == 0:
            self._source = value
        elif target is operator.getitem:
            value = value[0]
        elif _is_move(node):
            self._moves.append((target, args, kwargs))  # type: ignore[arg-type]
            self._calls.append(self._moves[-1])
            return False
        else:
            try:
                args = tuple(builder.constants.one_row(item) for item in args)
                reason = self._follow(node, args)
            except UnevenRows:
                reason = MIXES
            if reason is not None:
                builder.reject(node, reason)
                return True
        self._calls.append((target, args, kwargs))  # type: ignore[arg-type]
        builder.values[node] = value if isinstance(node.meta["val"], Tensor) else (value,)
        return True

    def _follow(self, node: fx.Node, args: tuple[Any, ...]) -> str | None:
        """Follow the range of the values through a node; the result is a reason against it."""
        name, ends = op_name(node), self._range
        if name == "exp":
            self._range = (exp(ends[0]), exp(ends[1]))
        elif name == "log":
            if ends[0] < 0:
                return SMOOTH
            low, high = (log(end) if end > 0 else -inf for end in ends)
            self._range = (low, high)
        else:
            scale, shift = _scale_and_shift(name, args, arguments_of(node).get("alpha", 1))
            if scale == 0:
                return "it makes the output constant"
            if scale is None or shift is None:
                return _UNEQUAL.format(label=self.label)
            self._negated ^= scale < 0
            first, second = (scale * end + shift for end in ends)
            self._range = (min(first, second), max(first, second))
        return None

    def finish(self, builder: GraphBuilder, output: fx.Node) -> tuple[Ref, Final]:
        """What is left of the output, and what was left out, once all nodes are read."""
        rows = builder.rows[self._source.name]
        shape = builder.unit_shape(self._source, 2)
        numbers = torch.arange(shape.numel(), dtype=torch.float64, device=builder.device)
        moved: Any = rows.back(numbers.view(shape))
        for call in self._moves:
            moved = _run(call, moved, 2, builder.device)
        first, second = moved.reshape(2, -1).long()
        if not torch.equal(first + first.numel(), second):
            raise CaptureError(f"after the final {self.label}, the output mixes the points")
        final = Final(tuple(self._calls), first.argsort(), tuple(shape[1:]), rows, self._negated)
        result: Ref = builder.values[output]
        if self._negated:
            result = builder.add_negated(f"{result.name}.negated", output, result)
        return result, final


def _scale_and_shift(name: str, args: Any, alpha: Any) -> tuple[float | None, float | None]:
    """A follower as ``scale * z + shift``; None where it is not the same for all outputs."""
    if name in ("neg", "negative"):
        return -1.0, 0.0
    first = args[0] is _VARIABLE
    number, alpha = _only(args[1] if first else args[0]), float(alpha)
    if number is None:
        return None, None
    if name in ("mul", "multiply"):
        return number, 0.0
    if name in ("div", "divide", "true_divide"):
        return (1 / number if first and number else None), 0.0
    if name == "add":
        return (1.0, alpha * number) if first else (alpha, number)
    if name == "rsub":
        return (-alpha, number) if first else (1.0, -alpha * number)
    return (1.0, -alpha * number) if first else (-alpha, number)


def _only(value: Any) -> float | None:
    """The one number that a constant consists of."""
    if not isinstance(value, Tensor):
        return float(value) if isinstance(value, (int, float)) else None
    numbers = value.flatten().to(torch.float64)
    same = numbers.numel() > 0 and bool((numbers == numbers[0]).all())
    return float(numbers[0]) if same else None
