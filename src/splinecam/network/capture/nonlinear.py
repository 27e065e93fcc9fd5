"""How the piecewise-linear nodes of a graph become cuts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.constants import UnevenRows
from splinecam.network.capture.graph_builder import GraphBuilder, is_floating
from splinecam.network.capture.knots import spread_knots
from splinecam.network.capture.staging import refs
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Operation,
    PiecewiseScalar,
    SortNonlinearity,
)
from splinecam.network.ops import Affine, Maximum, Piecewise, Sort, target_name
from splinecam.network.ops.rejected import INDICES, MIXES, UNPOOLED
from splinecam.network.program import Step
from splinecam.network.values import Ref, Rows, resolve

__all__ = ["EXACT", "add_knots", "add_maxima", "add_pairs", "add_sort", "expanded", "uses_places"]

EXACT = Affine(exact=True)
_ADD: tuple[tuple[str, ...], dict[str, str]] = (("add", "plain"), {})

# --- functions of one variable


def add_knots(
    draft: GraphBuilder,
    node: fx.Node,
    rule: Piecewise,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: dict[str, Any],
) -> str | None:
    """A function of one variable becomes a cut at its knots; the answer is a reason against it."""
    source = next(name for name in rule.source if draft.is_active(call.get(name)))
    try:
        args = tuple(draft.sized.one_row(item) for item in args)
        kwargs = {key: draft.sized.one_row(item) for key, item in kwargs.items()}
        call = {key: draft.sized.one_row(item) for key, item in call.items()}
    except UnevenRows:
        return MIXES
    rows = draft.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    shape = draft.batch.shape_at(node.meta["val"], 1)
    z = torch.zeros(shape, dtype=torch.float64, device=draft.device)
    constant = next((call.get(name) for name in rule.source if name != source), None)
    knots = rule.knots(call | {source: z, "constant": constant})
    if isinstance(knots, str):
        return knots
    ref = expanded(draft, node, call[source])
    levels, slopes = spread_knots(knots, shape, rows, draft.device)
    draft.note(node)
    draft.body.append(
        PiecewiseScalar(
            name=draft.cut_name(node),
            target=target_name(node.target),
            source=ref.name,
            argument=ref.name,
            result=node.name,
            shape=tuple(rows.out(z).shape[1:]),
            operation=_operation(rule.run or node.target, args, kwargs, rows, rows),
            levels=levels,
            slopes=slopes,
            exact=rule.exact,
        )
    )
    return None


def _operation(
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


def expanded(draft: GraphBuilder, node: fx.Node, ref: Ref) -> Ref:
    """The cut's variable in the shape of its result, which a constant may have widened."""
    if draft.shape_of(ref, 3) == draft.batch.shape_at(node.meta["val"], 3):
        return ref
    name = f"{ref.name}.wide.{node.name}"
    shape = draft.batch.shape(node.meta["val"])
    draft.add_value(name, node, node.meta["val"])
    draft.body.append(Step(name, torch.Tensor.expand, (ref, shape), {}, (), EXACT, _ADD))
    return Ref(name)


# --- the larger of two


def add_pairs(
    draft: GraphBuilder, node: fx.Node, rule: Piecewise, call: dict[str, Any]
) -> str | None:
    """The larger or the smaller of two activations: a cut where they are equal."""
    rows = draft.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    pairs = [pair for pair in rule.pairs if call.get(pair[0]) is not None]
    value = call["self"]
    for name, smallest in pairs:
        last = name == pairs[-1][0]
        result = node.name if last else f"{node.name}.{name}"
        _add_pair(draft, node, (value, call[name]), smallest, result)
        value = Ref(result)
    draft.note(node)
    return None


def _add_pair(
    draft: GraphBuilder, node: fx.Node, pair: tuple[Any, Any], smallest: bool, result: str
) -> None:
    both = f"{result}.pair"
    example = node.meta["val"]
    rows, shape = draft.batch.rows(example) or Rows(), draft.batch.shape(example)
    draft.add_value(both, node, torch.stack([example, example], -1))
    draft.add_value(result, node, example)
    roles: tuple[tuple[str, ...], dict[str, str]] = (("add", "add", "plain"), {})
    draft.body.append(Step(both, _stacked, (*pair, shape), {}, (), EXACT, roles))
    units = rows.out(torch.empty(draft.shape_of(Ref(both), 1), device="meta"))[0]
    draft.body.append(
        MaxNonlinearity(
            name=draft.cut_name(node),
            target=target_name(node.target),
            source=both,
            argument=both,
            result=result,
            shape=tuple(units.shape),
            operation=Operation(
                torch.amin if smallest else torch.amax, (Operation.VARIABLE, -1), {}
            ),
            members=torch.arange(units.numel(), device=draft.device).view(-1, 2),
            smallest=smallest,
        )
    )


def _stacked(first: Any, second: Any, shape: list[int]) -> Tensor:
    """Two values, of which one may be a number, side by side in a last dimension."""
    like = first if isinstance(first, Tensor) else second
    wide = [torch.as_tensor(x, dtype=like.dtype, device=like.device) for x in (first, second)]
    return torch.stack([x.expand(shape) for x in wide], -1)


# --- groups of units


def add_maxima(
    draft: GraphBuilder,
    node: fx.Node,
    rule: Maximum,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: dict[str, Any],
) -> str | None:
    """The largest unit of every group: a cut where it changes."""
    ref = next(refs((args, kwargs)))
    values = node.meta["val"]
    value, part = (values, None) if isinstance(values, Tensor) else (values[0], 0)
    rows, result_rows = draft.rows[ref.name], draft.batch.rows(value)
    if result_rows is None:
        return MIXES
    shape = draft.batch.shape_at(value, 2)
    index = _numbers(draft, ref)
    groups = rule.members(_numeric(draft, call, ref, index), index, shape)
    if isinstance(groups, str):
        return groups
    first, second = result_rows.out(groups).reshape(2, -1, groups.shape[-1])
    units = index.numel() // 2
    if not torch.equal(first, second - units) or bool((first >= units).any()):
        return MIXES
    draft.note(node)
    if first.shape[1] == 1:
        _add_step(draft, node, args, kwargs, part)
        return None
    draft.body.append(
        MaxNonlinearity(
            **_common(draft, node, ref),
            operation=_operation(node.target, args, kwargs, rows, result_rows, part),
            members=first.contiguous(),
            smallest=rule.smallest,
            places=_places(node.target, args, kwargs, rows, result_rows),
        )
    )
    return None


def _places(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rows: Rows, result_rows: Rows
) -> Operation | None:
    """For a pool the same pool, which says where its winners stand."""
    name = target_name(target).removeprefix("aten.").removesuffix("_with_indices")
    packet = getattr(torch.ops.aten, f"{name}_with_indices", None)
    if packet is None or not name.startswith("max_pool"):
        return None
    return _operation(packet.default, args, kwargs, rows, result_rows, 1)


def add_sort(
    draft: GraphBuilder,
    node: fx.Node,
    rule: Sort,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: dict[str, Any],
) -> str | None:
    """Sorting groups of units: a cut where two of a group are equal."""
    ref = next(refs((args, kwargs)))
    part = None if isinstance(node.meta["val"], Tensor) else 0
    rows, index = draft.rows[ref.name], _numbers(draft, ref)
    groups = rule.members(_numeric(draft, call, ref, index), index)
    groups = groups.reshape(-1, groups.shape[-1])
    own = groups < index.numel() // 2
    if bool((own.any(1) != own.all(1)).any()):
        return MIXES
    draft.note(node)
    if groups.shape[1] == 1:
        _add_step(draft, node, args, kwargs, part)
        return None
    draft.body.append(
        SortNonlinearity(
            **_common(draft, node, ref),
            operation=_operation(node.target, args, kwargs, rows, rows, part),
            members=groups[own[:, 0]],
        )
    )
    return None


def uses_places(node: fx.Node, needed: set[fx.Node]) -> str | None:
    """The reason against a node whose second result, the places of its values, is used."""
    used = [user for user in node.users if user in needed and user.target is operator.getitem]
    places = [user for user in used if user.args[1] != 0]
    if any(map(_unpools, places)):
        return UNPOOLED
    return INDICES if places else None


def _unpools(places: fx.Node) -> bool:
    """Whether indices are given to max_unpool, perhaps in another shape."""
    return any(
        "max_unpool" in target_name(user.target)
        or (not is_floating(user.meta.get("val")) and _unpools(user))
        for user in places.users
    )


def _numbers(draft: GraphBuilder, ref: Ref) -> Tensor:
    """A value's units for two points, each holding its number in the border's layout."""
    rows, shape = draft.rows[ref.name], draft.shape_of(ref, 2)
    border = rows.out(torch.empty(shape, device="meta")).shape
    numbers = torch.arange(border.numel(), device=draft.device)
    return rows.back(numbers.view(border))


def _numeric(draft: GraphBuilder, call: dict[str, Any], ref: Ref, index: Tensor) -> dict[str, Any]:
    """The arguments of a call on two points, its activation replaced by the numbers of units."""
    env = {ref.name: index}
    return {key: resolve(item, env, 2, draft.device) for key, item in call.items()}


def _common(draft: GraphBuilder, node: fx.Node, ref: Ref) -> dict[str, Any]:
    one = torch.empty(draft.shape_of(ref, 1), device="meta")
    return {
        "name": draft.cut_name(node),
        "target": target_name(node.target),
        "source": ref.name,
        "argument": ref.name,
        "result": next(refs(draft.values[node])).name,
        "shape": tuple(draft.rows[ref.name].out(one).shape[1:]),
    }


def _add_step(
    draft: GraphBuilder,
    node: fx.Node,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    part: int | None,
) -> None:
    """Groups of one unit each: the values are passed on as they are."""
    result = next(refs(draft.values[node])).name
    roles: tuple[tuple[str, ...], dict[str, str]] = (
        tuple("add" if isinstance(item, Ref) else "plain" for item in args),
        {key: "add" if isinstance(item, Ref) else "plain" for key, item in kwargs.items()},
    )
    run = _part_of(node.target, part)
    draft.body.append(Step(result, run, args, kwargs, (), EXACT, roles))


def _part_of(run: Any, part: int | None) -> Callable[..., Tensor]:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        made = run(*args, **kwargs)
        result: Tensor = made if part is None else made[part]
        return result

    return call
