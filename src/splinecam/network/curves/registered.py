"""Scaled functions, and registered ones with a bound on their second derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve
from splinecam.network.values import map_tensors


@dataclass(frozen=True)
class Scaled(Curve):
    """``factor base(rate z)`` for another function; rate: not zero."""

    base: Curve
    factor: float
    rate: float

    def to(self, device: torch.device) -> Curve:
        return scaled(self.base.to(device), self.factor, self.rate)

    def value(self, z: Tensor) -> Tensor:
        return self.factor * self.base.value(self._inner(z))

    def slope(self, z: Tensor) -> Tensor:
        return self.factor * self.rate * self.base.slope(self._inner(z))

    def curvature(self, z: Tensor) -> Tensor:
        return self.factor * self.rate * self.rate * self.base.curvature(self._inner(z))

    def value_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _times(self.factor, self.base.value_range(*self._ends(low, high)))

    def slope_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _times(self.factor * self.rate, self.base.slope_range(*self._ends(low, high)))

    def curvature_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        found = self.base.curvature_range(*self._ends(low, high))
        return _times(self.factor * self.rate * self.rate, found)

    @property
    def _noise(self) -> tuple[float, float]:
        slope, curvature = self.base._noise
        steepness = abs(self.factor * self.rate)
        return steepness * slope, steepness * abs(self.rate) * curvature

    def _inner(self, z: Tensor) -> Tensor:
        """The base's argument, which stays finite."""
        largest = torch.finfo(z.dtype).max
        return (self.rate * z).clamp(-largest, largest)

    def _ends(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The interval of the base's argument."""
        first, last = self._inner(low), self._inner(high)
        return (first, last) if self.rate > 0 else (last, first)


def scaled(base: Curve, factor: float = 1.0, rate: float = 1.0) -> Curve:
    """``factor base(rate z)`` for another function; rate: not zero."""
    steepness, single = abs(factor * rate), base.single_noise
    # A kink is one in both directions.
    kinks = tuple((level / rate, factor * abs(rate) * jump) for level, jump in base.kinks)
    return Scaled(
        base.name,
        base,
        factor,
        rate,
        kinks=kinks,
        rounding=base.rounding + 4,
        noise=steepness * base.noise,
        single_noise=None if single is None else steepness * (single + 1),
    )


def _times(factor: float, ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The ends of intervals that are multiplied by a number."""
    low, high = factor * ends[0], factor * ends[1]
    return (low, high) if factor > 0 else (high, low)


_ROUNDING = 256.0  # nothing is known of how a function of the user rounds
_UPWARDS = 1 + 1e-9  # covers the rounding of slopes, and of the user's own bound


@dataclass(frozen=True, eq=False)
class RegisteredCurve(Curve):
    """A function whose slopes come from autograd, and all bounds from that on the curvature.

    run: from entries (N, 1) and constants to results (N, 1). limit: at least the modulus of the
    second derivative on intervals [low, high], of which tensors are given, with the constants; it
    may be larger.
    """

    run: Callable[[Tensor, Any], Tensor]
    limit: Callable[[Tensor, Tensor, Any], Any]
    constants: Any
    rounding: float = field(default=_ROUNDING, kw_only=True)

    def to(self, device: torch.device) -> Curve:
        moved = map_tensors(self.constants, lambda constant: constant.to(device))
        return replace(self, constants=moved)

    def value(self, z: Tensor) -> Tensor:
        return self.run(z.reshape(-1, 1), self.constants).reshape(z.shape)

    def slope(self, z: Tensor) -> Tensor:
        return self._derivative(z, 1)

    def curvature(self, z: Tensor) -> Tensor:
        """The second derivative by autograd; where there is none, its bound."""
        limit = self.curvature_bound(z, z)
        try:
            found = self._derivative(z, 2)
        except RuntimeError:
            return limit
        return torch.where(found.abs() <= limit, found, limit)

    def _derivative(self, z: Tensor, order: int) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            x = z.detach().clone().reshape(-1, 1).requires_grad_()
            found = self.run(x, self.constants)
            for left in range(order, 0, -1):
                (found,) = torch.autograd.grad(found.sum(), x, create_graph=left > 1)
        return found.detach().reshape(z.shape)

    def curvature_bound(self, low: Tensor, high: Tensor) -> Tensor:
        found = torch.as_tensor(self.limit(low, high, self.constants)).to(low)
        return found.expand(low.shape) * _UPWARDS

    def curvature_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        limit = self.curvature_bound(low, high)
        return -limit, limit

    def slope_rounding(self, slope: Tensor) -> Tensor:
        return _ROUNDING * EPS * slope.abs()

    def slope_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        middle, reach = _around(low, high)
        slope = self.slope(middle)
        off = self.curvature_bound(low, high) * reach + _ROUNDING * EPS * slope.abs()
        return slope - off, slope + off

    def value_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        middle, reach = _around(low, high)
        value = self.value(middle)
        off = self.slope_bound(low, high) * reach + _ROUNDING * EPS * value.abs()
        return value - off, value + off


def _around(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The middle of intervals, and how far they reach from it."""
    middle = low + (high - low) / 2
    return middle, torch.maximum(high - middle, middle - low) * _UPWARDS
