"""The smooth functions of networks: exponential, saturating, gated, periodic, and polynomial ones.

Each is a ``Curve``, or a function that makes one of its parameters. The formula of a curve takes
the order of a derivative (0, 1 or 2) and the variable. The derivatives of gated functions vanish at
levels without a closed form, but for GELU. These levels were found with mpmath as roots of the
derivatives; ``tests/network/test_curves.py`` checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import atanh, exp, inf, log1p, pi, sqrt

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.network.curves.curve import USUAL_ROUNDING, Curve, FormulaCurve, Shape, extremes

_FAR = 100.0  # beyond this all gates are open or closed, and their derivatives zero, in float64
_THIRD = atanh(sqrt(1 / 3))  # where the curvature of tanh is largest


# -- exponential -----------------------------------------------------------------------------------


def _exp(order: int, z: Tensor) -> Tensor:
    return torch.exp(z)


EXP = FormulaCurve("exp", _exp)
"""The exponential function, which is infinite in float64 beyond 709.78."""


def exponential_linear(
    below: float = 1.0, rate: float = 1.0, above: float = 1.0, kind: str = "elu"
) -> Curve:
    """``above z`` for positive z, else ``below (exp(rate z) - 1)``: ELU, SELU and CELU.

    rate: a positive number. kind: what the function is called.
    """
    bend, jump = below * rate, above - below * rate
    shape = Shape(
        slope_limits=((0.0, bend), (0.0, above)),
        curvature_limits=((0.0, bend * rate), (0.0, 0.0)),
    )
    kinks = ((0.0, jump),) if abs(jump) > 4 * EPS * abs(above) else ()
    return FormulaCurve(kind, _elu, shape, (below, rate, above), kinks=kinks)


def _elu(order: int, z: Tensor, below: float, rate: float, above: float) -> Tensor:
    if order == 0:
        return above * z.clamp(min=0) + below * torch.expm1(rate * z.clamp(max=0))
    factor = below * rate if order == 1 else below * rate * rate
    beyond = above if order == 1 else 0.0
    return torch.where(z > 0, beyond, factor * torch.exp(rate * z.clamp(max=0)))


# -- saturating ------------------------------------------------------------------------------------


def _bell(size: Tensor) -> Tensor:
    """The slope of the logistic function at positive arguments."""
    small = torch.exp(-size)
    return small / (1 + small).square()


def _tanh(order: int, z: Tensor) -> Tensor:
    if order == 0:
        return torch.tanh(z)
    slope = 4 * _bell(2 * z.abs())
    return slope if order == 1 else -2 * torch.tanh(z) * slope


TANH = FormulaCurve(
    "tanh", _tanh, Shape(inflections=(0.0,), curvature_extrema=(-_THIRD, _THIRD)), single_noise=1.0
)


def _sigmoid(order: int, z: Tensor) -> Tensor:
    if order == 0:
        return torch.sigmoid(z)
    slope = _bell(z.abs())
    return slope if order == 1 else -torch.tanh(z / 2) * slope


SIGMOID = FormulaCurve(
    "sigmoid", _sigmoid, Shape(inflections=(0.0,), curvature_extrema=(-2 * _THIRD, 2 * _THIRD))
)


def _erf(order: int, z: Tensor) -> Tensor:
    if order == 0:
        return torch.erf(z)
    if order == 2:
        z = z.clamp(-_FAR, _FAR)
    slope = torch.exp(-z * z) * (2 / sqrt(pi))
    return slope if order == 1 else -2 * z * slope


ERF = FormulaCurve(
    "erf", _erf, Shape(inflections=(0.0,), curvature_extrema=(-sqrt(0.5), sqrt(0.5)))
)


def softplus(beta: float = 1.0, threshold: float | None = None) -> Curve:
    """``log(1 + exp(beta z)) / beta``; with beta = -1 it is the logarithm of the sigmoid.

    threshold: of ``beta z``, beyond which torch computes the identity, and jumps.
    """
    return FormulaCurve(
        "logsigmoid" if beta == -1 else "softplus",
        _softplus,
        Shape((1 if beta > 0 else -1,), curvature_extrema=(0.0,)),
        (beta,),
        rounding=USUAL_ROUNDING + softplus_jump(threshold) / EPS,
        rough=-inf if threshold is None or beta < 0 else threshold / beta * (1 - 1e-9),
    )


def softplus_jump(threshold: float | None) -> float:
    """By how much torch's softplus is off beyond its threshold, relative to its value."""
    return 0.0 if threshold is None else log1p(exp(-threshold)) / threshold


def _softplus(order: int, z: Tensor, beta: float) -> Tensor:
    if order == 0:  # beyond the threshold it is the identity in float64
        return torch.nn.functional.softplus(z, beta, threshold=40)
    scaled = beta * z
    return torch.sigmoid(scaled) if order == 1 else beta * _bell(scaled.abs())


def _softsign(order: int, z: Tensor) -> Tensor:
    if order == 0:
        return z / (1 + z.abs())
    share = 1 / (1 + z.abs())
    return share.square() if order == 1 else -2 * z.sign() * share.pow(3)


SOFTSIGN = FormulaCurve(
    "softsign", _softsign, Shape(inflections=(0.0,), curvature_limits=((0.0, 2.0), (0.0, -2.0)))
)


# -- gated: products of the variable and a gate that opens from 0 to 1 -----------------------------


def _gelu(order: int, z: Tensor) -> Tensor:
    if order == 0:
        if z.dtype == torch.float32:
            return torch.nn.functional.gelu(z)
        gate: Tensor = torch.special.ndtr(z)  # precise to EPS; erfc would take three times as long
        return z * gate
    if order == 1:
        return torch.erfc(z * -sqrt(0.5)) / 2 + z * _normal_density(z)
    z = z.clamp(-_FAR, _FAR)
    return (2 - z * z) * _normal_density(z)


def _normal_density(z: Tensor) -> Tensor:
    return torch.exp(z * z / -2) / sqrt(2 * pi)


GELU = FormulaCurve(
    "gelu",
    _gelu,
    Shape((-0.7517915246935644574579,), (-sqrt(2), sqrt(2)), (-2.0, 0.0, 2.0)),
    noise=2.0,
    single_noise=4.0,  # vector instructions approximate erf to 1e-7
)


def _logistic(order: int, z: Tensor, cubic: float) -> Tensor:
    """The variable times a logistic function of it, or of a polynomial if ``cubic`` is not 0."""
    first: Tensor | float = 1.0
    second: Tensor | float = 0.0
    if order > 0:
        z = z.clamp(-_FAR, _FAR)
    inner = z if cubic == 0 else sqrt(8 / pi) * z * (1 + cubic * z * z)
    gate = torch.sigmoid(inner)
    if order == 0:
        return z * gate
    if cubic != 0:
        first, second = sqrt(8 / pi) * (1 + 3 * cubic * z * z), sqrt(8 / pi) * 6 * cubic * z
    closed = torch.sigmoid(-inner)
    if order == 1:
        return gate + z * (gate * closed * first)
    return gate * closed * (2 * first + z * ((closed - gate) * first * first + second))


GELU_TANH = FormulaCurve(
    "gelu (tanh)",
    _logistic,
    Shape(
        (-0.752461422071016258488,),
        (-1.418504008790828355548, 1.418504008790828355548),
        (-2.01348072462425792808, 0.0, 2.01348072462425792808),
    ),
    (0.044715,),
    noise=2.0,  # of torch's formula, whose terms cancel below zero
    single_noise=1.0,
)
"""The approximation of GELU by ``z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2``."""

SILU = FormulaCurve(
    "silu",
    _logistic,
    Shape(
        (-1.278464542761073795109,),
        (-2.399357280515467667833, 2.399357280515467667833),
        (-3.435840993535110688952, 0.0, 3.435840993535110688952),
    ),
    (0.0,),
    single_noise=1.0,
)
"""``z / (1 + exp(-z))``, also called swish."""


def _mish(order: int, z: Tensor) -> Tensor:
    small = torch.exp(-z.abs())
    up = z > 0
    # The gate is (w^2 + 2 w) / (w^2 + 2 w + 2) with w = exp(z); a large w^2 is divided out.
    total = torch.where(up, 1 + 2 * small + 2 * small * small, small * small + 2 * small + 2)
    gate = torch.where(up, 1 + 2 * small, small * (small + 2)) / total
    if order == 0:
        return z * gate
    logistic = torch.where(up, 1.0, small) / (1 + small)
    root = torch.where(up, small, 1.0) * (1 + small) / total
    rise = 4 * root * root * logistic  # the derivative of the gate
    if order == 1:
        return gate + z * rise
    return rise * 2 + z * rise * (1 - logistic - 2 * gate * logistic)


MISH = FormulaCurve(
    "mish",
    _mish,
    Shape(
        (-1.192431214515495212138,),
        (-2.256376396360793120006, 1.490571179485428459294),
        (-3.267337846520404576125, -0.08793443131491421132669, 2.114842563020877108593),
    ),
)
"""``z tanh(log(1 + exp(z)))``."""


def _hardswish(order: int, z: Tensor) -> Tensor:
    if order == 0:
        return z * ((z + 3).clamp(0, 6) / 6)
    if order == 2:
        return (z.abs() < 3).to(z.dtype) / 3
    between = (2 * z.clamp(-3, 3) + 3) / 6
    return torch.where(z <= -3, 0.0, torch.where(z >= 3, 1.0, between))


HARDSWISH = FormulaCurve(
    "hardswish",
    _hardswish,
    Shape(
        extrema=(-1.5,),
        slope_limits=((-3.0, 0.0), (-3.0, -0.5), (3.0, 1.5), (3.0, 1.0)),
        curvature_limits=((-3.0, 0.0), (-3.0, 1 / 3), (3.0, 1 / 3), (3.0, 0.0)),
    ),
    kinks=((-3.0, -0.5), (3.0, -0.5)),
)
"""``z min(max(z + 3, 0), 6) / 6``."""


# -- periodic and polynomial -----------------------------------------------------------------------


@dataclass(frozen=True)
class Wave(FormulaCurve):
    """A wave of period 2 pi between -1 and 1; peak: where its value is largest."""

    peak: float = 0.0

    def extent(self, order: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        least, most = extremes(partial(self.derivative, order), (), low, high)
        peak = self.peak - order * (pi / 2)
        most = torch.where(_reaches(peak, low, high), 1.0, most)
        return torch.where(_reaches(peak + pi, low, high), -1.0, least), most


def _reaches(level: float, low: Tensor, high: Tensor) -> Tensor:
    """Whether an interval contains a level, or that level some periods away, up to rounding."""
    first, last = ((end - level) / (2 * pi) for end in (low, high))
    slack = 1e-12 + 4 * EPS * torch.maximum(first.abs(), last.abs())
    return torch.floor(last + slack) >= torch.ceil(first - slack)


def _wave(order: int, z: Tensor, quarters: int) -> Tensor:
    """The sine; quarters: of the period by which it is ahead."""
    turned = (order + quarters) % 4
    wave = torch.sin(z) if turned % 2 == 0 else torch.cos(z)
    return wave if turned < 2 else -wave


SINE = Wave("sin", _wave, Shape(), (0,), peak=pi / 2)
COSINE = Wave("cos", _wave, Shape(), (1,), peak=0.0)


def power(exponent: int) -> Curve:
    """``z^exponent`` for a whole number of at least 2."""
    name = "square" if exponent == 2 else f"power {exponent}"
    shape = Shape((0.0,), () if exponent % 2 == 0 else (0.0,), (0.0,))
    return FormulaCurve(name, _power, shape, (exponent,))


def _power(order: int, z: Tensor, exponent: int) -> Tensor:
    factor = (1, exponent, exponent * (exponent - 1))[order]
    power = z.pow(exponent - order)
    return power if order == 0 else factor * power
