"""The smooth operations of one variable, which ``partition(..., smooth=...)`` replaces by pieces.

sigmoid, tanh and logsigmoid are such operations too; their rules are in ``rejected``, because at
the end of a network they are left out.
"""

from __future__ import annotations

from splinecam.network.curves import (
    Cosine,
    Curve,
    Erf,
    Exp,
    ExponentialLinear,
    Gelu,
    GeluTanh,
    Hardswish,
    Mish,
    Power,
    Silu,
    Sine,
    Softplus,
)
from splinecam.network.ops.registry import Call, Smooth, register
from splinecam.network.ops.rejected import POWER, QUADRATIC

__all__: list[str] = []

_LARGEST_JUMP = 1e-6  # of torch's softplus at its threshold, relative to its value
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _gelu(call: Call) -> Curve:
    return GeluTanh() if call.get("approximate") == "tanh" else Gelu()


def _softplus(call: Call) -> Curve | str:
    beta, threshold = float(call.get("beta", 1)), float(call.get("threshold", 20))
    if beta == 0 or threshold <= 0:
        return "it jumps at its threshold: give it a positive threshold, and a beta that is not 0"
    curve = Softplus(beta, threshold)
    if curve.jump > _LARGEST_JUMP:
        return (
            f"it jumps at its threshold of {threshold:g} by {curve.jump:.1g} of its value: give it "
            "the threshold 20, as torch does by default"
        )
    return curve


def _exponential_linear(below: float, rate: float, above: float, kind: str) -> Curve | str:
    if not rate > 0:
        return f"the rate of its exponential, {rate:g}, is not positive"
    return ExponentialLinear(below, rate, above, kind)


def _elu(call: Call) -> Curve | str:
    alpha, scale = float(call.get("alpha", 1)), float(call.get("scale", 1))
    rate = float(call.get("input_scale", 1))
    return _exponential_linear(scale * alpha, rate, scale, "elu")


def _celu(call: Call) -> Curve | str:
    alpha = float(call.get("alpha", 1))
    rate = 1 / alpha if alpha else 0.0
    return _exponential_linear(alpha, rate, 1.0, "celu")


def _selu(call: Call) -> Curve | str:
    return _exponential_linear(_SELU_SCALE * _SELU_ALPHA, 1.0, _SELU_SCALE, "selu")


def _power(call: Call) -> Curve | str:
    exponent = call["exponent"]
    if isinstance(exponent, (int, float)) and exponent >= 2 and exponent == int(exponent):
        return Power(int(exponent))
    return (
        f"its exponent is {exponent}: only powers with a whole exponent of at least 2 have a "
        "second derivative that is bounded on every range"
    )


register("gelu", Smooth(_gelu, notes="exact, or by tanh"))
register("silu", Smooth(lambda call: Silu()))
register("mish", Smooth(lambda call: Mish()))
register("softplus", Smooth(_softplus, notes="beta; with a threshold of at least 12"))
register("elu", Smooth(_elu, notes="with a kink at 0, unless alpha is 1"))
register("celu", Smooth(_celu))
register("selu", Smooth(_selu, notes="with a kink at 0"))
register("hardswish", Smooth(lambda call: Hardswish(), QUADRATIC, notes="with kinks at -3 and 3"))
register("erf special_erf", Smooth(lambda call: Erf()))
register("sin", Smooth(lambda call: Sine()))
register("cos", Smooth(lambda call: Cosine()))
register("exp", Smooth(lambda call: Exp(), notes="where it is finite"))
register("square", Smooth(lambda call: Power(2), QUADRATIC))
register("pow.Tensor_Scalar", Smooth(_power, POWER, notes="whole exponents of at least 2"))
