"""The exponential function, and functions that are exponential below zero and linear above."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve, Shape

__all__ = ["Exp", "ExponentialLinear"]


@dataclass(frozen=True)
class Exp(Curve):
    """The exponential function, which is infinite in float64 beyond 709.78."""

    @property
    def name(self) -> str:
        return "exp"

    def value(self, z: Tensor) -> Tensor:
        return torch.exp(z)

    def slope(self, z: Tensor) -> Tensor:
        return torch.exp(z)

    def curvature(self, z: Tensor) -> Tensor:
        return torch.exp(z)

    @cached_property
    def shape(self) -> Shape:
        return Shape()


@dataclass(frozen=True)
class ExponentialLinear(Curve):
    """``above z`` for positive z, else ``below (exp(rate z) - 1)``: ELU, SELU and CELU.

    rate: a positive number. kind: what the function is called.
    """

    below: float = 1.0
    rate: float = 1.0
    above: float = 1.0
    kind: str = "elu"

    @property
    def name(self) -> str:
        return self.kind

    def value(self, z: Tensor) -> Tensor:
        return self.above * z.clamp(min=0) + self.below * torch.expm1(self.rate * z.clamp(max=0))

    def slope(self, z: Tensor) -> Tensor:
        return torch.where(z > 0, self.above, self.below * self.rate * self._decay(z))

    def curvature(self, z: Tensor) -> Tensor:
        return torch.where(z > 0, 0.0, self.below * self.rate * self.rate * self._decay(z))

    def _decay(self, z: Tensor) -> Tensor:
        return torch.exp(self.rate * z.clamp(max=0))

    @property
    def kinks(self) -> tuple[tuple[float, float], ...]:
        jump = self.above - self.below * self.rate
        return ((0.0, jump),) if abs(jump) > 4 * EPS * abs(self.above) else ()

    @cached_property
    def shape(self) -> Shape:
        bend = self.below * self.rate
        return Shape(
            slope_limits=((0.0, bend), (0.0, self.above)),
            curvature_limits=((0.0, bend * self.rate), (0.0, 0.0)),
        )
