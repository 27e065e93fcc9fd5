"""Maxima over groups of units, sorting them, and reductions at constant places, as layers."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, fx

from splinecam.network.capture.reading import graph_builder as building
from splinecam.network.capture.reading.graph_builder import GraphBuilder, NodeCall
from splinecam.network.capture.reading.scalar_functions import operation_of
from splinecam.network.capture.reading.stages import refs
from splinecam.network.nonlinearities import MaxNonlinearity, SortNonlinearity
from splinecam.network.ops.nonlinear import INDICES, MIXES, PRODUCT, UNPOOLED
from splinecam.network.ops.registry import AffineRule, ScatterRule, target_name
from splinecam.network.program import Step
from splinecam.network.values import Operation, Ref, Rows, resolve


def add_maxima(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add the largest unit of every group, which changes where two are equal."""
    ref, values = next(refs((call.args, call.kwargs))), call.node.meta["val"]
    value = values if isinstance(values, Tensor) else values[0]
    rows, result_rows = builder.rows[ref.name], builder.batch.rows(value)
    if result_rows is None:
        return MIXES
    index = _unit_numbers(builder, ref)
    shape = builder.batch.shape_at(value, 2)
    groups = call.rule.members(_with_numbers(builder, call, ref, index), index, shape)
    if isinstance(groups, str):
        return groups
    first, second = result_rows.out(groups).reshape(2, -1, groups.shape[-1])
    units = index.numel() // 2
    if not torch.equal(first, second - units) or bool((first >= units).any()):
        return MIXES
    places = _places_of(call, rows, result_rows)
    fields = {"members": first.contiguous(), "smallest": call.rule.smallest, "places": places}
    _add_groups(builder, call, MaxNonlinearity, result_rows, fields)
    return None


def _add_groups(
    builder: GraphBuilder, call: NodeCall, kind: type, result_rows: Rows, fields: dict[str, Any]
) -> None:
    """Add a layer of groups of units; the values of groups of one unit are passed on."""
    ref, node = next(refs((call.args, call.kwargs))), call.node
    part = None if isinstance(node.meta["val"], Tensor) else 0
    builder.add_results(node)
    if fields["members"].shape[1] > 1:
        operation = operation_of(node.target, call, builder.rows[ref.name], result_rows, part)
        builder.add_layer(kind, node, operation, ref.name, **fields)
        return

    def role(item: Any) -> str:
        return "add" if isinstance(item, Ref) else "plain"

    name, run = next(refs(builder.values[node])).name, cast(Any, node.target)
    roles = tuple(map(role, call.args)), {key: role(item) for key, item in call.kwargs.items()}
    run = run if part is None else partial(_part_of, run, part)
    builder.body.append(Step(name, run, call.args, call.kwargs, (), building.EXACT, roles))


def _places_of(call: NodeCall, rows: Rows, result_rows: Rows) -> Operation | None:
    """For a pool the same pool with indices, which say where its winners are."""
    name = target_name(call.node.target).removeprefix("aten.").removesuffix("_with_indices")
    packet = getattr(torch.ops.aten, f"{name}_with_indices", None)
    if packet is None or not name.startswith("max_pool"):
        return None
    return operation_of(packet.default, call, rows, result_rows, 1)


def add_sort(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add the sorting of groups of units, which changes where two of a group are equal."""
    ref = next(refs((call.args, call.kwargs)))
    index = _unit_numbers(builder, ref)
    groups = call.rule.members(_with_numbers(builder, call, ref, index), index)
    groups = groups.reshape(-1, groups.shape[-1])
    own = groups < index.numel() // 2
    if bool((own.any(1) != own.all(1)).any()):
        return MIXES
    fields = {"members": groups[own[:, 0]]}
    _add_groups(builder, call, SortNonlinearity, builder.rows[ref.name], fields)
    return None


def uses_places(node: fx.Node, needed: set[fx.Node]) -> str | None:
    """The reason against a node whose second result, the places of its values, is used."""
    used = [user for user in node.users if user in needed and user.target is operator.getitem]
    places = [user for user in used if user.args[1] != 0]
    return UNPOOLED if any(map(_unpools, places)) else INDICES if places else None


def _unpools(places: fx.Node) -> bool:
    """Whether indices are given to max_unpool, perhaps in another shape."""
    return any(
        "max_unpool" in target_name(user.target)
        or (not building.is_floating(user.meta.get("val")) and _unpools(user))
        for user in places.users
    )


def _unit_numbers(builder: GraphBuilder, ref: Ref) -> Tensor:
    """A value for two points whose entries are the numbers of the units."""
    border = builder.unit_shape(ref, 2)
    numbers = torch.arange(border.numel(), device=builder.device)
    return builder.rows[ref.name].back(numbers.view(border))


def _with_numbers(builder: GraphBuilder, call: NodeCall, ref: Ref, index: Tensor) -> dict[str, Any]:
    """The arguments of a call on two points, its activation replaced by the numbers of units."""
    found: dict[str, Any] = resolve(call.named, {ref.name: index}, 2, builder.device)
    return found


def _part_of(run: Any, part: int, *args: Any, **kwargs: Any) -> Any:
    return run(*args, **kwargs)[part]


@dataclass(frozen=True)
class _Places:
    """Where each entry of a flattened source goes, and the shapes without the batch."""

    place: Tensor  # (K,) the unit of the result for entry k
    shape: list[int]  # of the result
    taken: list[int]  # of the used part of the source
    included: Tensor  # whether each unit of ``self`` takes part

    @property
    def counts(self) -> Tensor:
        """How many entries of the source each unit of the result is made of."""
        return torch.bincount(self.place, minlength=self.included.numel())


def add_scattered(builder: GraphBuilder, call: NodeCall) -> str | None:
    """Add sums and means as a step, extremes as a layer."""
    named, reduce = call.named, call.named["reduce"]
    if reduce == "prod":
        return PRODUCT
    given = (named["self"], named[call.rule.source], named["index"])
    try:
        data, source, index = (builder.constants.one_row(item) for item in given)
    except building.UnevenRows:
        return MIXES
    values = [data, source]
    moved = [isinstance(i, Ref) and not builder.rows[i.name].plain for i in (*values, index)]
    result_rows = builder.batch.rows(call.node.meta["val"])
    if any(moved) or result_rows is None or not result_rows.plain:
        return MIXES
    places = _find_places(builder, call, index)
    if places is None:
        return MIXES
    if reduce in ("sum", "mean"):
        _add_sums(builder, call.node, values, places, reduce == "mean")
    else:
        _add_extremes(builder, call.node, values, places, reduce == "amin")
    return None


def _find_places(builder: GraphBuilder, call: NodeCall, index: Tensor) -> _Places | None:
    """Where the values of one point go; None if they go to other points."""
    rule: ScatterRule = call.rule
    shape = builder.batch.shape_at(call.node.meta["val"], 1)
    dim = call.named["dim"] % len(shape)
    whole = rule.whole or (index.dim() == len(shape) and isinstance(call.named["index"], Ref))
    if dim == 0 or not whole:
        return None
    numbers = torch.arange(torch.Size(shape).numel(), device=builder.device).view(shape)
    place = numbers.index_select(dim, index) if rule.whole else numbers.gather(dim, index)
    included = torch.ones_like(numbers).flatten()
    if not call.named["include_self"]:
        included[place.flatten()] = 0
    return _Places(place.flatten(), shape[1:], list(place.shape[1:]), included)


def _add_sums(
    builder: GraphBuilder, node: fx.Node, values: list[Any], places: _Places, mean: bool
) -> None:
    divisor = places.counts + places.included if mean else torch.ones_like(places.included)
    constants = (places.place, places.included.double(), divisor.double())
    shapes = (places.shape, places.taken)
    builder.add_results(node)
    builder.add_step(node.name, _summed, (*values, shapes, *constants), plain=4, rule=AffineRule())


def _summed(
    data: Tensor, source: Tensor, shapes: Any, place: Tensor, included: Tensor, divisor: Tensor
) -> Tensor:
    """The sums of the values at each place, divided."""
    data, source = _rows(data, source, *shapes)
    total = (data * included).index_add(1, place, source)
    return (total / divisor).view(-1, *shapes[0])


def _rows(data: Tensor, source: Tensor, shape: list[int], taken: list[int]) -> tuple[Tensor, ...]:
    """What is scattered into and the part that is scattered, one row for each point."""
    batch = max(data.shape[0], source.shape[0])
    for dim, size in enumerate(taken):
        source = source.narrow(dim + 1, 0, size)
    wide = data.expand(batch, *shape), source.expand(batch, *taken)
    return wide[0].reshape(batch, -1), wide[1].reshape(batch, -1)


def _add_extremes(
    builder: GraphBuilder, node: fx.Node, values: list[Any], places: _Places, smallest: bool
) -> None:
    """Add the largest, or the smallest, of the values at each place."""
    data, included = values[0], places.included
    if isinstance(data, Tensor):  # an infinite start never wins where there is anything else
        worst = torch.inf if smallest else -torch.inf
        idle = (data == worst).flatten() & (places.counts > 0)
        included = torch.where(idle, 0, included)
        values = [torch.where(idle.view(data.shape), 0.0, data), values[1]]
    members = _members(places.place, included)
    joined, example = f"{node.name}.joined", node.meta["val"]
    units = included.numel() + places.place.numel()
    builder.add_value(joined, node, example.new_empty(example.shape[0], units))
    ref = builder.add_step(joined, _joined, (*values, places.shape, places.taken), plain=2)
    builder.add_results(node)
    constants = (members, places.shape, smallest)
    if members.shape[1] == 1:
        builder.add_step(node.name, extreme, (ref, *constants), plain=3)
        return
    operation = Operation(extreme, (Operation.VARIABLE, *constants), {})
    builder.add_layer(MaxNonlinearity, node, operation, joined, members=members, smallest=smallest)


def _joined(data: Tensor, source: Tensor, shape: list[int], taken: list[int]) -> Tensor:
    return torch.cat(_rows(data, source, shape, taken), 1)


def extreme(z: Tensor, members: Tensor, shape: list[int], smallest: bool) -> Tensor:
    """The smallest or the largest unit of each group of units (G, R), in a shape."""
    group = z[:, members]
    return (group.amin(2) if smallest else group.amax(2)).view(-1, *shape)


def _members(place: Tensor, included: Tensor) -> Tensor:
    """The units of each place, (G, R); a place with fewer than R names its first once more."""
    own = included.nonzero()[:, 0]
    unit = torch.cat([own, included.numel() + torch.arange(place.numel(), device=place.device)])
    group = torch.cat([own, place])
    order = group.argsort(stable=True)
    unit, group = unit[order], group[order]
    count = torch.bincount(group, minlength=included.numel())
    start = count.cumsum(0) - count
    column = torch.arange(unit.numel(), device=unit.device) - start[group]
    members = unit[start][:, None].repeat(1, int(count.max()))
    members[group, column] = unit
    return members
