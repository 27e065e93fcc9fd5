"""Smooth functions of one variable, and bounds on them and their derivatives over intervals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

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


@dataclass(frozen=True)
class Scaled(Curve):
    """``factor base(rate z)`` for another function; rate: not zero."""

    base: Curve
    factor: float
    rate: float

    def to(self, device: torch.device) -> Curve:
        return scaled(self.base.to(device), self.factor, self.rate)

    def derivative(self, order: int, z: Tensor) -> Tensor:
        return self._factors[order] * self.base.derivative(order, self._inner(z))

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        first, last = self._inner(low), self._inner(high)
        ends = (first, last) if self.rate > 0 else (last, first)
        factor = self._factors[order]
        least, most = (factor * end for end in self.base.extent(order, *ends))
        return (least, most) if factor > 0 else (most, least)

    @property
    def _factors(self) -> tuple[float, float, float]:
        """What the derivatives of the base are multiplied by."""
        return self.factor, self.factor * self.rate, self.factor * self.rate * self.rate

    @property
    def _noise(self) -> tuple[float, float]:
        slope, curvature = self.base._noise
        steepness = abs(self.factor * self.rate)
        return steepness * slope, steepness * abs(self.rate) * curvature

    def _inner(self, z: Tensor) -> Tensor:
        """The base's argument, which stays finite."""
        largest = torch.finfo(z.dtype).max
        return (self.rate * z).clamp(-largest, largest)


def scaled(base: Curve, factor: float = 1.0, rate: float = 1.0) -> Curve:
    """``factor base(rate z)`` for another function; rate: not zero."""
    steepness, single = abs(factor * rate), base.single_noise
    # A kink stays a kink in either direction.
    kinks = tuple((level / rate, factor * abs(rate) * jump) for level, jump in base.kinks)
    single = None if single is None else steepness * (single + 1)
    errors = {"rounding": base.rounding + 4, "noise": steepness * base.noise}
    return Scaled(base.name, base, factor, rate, kinks=kinks, single_noise=single, **errors)


_UNKNOWN_ROUNDING = 256.0  # nothing is known of how a function of the user rounds
_LOOSELY = 1 + 1e-9  # covers the rounding of slopes, and of the user's own bound


@dataclass(frozen=True, eq=False)
class RegisteredCurve(Curve):
    """A function whose slopes come from autograd, and all bounds from that on its curvature."""

    run: Callable[[Tensor, Any], Tensor]  # from entries (N, 1) to results (N, 1)
    limit: Callable[[Tensor, Tensor, Any], Any]  # from ends to at least the modulus of f'' between
    constants: Any
    rounding: float = field(default=_UNKNOWN_ROUNDING, kw_only=True)

    def to(self, device: torch.device) -> Curve:
        moved = tree_map_only(Tensor, lambda constant: constant.to(device), self.constants)
        return replace(self, constants=moved)

    def derivative(self, order: int, z: Tensor) -> Tensor:
        """By autograd; where there is no second derivative, its bound."""
        if order == 0:
            return self.run(z.reshape(-1, 1), self.constants).reshape(z.shape)
        if order == 1:
            return self._by_autograd(1, z)
        limit = self.curvature_bound(z, z)
        try:
            found = self._by_autograd(2, z)
        except RuntimeError:
            return limit
        return torch.where(found.abs() <= limit, found, limit)

    def _by_autograd(self, order: int, z: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            x = z.detach().clone().reshape(-1, 1).requires_grad_()
            found = self.run(x, self.constants)
            for left in range(order, 0, -1):
                (found,) = torch.autograd.grad(found.sum(), x, create_graph=left > 1)
        return found.detach().reshape(z.shape)

    def curvature_bound(self, low: Tensor, high: Tensor) -> Tensor:
        found = torch.as_tensor(self.limit(low, high, self.constants)).to(low)
        return found.expand(low.shape) * _LOOSELY

    def slope_rounding(self, slope: Tensor) -> Tensor:
        return _UNKNOWN_ROUNDING * EPS * slope.abs()

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        if order == 2:
            limit = self.curvature_bound(low, high)
            return -limit, limit
        middle = low + (high - low) / 2
        reach = torch.maximum(high - middle, middle - low) * _LOOSELY
        steepest = self.slope_bound(low, high) if order == 0 else self.curvature_bound(low, high)
        found = self.derivative(order, middle)
        off = steepest * reach + _UNKNOWN_ROUNDING * EPS * found.abs()
        return found - off, found + off
