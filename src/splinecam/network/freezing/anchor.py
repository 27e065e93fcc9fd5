"""All values of a graph at one input, in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from splinecam.errors import CaptureError
from splinecam.network.capture.isolation import widened
from splinecam.network.capture.tracing.flat_graph import SYMBOLIC, FlatGraph
from splinecam.network.ops import Affine, rule_of
from splinecam.network.values import Size

__all__ = ["POINTS", "Anchor"]

POINTS = 2  # a batch of one may be taken for something else, as in squeeze()


class Anchor:
    """The values of a graph for a batch of ``POINTS`` points that all are the anchor.

    values: node -> its value.
    """

    def __init__(self, graph: FlatGraph, at: Tensor) -> None:
        self.graph = graph
        self.device = at.device
        self.values: dict[fx.Node, Any] = {graph.x: at[None].expand(POINTS, *at.shape).double()}
        for node, (_, value) in graph.constants.items():
            self.values[node] = widened(value) if isinstance(value, Tensor) else value
        needed = graph.needed()
        with torch.no_grad():
            for node in graph.nodes:
                if node.op == "call_function" and node in needed:
                    self.values[node] = self._computed(node)

    def row(self, node: fx.Node) -> Tensor | None:
        """The value of one point, without its batch; None if the value mixes the points."""
        rows = self.graph.batch.rows(node.meta["val"])
        return None if rows is None else rows.out(self.values[node])[0]

    def _computed(self, node: fx.Node) -> Any:
        value: Any = node.meta.get("val")
        if type(value) in SYMBOLIC:
            self._learn(node, value)
            return self.number(value)
        args = [self._argument(item) for item in node.args]
        kwargs = {key: self._argument(item) for key, item in node.kwargs.items()}
        target, rule = node.target, rule_of(node.target)
        if isinstance(rule, Affine) and rule.reshapes:  # a view may not fit what lies elsewhere
            return args[0].reshape(self.graph.batch.shape_at(value, POINTS))
        assert callable(target)
        return _in_float64(target(*args, **kwargs))

    def _learn(self, node: fx.Node, value: Any) -> None:
        """Record a number that depends on constants, as that of ``weight.max().item()``."""
        batch, source = self.graph.batch, node.args[0] if node.args else None
        tensor = self.values.get(source)  # type: ignore[arg-type]
        if batch.unknown(value) and isinstance(tensor, Tensor) and tensor.numel() == 1:
            batch.set_known(value.node.expr, tensor.item())

    def number(self, value: Any) -> Any:
        """A number of the graph for the batch of the anchor."""
        size = self.graph.batch.size(value)
        return size.at(POINTS) if isinstance(size, Size) else size

    def _argument(self, item: Any) -> Any:
        if isinstance(item, fx.Node):
            if item not in self.values:
                raise CaptureError(
                    f"the graph holds a value that cannot be read: {item.name}. Please report this"
                )
            return self.values[item]
        if type(item) in SYMBOLIC:
            return self.number(item)
        if isinstance(item, torch.device):
            return self.device
        if isinstance(item, torch.dtype):
            return torch.float64 if item.is_floating_point else item
        if isinstance(item, (list, tuple)):
            return [self._argument(part) for part in item]
        return item


def _in_float64(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return tuple(_in_float64(item) for item in value)
    return value
