"""Elementary functions: exponential, periodic, polynomial, and saturating ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import atanh, exp, log1p, pi, sqrt

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import Curve, Shape, extremes


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
