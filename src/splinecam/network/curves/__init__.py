"""Smooth functions of one variable: values, derivatives, and bounds on these over intervals.

``curve`` says what a function gives, and finds its bounds from the places where its derivatives
have extrema. The other modules have the functions: ``gated`` products of the variable and a gate
(GELU, SiLU, Mish), ``saturating`` those with limits at infinity or straight asymptotes (tanh,
sigmoid, softplus), ``exponential`` ELU and its relatives, ``polynomial`` powers and hardswish,
``periodic`` sine and cosine, ``scaled`` multiples of others, and ``taught`` those of the user.
"""

from splinecam.network.curves.curve import Curve, Shape
from splinecam.network.curves.elementary import (
    Cosine,
    Erf,
    Exp,
    ExponentialLinear,
    Hardswish,
    Power,
    Sigmoid,
    Sine,
    Softplus,
    Softsign,
    Tanh,
)
from splinecam.network.curves.gated import Gelu, GeluTanh, Mish, Silu
from splinecam.network.curves.registered import Scaled

__all__ = [
    "Cosine",
    "Curve",
    "Erf",
    "Exp",
    "ExponentialLinear",
    "Gelu",
    "GeluTanh",
    "Hardswish",
    "Mish",
    "Power",
    "Scaled",
    "Shape",
    "Sigmoid",
    "Silu",
    "Sine",
    "Softplus",
    "Softsign",
    "Tanh",
]
