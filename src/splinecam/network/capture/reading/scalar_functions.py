"""Functions of one variable as layers, and the larger of two values."""

from __future__ import annotations

from itertools import pairwise
from math import inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from splinecam.network.capture.reading.constants import UnevenRows
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.nonlinearities import MaxNonlinearity, Operation, PiecewiseScalar
from splinecam.network.ops import Knots
from splinecam.network.ops.rejected import MIXES
from splinecam.network.values import Ref, Rows

__all__ = ["add_function", "add_pairs", "operation_of", "spread_knots"]


def add_function(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add a function of one variable, with breakpoints at its knots.

    The result is the reason why it cannot be added, or None.
    """
    node, rule, constants = call.node, call.rule, builder.constants
    source = next(name for name in rule.source if builder.is_active(call.named.get(name)))
    try:
        args = tuple(constants.one_row(item) for item in call.args)
        kwargs = {key: constants.one_row(item) for key, item in call.kwargs.items()}
        named = {key: constants.one_row(item) for key, item in call.named.items()}
    except UnevenRows:
        return MIXES
    rows = builder.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    shape = builder.batch.shape_at(node.meta["val"], 1)
    z = torch.zeros(shape, dtype=torch.float64, device=builder.device)
    constant = next((named.get(name) for name in rule.source if name != source), None)
    knots = rule.knots(named | {source: z, "constant": constant})
    if isinstance(knots, str):
        return knots
    ref = builder.expand(node, named[source])
    levels, slopes = spread_knots(knots, shape, rows, builder.device)
    builder.add_results(node)
    builder.add_layer(
        PiecewiseScalar,
        node,
        operation_of(rule.run or node.target, args, kwargs, rows, rows),
        source=ref.name,
        result=node.name,
        shape=rows.out(z).shape[1:],
        levels=levels,
        slopes=slopes,
        exact=rule.exact,
    )
    return None


def operation_of(
    run: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rows: Rows,
    result_rows: Rows,
    part: int | None = None,
) -> Operation:
    """The call of a node whose one activation is its variable."""

    def argument(item: Any) -> Any:
        return Operation.VARIABLE if isinstance(item, Ref) else item

    named = {key: argument(item) for key, item in kwargs.items()}
    return Operation(run, tuple(map(argument, args)), named, rows, result_rows, part)


# -- knots -----------------------------------------------------------------------------------------


def spread_knots(
    knots: Knots, shape: list[int], rows: Rows, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Levels ``(K, n)`` and slopes ``(K + 1, n)`` of every unit; ``shape`` is that of one point.

    A knot is dropped where the slope does not change; where only some units drop it, theirs is
    moved to infinity.
    """
    if _all_equal(knots):
        return _repeated(knots.levels, shape, device), _repeated(knots.slopes, shape, device)

    def spread(value: float | Tensor) -> Tensor:
        wide = torch.as_tensor(value, dtype=torch.float64, device=device).expand(shape)
        return rows.out(wide).reshape(-1)

    levels = [spread(level) for level in knots.levels]
    slopes = [spread(slope) for slope in knots.slopes]
    for k, level in enumerate(levels):
        # Nothing lies below minus infinity, above infinity, or between two equal levels.
        slopes[k] = torch.where(level == -inf, slopes[k + 1], slopes[k])
        if k + 1 < len(levels):
            empty = level == levels[k + 1]
            slopes[k + 1] = torch.where(empty, slopes[k], slopes[k + 1])
    for k in range(len(levels)):
        slopes[k + 1] = torch.where(levels[k] == inf, slopes[k], slopes[k + 1])
    return _without_idle(levels, slopes)


def _all_equal(knots: Knots) -> bool:
    """Whether all units have the same knots, of which none is dropped or moved."""
    if any(isinstance(value, Tensor) for value in (*knots.levels, *knots.slopes)):
        return False
    ascending = all(low < high for low, high in pairwise((-inf, *knots.levels, inf)))
    return ascending and all(before != after for before, after in pairwise(knots.slopes))


def _repeated(numbers: tuple[Any, ...], shape: list[int], device: torch.device) -> Tensor:
    """The same numbers for each unit, (K, n)."""
    column = np.array(numbers, dtype=np.float64).reshape(-1, 1)
    return torch.from_numpy(column.repeat(prod(shape), 1)).to(device)


def _without_idle(levels: list[Tensor], slopes: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The knots at which some unit changes its slope, stacked."""
    if not levels:
        return slopes[0].new_empty(0, slopes[0].numel()), torch.stack(slopes)
    level, slope = torch.stack(levels), torch.stack(slopes)
    idle = slope[1:] == slope[:-1]
    order = idle.to(torch.int8).argsort(dim=0, stable=True)
    level = torch.where(idle, inf, level).gather(0, order)
    # The slope after each remaining knot follows it; the idle ones repeat the last slope.
    slope = torch.cat([slope[:1], slope[1:].gather(0, order)])
    for k in range(len(levels)):
        slope[k + 1] = torch.where(level[k] == inf, slope[k], slope[k + 1])
    used = (level != inf).any(1)
    return level[used], torch.cat([slope[:1], slope[1:][used]])


# -- the larger of two -----------------------------------------------------------------------------


def add_pairs(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add the larger or the smaller of two activations, which changes where they are equal."""
    node = call.node
    if builder.batch.rows(node.meta["val"]) is None:
        return MIXES
    pairs = [pair for pair in call.rule.pairs if call.named.get(pair[0]) is not None]
    value = call.named["self"]
    for name, smallest in pairs:
        result = node.name if name == pairs[-1][0] else f"{node.name}.{name}"
        _add_pair(builder, node, (value, call.named[name]), smallest, result)
        value = Ref(result)
    builder.add_results(node)
    return None


def _add_pair(
    builder: GraphBuilder, node: fx.Node, pair: tuple[Any, Any], smallest: bool, result: str
) -> None:
    both, example = f"{result}.pair", node.meta["val"]
    builder.add_value(both, node, torch.stack([example, example], -1))
    builder.add_value(result, node, example)
    ref = builder.add_step(both, _stacked, (*pair, builder.batch.shape(example)), plain=1)
    rows = builder.batch.rows(example) or Rows()
    units = rows.out(torch.empty(builder.shape_of(ref, 1), device="meta"))[0]
    builder.add_layer(
        MaxNonlinearity,
        node,
        Operation(torch.amin if smallest else torch.amax, (Operation.VARIABLE, -1), {}),
        source=both,
        result=result,
        shape=units.shape,
        members=torch.arange(units.numel(), device=builder.device).view(-1, 2),
        smallest=smallest,
    )


def _stacked(first: Any, second: Any, shape: list[int]) -> Tensor:
    """Two values, of which one may be a number, side by side in a last dimension."""
    like = first if isinstance(first, Tensor) else second
    wide = [torch.as_tensor(x, dtype=like.dtype, device=like.device) for x in (first, second)]
    return torch.stack([x.expand(shape) for x in wide], -1)
