"""Functions with limits at infinity, or straight asymptotes: tanh, sigmoid, softsign, softplus."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import atanh, exp, log1p, pi, sqrt

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve, Shape

__all__ = ["Erf", "Sigmoid", "Softplus", "Softsign", "Tanh"]

_FAR = 100.0  # beyond this the slope of the error function is zero in float64
_THIRD = atanh(sqrt(1 / 3))  # where the curvature of tanh is largest


@dataclass(frozen=True)
class Tanh(Curve):
    """The hyperbolic tangent."""

    @property
    def name(self) -> str:
        return "tanh"

    @property
    def single_noise(self) -> float:
        return 1.0

    def value(self, z: Tensor) -> Tensor:
        return torch.tanh(z)

    def slope(self, z: Tensor) -> Tensor:
        return 4 * _bell(2 * z.abs())

    def curvature(self, z: Tensor) -> Tensor:
        return -2 * torch.tanh(z) * self.slope(z)

    @cached_property
    def shape(self) -> Shape:
        return Shape(inflections=(0.0,), curvature_extrema=(-_THIRD, _THIRD))


@dataclass(frozen=True)
class Sigmoid(Curve):
    """The logistic function ``1 / (1 + exp(-z))``."""

    @property
    def name(self) -> str:
        return "sigmoid"

    def value(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z)

    def slope(self, z: Tensor) -> Tensor:
        return _bell(z.abs())

    def curvature(self, z: Tensor) -> Tensor:
        return -torch.tanh(z / 2) * self.slope(z)

    @cached_property
    def shape(self) -> Shape:
        return Shape(inflections=(0.0,), curvature_extrema=(-2 * _THIRD, 2 * _THIRD))


@dataclass(frozen=True)
class Erf(Curve):
    """The error function, ``2 P(Z <= sqrt(2) z) - 1`` for a standard normal Z."""

    @property
    def name(self) -> str:
        return "erf"

    def value(self, z: Tensor) -> Tensor:
        return torch.erf(z)

    def slope(self, z: Tensor) -> Tensor:
        return torch.exp(-z * z) * (2 / sqrt(pi))

    def curvature(self, z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        return -2 * z * self.slope(z)

    @cached_property
    def shape(self) -> Shape:
        return Shape(inflections=(0.0,), curvature_extrema=(-sqrt(0.5), sqrt(0.5)))


def _bell(size: Tensor) -> Tensor:
    """The slope of the logistic function at positive arguments."""
    small = torch.exp(-size)
    return small / (1 + small).square()


@dataclass(frozen=True)
class Softplus(Curve):
    """``log(1 + exp(beta z)) / beta``; with beta = -1 it is the logarithm of the sigmoid.

    threshold: of ``beta z``, beyond which torch computes the identity, and jumps.
    """

    beta: float = 1.0
    threshold: float | None = None

    @property
    def name(self) -> str:
        return "logsigmoid" if self.beta == -1 else "softplus"

    def value(self, z: Tensor) -> Tensor:
        scaled = self.beta * z
        rest = torch.log1p(torch.exp(-scaled.abs())) / self.beta
        return torch.where(scaled > 0, z, 0.0) + rest

    def slope(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.beta * z)

    def curvature(self, z: Tensor) -> Tensor:
        return self.beta * _bell((self.beta * z).abs())

    @property
    def jump(self) -> float:
        """By how much torch's function is off beyond its threshold, relative to its value."""
        if self.threshold is None:
            return 0.0
        return log1p(exp(-self.threshold)) / self.threshold

    @property
    def rounding(self) -> float:
        return 8.0 + self.jump / EPS

    @cached_property
    def shape(self) -> Shape:
        return Shape((1 if self.beta > 0 else -1,), curvature_extrema=(0.0,))


@dataclass(frozen=True)
class Softsign(Curve):
    """``z / (1 + |z|)``, whose second derivative jumps at zero."""

    @property
    def name(self) -> str:
        return "softsign"

    def value(self, z: Tensor) -> Tensor:
        return z / (1 + z.abs())

    def slope(self, z: Tensor) -> Tensor:
        return (1 / (1 + z.abs())).square()

    def curvature(self, z: Tensor) -> Tensor:
        return -2 * z.sign() * (1 / (1 + z.abs())).pow(3)

    @cached_property
    def shape(self) -> Shape:
        return Shape(inflections=(0.0,), curvature_limits=((0.0, 2.0), (0.0, -2.0)))
