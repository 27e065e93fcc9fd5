"""Reductions at constant places: ``scatter_reduce`` and ``index_reduce``, as graph networks use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.constants import UnevenRows
from splinecam.network.capture.graph_builder import GraphBuilder
from splinecam.network.nonlinearities import MaxNonlinearity, Operation
from splinecam.network.ops import Affine, Scatter, target_name
from splinecam.network.ops.rejected import MIXES, PRODUCT
from splinecam.network.program import Step
from splinecam.network.values import Ref

__all__ = ["add_scattered"]

_EXACT = Affine(exact=True)


@dataclass(frozen=True)
class _Places:
    """Where values go: entry k of the source, flattened, to unit ``place[k]`` of the result.

    shape: of the result; taken: of the part of the source that is used; both without the batch.
    kept: which units of ``self`` take part, one number for each.
    """

    place: Tensor
    shape: tuple[int, ...]
    taken: tuple[int, ...]
    kept: Tensor

    @property
    def counts(self) -> Tensor:
        """How many values each unit of the result is made of, one at least."""
        return torch.bincount(self.place, minlength=self.kept.numel()) + self.kept


def add_scattered(
    draft: GraphBuilder, node: fx.Node, rule: Scatter, call: dict[str, Any]
) -> str | None:
    """Sums and means become a step, extremes a cut; the answer is a reason against it."""
    reduce = call["reduce"]
    if reduce == "prod":
        return PRODUCT
    data, source = call["self"], call[rule.source]
    try:
        constants = [draft.sized.one_row(item) for item in (data, source, call["index"])]
    except UnevenRows:
        return MIXES
    moved = [isinstance(i, Ref) and not draft.rows[i.name].plain for i in constants]
    result_rows = draft.batch.rows(node.meta["val"])
    if any(moved) or result_rows is None or not result_rows.plain:
        return MIXES
    places = _places(draft, node, rule, call, constants[2])
    if places is None:
        return MIXES
    if reduce in ("sum", "mean"):
        _add_sums(draft, node, constants[:2], places, reduce == "mean")
    else:
        _add_extremes(draft, node, constants[:2], places, reduce == "amin")
    return None


def _places(
    draft: GraphBuilder, node: fx.Node, rule: Scatter, call: dict[str, Any], index: Tensor
) -> _Places | None:
    """Where the values of one point go; None if they go to other points."""
    shape = draft.batch.shape_at(node.meta["val"], 1)
    dim = call["dim"] % len(shape)
    whole = rule.whole or (index.dim() == len(shape) and isinstance(call["index"], Ref))
    if dim == 0 or not whole:
        return None
    numbers = torch.arange(torch.Size(shape).numel(), device=draft.device).view(shape)
    if rule.whole:
        place = numbers.index_select(dim, index)
    else:
        place = numbers.gather(dim, index)
    kept = torch.ones(numbers.numel(), dtype=torch.int64, device=draft.device)
    if not call["include_self"]:
        kept[place.flatten()] = 0
    return _Places(place.flatten(), tuple(shape[1:]), tuple(place.shape[1:]), kept)


def _add_sums(
    draft: GraphBuilder, node: fx.Node, values: list[Any], places: _Places, mean: bool
) -> None:
    divisor = places.counts if mean else torch.ones_like(places.kept)
    constants = (places.place, places.kept.double(), divisor.double())
    shapes = (list(places.shape), list(places.taken))
    args = (*values, *constants, *shapes)
    roles: tuple[tuple[str, ...], dict[str, str]] = (("add", "add", *["plain"] * 5), {})
    draft.note(node)
    draft.body.append(Step(node.name, _summed, args, {}, (), Affine(), roles))


def _summed(
    data: Tensor,
    source: Tensor,
    place: Tensor,
    kept: Tensor,
    divisor: Tensor,
    shape: list[int],
    taken: list[int],
) -> Tensor:
    """The sums of the values at each place, divided."""
    data, source = _rows(data, source, shape, taken)
    total = (data * kept).index_add(1, place, source)
    return (total / divisor).view(-1, *shape)


def _rows(
    data: Tensor, source: Tensor, shape: list[int], taken: list[int]
) -> tuple[Tensor, Tensor]:
    """What is scattered into and the part that is scattered, one row for each point."""
    batch = max(data.shape[0], source.shape[0])
    for dim, size in enumerate(taken):
        source = source.narrow(dim + 1, 0, size)
    wide = data.expand(batch, *shape), source.expand(batch, *taken)
    return wide[0].reshape(batch, -1), wide[1].reshape(batch, -1)


def _add_extremes(
    draft: GraphBuilder, node: fx.Node, values: list[Any], places: _Places, smallest: bool
) -> None:
    """A cut where the largest, or the smallest, of the values at a place changes."""
    data = values[0]
    worst = torch.inf if smallest else -torch.inf
    kept = places.kept
    if isinstance(data, Tensor):  # an infinite start never wins where there is anything else
        idle = (data == worst).flatten()
        touched = torch.bincount(places.place, minlength=kept.numel()) > 0
        kept = torch.where(idle & touched, 0, kept)
        values = [torch.where((idle & touched).view(data.shape), 0.0, data), values[1]]
    members = _members(places.place, kept)
    joined, example = f"{node.name}.joined", node.meta["val"]
    units = places.kept.numel() + places.place.numel()
    draft.add_value(joined, node, example.new_empty(example.shape[0], units))
    args = (*values, list(places.shape), list(places.taken))
    roles: tuple[tuple[str, ...], dict[str, str]] = (("add", "add", "plain", "plain"), {})
    draft.body.append(Step(joined, _joined, args, {}, (), _EXACT, roles))
    draft.note(node)
    if members.shape[1] == 1:
        picked = (Ref(joined), members, list(places.shape), smallest)
        roles = (("add", "plain", "plain", "plain"), {})
        draft.body.append(Step(node.name, _extreme, picked, {}, (), _EXACT, roles))
        return
    constants = (Operation.VARIABLE, members, list(places.shape), smallest)
    draft.body.append(
        MaxNonlinearity(
            name=draft.cut_name(node),
            target=target_name(node.target),
            source=joined,
            argument=joined,
            result=node.name,
            shape=(units,),
            operation=Operation(_extreme, constants, {}),
            members=members,
            smallest=smallest,
        )
    )


def _joined(data: Tensor, source: Tensor, shape: list[int], taken: list[int]) -> Tensor:
    return torch.cat(_rows(data, source, shape, taken), 1)


def _extreme(z: Tensor, members: Tensor, shape: list[int], smallest: bool) -> Tensor:
    group = z[:, members]
    return (group.amin(2) if smallest else group.amax(2)).view(-1, *shape)


def _members(place: Tensor, kept: Tensor) -> Tensor:
    """The units that each place is made of, (G, R): its own and then those that come to it.

    A place with fewer than R names its first once more.
    """
    own = kept.nonzero()[:, 0]
    unit = torch.cat([own, kept.numel() + torch.arange(place.numel(), device=place.device)])
    group = torch.cat([own, place])
    order = group.argsort(stable=True)
    unit, group = unit[order], group[order]
    count = torch.bincount(group, minlength=kept.numel())
    start = count.cumsum(0) - count
    column = torch.arange(unit.numel(), device=unit.device) - start[group]
    members = unit[start][:, None].repeat(1, int(count.max()))
    members[group, column] = unit
    return members
