"""Models that read the size of their batch as a plain number, as in ``view(len(x), -1)``.

Python's ``len`` and ``int`` give plain numbers, of which ``torch.export`` can no longer say that
they depend on the batch. Such a model is exported for two sizes of the batch. The two graphs must
be the same call by call, except for whole numbers that are in proportion to the size of the batch.
These numbers, and the shapes of all values, are then written with the symbol of a batch of any
size. What the numbers are used for is checked later, as for any other graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from splinecam.errors import CaptureError

__all__ = ["export_any_batch", "fixes_batch"]

_SIZES = (3, 5)

Export = Callable[[nn.Module, Tensor], Any]


class Differs(Exception):
    """The graphs for two sizes of the batch differ in more than these sizes."""


class _Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def fixes_batch(error: Exception) -> bool:
    """Whether a model could not be exported because it takes the batch for a plain number."""
    text = str(error)
    return "batch" in text and ("specialize" in text or "Constraints violated" in text)


def export_any_batch(
    model: nn.Module, x: Tensor, export: Export, functional: Callable[[Any], Any]
) -> Any:
    """The exported program for a batch of any size, made from those for two sizes, or None.

    x: two points. ``export`` exports a module for a batch of any size, and ``functional`` brings
    an exported program into the form in which it is read. The result is None if the two graphs
    differ in more than the size of the batch.
    """
    try:
        (example,) = (
            node.meta["val"]
            for node in export(_Identity(), x).graph.nodes
            if node.op == "placeholder"
        )
        first, second = (
            functional(torch.export.export(model, (x[torch.arange(size) % 2],), strict=False))
            for size in _SIZES
        )
        _compare(_AnyBatch(example), first, second)
    except CaptureError:
        raise
    except Exception:  # the first attempt to export the model has the better reason
        return None
    return first


def _compare(batch: _AnyBatch, first: Any, second: Any) -> None:
    """Write the first of two programs for a batch of any size; raise Differs if it cannot be."""
    _same_constants(first, second)
    nodes = list(first.graph.nodes), list(second.graph.nodes)
    if len(nodes[0]) != len(nodes[1]):
        raise Differs
    for pair in zip(*nodes, strict=True):
        batch.write(*pair)


def _same_constants(first: Any, second: Any) -> None:
    """Raise Differs if a constant that forward makes depends on the batch."""
    if first.constants.keys() != second.constants.keys():
        raise Differs
    for key, value in first.constants.items():
        other = second.constants[key]
        if isinstance(value, Tensor) and not torch.equal(value, other):
            raise Differs


class _AnyBatch:
    """Writes the nodes of one graph for a batch of any size, by comparing them with another's."""

    def __init__(self, example: Tensor) -> None:
        self.example = example
        self.symbol = example.shape[0]
        self.twins: dict[fx.Node, fx.Node] = {}

    def write(self, node: fx.Node, twin: fx.Node) -> None:
        """Put the symbol in a node that has come out like its twin, but for the batch."""
        if node.op != twin.op or node.op == "get_attr":
            raise Differs
        if node.op == "call_function" and node.target is not twin.target:
            raise Differs
        self.twins[node] = twin
        args, kwargs = self._merged(node.args, twin.args), self._merged(node.kwargs, twin.kwargs)
        if node.op != "output":  # its results are nodes
            node.args, node.kwargs = args, kwargs
            value = node.meta.get("val")
            node.meta["val"] = self._value(value, twin.meta.get("val"))

    def _merged(self, item: Any, other: Any) -> Any:
        """One argument for a batch of any size, from those for two sizes."""
        if isinstance(item, (list, tuple)):
            if not isinstance(other, (list, tuple)) or len(item) != len(other):
                raise Differs
            parts = [self._merged(*pair) for pair in zip(item, other, strict=True)]
            return parts if isinstance(item, list) else tuple(parts)
        if isinstance(item, dict):
            if item.keys() != other.keys():
                raise Differs
            return {key: self._merged(value, other[key]) for key, value in item.items()}
        if isinstance(item, fx.Node):
            if self.twins.get(item) is not other:
                raise Differs
            return item
        if type(item) is int and type(other) is int:
            return self._number(item, other)
        if type(item) is not type(other) or not (item == other or item is other):
            raise Differs
        return item

    def _number(self, one: int, other: int) -> Any:
        """A number that is the same for both sizes, or in proportion to them."""
        if one == other:
            return one
        each, rest = divmod(one, _SIZES[0])
        if rest or each * _SIZES[1] != other:
            raise Differs
        return each * self.symbol

    def _value(self, value: Any, other: Any) -> Any:
        """A value without data, in the shape that it has for a batch of any size."""
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(*pair) for pair in zip(value, other, strict=True))
        if not isinstance(value, Tensor):
            return self._merged(value, other)
        shape = [self._merged(*pair) for pair in zip(value.shape, other.shape, strict=True)]
        return self.example.new_empty(shape, dtype=value.dtype, device=value.device)
