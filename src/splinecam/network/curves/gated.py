"""Products of the variable and a gate that opens from 0 to 1: GELU, SiLU and Mish.

Where their derivatives vanish has no closed form but for GELU. Those levels were found with mpmath
as roots of the derivatives; ``tests/network/test_curves.py`` checks
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import pi, sqrt

import torch
from torch import Tensor

from splinecam.network.curves.curve import Curve, Shape

_GELU_MINIMUM = -0.7517915246935644574579
_TANH_MINIMUM = -0.752461422071016258488
_TANH_INFLECTION = 1.418504008790828355548
_TANH_TURN = 2.01348072462425792808
_SILU_MINIMUM = -1.278464542761073795109
_SILU_INFLECTION = 2.399357280515467667833
_SILU_TURN = 3.435840993535110688952
_MISH_MINIMUM = -1.192431214515495212138
_MISH_INFLECTIONS = (-2.256376396360793120006, 1.490571179485428459294)
_MISH_TURNS = (-3.267337846520404576125, -0.08793443131491421132669, 2.114842563020877108593)
_CUBIC = 0.044715
_FAR = 100.0  # beyond this all gates are open or closed, and their derivatives zero, in float64


@dataclass(frozen=True)
class Gelu(Curve):
    """``z P(Z <= z)`` for a standard normal Z."""

    @property
    def name(self) -> str:
        return "gelu"

    @property
    def noise(self) -> float:
        return 2.0

    @property
    def single_noise(self) -> float:
        return 4.0  # vector instructions approximate erf to 1e-7

    def value(self, z: Tensor) -> Tensor:
        if z.dtype == torch.float32:
            return torch.nn.functional.gelu(z)
        gate: Tensor = torch.special.ndtr(z)  # precise to EPS; erfc would take three times as long
        return z * gate

    def slope(self, z: Tensor) -> Tensor:
        return _normal_cdf(z) + z * _normal_density(z)

    def curvature(self, z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        return (2 - z * z) * _normal_density(z)

    @cached_property
    def shape(self) -> Shape:
        return Shape(
            extrema=(_GELU_MINIMUM,),
            inflections=(-sqrt(2), sqrt(2)),
            curvature_extrema=(-2.0, 0.0, 2.0),
        )


def _normal_cdf(z: Tensor) -> Tensor:
    return torch.erfc(z * -sqrt(0.5)) / 2


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(z * z / -2) / sqrt(2 * pi)


@dataclass(frozen=True)
class _Logistic(Curve):
    """The variable times a logistic function of an odd, increasing function h of it."""

    def _inner(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def _inner_derivatives(self, z: Tensor) -> tuple[Tensor | float, Tensor | float]:
        raise NotImplementedError

    @property
    def single_noise(self) -> float:
        return 1.0

    def value(self, z: Tensor) -> Tensor:
        return z * torch.sigmoid(self._inner(z))

    def slope(self, z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        gate, closed = self._gate(z)
        first, _ = self._inner_derivatives(z)
        return gate + z * (gate * closed * first)

    def curvature(self, z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        gate, closed = self._gate(z)
        first, second = self._inner_derivatives(z)
        return gate * closed * (2 * first + z * ((closed - gate) * first * first + second))

    def _gate(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """How far the gate is open, and how far closed."""
        inner = self._inner(z)
        return torch.sigmoid(inner), torch.sigmoid(-inner)


@dataclass(frozen=True)
class GeluTanh(_Logistic):
    """The approximation of GELU by ``z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2``."""

    @property
    def name(self) -> str:
        return "gelu (tanh)"

    @property
    def noise(self) -> float:
        return 2.0  # of torch's formula, whose terms cancel below zero

    def _inner(self, z: Tensor) -> Tensor:
        return sqrt(8 / pi) * z * (1 + _CUBIC * z * z)

    def _inner_derivatives(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return sqrt(8 / pi) * (1 + 3 * _CUBIC * z * z), sqrt(8 / pi) * 6 * _CUBIC * z

    @cached_property
    def shape(self) -> Shape:
        return Shape(
            extrema=(_TANH_MINIMUM,),
            inflections=(-_TANH_INFLECTION, _TANH_INFLECTION),
            curvature_extrema=(-_TANH_TURN, 0.0, _TANH_TURN),
        )


@dataclass(frozen=True)
class Silu(_Logistic):
    """``z / (1 + exp(-z))``, also called swish."""

    @property
    def name(self) -> str:
        return "silu"

    def _inner(self, z: Tensor) -> Tensor:
        return z

    def _inner_derivatives(self, z: Tensor) -> tuple[float, float]:
        return 1.0, 0.0

    @cached_property
    def shape(self) -> Shape:
        return Shape(
            extrema=(_SILU_MINIMUM,),
            inflections=(-_SILU_INFLECTION, _SILU_INFLECTION),
            curvature_extrema=(-_SILU_TURN, 0.0, _SILU_TURN),
        )


@dataclass(frozen=True)
class Mish(Curve):
    """``z tanh(log(1 + exp(z)))``."""

    @property
    def name(self) -> str:
        return "mish"

    def value(self, z: Tensor) -> Tensor:
        return z * self._gate(z)[0]

    def slope(self, z: Tensor) -> Tensor:
        gate, rise, _ = self._gate(z)
        return gate + z * rise

    def curvature(self, z: Tensor) -> Tensor:
        gate, rise, opening = self._gate(z)
        return rise * 2 + z * rise * (1 - opening - 2 * gate * opening)

    def _gate(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gate, its derivative, and the logistic function."""
        small = torch.exp(-z.abs())
        up = z > 0
        # The gate is (w^2 + 2 w) / (w^2 + 2 w + 2) with w = exp(z); a large w^2 is divided out.
        total = torch.where(up, 1 + 2 * small + 2 * small * small, small * small + 2 * small + 2)
        gate = torch.where(up, 1 + 2 * small, small * (small + 2)) / total
        opening = torch.where(up, 1.0, small) / (1 + small)
        root = torch.where(up, small, 1.0) * (1 + small) / total
        return gate, 4 * root * root * opening, opening

    @cached_property
    def shape(self) -> Shape:
        return Shape(
            extrema=(_MISH_MINIMUM,),
            inflections=_MISH_INFLECTIONS,
            curvature_extrema=_MISH_TURNS,
        )
