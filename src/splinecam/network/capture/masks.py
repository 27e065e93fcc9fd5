"""Masks: a choice between two values is piecewise linear where they agree on the mask's border.

``where(a > b, u, v)`` with ``u - v = slope * (a - b)`` is ``v + slope * relu(a - b)``. Otherwise,
where u and v agree on the border for another reason, it is a cut of its own. ``continuity`` tells.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.network.capture.continuity import Sides, slope_of, steepness_of
from splinecam.network.capture.graph_builder import GraphBuilder, Mask
from splinecam.network.capture.knots import spread_knots
from splinecam.network.capture.nonlinear import EXACT, expanded
from splinecam.network.capture.staging import refs
from splinecam.network.choices import ChoiceNonlinearity, choose
from splinecam.network.nonlinearities import Operation, PiecewiseScalar
from splinecam.network.ops import Affine, Comparison, Knots, target_name
from splinecam.network.ops.rejected import CHOICE, MASK, MIXES
from splinecam.network.program import Step
from splinecam.network.values import Ref, Rows

__all__ = ["add_comparison", "add_masked"]

_PLUS: tuple[tuple[str, ...], dict[str, str]] = (("add", "add"), {})


@dataclass(frozen=True)
class _Choice:
    """``true`` where the mask holds, ``false`` elsewhere."""

    mask: Mask
    true: Any
    false: Any

    @property
    def turned(self) -> _Choice:
        """The same, chosen by the opposite mask."""
        return _Choice(Mask(self.mask.second, self.mask.first), self.false, self.true)

    @property
    def sides(self) -> Sides:
        return Sides(self.true, self.false, self.mask.first, self.mask.second)


def add_comparison(
    draft: GraphBuilder, node: fx.Node, rule: Comparison, call: dict[str, Any]
) -> str | None:
    """A mask is kept in mind until it is used; the answer is a reason against it."""
    if rule.signed:
        above: Mask | None = Mask(call["self"], 0.0, signed=True)
    elif rule.above is None:
        mask = draft.mask_of(call["self"])
        above = None if mask is None or mask.signed else Mask(mask.second, mask.first)
    else:
        above = Mask(call[rule.above[0]], call[rule.above[1]])
    if above is None or any(draft.mask_of(ref) for ref in refs([above.first, above.second])):
        return MASK
    draft.note_mask(node, above)
    return None


def add_masked(
    draft: GraphBuilder, node: fx.Node, rule: object, call: dict[str, Any], used: list[str]
) -> str | None:
    """A node that uses masks: it must be a choice; the answer is a reason against it."""
    if isinstance(rule, Affine) and rule.identity and draft.mask_of(call.get("self")):
        draft.values[node] = call["self"]  # as numbers, a mask is still one
        return None
    choice = _choice(draft, node, call)
    if choice is not None:
        return _add_choice(draft, node, choice)
    for name in used:
        draft.reject_mask(name)
    draft.note(node)
    draft.invalid |= {ref.name for ref in refs(draft.values[node])}
    return None


def _choice(draft: GraphBuilder, node: fx.Node, call: dict[str, Any]) -> _Choice | None:
    """The node as a choice between two values, if that is what it is."""
    given, true, false = _parts(draft, node, call)
    mask = draft.mask_of(given)
    if mask is None or any(draft.mask_of(ref) for ref in refs([true, false])):
        return None
    choice = _Choice(mask, true, false)
    # The constant side comes out exactly if nothing has to be added to the other.
    return choice.turned if draft.is_active(false) and not draft.is_active(true) else choice


def _parts(draft: GraphBuilder, node: fx.Node, call: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The mask of a node, and its result where the mask is true and where it is false."""
    name = target_name(node.target)
    if name == "aten.where":
        return call["condition"], call["self"], call["other"]
    if name == "aten.masked_fill":
        return call["mask"], call["value"], call["self"]
    if name in ("aten.mul", "aten.multiply"):
        mask, other = call["self"], call["other"]
        if draft.mask_of(mask) is None:
            mask, other = other, mask
        known = draft.mask_of(mask)
        if known is None or not known.signed:
            return mask, other, 0.0
        if not isinstance(other, Ref) or draft.is_active(other):
            return mask, other, _opposite(draft, node, other)
    if name == "aten.index_put" and len(call["indices"]) == 1 and not call["accumulate"]:
        (given,), value, data = call["indices"], call["values"], call["self"]
        refs_only = isinstance(given, Ref) and isinstance(data, Ref)
        single = isinstance(value, Tensor) and value.numel() == 1
        if single and refs_only and draft.shape_of(given, 2) == draft.shape_of(data, 2):
            return given, value.reshape(()), data
    return None, None, None


def _opposite(draft: GraphBuilder, node: fx.Node, value: Any) -> Any:
    """A value with the other sign."""
    if not isinstance(value, Ref):
        return -value
    name = f"{node.name}.opposite"
    draft.add_value(name, node, draft.example_of(value))
    rule = Affine(exact=True, absolute=torch.Tensor.clone)
    draft.body.append(Step(name, torch.neg, (value,), {}, (), rule, (("add",), {})))
    return Ref(name)


def _add_choice(draft: GraphBuilder, node: fx.Node, choice: _Choice) -> str | None:
    """The false side, and a bend on the true side of the border."""
    rows = draft.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    slope = slope_of(draft, node, choice.sides, rows)
    if slope is None:
        return _add_nested(draft, node, choice, rows)
    shape = draft.batch.shape_at(node.meta["val"], 1)
    slope = rows.back(slope.view(rows.out(torch.empty(shape, device="meta")).shape))
    source = _difference(draft, node, choice.mask)
    bare = not isinstance(choice.false, (Ref, Tensor)) and choice.false == 0
    result = node.name if bare else f"{node.name}.bend"
    draft.add_value(result, node, node.meta["val"])
    levels, slopes = spread_knots(Knots((0.0,), (0.0, slope)), shape, rows, draft.device)
    slope = rows.out(slope)
    draft.body.append(
        PiecewiseScalar(
            name=draft.cut_name(node),
            target=target_name(node.target),
            source=source.name,
            argument=source.name,
            result=result,
            shape=tuple(slope.shape[1:]),
            operation=Operation(_bend, (Operation.VARIABLE, slope), {}),
            levels=levels,
            slopes=slopes,
            exact=bool((slope.abs() == 1).all()),
        )
    )
    draft.note(node)
    if not bare:
        args = (choice.false, Ref(result))
        draft.body.append(Step(node.name, operator.add, args, {}, (), Affine(), _PLUS))
    return None


def _add_nested(draft: GraphBuilder, node: fx.Node, choice: _Choice, rows: Rows) -> str | None:
    """A cut where the choice changes; both values have been cut before."""
    steepness = steepness_of(draft, node, choice.sides, rows)
    if steepness is None:
        return CHOICE
    source = _difference(draft, node, choice.mask)
    example, shape = node.meta["val"], draft.batch.shape(node.meta["val"])
    border = rows.out(torch.empty(draft.batch.shape_at(example, 1), device="meta")).shape[1:]
    sides = f"{node.name}.sides"
    draft.add_value(
        sides, node, example.new_empty(example.shape[rows.dim] // rows.each, 3, *border)
    )
    args = (source, choice.true, choice.false, shape, rows)
    roles: tuple[tuple[str, ...], dict[str, str]] = (("add", "add", "add", "plain", "plain"), {})
    draft.body.append(Step(sides, _sides, args, {}, (), EXACT, roles))
    draft.body.append(
        ChoiceNonlinearity(
            name=draft.cut_name(node),
            target=target_name(node.target),
            source=source.name,
            argument=sides,
            result=node.name,
            shape=tuple(border),
            operation=Operation(choose, (Operation.VARIABLE,), {}),
            steepness=steepness,
        )
    )
    draft.choices[node.name] = (choice.true, choice.false)
    draft.note(node)
    return None


def _sides(by: Any, true: Any, false: Any, shape: list[int], rows: Rows) -> Tensor:
    """What is chosen by and both values, (B, 3, ...)."""
    parts = (torch.as_tensor(x, dtype=by.dtype, device=by.device) for x in (by, true, false))
    return torch.stack([rows.out(x.expand(shape)) for x in parts], 1)


def _bend(z: Tensor, slope: Tensor) -> Tensor:
    return slope * torch.relu(z)


def _difference(draft: GraphBuilder, node: fx.Node, mask: Mask) -> Ref:
    """What is positive where the mask is true, in the shape of the result."""
    first, second = mask.first, mask.second
    if isinstance(first, Ref) and not isinstance(second, (Ref, Tensor)) and second == 0:
        return expanded(draft, node, first)
    name = f"{node.name}.difference"
    shape = draft.batch.shape(node.meta["val"])
    draft.add_value(name, node, node.meta["val"])
    roles: tuple[tuple[str, ...], dict[str, str]] = (("add", "add", "plain"), {})
    step = Step(name, _less, (first, second, shape), {}, (), Affine(absolute=_plus), roles)
    draft.body.append(step)
    return Ref(name)


def _less(first: Any, second: Any, shape: list[int]) -> Tensor:
    difference: Tensor = first - second
    return difference.expand(shape)


def _plus(first: Any, second: Any, shape: list[int]) -> Tensor:
    total: Tensor = first + second
    return total.expand(shape)
