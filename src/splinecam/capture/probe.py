"""A numerical check of a captured program: every stage affine, every point on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from splinecam.errors import CaptureError, OffendingOp, UnsupportedOpError
from splinecam.ops import Bound
from splinecam.predicates import EPS
from splinecam.program import Program, Stage
from splinecam.values import Rows

__all__ = ["probe"]

# A wrong rule is off by the size of the values, rounding by a few EPS: anything between will do.
SLACK = 2**20 * EPS
WEIGHT = 0.3  # not one half: a flipped or averaged batch must not look affine

Describe = Callable[[str, str], OffendingOp]


def probe(program: Program, rows: Mapping[str, Rows], describe: Describe) -> None:
    """Run two random points, and their blend alone, through every stage; raise if they disagree."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, *program.input_shape, dtype=torch.float64, generator=generator)
    live = {program.input_name: x.to(program.device)}
    for i, stage in enumerate(program.stages):
        out = program.advance(i, live)
        alone = program.advance(i, {name: _blend(value) for name, value in live.items()})
        for name in stage.live_out:
            if not _agree(alone[name], _blend(out[name]), out[name].abs().amax()):
                _blame(program, stage, live, rows, describe)
        live = out
        if stage.cut is not None:
            live[stage.cut.result] = stage.cut.apply(out[stage.cut.argument])
            needed = program.stages[i + 1].live_in
            live = {name: live[name] for name in needed}


def _blend(value: Tensor) -> Tensor:
    return WEIGHT * value[:1] + (1 - WEIGHT) * value[1:]


def _agree(a: Tensor, b: Tensor, size: Tensor) -> bool:
    return a.shape == b.shape and bool(((a - b).abs() <= SLACK * size).all())


def _blame(
    program: Program,
    stage: Stage,
    live: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
    describe: Describe,
) -> None:
    """Find the step of a stage that is not affine or mixes points, by running them one by one."""
    both: dict[str, Any] = {name: live[name] for name in stage.live_in}
    first = {name: value[:1] for name, value in both.items()}
    blend = {name: _blend(value) for name, value in both.items()}
    bound: dict[str, Any] = {
        name: Bound(value.abs().amax(0, keepdim=True), torch.zeros_like(value[:1]))
        for name, value in both.items()
    }
    for step in stage.steps:
        device = program.device
        both[step.name] = step.call(both, 2, device)
        first[step.name] = step.call(first, 1, device)
        blend[step.name] = step.call(blend, 1, device)
        bound[step.name] = step.bound(bound, device)
        made = both[step.name]
        if step.rule is None or not isinstance(made, Tensor):
            continue
        layout = rows.get(step.name, Rows())
        size = bound[step.name].magnitude.amax()
        if not bool(made.isfinite().all()):
            raise CaptureError(f"{describe(step.name, 'it gives values that are not finite')}")
        pair = layout.out(made)
        if not _agree(layout.out(first[step.name]), pair[:1], size):
            raise UnsupportedOpError([describe(step.name, "it mixes the points of the batch")])
        if not _agree(layout.out(blend[step.name]), _blend(pair), size):
            raise UnsupportedOpError([describe(step.name, "it is not affine")])
