"""Whether two values agree wherever a third vanishes, which is shown with random numbers.

Random numbers are put in for the input and for the results of all layers. Between layers all values
are affine functions of these, so that a linear relation that holds for them always holds.

The values u and v of a choice by the sign of d agree on its border if ``u - v`` is a multiple of d,
unit by unit (``slope_of``). They also agree if ``u - v`` is a linear combination of d and of other
values that are known where d is zero, and the combination vanishes there (``steepness_of``). Known
there is a function of one variable whose argument is known, such as ``relu(d + 1)``, and the
difference of two equal functions whose arguments agree, such as ``relu(a - c) - relu(b - c)`` where
``d = a - b``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from splinecam._util.tolerances import EPS, SAFETY
from splinecam.network.capture.reading.graph_builder import GraphBuilder
from splinecam.network.capture.reading.stages import refs
from splinecam.network.nonlinearities import ChoiceNonlinearity, PiecewiseScalar
from splinecam.network.ops import Bound
from splinecam.network.program import Step
from splinecam.network.values import Ref, Rows, resolve

__all__ = ["Choice", "slope_of", "steepness_of"]

_POINTS = 8
_FUNCTIONS = 12  # at most so many functions of one variable are looked at

_Layer = PiecewiseScalar | ChoiceNonlinearity


@dataclass(frozen=True)
class Choice:
    """The two values of a choice: ``true`` where ``first`` exceeds ``second``, else ``false``."""

    true: Any
    false: Any
    first: Any
    second: Any

    @property
    def all(self) -> list[Any]:
        return [self.true, self.false, self.first, self.second]


@dataclass(frozen=True)
class _Sample:
    """A value at random points, (P, n), and its rounding error, (n,)."""

    at: Tensor
    error: Tensor

    def __sub__(self, other: _Sample) -> _Sample:
        return _Sample(self.at - other.at, self.error + other.error)


def slope_of(builder: GraphBuilder, node: fx.Node, choice: Choice, rows: Rows) -> Tensor | None:
    """The slope, (n,), by which the two values differ: a multiple of what is compared, or None."""
    true, false, first, second = _samples(builder, node, rows, choice.all, _POINTS)
    difference, distance = true - false, first - second
    best = distance.at.abs().argmax(0, keepdim=True)
    far = distance.at.gather(0, best)
    known = far.abs() > SAFETY * distance.error
    slope = torch.where(known, difference.at.gather(0, best) / torch.where(known, far, 1.0), 0.0)
    slack = SAFETY * (difference.error + slope.abs() * distance.error)
    agree = (difference.at - slope * distance.at).abs() <= slack
    return slope[0] if bool(agree.all()) else None


# --- values that are known where two others agree


@dataclass(frozen=True)
class _Known:
    """A value that is known where what is compared is equal, for each of n units.

    sample: at random points; value: (n,), there; error: (n,), of that; steepness: (n,), how much
    the value changes at most, per unit of the difference of what is compared.
    """

    sample: _Sample
    value: Tensor
    error: Tensor
    steepness: Tensor


def steepness_of(builder: GraphBuilder, node: fx.Node, choice: Choice, rows: Rows) -> Tensor | None:
    """How fast the two values move apart at most where the choice changes, (n,), or None.

    None means that they are not known to agree there.
    """
    layers = _functions(builder, node, choice.all, rows)
    wanted = choice.all + [
        item for layer in layers for item in (Ref(layer.result), *_inputs(builder, layer))
    ]
    samples = iter(_samples(builder, node, rows, wanted, _POINTS + 2 * len(layers)))
    true, false, first, second = (next(samples) for _ in range(4))
    distance = first - second
    zero = torch.zeros_like(distance.error)
    known = [_Known(distance, zero, zero, torch.ones_like(zero))]
    free: list[tuple[PiecewiseScalar, _Sample, _Sample]] = []
    for layer in layers:
        result = next(samples)
        inputs = [next(samples) for _ in _inputs(builder, layer)]
        found = [_express(item, known) for item in inputs]
        there = [item for item in found if item is not None]
        if len(there) == len(found):
            known.append(_applied(layer, result, there))
        elif isinstance(layer, PiecewiseScalar):
            # More unknown factors than points would express anything.
            known += _equal(layer, result, inputs[0], free, known)[: 2 * len(layers) - len(known)]
            free.append((layer, result, inputs[0]))
    difference = _express(true - false, known)
    if difference is None or bool((difference.value.abs() > SAFETY * difference.error).any()):
        return None
    return difference.steepness


def _express(item: _Sample, known: list[_Known]) -> _Known | None:
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
    return _Known(
        item,
        constant + (factors * there).sum(-1),
        noise + (factors.abs() * unsure).sum(-1),
        (factors.abs() * steepness).sum(-1),
    )


def _applied(layer: _Layer, result: _Sample, inputs: list[_Known]) -> _Known:
    """The result of a layer whose inputs are known."""
    if isinstance(layer, ChoiceNonlinearity):
        by, true, false = inputs
        value = torch.where(by.value > 0, true.value, false.value)
        error = torch.maximum(true.error, false.error) + layer.steepness * by.error
        steep = torch.maximum(true.steepness, false.steepness)
        return _Known(result, value, error, steep)
    (given,) = inputs
    value = layer.operation(given.value.view(1, *layer.shape)).reshape(-1)
    steepest = layer.slopes.abs().amax(0)
    error = steepest * given.error + EPS * value.abs()
    return _Known(result, value, error, steepest * given.steepness)


def _equal(
    layer: PiecewiseScalar,
    result: _Sample,
    source: _Sample,
    free: list[tuple[PiecewiseScalar, _Sample, _Sample]],
    known: list[_Known],
) -> list[_Known]:
    """The differences of a layer's result and those of equal functions whose arguments agree."""
    found = []
    for other, other_result, other_source in free:
        gap = _express(source - other_source, known) if _same_function(layer, other) else None
        if gap is not None and bool((gap.value.abs() <= SAFETY * gap.error).all()):
            steepest, zero = layer.slopes.abs().amax(0), torch.zeros_like(gap.value)
            error = steepest * gap.error
            found.append(_Known(result - other_result, zero, error, steepest * gap.steepness))
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


# --- random numbers


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
