"""Shapes that depend on the size of the batch, as ``torch.export`` writes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.errors import CaptureError
from splinecam.program import Rows, Size

__all__ = ["Batch"]


def _evaluate(expression: Any, symbol: Any, batch: int) -> int:
    return int(expression.subs(symbol, batch))


class Batch:
    """The symbol that stands for the size of the batch in the shapes of a graph."""

    def __init__(self, x: fx.Node) -> None:
        size = x.meta["val"].shape[0]
        if not isinstance(size, torch.SymInt):
            raise CaptureError("the model fixes the size of its batch")
        self.symbol = size.node.expr

    def size(self, value: Any) -> int | Size:
        """A whole number of the graph, as a number or as a function of the batch."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return int(value)
        expression = value.node.expr
        if not expression.free_symbols:
            return int(expression)
        if expression.free_symbols != {self.symbol}:
            raise CaptureError("the shape of an activation depends on the values of the input")
        each = expression / self.symbol
        if each.is_Integer:
            return Size(int(each).__mul__)
        return Size(partial(_evaluate, expression, self.symbol))

    def shape(self, value: Tensor) -> list[int | Size]:
        """The shape of a value in a graph."""
        return [self.size(size) for size in value.shape]

    def shape_at(self, value: Tensor, batch: int) -> list[int]:
        """The shape that a value has for so many points."""
        return [size.at(batch) if isinstance(size, Size) else size for size in self.shape(value)]

    def rows(self, value: Tensor) -> Rows | None:
        """Where a value keeps the batch; None if it has lost it or mixed its points."""
        found = [
            (dim, size.node.expr / self.symbol)
            for dim, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt) and self.symbol in size.node.expr.free_symbols
        ]
        if len(found) != 1 or not found[0][1].is_Integer:
            return None
        return Rows(found[0][0], int(found[0][1]))
