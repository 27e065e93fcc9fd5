"""Derivatives of operations that torch cannot differentiate forward, from border to border."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS

__all__ = ["differentiable"]

Function = Callable[..., Tensor]

_SLACK = 2**26 * EPS  # a wrong derivative is off by its own size, a difference by some rounding
_INSIDE = 0.9  # how much of the way to the next border is used


def differentiable(value: Function, cuts: Function | None, x: Tensor, constants: Any) -> Function:
    """The function ``value(x, constants)``, with differences for derivatives if it has none.

    It is affine between the zeros of ``cuts``. Custom operators have no forward derivative, and
    that of a module which leaves torch on the way is wrong: it is tried out at x, (B, ...).
    """
    generator = torch.Generator().manual_seed(1)
    along = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
    expected = _slope(value, cuts, x, along, constants)
    try:
        found = torch.func.jvp(lambda x: value(x, constants), (x,), (along,))[1]
    except Exception:
        found = torch.full_like(expected, torch.inf)
    if bool(((found - expected).abs() <= _SLACK * expected.abs().max()).all()):
        return value

    return partial(_apply, value, cuts)


def _apply(value: Function, cuts: Function | None, x: Tensor, constants: Any) -> Tensor:
    made: Tensor = _Differences.apply(x, value, cuts, constants)  # type: ignore[no-untyped-call]
    return made


class _Differences(torch.autograd.Function):
    """A function whose forward derivative is a difference."""

    @staticmethod
    def forward(x: Tensor, value: Function, cuts: Function | None, constants: Any) -> Tensor:
        return value(x, constants)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.value, ctx.cuts, ctx.constants = inputs
        ctx.save_for_forward(x)

    @staticmethod
    def jvp(ctx: Any, along: Tensor, *rest: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        value, cuts = _plain(ctx.value), None if ctx.cuts is None else _plain(ctx.cuts)
        return _slope(value, cuts, x, along, ctx.constants)


def _plain(run: Function) -> Function:
    """The function on tensors without tangents: what leaves torch cannot read the others."""
    return partial(_apply, run, None)


def _slope(
    value: Function, cuts: Function | None, x: Tensor, along: Tensor, constants: Any
) -> Tensor:
    """The derivative at x, (B, ...), along directions (B, ...), from two points of its piece."""
    ahead = behind = torch.ones(x.shape[0], dtype=torch.float64, device=x.device)
    if cuts is not None:
        at = cuts(x, constants)
        root = at / (at - cuts(x + along, constants))
        ahead = _INSIDE * torch.where(root >= 0, root, torch.inf).amin(1).clamp(max=1)
        behind = _INSIDE * torch.where(root < 0, -root, torch.inf).amin(1).clamp(max=1)

    def moved(by: Tensor) -> Tensor:
        return value(x + by.view(-1, *[1] * (x.dim() - 1)) * along, constants)

    change = moved(ahead) - moved(-behind)
    return change / (ahead + behind).view(-1, *[1] * (change.dim() - 1))
