"""A smooth function of one variable, and bounds on it and its derivatives over intervals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS

USUAL_ROUNDING = 8.0  # of most functions, in units of EPS
_UPWARDS = 1 + 1e-12  # covers the rounding of a few ulp, also where it grows with the argument
_NOISE = 2.0**-49  # of the largest derivative: rounding where terms of a derivative cancel
_UNEVEN = 8.0  # times: how much less than itself a second derivative varies on short intervals
_SMALL = 2.0**-6  # of a slope: a change that need not be known closely
_LARGEST = torch.finfo(torch.float64).max

Point = tuple[float, float]
"""A level, and a number that belongs to it."""


@dataclass(frozen=True)
class Shape:
    """Where a function f, its slope f' and its curvature f'' have extrema, limits and zeros."""

    extrema: tuple[float, ...] = ()  # levels at which f' is zero
    inflections: tuple[float, ...] = ()  # levels at which f'' is zero
    curvature_extrema: tuple[float, ...] = ()  # levels at which f''' is zero
    slope_limits: tuple[Point, ...] = ()  # levels at which f' jumps, with the limits on both sides
    curvature_limits: tuple[Point, ...] = ()  # the same for f''


class Derivatives(NamedTuple):
    """The slope of a function at a level, and bounds on an interval around it."""

    slope: Tensor
    curvature: Tensor  # the mean of the least and the largest second derivative on the interval
    largest_slope: Tensor  # the largest modulus there
    largest_curvature: Tensor  # the largest modulus there
    slope_variation: Tensor  # how far slopes there are from ``slope``
    curvature_variation: Tensor  # how far second derivatives there are from ``curvature``


@dataclass(frozen=True, eq=False)
class Curve(ABC):
    """A function of one variable, applied to tensors of float64 entry by entry.

    It is continuous, and has two derivatives but at its ``kinks``. All results are finite for all
    finite arguments, unless the function itself is too large for float64.

    name: for readers. kinks: levels at which the slope jumps, each with the slope after less that
    before. rounding: the error of values in units of EPS, relative to the value; the error that a
    rounded argument would make, EPS times slope and argument, is not in it. rough: the level from
    which ``rounding`` holds; below it, the error is as of other functions. noise: the same,
    relative to the argument, beside ``rounding``. single_noise: the error of values in single
    precision, in units of SINGLE_EPS and relative to the argument; None where single precision is
    not much faster, or loses more than that. off: how far values are from the function whose
    derivatives are given.

    >>> from splinecam.network.curves.formulas import TANH
    >>> z = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    >>> TANH.slope(z).argmax()
    tensor(1)
    >>> TANH.slope_bound(z - 1, z + 1).tolist()[1] >= 1
    True
    """

    name: str
    kinks: tuple[Point, ...] = field(default=(), kw_only=True)
    rounding: float = field(default=USUAL_ROUNDING, kw_only=True)
    rough: float = field(default=-math.inf, kw_only=True)
    noise: float = field(default=0.0, kw_only=True)
    single_noise: float | None = field(default=None, kw_only=True)
    off: float = field(default=0.0, kw_only=True)

    @abstractmethod
    def derivative(self, order: int, z: Tensor) -> Tensor:
        """The function (order 0), its first or second derivative; at a jump that on one side."""

    @abstractmethod
    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest derivative on each interval [low, high], up to rounding."""

    def value(self, z: Tensor) -> Tensor:
        """The function."""
        return self.derivative(0, z)

    def slope(self, z: Tensor) -> Tensor:
        """The first derivative; at a kink that on one of its sides."""
        return self.derivative(1, z)

    def curvature(self, z: Tensor) -> Tensor:
        """The second derivative; where it jumps that on one of the sides."""
        return self.derivative(2, z)

    @property
    def _noise(self) -> tuple[float, float]:
        """The rounding error of slopes and curvatures where their terms cancel."""
        return 0.0, 0.0

    def to(self, device: torch.device) -> Curve:
        """The same function for tensors on a device."""
        return self

    def value_bound(self, low: Tensor, high: Tensor) -> Tensor:
        """At least the largest modulus of the function."""
        noise = self.noise * EPS * torch.maximum(low.abs(), high.abs())
        return self._largest(0, low, high) + noise

    def slope_bound(self, low: Tensor, high: Tensor) -> Tensor:
        """At least the largest modulus of the slope."""
        return self._largest(1, low, high) + self._noise[0]

    def curvature_bound(self, low: Tensor, high: Tensor) -> Tensor:
        """At least the largest modulus of the second derivative, away from kinks."""
        return self._largest(2, low, high) + self._noise[1]

    def _largest(self, order: int, low: Tensor, high: Tensor) -> Tensor:
        least, most = self.extent(order, low, high)
        return torch.maximum(-least, most) * _UPWARDS

    def slope_rounding(self, slope: Tensor) -> Tensor:
        """At least how far slopes that were computed are from the true ones."""
        return _NOISE * slope.abs() + self._noise[0]

    def derivatives(self, low: Tensor, at: Tensor, high: Tensor) -> Derivatives:
        """The slopes at levels, and bounds on intervals around them."""
        slope = self.slope(at)
        least, most = self.extent(2, low, high)
        curvature = least.clamp(min=-_LARGEST) / 2 + most.clamp(max=_LARGEST) / 2
        size = torch.maximum(-least, most)
        largest = size * _UPWARDS + self._noise[1]
        varies = torch.maximum(most - curvature, curvature - least)
        varies = varies * _UPWARDS + _NOISE * size + self._noise[1]
        off = largest * torch.maximum(high - at, at - low) * _UPWARDS
        variation = off + self.slope_rounding(slope)
        steepest = (slope.abs() + variation) * _UPWARDS
        close = (_UNEVEN * varies <= largest) | (off <= _SMALL * slope.abs())
        close &= torch.isfinite(off)
        for level, _ in self.kinks:
            close &= (low > level) | (high < level)
        some = (~close).reshape(-1).nonzero()[:, 0]
        if len(some):
            ends = [each.reshape(-1)[some] for each in (low, high, slope)]
            shape, steepest, variation = slope.shape, steepest.reshape(-1), variation.reshape(-1)
            steepest[some], variation[some] = self._wide_slopes(*ends)
            steepest, variation = steepest.view(shape), variation.view(shape)
        return Derivatives(slope, curvature, steepest, largest, variation, varies)

    def _wide_slopes(self, low: Tensor, high: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """The largest modulus of slopes on intervals, and how far they are from one of them."""
        least, most = self.extent(1, low, high)
        size = torch.maximum(-least, most)
        variation = torch.maximum(most - slope, slope - least) * _UPWARDS
        return size * _UPWARDS + self._noise[0], variation + _NOISE * size + self._noise[0]


@dataclass(frozen=True)
class FormulaCurve(Curve):
    """A function by a ``formula`` of the order of a derivative, the variable and the parameters."""

    formula: Callable[..., Tensor]
    shape: Shape = Shape()
    parameters: tuple[float, ...] = ()

    def derivative(self, order: int, z: Tensor) -> Tensor:
        return self.formula(order, z, *self.parameters)

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return extremes(partial(self.derivative, order), self._points[order], low, high)

    @cached_property
    def _points(self) -> tuple[tuple[Point, ...], ...]:
        """What values, slopes and curvatures are at the levels that matter."""
        shape = self.shape

        def at(order: int, levels: Iterable[float]) -> tuple[Point, ...]:
            z = torch.tensor([*levels], dtype=torch.float64)
            return tuple(zip(z.tolist(), self.derivative(order, z).tolist(), strict=True))

        return (
            at(0, (*shape.extrema, *(level for level, _ in self.kinks))),
            at(1, shape.inflections) + shape.slope_limits,
            at(2, shape.curvature_extrema) + shape.curvature_limits,
        )

    @cached_property
    def _noise(self) -> tuple[float, float]:
        _, slopes, curvatures = self._points
        sizes = [max((abs(x) for _, x in points), default=0.0) for points in (slopes, curvatures)]
        return _NOISE * sizes[0], _NOISE * sizes[1]

    def to(self, device: torch.device) -> Curve:
        if self.name != "hardswish":
            return self
        # There torch multiplies by a sixth in single precision, which is too large by 2^-25.
        rough = backend_of(device).rough_hardswish
        return replace(self, rounding=USUAL_ROUNDING + (2.0**27 if rough else 0.0))


def extremes(
    function: Callable[[Tensor], Tensor], points: Iterable[Point], low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """The least and the largest number of a function that is monotone between given points."""
    low, high = (end.clamp(-_LARGEST, _LARGEST) for end in (low, high))
    first, last = function(low), function(high)
    least, most = torch.minimum(first, last), torch.maximum(first, last)
    for level, number in points:
        inside = (low <= level) & (high >= level)
        least = torch.where(inside, least.clamp(max=number), least)
        most = torch.where(inside, most.clamp(min=number), most)
    return least, most
