"""Sine and cosine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import pi

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve, extremes

__all__ = ["Cosine", "Sine"]


@dataclass(frozen=True)
class _Wave(Curve):
    """A wave of period 2 pi; its own value is largest at ``_peak``, its slope a quarter before."""

    @property
    def _peak(self) -> float:
        raise NotImplementedError

    def value_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _wave_range(self.value, self._peak, low, high)

    def slope_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _wave_range(self.slope, self._peak - pi / 2, low, high)

    def curvature_range(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return _wave_range(self.curvature, self._peak - pi, low, high)

    @cached_property
    def _noise(self) -> tuple[float, float]:
        return 0.0, 0.0  # no terms cancel


@dataclass(frozen=True)
class Sine(_Wave):
    """The sine."""

    @property
    def name(self) -> str:
        return "sin"

    @property
    def _peak(self) -> float:
        return pi / 2

    def value(self, z: Tensor) -> Tensor:
        return torch.sin(z)

    def slope(self, z: Tensor) -> Tensor:
        return torch.cos(z)

    def curvature(self, z: Tensor) -> Tensor:
        return -torch.sin(z)


@dataclass(frozen=True)
class Cosine(_Wave):
    """The cosine."""

    @property
    def name(self) -> str:
        return "cos"

    @property
    def _peak(self) -> float:
        return 0.0

    def value(self, z: Tensor) -> Tensor:
        return torch.cos(z)

    def slope(self, z: Tensor) -> Tensor:
        return -torch.sin(z)

    def curvature(self, z: Tensor) -> Tensor:
        return -torch.cos(z)


def _wave_range(
    function: Callable[[Tensor], Tensor], peak: float, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """The least and the largest number of a wave between -1 and 1 that is 1 at a peak."""
    least, most = extremes(function, (), low, high)
    most = torch.where(_reaches(peak, low, high), 1.0, most)
    return torch.where(_reaches(peak + pi, low, high), -1.0, least), most


def _reaches(level: float, low: Tensor, high: Tensor) -> Tensor:
    """Whether an interval contains a level or one that is some periods away, up to rounding."""
    first, last = ((end - level) / (2 * pi) for end in (low, high))
    slack = 1e-12 + 4 * EPS * torch.maximum(first.abs(), last.abs())
    return torch.floor(last + slack) >= torch.ceil(first - slack)
