"""Shapes that depend on the size of the batch, as ``torch.export`` writes them."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils.weak import WeakIdKeyDictionary

from splinecam.errors import CaptureError
from splinecam.network.values import Rows, Size

__all__ = ["Batch", "FirstDimension", "dynamic_shapes"]

_PLAIN = Rows()
_ROWS = Size((1).__mul__)
_KINDS: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def dynamic_shapes(model: nn.Module, most: int) -> Any:
    """What ``torch.export`` has to know: one input, whose first dimension is at most so large.

    A forward that begins with ``*args``, like that of ``AveragedModel``, has it in a tuple.
    """
    shapes = ({0: torch.export.Dim("batch", max=most)},)
    first = next(iter(inspect.signature(model.forward).parameters.values()), None)
    several = first is not None and first.kind is first.VAR_POSITIONAL
    return (shapes,) if several else shapes


def _evaluate(expression: Any, symbol: Any, kind: type, batch: int) -> Any:
    return kind(expression.subs(symbol, batch))


class Batch:
    """The symbol that stands for the size of the batch in the shapes of a graph."""

    def __init__(self, x: fx.Node) -> None:
        size = x.meta["val"].shape[0]
        if not isinstance(size, torch.SymInt):
            raise CaptureError(
                "the model fixes the size of its batch: it must accept any number of points in "
                "dimension 0"
            )
        self.symbol = size.node.expr
        self.known: dict[Any, Any] = {}  # other symbols, whose values are constants of the model
        self._shapes: Any = WeakIdKeyDictionary()
        self._rows: Any = WeakIdKeyDictionary()

    def know(self, symbol: Any, number: Any) -> None:
        """Note the value of another symbol."""
        self.known[symbol] = number
        self._shapes.clear()
        self._rows.clear()

    def expression(self, value: Any) -> Any:
        """The expression of a symbolic number, with what is known filled in."""
        return value.node.expr.subs(self.known)

    def unknown(self, value: Any) -> set[Any]:
        """The symbols of a number or of a shape that depend on the data."""
        sizes = list(value.shape) if isinstance(value, Tensor) else [value]
        symbolic = [size for size in sizes if isinstance(size, tuple(_KINDS))]
        found = {symbol for size in symbolic for symbol in self.expression(size).free_symbols}
        return found - {self.symbol}

    def learn(self, value: Tensor, same: Tensor) -> None:
        """Note the unknown sizes of a value that has the shape of another with known sizes."""
        for size, known in zip(value.shape, same.shape, strict=True):
            if len(self.unknown(size)) == 1 and self.expression(size).is_Symbol:
                number = self.expression(known) if isinstance(known, torch.SymInt) else known
                self.know(self.expression(size), number)

    def size(self, value: Any) -> Any:
        """A number of the graph, as it is or as a function of the batch."""
        kind = _KINDS.get(type(value))
        if kind is None:
            return value
        expression = self.expression(value)
        if not expression.free_symbols:
            return kind(expression)
        if expression.free_symbols != {self.symbol}:
            raise CaptureError(
                "the shape of an activation depends on the values of the input, as that of "
                "nonzero(x) and x[mask] does: it must be the same for every point"
            )
        each = expression / self.symbol
        if kind is int and each.is_Integer:
            return Size(int(each).__mul__)
        return Size(partial(_evaluate, expression, self.symbol, kind))

    def shape(self, value: Tensor) -> list[Any]:
        """The shape of a value in a graph."""
        if value not in self._shapes:
            self._shapes[value] = [self.size(size) for size in value.shape]
        return list(self._shapes[value])

    def shape_at(self, value: Tensor, batch: int) -> list[int]:
        """The shape that a value has for so many points."""
        return [size.at(batch) if isinstance(size, Size) else size for size in self.shape(value)]

    def rows(self, value: Tensor) -> Rows | None:
        """Where a value keeps the batch; None if it has lost it or mixed its points."""
        if value not in self._rows:
            self._rows[value] = self._find_rows(value)
        found: Rows | None = self._rows[value]
        return found

    def _find_rows(self, value: Tensor) -> Rows | None:
        sizes: list[Any] = list(value.shape)
        found = [
            (dim, self.expression(size) / self.symbol)
            for dim, size in enumerate(sizes)
            if isinstance(size, torch.SymInt) and self.symbol in self.expression(size).free_symbols
        ]
        if len(found) != 1 or not found[0][1].is_Integer:
            return None
        return Rows(found[0][0], int(found[0][1]))


class FirstDimension(Batch):
    """The batch where it is the first dimension of every value, and of no other size."""

    def __init__(self) -> None:
        self.known = {}

    def unknown(self, value: Any) -> set[Any]:
        return set()

    def learn(self, value: Tensor, same: Tensor) -> None:
        pass

    def size(self, value: Any) -> Any:
        return value

    def shape(self, value: Tensor) -> list[Any]:
        return [_ROWS, *value.shape[1:]]

    def shape_at(self, value: Tensor, batch: int) -> list[int]:
        return [batch, *value.shape[1:]]

    def rows(self, value: Tensor) -> Rows | None:
        return _PLAIN
