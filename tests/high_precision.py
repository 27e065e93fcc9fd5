"""Networks with smooth functions in high precision, by mpmath and apart from the library's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import torch
from mpmath import mp, mpf
from torch import Tensor, nn

import splinecam as sc

__all__ = ["SMOOTH", "Call", "Residual", "largest_share", "maps_at", "outputs"]

DIGITS = 40

Vector = list[Any]


class Call(nn.Module):
    """A function of one variable that torch has no module for."""

    def __init__(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.name


class Snake(nn.Module):
    """``x + sin(x)^2``, which is registered with a bound of 2 on its second derivative."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(x) ** 2


class Residual(nn.Module):
    """A block whose input is added to its output."""

    def __init__(self, *steps: nn.Module) -> None:
        super().__init__()
        self.steps = nn.Sequential(*steps)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.steps(x)
        return found


def _softplus(z: Any, beta: float, threshold: float) -> Any:
    # Beyond its threshold torch's function is the identity.
    return z if beta * z > threshold else mpmath.log1p(mpmath.exp(beta * z)) / beta


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + mpmath.exp(-z))


def _elu(z: Any, below: float, rate: float, above: float) -> Any:
    return above * z if z > 0 else below * mpmath.expm1(rate * z)


def _gelu_tanh(z: Any) -> Any:
    return z * _sigmoid(2 * mpmath.sqrt(2 / mp.pi) * (z + mpf(0.044715) * z**3))


_SELU = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717

Function = Callable[[Any], Any]

SMOOTH: dict[str, tuple[Callable[[], nn.Module], Function]] = {
    "gelu": (nn.GELU, lambda z: z * mpmath.ncdf(z)),
    "gelu tanh": (lambda: nn.GELU(approximate="tanh"), _gelu_tanh),
    "silu": (nn.SiLU, lambda z: z * _sigmoid(z)),
    "mish": (nn.Mish, lambda z: z * mpmath.tanh(mpmath.log1p(mpmath.exp(z)))),
    "softplus": (nn.Softplus, lambda z: _softplus(z, 1, 20)),
    "softplus 3": (lambda: nn.Softplus(3.0), lambda z: _softplus(z, 3, 20)),
    "elu": (nn.ELU, lambda z: _elu(z, 1, 1, 1)),
    "elu 2": (lambda: nn.ELU(2.0), lambda z: _elu(z, 2, 1, 1)),
    "elu 0.3": (lambda: nn.ELU(0.3), lambda z: _elu(z, mpf(0.3), 1, 1)),
    "selu": (nn.SELU, lambda z: _elu(z, mpf(_SELU[0]) * mpf(_SELU[1]), 1, mpf(_SELU[0]))),
    "celu": (lambda: nn.CELU(0.5), lambda z: _elu(z, mpf(0.5), 2, 1)),
    "tanh": (nn.Tanh, mpmath.tanh),
    "sigmoid": (nn.Sigmoid, _sigmoid),
    "erf": (lambda: Call("erf", torch.erf), mpmath.erf),
    "scaled": (
        lambda: Call("quick gelu", lambda x: x * torch.sigmoid(1.702 * x)),
        lambda z: z * _sigmoid(mpf(1.702) * z),
    ),
    "hardswish": (nn.Hardswish, lambda z: z * min(max(z + 3, mpf(0)), mpf(6)) / 6),
    "softsign": (nn.Softsign, lambda z: z / (1 + abs(z))),
    "logsigmoid": (nn.LogSigmoid, lambda z: -mpmath.log1p(mpmath.exp(-z))),
    "sin": (lambda: Call("sin", torch.sin), mpmath.sin),
    "cos": (lambda: Call("cos", torch.cos), mpmath.cos),
    "exp": (lambda: Call("exp", torch.exp), mpmath.exp),
    "square": (lambda: Call("square", lambda x: x**2), lambda z: z * z),
    "cube": (lambda: Call("cube", lambda x: x**3), lambda z: z**3),
    "registered": (Snake, lambda z: z + mpmath.sin(z) ** 2),
}
"""Smooth functions by name: how a module of it is made, and the function in high precision."""


def outputs(model: nn.Module, x: Tensor) -> list[Vector]:
    """The outputs of a network of the steps below at points (N, ...), each a list of numbers."""
    shapes = [x.shape[1:]]
    with mp.workdps(DIGITS):
        rows = [[mpf(float(number)) for number in point.flatten()] for point in x]
        return _through(model, rows, shapes)


def _through(step: nn.Module, rows: list[Vector], shapes: list[Any]) -> list[Vector]:
    """A step of a network; shapes: of the value, which is followed in its last entry."""
    if isinstance(step, nn.Sequential):
        for each in step:
            rows = _through(each, rows, shapes)
        return rows
    if isinstance(step, Residual):
        added = _through(step.steps, rows, shapes)
        return [[a + b for a, b in zip(*both, strict=True)] for both in zip(rows, added)]  # noqa: B905
    function = _function(step)
    if function is not None:
        return [[function(z) for z in row] for row in rows]
    if isinstance(step, nn.PReLU):
        slopes = [*map(mpf, step.weight.tolist())]
        each = len(rows[0]) // shapes[-1][0]
        return [
            [z if z > 0 else z * slopes[i // each % len(slopes)] for i, z in enumerate(row)]
            for row in rows
        ]
    if isinstance(step, nn.MaxPool2d):
        return _pooled(step, rows, shapes)
    return _affine(step, rows, shapes)


def _function(step: nn.Module) -> Function | None:
    for make, function in SMOOTH.values():
        if repr(make()) == repr(step):
            return function
    kinked: dict[type[nn.Module], Function] = {
        nn.ReLU: lambda z: max(z, mpf(0)),
        nn.ReLU6: lambda z: min(max(z, mpf(0)), mpf(6)),
        nn.Hardtanh: lambda z: min(max(z, mpf(-1)), mpf(1)),
        nn.LeakyReLU: lambda z: z if z > 0 else z * mpf(0.01),
    }
    if isinstance(step, Call) and step.name == "abs":
        return abs
    return kinked.get(type(step))


def _affine(step: nn.Module, rows: list[Vector], shapes: list[Any]) -> list[Vector]:
    """A step whose coefficients are found by running it, without rounding, on single numbers."""
    size = len(rows[0])
    if isinstance(step, nn.BatchNorm1d | nn.BatchNorm2d):
        scale = [
            mpf(w) / mpmath.sqrt(mpf(v) + mpf(step.eps))
            for w, v in zip(step.weight.tolist(), step.running_var.tolist(), strict=True)
        ]
        mean, bias = ([*map(mpf, each.tolist())] for each in (step.running_mean, step.bias))
        each = size // len(scale)
        return [
            [(z - mean[i // each]) * scale[i // each] + bias[i // each] for i, z in enumerate(row)]
            for row in rows
        ]
    with torch.no_grad():
        units = torch.cat([torch.zeros(1, size), torch.eye(size)]).double()
        made = step.double()(units.view(-1, *shapes[-1]))
        without = _without_bias(step, units[1:].view(-1, *shapes[-1]))
    shapes.append(made.shape[1:])
    bias = [mpf(number) for number in made[0].flatten().tolist()]
    columns = without.flatten(1).T.tolist()
    weight = [[(i, mpf(w)) for i, w in enumerate(row) if w != 0] for row in columns]
    return [
        [mpmath.fsum([b, *(w * row[i] for i, w in terms)]) for b, terms in zip(bias, weight)]  # noqa: B905
        for row in rows
    ]


def _without_bias(step: nn.Module, x: Tensor) -> Tensor:
    bias = getattr(step, "bias", None)
    if bias is None:
        return step(x)  # type: ignore[no-any-return]
    kept = bias.detach().clone()
    bias.zero_()
    found: Tensor = step(x)
    bias.copy_(kept)
    return found


def _pooled(step: nn.Module, rows: list[Vector], shapes: list[Any]) -> list[Vector]:
    size = len(rows[0])
    place = torch.arange(size, dtype=torch.float64).view(1, *shapes[-1])
    kernel = step.kernel_size
    windows = nn.functional.unfold(place[0, :, None], kernel, stride=kernel).long()
    groups = windows.transpose(1, 2).reshape(-1, kernel * kernel).tolist()
    shapes.append(step(place).shape[1:])
    return [[max(row[i] for i in group) for group in groups] for row in rows]


def maps_at(part: sc.Partition, x: Tensor, region: Tensor) -> Tensor:
    """The maps of regions (N,) at points (N, ...), (N, n)."""
    uv, _ = part.domain.project(x)
    return (part.weight[region] @ uv[..., None])[..., 0] + part.bias[region]


def largest_share(
    part: sc.Partition, model: nn.Module, x: Tensor, region: Tensor, chosen: Sequence[int]
) -> float:
    """The largest share of its bound by which the model is off a map at chosen points.

    Maps have numbers in float64 as coefficients, but are evaluated in high precision, too.
    """
    largest = 0.0
    index = torch.as_tensor(chosen, dtype=torch.long)
    exact = outputs(model, x[index])
    uv, _ = part.domain.project(x[index])
    with mp.workdps(DIGITS):
        for row, place, r in zip(exact, uv.tolist(), region[index].tolist(), strict=True):
            u, v = (mpf(number) for number in place)
            coefficients = zip(part.weight[r].tolist(), part.bias[r].tolist(), strict=True)
            bounds = part.region_bounds[r].tolist()
            for value, ((a, b), c), bound in zip(row, coefficients, bounds, strict=True):
                off = abs(value - (mpf(a) * u + mpf(b) * v + mpf(c)))
                largest = max(largest, float(off / mpf(bound)))
    return largest
