"""A model as a flat list of ATen calls, and how the shapes of its values depend on the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from splinecam.errors import CaptureError
from splinecam.network.ops.affine import CREATORS
from splinecam.network.ops.registry import AffineRule, rule_of, target_name
from splinecam.network.values import MANY_POINTS, Rows, Size, size_of

SYMBOLIC: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""The numbers of ``torch.export`` that may depend on the batch, and their plain types."""


@dataclass(frozen=True)
class FlatGraph:
    """The calls of a model in order, from its input ``x`` to its output."""

    nodes: list[fx.Node]
    x: fx.Node
    output: fx.Node
    constants: dict[fx.Node, tuple[str, Any]]  # parameters, buffers and others by name
    batch: Batch  # how shapes depend on the batch

    def needed(self) -> set[fx.Node]:
        """The nodes that the output depends on."""
        found, waiting = {self.output}, [self.output]
        while waiting:
            new = [node for node in waiting.pop().all_input_nodes if node not in found]
            found.update(new)
            waiting += new
        return found

    def structure(self) -> list[Any]:
        """All of the graph but the values of its constants, to be compared with another's."""
        parts: list[Any] = [self.x.meta["val"].shape, self.output.name]
        for node in self.nodes:
            parts += (node.name, node.target, node.meta.get("nn_module_stack"))
            call = (*node.args, *node.kwargs.items()) if node.kwargs else node.args
            parts += fx.node.map_arg(call, lambda source: source.name)
        parts += (tensor.shape for _, tensor in self.constants.values())
        return parts


@cache
def parameters_of(target: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of an operation's arguments in its schema, and their default values."""
    schema = getattr(target, "_schema", None)
    arguments = schema.arguments if schema else ()
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return tuple(argument.name for argument in arguments), defaults


def named_arguments(
    node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments for the operation of a node by name, with the defaults filled in."""
    names, defaults = parameters_of(node.target)
    return defaults | dict(zip(names, args, strict=False)) | dict(kwargs)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """A call's own arguments by name, with the defaults filled in."""
    return named_arguments(node, node.args, node.kwargs)


def active_nodes(graph: FlatGraph) -> set[fx.Node]:
    """The nodes whose values depend on the input's, not only on the size of the batch."""
    active = {graph.x}
    for node in graph.nodes:
        results = tree_leaves(node.meta.get("val"))
        if node.op != "call_function" or not any(isinstance(x, Tensor) for x in results):
            continue
        if target_name(node.target) in CREATORS:
            continue
        ignored = shape_arguments(node)
        if any(source in active and source not in ignored for source in node.all_input_nodes):
            active.add(node)
    return active


def shape_arguments(node: fx.Node) -> set[fx.Node]:
    """The arguments of a node that are read for their shapes alone."""
    rule = rule_of(node.target)
    if not isinstance(rule, AffineRule) or not rule.shape_only:
        return set()
    named = arguments_of(node)
    read = {part for key in named if key not in rule.shape_only for part in nodes_in(named[key])}
    return {part for key in rule.shape_only for part in nodes_in(named.get(key))} - read


def nodes_in(item: Any) -> list[fx.Node]:
    """The nodes in an argument, which may be a list."""
    return [part for part in tree_leaves(item) if isinstance(part, fx.Node)]


def _evaluate(expression: Any, symbol: Any, kind: type, batch: int) -> Any:
    return kind(expression.subs(symbol, batch))


class Batch:
    """The symbol for the size of the batch in a graph; known: other symbols that are constants."""

    def __init__(self, x: fx.Node) -> None:
        size = x.meta["val"].shape[0]
        if not isinstance(size, torch.SymInt):
            raise CaptureError(
                "the model fixes the size of its batch: it must accept any number of points in "
                "dimension 0"
            )
        self.symbol = size.node.expr
        self.known: dict[Any, Any] = {}
        self._shapes: Any = WeakIdKeyDictionary()
        self._rows: Any = WeakIdKeyDictionary()

    def set_known(self, symbol: Any, number: Any) -> None:
        """Record the value of another symbol."""
        self.known[symbol] = number
        self._shapes.clear()
        self._rows.clear()

    def number(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        """A symbolic number of the graph, even if it is read from a constant, as by ``item()``."""
        value, source = node.meta["val"], values.get(node.args[0]) if node.args else None  # type: ignore[arg-type]
        if self.unknown(value) and isinstance(source, Tensor) and source.numel() == 1:
            self.set_known(value.node.expr, source.item())
        return self.size(value)

    def count_masked(self, value: Any, indices: Any) -> None:
        """Record how many entries indexing by a constant mask picks, which is a constant too."""
        given = indices if isinstance(indices, list) else []  # for some operations it is a tensor
        masks = [item for item in given if isinstance(item, Tensor) and item.dtype == torch.bool]
        unknown = self.unknown(value) if masks else ()
        if len(masks) == 1 and len(unknown) == 1:
            self.set_known(next(iter(unknown)), int(masks[0].sum()))

    def _expression(self, value: Any) -> Any:
        """The expression of a symbolic number, with the known symbols substituted."""
        return value.node.expr.subs(self.known)

    def unknown(self, value: Any) -> set[Any]:
        """The symbols of a number or of a shape that depend on the data."""
        sizes = list(value.shape) if isinstance(value, Tensor) else [value]
        symbolic = [size for size in sizes if type(size) in SYMBOLIC]
        found = {symbol for size in symbolic for symbol in self._expression(size).free_symbols}
        return found - {self.symbol}

    def equate(self, value: Tensor, same: Tensor) -> None:
        """Record the unknown sizes of a value that has the shape of another with known sizes."""
        for size, known in zip(value.shape, same.shape, strict=True):
            if len(self.unknown(size)) == 1 and self._expression(size).is_Symbol:
                number = self._expression(known) if isinstance(known, torch.SymInt) else known
                self.set_known(self._expression(size), number)

    def size(self, value: Any) -> Any:
        """A number of the graph: itself, or a ``Size`` that depends on the batch."""
        kind = SYMBOLIC.get(type(value))
        if kind is None:
            return value
        expression = self._expression(value)
        if not expression.free_symbols:
            return kind(expression)
        if expression.free_symbols != {self.symbol}:
            raise CaptureError(
                "the shape of an activation depends on the values of the input, as that of "
                "nonzero(x) and x[mask] does: it must be the same for every point"
            )
        each = expression / self.symbol
        if kind is int and each.is_Integer:
            return size_of(int(each))
        return Size(partial(_evaluate, expression, self.symbol, kind))

    def shape(self, value: Tensor) -> list[Any]:
        """The shape of a value; its sizes are numbers, or a ``Size`` each."""
        if value not in self._shapes:
            self._shapes[value] = [self.size(size) for size in value.shape]
        return list(self._shapes[value])

    def shape_at(self, value: Tensor, batch: int) -> list[int]:
        """The shape that a value has for so many points."""
        return [size.at(batch) if isinstance(size, Size) else size for size in self.shape(value)]

    def rows(self, value: Tensor) -> Rows | None:
        """Where a value has the batch; None if it has no batch dimension, or mixes the points."""
        if value not in self._rows:
            symbolic = [(i, n) for i, n in enumerate(value.shape) if type(n) in SYMBOLIC]
            sizes = [(i, self._expression(n)) for i, n in symbolic]
            found = [(i, n / self.symbol) for i, n in sizes if self.symbol in n.free_symbols]
            whole = len(found) == 1 and found[0][1].is_Integer
            self._rows[value] = Rows(found[0][0], int(found[0][1])) if whole else None
        rows: Rows | None = self._rows[value]
        return rows


class ManyPoints(Batch):
    """The batch of a graph whose values are tensors of ``MANY_POINTS`` points."""

    def __init__(self) -> None:
        self.known = {}

    def unknown(self, value: Any) -> set[Any]:
        return set()

    def equate(self, value: Tensor, same: Tensor) -> None:
        pass

    def size(self, value: Any) -> Any:
        each, more = divmod(value, MANY_POINTS) if type(value) is int else (0, 0)
        return size_of(each) if each > 0 and not more else value

    def shape(self, value: Tensor) -> list[Any]:
        return [n if n < MANY_POINTS else size_of(*divmod(n, MANY_POINTS)) for n in value.shape]

    def rows(self, value: Tensor) -> Rows | None:
        found = [
            (i, *divmod(n, MANY_POINTS)) for i, n in enumerate(value.shape) if n >= MANY_POINTS
        ]
        return Rows(*found[0][:2]) if len(found) == 1 and found[0][2] == 0 else None
