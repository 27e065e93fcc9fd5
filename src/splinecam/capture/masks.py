"""Masks: a choice between two values is piecewise linear where they agree on the mask's border.

``where(a > b, u, v)`` with ``u - v = slope * (a - b)`` is ``v + slope * relu(a - b)``. Random
numbers show whether there is such a slope for each unit. They are put in for the input and for the
results of all cuts, of which u, v, a and b are affine functions: what holds there holds always.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from splinecam.capture.cutting import expanded
from splinecam.capture.draft import Draft, Mask
from splinecam.capture.knots import spread_knots
from splinecam.capture.staging import refs
from splinecam.cuts import KnotCut, Operation
from splinecam.ops import Affine, Bound, Comparison, Knots, target_name
from splinecam.ops.rejected import CHOICE, MASK, MIXES
from splinecam.predicates import EPS, SAFETY
from splinecam.program import Step
from splinecam.values import Ref, Rows, resolve

__all__ = ["add_comparison", "add_masked"]

_POINTS = 8
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


def add_comparison(
    draft: Draft, node: fx.Node, rule: Comparison, call: dict[str, Any]
) -> str | None:
    """A mask is kept in mind until it is used; the answer is a reason against it."""
    if rule.above is None:
        mask = draft.mask_of(call["self"])
        above = None if mask is None else Mask(mask.second, mask.first)
    else:
        above = Mask(call[rule.above[0]], call[rule.above[1]])
    if above is None or any(draft.mask_of(ref) for ref in refs([above.first, above.second])):
        return MASK
    draft.note_mask(node, above)
    return None


def add_masked(
    draft: Draft, node: fx.Node, rule: object, call: dict[str, Any], used: list[str]
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
    draft.spoiled |= {ref.name for ref in refs(draft.values[node])}
    return None


def _choice(draft: Draft, node: fx.Node, call: dict[str, Any]) -> _Choice | None:
    """The node as a choice between two values, if that is what it is."""
    given, true, false = _parts(draft, node, call)
    mask = draft.mask_of(given)
    if mask is None or any(draft.mask_of(ref) for ref in refs([true, false])):
        return None
    choice = _Choice(mask, true, false)
    # The constant side comes out exactly if nothing has to be added to the other.
    return choice.turned if draft.is_active(false) and not draft.is_active(true) else choice


def _parts(draft: Draft, node: fx.Node, call: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The mask of a node, and its result where the mask is true and where it is false."""
    name = target_name(node.target)
    if name == "aten.where":
        return call["condition"], call["self"], call["other"]
    if name == "aten.masked_fill":
        return call["mask"], call["value"], call["self"]
    if name in ("aten.mul", "aten.multiply"):
        one, other = call["self"], call["other"]
        return (one, other, 0.0) if draft.mask_of(one) else (other, one, 0.0)
    if name == "aten.index_put" and len(call["indices"]) == 1 and not call["accumulate"]:
        (given,), value, data = call["indices"], call["values"], call["self"]
        refs_only = isinstance(given, Ref) and isinstance(data, Ref)
        single = isinstance(value, Tensor) and value.numel() == 1
        if single and refs_only and draft.shape_of(given, 2) == draft.shape_of(data, 2):
            return given, value.reshape(()), data
    return None, None, None


def _add_choice(draft: Draft, node: fx.Node, choice: _Choice) -> str | None:
    """The false side, and a bend on the true side of the border."""
    rows = draft.batch.rows(node.meta["val"])
    if rows is None:
        return MIXES
    slope = _slope(draft, node, choice, rows)
    if slope is None:
        return CHOICE
    shape = draft.batch.shape_at(node.meta["val"], 1)
    slope = rows.back(slope.view(rows.out(torch.empty(shape, device="meta")).shape))
    source = _difference(draft, node, choice.mask)
    bare = not isinstance(choice.false, (Ref, Tensor)) and choice.false == 0
    result = node.name if bare else f"{node.name}.bend"
    draft.add_value(result, node, node.meta["val"])
    levels, slopes = spread_knots(Knots((0.0,), (0.0, slope)), shape, rows, draft.device)
    slope = rows.out(slope)
    draft.body.append(
        KnotCut(
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


def _bend(z: Tensor, slope: Tensor) -> Tensor:
    return slope * torch.relu(z)


def _difference(draft: Draft, node: fx.Node, mask: Mask) -> Ref:
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


# --- the slope


def _slope(draft: Draft, node: fx.Node, choice: _Choice, rows: Rows) -> Tensor | None:
    """What the two values differ by, per unit of the mask's border, (n,); None if they jump."""
    mask = choice.mask
    wanted = [choice.true, choice.false, mask.first, mask.second]
    shapes = [draft.batch.shape_at(node.meta["val"], batch) for batch in (_POINTS, 1)]
    values, bounds = _run(draft, wanted)
    parts = []
    for value, bound in zip(values, bounds, strict=True):
        error = bound.error if isinstance(bound, Bound) else torch.zeros(())
        x, e = (
            rows.out(torch.as_tensor(item, dtype=torch.float64, device=draft.device).expand(shape))
            for item, shape in zip((value, error), shapes, strict=True)
        )
        x, e = x.reshape(_POINTS, -1), e.reshape(1, -1)
        parts.append((x, e + EPS * x.abs().amax(0, keepdim=True)))
    (true, e_true), (false, e_false), (first, e_first), (second, e_second) = parts
    jump, distance = true - false, first - second
    e_jump, e_distance = e_true + e_false, e_first + e_second
    best = distance.abs().argmax(0, keepdim=True)
    far = distance.gather(0, best)
    known = far.abs() > SAFETY * e_distance
    slope = torch.where(known, jump.gather(0, best) / torch.where(known, far, 1.0), 0.0)
    slack = SAFETY * (e_jump + slope.abs() * e_distance)
    agree = (jump - slope * distance).abs() <= slack
    return slope[0] if bool(agree.all()) else None


def _run(draft: Draft, wanted: list[Any]) -> tuple[list[Any], list[Any]]:
    """Values at random points, and their bounds at one: whatever is not affine is random itself."""
    generator = torch.Generator().manual_seed(0)
    steps, bases = _behind(draft, wanted)
    env: dict[str, Any] = {}
    bound: dict[str, Any] = {}
    for name in bases:
        if name in draft.sized.steps:
            env[name], bound[name] = (draft.sized.value(name, batch) for batch in (_POINTS, 1))
            continue
        shape = draft.shape_of(Ref(name), _POINTS)
        x = torch.randn(shape, dtype=torch.float64, generator=generator).to(draft.device)
        rows = draft.rows[name]
        size = rows.back(rows.out(x).abs().amax(0, keepdim=True))
        env[name], bound[name] = x, Bound(size, torch.zeros_like(size))
    for step in steps:
        env[step.name] = step.call(env, _POINTS, draft.device)
        bound[step.name] = step.bound(bound, draft.device)
    values = [resolve(item, env, _POINTS, draft.device) for item in wanted]
    return values, [resolve(item, bound, 1, draft.device) for item in wanted]


def _behind(draft: Draft, wanted: list[Any]) -> tuple[list[Step], list[str]]:
    """The steps that lead to values, in order, and the names that they begin with."""
    needed = dict.fromkeys(ref.name for ref in refs(wanted))
    found: list[Step] = []
    for step in reversed(draft.body):
        if isinstance(step, Step) and step.name in needed:
            found.append(step)
            needed |= dict.fromkeys(ref.name for ref in refs((step.args, step.kwargs)))
    made = {step.name for step in found}
    return found[::-1], [name for name in needed if name not in made]
