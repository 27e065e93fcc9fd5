"""Scaled functions, and registered ones with a bound on their second derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve


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


_ROUNDING = 256.0  # nothing is known of how a function of the user rounds
_UPWARDS = 1 + 1e-9  # covers the rounding of slopes, and of the user's own bound


@dataclass(frozen=True, eq=False)
class RegisteredCurve(Curve):
    """A function whose slopes come from autograd, and all bounds from that on its curvature."""

    run: Callable[[Tensor, Any], Tensor]  # from entries (N, 1) to results (N, 1)
    limit: Callable[[Tensor, Tensor, Any], Any]  # from ends to at least the modulus of f'' between
    constants: Any
    rounding: float = field(default=_ROUNDING, kw_only=True)

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
        return found.expand(low.shape) * _UPWARDS

    def slope_rounding(self, slope: Tensor) -> Tensor:
        return _ROUNDING * EPS * slope.abs()

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        if order == 2:
            limit = self.curvature_bound(low, high)
            return -limit, limit
        middle = low + (high - low) / 2
        reach = torch.maximum(high - middle, middle - low) * _UPWARDS
        steepest = self.slope_bound(low, high) if order == 0 else self.curvature_bound(low, high)
        found = self.derivative(order, middle)
        off = steepest * reach + _ROUNDING * EPS * found.abs()
        return found - off, found + off
