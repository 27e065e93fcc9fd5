"""From a module to the step that the oracle takes for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from splinecam.errors import CaptureError
from splinecam.testing.oracle.geometry import by, fractions
from splinecam.testing.oracle.modules import Abs, GroupSort, Max, Maximum, Min, Minimum, Residual
from splinecam.testing.oracle.steps import (
    Activation,
    Affine,
    Chain,
    Largest,
    Skip,
    Sorted,
    Spline,
    Step,
)
from splinecam.testing.oracle.windows import ADAPTIVE_POOLS, MAX_POOLS, along, halves, windows

__all__ = ["layer_step"]

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_RESHAPES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout)
_GROUPED = (*MAX_POOLS, *ADAPTIVE_POOLS, Max, Maximum, Minimum, GroupSort)

Shape = tuple[int, ...]


def layer_step(module: nn.Module, shape: Shape) -> tuple[Step, Shape]:
    """Return the step of a module for inputs of a shape, and the shape of its outputs."""
    if isinstance(module, nn.Sequential):
        steps = []
        for child in module:
            step, shape = layer_step(child, shape)
            steps.append(step)
        return Chain(tuple(steps)), shape
    if isinstance(module, Residual):
        return Skip(layer_step(module.body, shape)[0]), shape
    if isinstance(module, (nn.Linear, *_CONVOLUTIONS)):
        return _affine(module, shape)
    if isinstance(module, _RESHAPES):
        return Chain(()), _shape_after(module, shape)
    if isinstance(module, _GROUPED):
        return _grouped(module, shape), _shape_after(module, shape)
    return Activation(_splines(module, shape)), shape


def _shape_after(module: nn.Module, shape: Shape) -> Shape:
    return tuple(module(torch.zeros(1, *shape)).shape[1:])


def _affine(module: nn.Module, shape: Shape) -> tuple[Affine, Shape]:
    """Return the dense matrix of a layer, whose columns are the values at the unit vectors.

    Weights are only placed there, not added to each other, so float64 is exact.
    """
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise CaptureError(f"the exact oracle only knows zero padding, not {module}")
    copied = copy.deepcopy(module).double()
    size = math.prod(shape)
    with torch.no_grad():
        bias = copied(torch.zeros(1, *shape, dtype=torch.float64))
        copied.register_parameter("bias", None)
        columns = copied(torch.eye(size, dtype=torch.float64).reshape(size, *shape))
    return Affine(columns.reshape(size, -1).T.contiguous(), bias.flatten()), bias.shape[1:]


def _grouped(module: nn.Module, shape: Shape) -> Step:
    """Return the step of a module that compares the units of groups with each other."""
    if isinstance(module, GroupSort):
        return Sorted(by(module.size, range(math.prod(shape))))
    if isinstance(module, Maximum | Minimum):
        return Largest(halves(shape), smallest=isinstance(module, Minimum))
    if isinstance(module, Max):
        return Largest(along(shape, module.dim), smallest=isinstance(module, Min))
    return Largest(windows(module, shape))


def _splines(module: nn.Module, shape: Shape) -> list[Spline]:
    """Return the splines of an activation, one for each unit."""
    if isinstance(module, nn.PReLU):
        slopes = fractions(module.weight)
        channel = math.prod(shape) if len(slopes) == 1 else math.prod(shape[1:])
        return [spline for a in slopes for spline in [_spline([0], [(a, 0), (1, 0)])] * channel]
    if isinstance(module, nn.ReLU):
        spline = _spline([0], [(0, 0), (1, 0)])
    elif isinstance(module, nn.LeakyReLU):
        spline = _spline([0], [(module.negative_slope, 0), (1, 0)])
    elif isinstance(module, Abs):
        spline = _spline([0], [(-1, 0), (1, 0)])
    elif isinstance(module, nn.Hardtanh):  # also ReLU6
        lo, hi = module.min_val, module.max_val
        spline = _spline([lo, hi], [(0, lo), (1, 0), (0, hi)])
    elif isinstance(module, nn.Softshrink):
        knot = module.lambd
        spline = _spline([-knot, knot], [(1, knot), (0, 0), (1, -knot)])
    elif isinstance(module, nn.Hardsigmoid):
        slope, half = Fraction(1, 6), Fraction(1, 2)
        spline = _spline([-3, 3], [(0, 0), (slope, half), (0, 1)])
    else:
        raise CaptureError(
            f"the exact oracle does not know {type(module).__name__}; use linear layers, "
            "convolutions, max-pooling and piecewise-linear activations of one variable"
        )
    return [spline] * math.prod(shape)


def _spline(knots: Iterable[Any], pieces: Iterable[tuple[Any, Any]]) -> Spline:
    return Spline(
        tuple(Fraction(knot) for knot in knots),
        tuple((Fraction(slope), Fraction(intercept)) for slope, intercept in pieces),
    )
