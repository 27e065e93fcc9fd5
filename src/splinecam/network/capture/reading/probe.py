"""A numerical check of a program: stages are affine, layers do what their kind says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.errors import CaptureError, OffendingOp, UnsupportedOpError
from splinecam.network import nonlinearities as layers
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.ops.bounds import Bound
from splinecam.network.program import Program, Stage, Values
from splinecam.network.values import Rows

# A wrong rule is off by the size of the values, rounding by a few EPS: anything between will do.
SLACK = 2**20 * EPS
_CHUNK = 1 << 20
_INFINITE = "it gives values that are not finite (write -1e30 for minus infinity)"
_MODERATE = 8.0  # an argument at which smooth functions are not yet too large for float64
WEIGHT = 0.3  # not one half: a flipped or averaged batch must not look affine


class NotFiniteError(CaptureError):
    """An operation gives values that are not finite."""


Describe = Callable[[str, str], OffendingOp]


def probe(
    program: Program,
    rows: Mapping[str, Rows] | None = None,
    describe: Describe = lambda name, reason: OffendingOp(name, "", "", reason),
) -> None:
    """Run two random points, and their blend alone, through every stage; raise if they disagree."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *program.input_shape, dtype=torch.float64, generator=generator)
    live = {program.input_name: x.to(program.device)}
    for i, stage in enumerate(program.stages):
        out = program.advance(i, live)
        if not _holds(program, i, live, out):
            _blame(program, stage, live, rows or {}, describe)
        live = out
        if stage.layer is not None:
            argument = _in_range(stage.layer, out[stage.layer.argument])
            if not stage.layer.rectifies:  # of the positive part all is known
                _probe_layer(stage.layer, argument, describe)
            live[stage.layer.result] = stage.layer.apply(argument)
            live = {name: live[name] for name in program.stages[i + 1].live_in}


def _holds(program: Program, i: int, live: Values, out: dict[str, Tensor]) -> bool:
    """Whether a stage is affine and takes each point by itself, with finite results."""
    if len(program.stages[i].steps) == 1 and program.dense(i) is not None:  # all is known of it
        return all(isfinite(_size(value)) for value in out.values())
    alone = program.advance(i, {name: _blend(value) for name, value in live.items()})
    return all(_agree(alone[name], _blend(out[name]), _size(out[name])) for name in out)


def _in_range(layer: Nonlinearity, z: Tensor) -> Tensor:
    """Arguments of a layer, or smaller ones if a smooth function is too large there.

    Random points may be far outside the domain that is meant, and exp of exp is soon too large.
    """
    if not isinstance(layer, layers.SmoothScalar):
        return z
    finite = layer.operation(torch.cat([z, -z])).isfinite()
    return z if bool(finite.all()) else z * (_MODERATE / max(_MODERATE, _size(z)))


def _probe_layer(layer: Nonlinearity, pair: Tensor, describe: Describe) -> None:
    """Raise if a layer mixes points, or if it does not compute what its kind says."""
    argument = torch.cat([pair, -pair[:1]])
    result = layer.operation(argument)
    if not bool(result.isfinite().all()):
        raise NotFiniteError(str(describe(layer.result, _INFINITE)))
    size = max(_size(argument), _size(result))
    if not _agree(layer.operation(argument[:1]), result[:1], size):
        raise UnsupportedOpError([describe(layer.result, "it mixes the points of the batch")])
    if not _as_claimed(layer, _flat(argument), _flat(result), size):
        reason = "its rule does not describe what it computes here: please report this"
        raise UnsupportedOpError([describe(layer.result, reason)])


def _as_claimed(layer: Nonlinearity, z: Tensor, result: Tensor, size: float) -> bool:
    """Whether a layer with the argument z (B, n) gives what its kind says, (B, units)."""
    if isinstance(layer, layers.PiecewiseScalar):
        if layer.period is not None or result.shape != z.shape:
            return True  # a table of functions, whose slopes are not told apart
        # Up to a constant, the function is the sum of its slope changes; these round like knots.
        size = max(size, _size(layer.levels[layer.levels.isfinite()]))
        slopes = layer.slopes
        rest = result - slopes[0] * z
        for level, before, after in zip(layer.levels, slopes, slopes[1:], strict=False):
            rest = rest - (after - before) * torch.relu(z - level)
        return _agree(rest, rest[:1].expand(rest.shape), size)
    if isinstance(layer, layers.MaxNonlinearity):
        return torch.equal(result, _extremes(layer, z))
    if isinstance(layer, layers.SortNonlinearity):
        order, found = z[:, layer.members].sort(2).values, result[:, layer.members]
        return torch.equal(found, order) or torch.equal(found, order.flip(2))
    return True


def _flat(value: Tensor) -> Tensor:
    return value.reshape(value.shape[0], -1)


def _extremes(layer: layers.MaxNonlinearity, z: Tensor) -> Tensor:
    """The winner of every group, a few members at a time to save memory."""
    z = -z if layer.smallest else z
    best = z.new_full((z.shape[0], layer.members.shape[0]), -torch.inf)
    at_once = max(1, _CHUNK // max(1, layer.members.shape[0]))
    for start in range(0, layer.members.shape[1], at_once):
        some = layer.members[:, start : start + at_once]
        best = torch.maximum(best, z[:, some].amax(2))
    return -best if layer.smallest else best


def _blend(value: Tensor) -> Tensor:
    return torch.lerp(value[1:], value[:1], WEIGHT)


def _size(value: Tensor) -> float:
    """The largest modulus, which is not a number if one of them is not."""
    return float(torch.linalg.vector_norm(value, torch.inf)) if value.numel() else 0.0


def _agree(a: Tensor, b: Tensor, size: float) -> bool:
    return a.shape == b.shape and _size(a - b) <= SLACK * size


def _blame(
    program: Program, stage: Stage, live: Values, rows: Mapping[str, Rows], describe: Describe
) -> None:
    """Raise for the step of a stage that is not affine or mixes points; run them one by one."""
    both: dict[str, Any] = {name: live[name] for name in stage.live_in}
    bound: dict[str, Any] = {
        name: Bound(value.abs().amax(0, keepdim=True), torch.zeros_like(value[:1]))
        for name, value in both.items()
    }
    # The first point, the second, and their blend, each alone.
    single: list[dict[str, Any]] = [
        {name: value[:1] for name, value in both.items()},
        {name: value[1:] for name, value in both.items()},
        {name: _blend(value) for name, value in both.items()},
    ]
    for step in stage.steps:
        both[step.name] = result = step.call(both, 2, program.device)
        for env in single:
            env[step.name] = step.call(env, 1, program.device)
        bound[step.name] = step.bound(bound, program.device)
        if step.rule is None or not isinstance(result, Tensor):
            continue
        layout = rows.get(step.name, Rows())
        size = float(bound[step.name].magnitude.amax())
        if not bool(result.isfinite().all()):
            raise NotFiniteError(str(describe(step.name, _INFINITE)))
        pair = layout.out(result)
        first, second, blend = (layout.out(env[step.name]) for env in single)
        if not _agree(torch.cat([first, second]), pair, size):
            raise UnsupportedOpError([describe(step.name, "it mixes the points of the batch")])
        if not _agree(blend, _blend(pair), size):
            raise UnsupportedOpError([describe(step.name, "it is not affine")])
