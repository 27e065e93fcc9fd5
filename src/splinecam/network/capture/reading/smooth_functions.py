"""Smooth functions of one variable as layers."""

from __future__ import annotations

from torch import Tensor, fx

from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.capture.reading.stages import refs
from splinecam.network.curves import Curve
from splinecam.network.nonlinearities import Operation
from splinecam.network.ops.rejected import MIXES
from splinecam.network.smooth_scalar import SmoothScalar, apply_curve
from splinecam.network.values import Ref

__all__ = ["add_curve", "add_smooth"]


def add_smooth(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add an operation that is a smooth function of one variable, or say why it cannot be added."""
    active = [name for name, item in call.named.items() if builder.is_active(item)]
    if len(active) > 1 or not isinstance(call.named[active[0]], Ref):
        return f"its {active[-1]} depends on the input"
    curve = call.rule.curve(call.named)
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
    builder.add_layer(
        SmoothScalar,
        node,
        Operation(apply_curve, (Operation.VARIABLE, curve), {}),
        source=variable.name,
        result=next(refs(builder.values[node])).name,
        shape=builder.unit_shape(variable)[1:],
        curve=curve,
    )
    return None
