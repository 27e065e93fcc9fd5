"""A function whose argument and whose result are multiplied by numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam.network.curves.curve import Curve

__all__ = ["Scaled"]


@dataclass(frozen=True)
class Scaled(Curve):
    """``factor base(rate z)`` for another function; rate: not zero."""

    base: Curve
    factor: float = 1.0
    rate: float = 1.0

    @property
    def name(self) -> str:
        return self.base.name

    def to(self, device: torch.device) -> Scaled:
        return replace(self, base=self.base.to(device))

    @property
    def rounding(self) -> float:
        return self.base.rounding + 4

    @property
    def noise(self) -> float:
        return abs(self.factor * self.rate) * self.base.noise

    @property
    def single_noise(self) -> float | None:
        noise = self.base.single_noise
        return None if noise is None else abs(self.factor * self.rate) * (noise + 1)

    @property
    def kinks(self) -> tuple[tuple[float, float], ...]:
        steepness = self.factor * abs(self.rate)  # a kink is one in both directions
        return tuple((level / self.rate, steepness * jump) for level, jump in self.base.kinks)

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

    @cached_property
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


def _times(factor: float, ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The ends of intervals that are multiplied by a number."""
    low, high = factor * ends[0], factor * ends[1]
    return (low, high) if factor > 0 else (high, low)
