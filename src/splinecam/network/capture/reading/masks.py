"""Masks: a choice between two values is piecewise linear where they agree on the mask's border.

``where(a > b, u, v)`` with ``u - v = slope * (a - b)`` is ``v + slope * relu(a - b)``. Otherwise,
where u and v agree on the border for another reason, it is a layer of its own. ``continuity`` tells
whether they agree.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.reading.continuity import Choice, slope_of, steepness_of
from splinecam.network.capture.reading.graph_builder import GraphBuilder, Mask, NodeCall
from splinecam.network.capture.reading.scalar_functions import spread_knots
from splinecam.network.capture.reading.stages import refs
from splinecam.network.nonlinearities import ChoiceNonlinearity, Operation, PiecewiseScalar, choose
from splinecam.network.ops import Affine, Knots, target_name
from splinecam.network.ops.rejected import CHOICE, MASK, MIXES
from splinecam.network.values import Ref, Rows

__all__ = ["add_comparison", "add_masked"]

# Every function that adds something gives the reason why it cannot be added, or None.


def add_comparison(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add a mask, which is remembered until it is used."""
    rule, named = call.rule, call.named
    if rule.signed:
        above: Mask | None = Mask(named["self"], 0.0, signed=True)
    elif rule.above is None:
        mask = builder.mask_of(named["self"])
        above = None if mask is None or mask.signed else Mask(mask.second, mask.first)
    else:
        above = Mask(named[rule.above[0]], named[rule.above[1]])
    if above is None or any(builder.mask_of(ref) for ref in refs([above.first, above.second])):
        return MASK
    builder.add_mask(call.node, above)
    return None


def add_masked(builder: GraphBuilder, call: NodeCall, used: list[str]) -> str | None:
    """Add a node that uses masks: it must be a choice."""
    node, rule = call.node, call.rule
    if isinstance(rule, Affine) and rule.identity and builder.mask_of(call.named.get("self")):
        builder.values[node] = call.named["self"]  # as numbers, a mask is still one
        return None
    choice = _choice(builder, call)
    if choice is not None:
        return _add_choice(builder, node, choice)
    for name in used:
        builder.reject_mask(name)
    builder.add_results(node)
    builder.invalid |= {ref.name for ref in refs(builder.values[node])}
    return None


def _choice(builder: GraphBuilder, call: NodeCall) -> Choice | None:
    """The node as a choice between two values, if that is what it is."""
    given, true, false = _parts(builder, call)
    mask = builder.mask_of(given)
    if mask is None or any(builder.mask_of(ref) for ref in refs([true, false])):
        return None
    # The constant side comes out exactly if nothing has to be added to the other.
    if builder.is_active(false) and not builder.is_active(true):
        return Choice(false, true, mask.second, mask.first)
    return Choice(true, false, mask.first, mask.second)


def _parts(builder: GraphBuilder, call: NodeCall) -> tuple[Any, Any, Any]:
    """The mask of a node, and its result where the mask is true and where it is false."""
    name, named = target_name(call.node.target), call.named
    if name == "aten.where":
        return named["condition"], named["self"], named["other"]
    if name == "aten.masked_fill":
        return named["mask"], named["value"], named["self"]
    if name in ("aten.mul", "aten.multiply"):
        mask, other = named["self"], named["other"]
        if builder.mask_of(mask) is None:
            mask, other = other, mask
        known = builder.mask_of(mask)
        if known is None or not known.signed:
            return mask, other, 0.0
        if not isinstance(other, Ref):
            return mask, other, -other
        if builder.is_active(other):
            return mask, other, builder.add_negated(f"{call.node.name}.opposite", call.node, other)
    if name == "aten.index_put" and len(named["indices"]) == 1 and not named["accumulate"]:
        (given,), value, data = named["indices"], named["values"], named["self"]
        refs_only = isinstance(given, Ref) and isinstance(data, Ref)
        single = isinstance(value, Tensor) and value.numel() == 1
        if single and refs_only and builder.shape_of(given, 2) == builder.shape_of(data, 2):
            return given, value.reshape(()), data
    return None, None, None


def _add_choice(builder: GraphBuilder, node: fx.Node, choice: Choice) -> str | None:
    """Add the false side, and a change of slope on the true side of the border."""
    rows = builder.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    slope = slope_of(builder, node, choice, rows)
    if slope is None:
        return _add_nested(builder, node, choice, rows)
    shape = builder.batch.shape_at(node.meta["val"], 1)
    slope = slope.view(rows.out(torch.empty(shape, device="meta")).shape)
    source = _difference(builder, node, choice)
    alone = not isinstance(choice.false, (Ref, Tensor)) and choice.false == 0
    result = node.name if alone else f"{node.name}.slope_change"
    builder.add_value(result, node, node.meta["val"])
    knots = Knots((0.0,), (0.0, rows.back(slope)))
    levels, slopes = spread_knots(knots, shape, rows, builder.device)
    builder.add_layer(
        PiecewiseScalar,
        node,
        Operation(_scaled_relu, (Operation.VARIABLE, slope), {}),
        source=source.name,
        result=result,
        shape=slope.shape[1:],
        levels=levels,
        slopes=slopes,
        exact=bool((slope.abs() == 1).all()),
    )
    builder.add_results(node)
    if not alone:
        builder.add_step(node.name, operator.add, (choice.false, Ref(result)), rule=Affine())
    return None


def _add_nested(builder: GraphBuilder, node: fx.Node, choice: Choice, rows: Rows) -> str | None:
    """Add a choice between two values that have non-linearities of their own."""
    steepness = steepness_of(builder, node, choice, rows)
    if steepness is None:
        return CHOICE
    source = _difference(builder, node, choice)
    example, shape = node.meta["val"], builder.batch.shape(node.meta["val"])
    units = rows.out(torch.empty(builder.batch.shape_at(example, 1), device="meta")).shape[1:]
    sides = f"{node.name}.sides"
    points = example.shape[rows.dim] // rows.each
    builder.add_value(sides, node, example.new_empty(points, 3, *units))
    args = (source, choice.true, choice.false, shape, rows)
    builder.add_step(sides, _sides, args, plain=2)
    builder.add_layer(
        ChoiceNonlinearity,
        node,
        Operation(choose, (Operation.VARIABLE,), {}),
        source=source.name,
        argument=sides,
        result=node.name,
        shape=units,
        steepness=steepness,
    )
    builder.choices[node.name] = (choice.true, choice.false)
    builder.add_results(node)
    return None


def _sides(by: Any, true: Any, false: Any, shape: list[int], rows: Rows) -> Tensor:
    """The difference that decides and both values, (B, 3, ...)."""
    parts = (torch.as_tensor(x, dtype=by.dtype, device=by.device) for x in (by, true, false))
    return torch.stack([rows.out(x.expand(shape)) for x in parts], 1)


def _scaled_relu(z: Tensor, slope: Tensor) -> Tensor:
    return slope * torch.relu(z)


def _difference(builder: GraphBuilder, node: fx.Node, choice: Choice) -> Ref:
    """A value that is positive where the mask is true, in the shape of the result."""
    first, second = choice.first, choice.second
    if isinstance(first, Ref) and not isinstance(second, (Ref, Tensor)) and second == 0:
        return builder.expand(node, first)
    name = f"{node.name}.difference"
    builder.add_value(name, node, node.meta["val"])
    args = (first, second, builder.batch.shape(node.meta["val"]))
    return builder.add_step(name, _subtract, args, plain=1, rule=Affine(absolute=_add))


def _subtract(first: Any, second: Any, shape: list[int]) -> Tensor:
    difference: Tensor = first - second
    return difference.expand(shape)


def _add(first: Any, second: Any, shape: list[int]) -> Tensor:
    total: Tensor = first + second
    return total.expand(shape)
