"""Masks: a choice between two values is piecewise linear where they agree on the mask's border.

Random numbers are put in for the input and for the results of all layers. Between layers all values
are affine functions of these, so that a linear relation that holds for them always holds.

The values u and v of a choice by the sign of d agree on its border if ``u - v`` is a multiple of d,
unit by unit (``slope_of``). They also agree if ``u - v`` is a linear combination of d and of other
values that are known where d is zero, and the combination vanishes there (``steepness_of``). Known
there is a function of one variable whose argument is known, such as ``relu(d + 1)``, and the
difference of two equal functions whose arguments agree, such as ``relu(a - c) - relu(b - c)`` where
``d = a - b``.

``where(a > b, u, v)`` with ``u - v = slope * (a - b)`` is ``v + slope * relu(a - b)``. Otherwise,
where u and v agree on the border for another reason, it is a layer of its own.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from splinecam._util.tolerances import EPS, SAFETY
from splinecam.network.capture.reading.graph_builder import GraphBuilder, Mask, NodeCall
from splinecam.network.capture.reading.scalar_functions import spread_knots
from splinecam.network.capture.reading.stages import refs
from splinecam.network.nonlinearities import ChoiceNonlinearity, PiecewiseScalar, choose
from splinecam.network.ops.bounds import Bound
from splinecam.network.ops.nonlinear import CHOICE, MASK, MIXES
from splinecam.network.ops.registry import AffineRule, target_name
from splinecam.network.program import Step
from splinecam.network.values import Operation, Ref, Rows, resolve

_POINTS = 8
_FUNCTIONS = 12  # at most so many functions of one variable are looked at

_Layer = PiecewiseScalar | ChoiceNonlinearity


class Choice(NamedTuple):
    """The two values of a choice: ``true`` where ``first`` exceeds ``second``, else ``false``."""

    true: Any
    false: Any
    first: Any
    second: Any


@dataclass(frozen=True)
class _Sample:
    """A value at random points, (P, n), and its rounding error, (n,)."""

    at: Tensor
    error: Tensor

    def __sub__(self, other: _Sample) -> _Sample:
        return _Sample(self.at - other.at, self.error + other.error)


_Free = tuple[PiecewiseScalar, _Sample, _Sample]
"""A layer whose argument is not known on the border, its result and its argument."""


def slope_of(builder: GraphBuilder, node: fx.Node, choice: Choice, rows: Rows) -> Tensor | None:
    """The slope, (n,), by which the two values differ: a multiple of what is compared, or None."""
    true, false, first, second = _samples(builder, node, rows, list(choice), _POINTS)
    difference, distance = true - false, first - second
    best = distance.at.abs().argmax(0, keepdim=True)
    far = distance.at.gather(0, best)
    known = far.abs() > SAFETY * distance.error
    slope = torch.where(known, difference.at.gather(0, best) / torch.where(known, far, 1.0), 0.0)
    slack = SAFETY * (difference.error + slope.abs() * distance.error)
    agree = (difference.at - slope * distance.at).abs() <= slack
    return slope[0] if bool(agree.all()) else None


@dataclass(frozen=True)
class _OnBorder:
    """A value that is known where the compared values are equal, for each of n units."""

    sample: _Sample
    value: Tensor  # (n,)
    error: Tensor  # (n,)
    steepness: Tensor  # (n,) how much it changes at most, per unit of the compared difference


def steepness_of(builder: GraphBuilder, node: fx.Node, choice: Choice, rows: Rows) -> Tensor | None:
    """How fast two values move apart at most, (n,); None unless they are known to agree first."""
    layers = _functions(builder, node, list(choice), rows)
    wanted: list[Any] = list(choice)
    for layer in layers:
        wanted += (Ref(layer.result), *_inputs(builder, layer))
    samples = iter(_samples(builder, node, rows, wanted, _POINTS + 2 * len(layers)))
    true, false, first, second = (next(samples) for _ in range(4))
    distance = first - second
    zero = torch.zeros_like(distance.error)
    known = [_OnBorder(distance, zero, zero, torch.ones_like(zero))]
    free: list[_Free] = []
    for layer in layers:
        result = next(samples)
        inputs = [next(samples) for _ in _inputs(builder, layer)]
        found = [_express(item, known) for item in inputs]
        there = [item for item in found if item is not None]
        if len(there) == len(found):
            known.append(_applied(layer, result, there))
        elif isinstance(layer, PiecewiseScalar):
            new = (layer, result, inputs[0])
            # More unknown factors than points would express anything.
            known += _equal(new, free, known)[: 2 * len(layers) - len(known)]
            free.append(new)
    difference = _express(true - false, known)
    if difference is None or bool((difference.value.abs() > SAFETY * difference.error).any()):
        return None
    return difference.steepness


def _express(item: _Sample, known: list[_OnBorder]) -> _OnBorder | None:
    """A value as a linear combination of known ones, or None if it is not one for some unit."""
    columns = torch.stack([column.sample.at for column in known], -1)  # (P, n, m)
    errors = torch.stack([column.sample.error for column in known], -1)  # (n, m)
    steps = (columns[1:] - columns[:1]).movedim(0, 1)  # (n, P - 1, m)
    size = steps.abs().amax(1)
    moves = size > SAFETY * errors
    scale = torch.where(moves, size, 1.0)
    steps = torch.where(moves[:, None], steps / scale[:, None], 0.0).cpu()
    rise = (item.at[1:] - item.at[:1]).T[..., None].cpu()
    share = torch.linalg.lstsq(steps, rise, driver="gelsd").solution
    share = share + torch.linalg.lstsq(steps, rise - steps @ share, driver="gelsd").solution
    factors = share[..., 0].to(scale) / scale  # (n, m)
    rest = item.at - (columns * factors).sum(-1)
    constant = rest.mean(0)
    terms = factors.abs() * (errors + EPS * columns.abs().amax(0))
    noise = item.error + len(known) * terms.sum(-1) + EPS * constant.abs()
    if bool(((rest - constant).abs() > SAFETY * noise).any()):
        return None
    there = torch.stack([column.value for column in known], -1)
    unsure = torch.stack([column.error for column in known], -1) + EPS * there.abs()
    steepness = torch.stack([column.steepness for column in known], -1)
    return _OnBorder(
        item,
        constant + (factors * there).sum(-1),
        noise + (factors.abs() * unsure).sum(-1),
        (factors.abs() * steepness).sum(-1),
    )


def _applied(layer: _Layer, result: _Sample, inputs: list[_OnBorder]) -> _OnBorder:
    """The result of a layer whose inputs are known."""
    if isinstance(layer, ChoiceNonlinearity):
        by, true, false = inputs
        value = torch.where(by.value > 0, true.value, false.value)
        error = torch.maximum(true.error, false.error) + layer.steepness * by.error
        steep = torch.maximum(true.steepness, false.steepness)
        return _OnBorder(result, value, error, steep)
    (given,) = inputs
    value = layer.operation(given.value.view(1, *layer.shape)).reshape(-1)
    steepest = layer.slopes.abs().amax(0)
    error = steepest * given.error + EPS * value.abs()
    return _OnBorder(result, value, error, steepest * given.steepness)


def _equal(new: _Free, free: list[_Free], known: list[_OnBorder]) -> list[_OnBorder]:
    """What a layer's result differs by from results of equal functions with equal arguments."""
    found, (layer, result, source) = [], new
    for other, other_result, other_source in free:
        gap = _express(source - other_source, known) if _same_function(layer, other) else None
        if gap is not None and bool((gap.value.abs() <= SAFETY * gap.error).all()):
            steepest, zero = layer.slopes.abs().amax(0), torch.zeros_like(gap.value)
            error = steepest * gap.error
            found.append(_OnBorder(result - other_result, zero, error, steepest * gap.steepness))
    return found


def _same_function(layer: PiecewiseScalar, other: PiecewiseScalar) -> bool:
    """Whether two layers apply the same function to every unit."""
    zero = torch.zeros((1, *layer.shape), dtype=torch.float64, device=layer.levels.device)
    return (
        layer.period is None
        and other.period is None
        and torch.equal(layer.levels, other.levels)
        and torch.equal(layer.slopes, other.slopes)
        and torch.equal(layer.operation(zero), other.operation(zero))
    )


def _functions(builder: GraphBuilder, node: fx.Node, wanted: list[Any], rows: Rows) -> list[_Layer]:
    """The layers behind some values that are functions of each of a node's units, in order."""
    shape = builder.batch.shape_at(node.meta["val"], 1)
    names = set(_behind(builder, wanted)[1])
    found: list[_Layer] = []
    for layer in reversed(builder.body):
        if not isinstance(layer, _Layer) or layer.result not in names:
            continue
        if builder.rows[layer.result] == rows and builder.shape_of(Ref(layer.result), 1) == shape:
            found.append(layer)
            names |= set(_behind(builder, _inputs(builder, layer))[1])
    return found[:_FUNCTIONS][::-1]


def _inputs(builder: GraphBuilder, layer: _Layer) -> list[Any]:
    """What the result of a layer is a function of, unit by unit."""
    if isinstance(layer, ChoiceNonlinearity):
        sides = builder.choices[layer.result]
        return [Ref(layer.source), sides[0], sides[1]]
    return [Ref(layer.source)]


def _samples(
    builder: GraphBuilder, node: fx.Node, rows: Rows, wanted: list[Any], points: int
) -> list[_Sample]:
    """Values at random points, in the shape of a node's result."""
    shapes = [builder.batch.shape_at(node.meta["val"], batch) for batch in (points, 1)]

    def spread(item: Any, shape: list[int]) -> Tensor:
        wide = torch.as_tensor(item, dtype=torch.float64, device=builder.device).expand(shape)
        return rows.out(wide).reshape(rows.out(wide).shape[0], -1)

    samples = []
    for value, bound in zip(*_run(builder, wanted, points), strict=True):
        x = spread(value, shapes[0])
        error = spread(bound.error if isinstance(bound, Bound) else 0.0, shapes[1])[0]
        samples.append(_Sample(x, error + EPS * x.abs().amax(0)))
    return samples


def _run(builder: GraphBuilder, wanted: list[Any], points: int) -> tuple[list[Any], list[Any]]:
    """Values at random points, and their bounds at one: whatever is not affine is random itself."""
    generator = torch.Generator().manual_seed(0)
    steps, bases = _behind(builder, wanted)
    env: dict[str, Any] = {}
    bound: dict[str, Any] = {}
    for name in bases:
        if name in builder.constants.steps:
            env[name], bound[name] = (builder.constants.value(name, batch) for batch in (points, 1))
            continue
        shape = builder.shape_of(Ref(name), points)
        x = torch.randn(shape, dtype=torch.float64, generator=generator).to(builder.device)
        rows = builder.rows[name]
        size = rows.back(rows.out(x).abs().amax(0, keepdim=True))
        env[name], bound[name] = x, Bound(size, torch.zeros_like(size))
    for step in steps:
        env[step.name] = step.call(env, points, builder.device)
        bound[step.name] = step.bound(bound, builder.device)
    values = [resolve(item, env, points, builder.device) for item in wanted]
    return values, [resolve(item, bound, 1, builder.device) for item in wanted]


def _behind(builder: GraphBuilder, wanted: list[Any]) -> tuple[list[Step], list[str]]:
    """The steps that lead to values, in order, and the names that they begin with."""
    needed = dict.fromkeys(ref.name for ref in refs(wanted))
    found: list[Step] = []
    for step in reversed(builder.body):
        if isinstance(step, Step) and step.name in needed:
            found.append(step)
            needed |= dict.fromkeys(ref.name for ref in refs((step.args, step.kwargs)))
    results = {step.name for step in found}
    return found[::-1], [name for name in needed if name not in results]


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
    if isinstance(rule, AffineRule) and rule.identity and builder.mask_of(call.named.get("self")):
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
    knots = (0.0,), (0.0, rows.back(slope))
    levels, slopes = spread_knots(knots, shape, rows, builder.device)
    operation = Operation(_scaled_relu, (Operation.VARIABLE, slope), {})
    exact = bool((slope.abs() == 1).all())
    fields = {"result": result, "levels": levels, "slopes": slopes, "exact": exact}
    builder.add_layer(PiecewiseScalar, node, operation, source.name, **fields)
    builder.add_results(node)
    if not alone:
        builder.add_step(node.name, operator.add, (choice.false, Ref(result)), rule=AffineRule())
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
    builder.add_results(node)
    operation = Operation(choose, (Operation.VARIABLE,), {})
    fields = {"argument": sides, "steepness": steepness}
    builder.add_layer(ChoiceNonlinearity, node, operation, source.name, **fields)
    builder.choices[node.name] = (choice.true, choice.false)
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
    return builder.add_step(name, _subtract, args, plain=1, rule=AffineRule(absolute=_add))


def _subtract(first: Any, second: Any, shape: list[int]) -> Any:
    return (first - second).expand(shape)


def _add(first: Any, second: Any, shape: list[int]) -> Any:
    return (first + second).expand(shape)
