"""Whole powers, and hardswish, which is quadratic between two kinks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.network.curves.curve import Curve, Shape

__all__ = ["Hardswish", "Power"]


@dataclass(frozen=True)
class Power(Curve):
    """``z^exponent`` for a whole number of at least 2."""

    exponent: int = 2

    @property
    def name(self) -> str:
        return "square" if self.exponent == 2 else f"power {self.exponent}"

    def value(self, z: Tensor) -> Tensor:
        return z.pow(self.exponent)

    def slope(self, z: Tensor) -> Tensor:
        return self.exponent * z.pow(self.exponent - 1)

    def curvature(self, z: Tensor) -> Tensor:
        return self.exponent * (self.exponent - 1) * z.pow(self.exponent - 2)

    @cached_property
    def shape(self) -> Shape:
        even = self.exponent % 2 == 0
        return Shape(
            extrema=(0.0,),
            inflections=() if even else (0.0,),
            curvature_extrema=(0.0,),
        )


@dataclass(frozen=True)
class Hardswish(Curve):
    """``z min(max(z + 3, 0), 6) / 6``, with kinks at -3 and 3.

    rough: whether torch multiplies by a sixth in single precision.
    """

    rough: bool = False

    @property
    def name(self) -> str:
        return "hardswish"

    @property
    def rounding(self) -> float:
        return 8.0 + (2.0**27 if self.rough else 0.0)  # the sixth is too large by 2^-25 of itself

    def to(self, device: torch.device) -> Hardswish:
        return replace(self, rough=backend_of(device).rough_hardswish)

    def value(self, z: Tensor) -> Tensor:
        return z * ((z + 3).clamp(0, 6) / 6)

    def slope(self, z: Tensor) -> Tensor:
        between = (2 * z.clamp(-3, 3) + 3) / 6
        return torch.where(z <= -3, 0.0, torch.where(z >= 3, 1.0, between))

    def curvature(self, z: Tensor) -> Tensor:
        return (z.abs() < 3).to(z.dtype) / 3

    @property
    def kinks(self) -> tuple[tuple[float, float], ...]:
        return ((-3.0, -0.5), (3.0, -0.5))

    @cached_property
    def shape(self) -> Shape:
        return Shape(
            extrema=(-1.5,),
            slope_limits=((-3.0, 0.0), (-3.0, -0.5), (3.0, 1.5), (3.0, 1.0)),
            curvature_limits=((-3.0, 0.0), (-3.0, 1 / 3), (3.0, 1 / 3), (3.0, 0.0)),
        )
