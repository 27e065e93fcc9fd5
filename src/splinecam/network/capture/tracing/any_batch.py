"""Models that read the size of their batch as a plain number, as in ``view(len(x), -1)``.

Python's ``len`` and ``int`` give plain numbers, of which ``torch.export`` can no longer say that
they depend on the batch. Such a model is exported for two sizes of the batch. The two graphs must
be the same call by call, except for whole numbers that are in proportion to the size of the batch.
These numbers, and the shapes of all values, are then written with the symbol of a batch of any
size. What the numbers are used for is checked later, as for any other graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["SIZES", "Differs", "fixes_batch", "generalise"]

SIZES = (3, 5)


class Differs(Exception):
    """The graphs for two sizes of the batch differ in more than these sizes."""


def fixes_batch(error: Exception) -> bool:
    """Whether a model could not be exported because it takes the batch for a plain number."""
    text = str(error)
    return "batch" in text and ("specialize" in text or "Constraints violated" in text)


def generalise(first: Any, second: Any, example: Tensor) -> None:
    """Rewrite the first of two exported programs for a batch of any size, or raise ``Differs``.

    The programs are for batches of ``SIZES``; the first size of ``example`` is the symbol of a
    batch of any size.
    """
    if first.constants.keys() != second.constants.keys():
        raise Differs
    for key, value in first.constants.items():
        if isinstance(value, Tensor) and not torch.equal(value, second.constants[key]):
            raise Differs  # a constant that forward makes depends on the batch
    nodes = list(first.graph.nodes), list(second.graph.nodes)
    if len(nodes[0]) != len(nodes[1]):
        raise Differs
    merge = _Merge(example)
    for pair in zip(*nodes, strict=True):
        merge.rewrite(*pair)


class _Merge:
    """Rewrites the nodes of one graph for a batch of any size by comparing them with another's."""

    def __init__(self, example: Tensor) -> None:
        self.example = example
        self.twins: dict[fx.Node, fx.Node] = {}

    def rewrite(self, node: fx.Node, twin: fx.Node) -> None:
        """Put the symbol in a node that equals its twin, but for the batch."""
        if node.op != twin.op or node.op == "get_attr":
            raise Differs
        if node.op == "call_function" and node.target is not twin.target:
            raise Differs
        self.twins[node] = twin
        args, kwargs = self._merged(node.args, twin.args), self._merged(node.kwargs, twin.kwargs)
        if node.op != "output":  # its results are nodes
            node.args, node.kwargs = args, kwargs
            node.meta["val"] = self._value(node.meta.get("val"), twin.meta.get("val"))

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
        if type(item) is int and type(other) is int and item != other:
            each, rest = divmod(item, SIZES[0])
            if rest or each * SIZES[1] != other:
                raise Differs
            return each * self.example.shape[0]
        if type(item) is not type(other) or not (item == other or item is other):
            raise Differs
        return item

    def _value(self, value: Any, other: Any) -> Any:
        """A value without data, in the shape that it has for a batch of any size."""
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(*pair) for pair in zip(value, other, strict=True))
        if not isinstance(value, Tensor):
            return self._merged(value, other)
        shape = [self._merged(*pair) for pair in zip(value.shape, other.shape, strict=True)]
        return self.example.new_empty(shape, dtype=value.dtype, device=value.device)
