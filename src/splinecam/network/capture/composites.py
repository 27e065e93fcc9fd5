"""Operations that are written out as others: their calls are put in the graph in their place."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx

__all__ = ["Emitter"]


class Emitter:
    """Adds calls to a graph in front of a node that they stand for."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node
        self.nodes: list[fx.Node] = []  # those that were added, in order

    def __call__(self, target: Any, *args: Any) -> fx.Node:
        """The result of one more call."""
        with self.node.graph.inserting_before(self.node):
            new = self.node.graph.call_function(target, args)
        kept = ("nn_module_stack", "stack_trace")
        new.meta = {key: self.node.meta[key] for key in kept if key in self.node.meta}
        # What this call is written for may itself have been written for another.
        new.meta["written_for"] = self.node.meta.get("written_for", self.node)
        new.meta["val"] = target(*fx.node.map_arg(args, _example))
        self.nodes.append(new)
        return new

    def item(self, values: fx.Node, i: int) -> fx.Node:
        """One of the results of a call that has several."""
        return self(operator.getitem, values, i)

    def shape(self, value: fx.Node) -> list[Any]:
        """The shape of a value; a size that depends on the batch is no ``int``."""
        return list(value.meta["val"].shape)


def _example(node: fx.Node) -> Any:
    return node.meta["val"]
