"""The layer of a smooth function of one variable, which is replaced by pieces before a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS, SINGLE_EPS
from splinecam.arrangement.signs import Signs
from splinecam.network.curves import Curve
from splinecam.network.nonlinearities import Nonlinearity, Operation
from splinecam.network.ops import Bound

__all__ = ["SmoothScalar", "apply_curve"]


def apply_curve(z: Tensor, curve: Curve) -> Tensor:
    """A smooth function, entry by entry, with its own slope for a derivative."""
    result: Tensor = _Applied.apply(z, curve)  # type: ignore[no-untyped-call]
    return result


class _Applied(torch.autograd.Function):
    """Differentiating the formula of a value may give NaN where the slope is a number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, curve: Curve) -> Tensor:
        return curve.value(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, ctx.curve = inputs
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return gradient * ctx.curve.slope(z), None

    @staticmethod
    def jvp(ctx: Any, along: Tensor, *rest: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        curve: Curve = ctx.curve
        return along * curve.slope(z)


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothScalar(Nonlinearity):
    """A smooth function of one variable, applied to the n units of a live value.

    single: whether its values are computed in single precision, without derivatives.
    """

    curve: Curve
    single: bool = False

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        if self.single:
            return self.curve.value(argument.float()).to(argument)
        return apply_curve(argument, self.curve)

    @property
    def eps(self) -> float:
        """The unit of the errors of results."""
        return SINGLE_EPS if self.single else EPS

    @property
    def rounding(self) -> float:
        """The error of a result in units of ``eps``, relative to the result."""
        return 0.0 if self.single else self.curve.rounding

    @property
    def noise(self) -> float:
        """The error of a result in units of ``eps``, relative to the argument, beside that."""
        return (self.curve.single_noise or 0.0) if self.single else self.curve.noise

    def functions(
        self, z: Tensor, error: Tensor, low: Tensor, high: Tensor, signs: Signs | None = None
    ) -> NoReturn:
        self._refuse()

    def pieces(self, z: Tensor, error: Tensor | float = 0.0) -> NoReturn:
        self._refuse()

    def bound(self, bound: Bound, low: Tensor, high: Tensor) -> Bound:
        low, high = (end.view(1, *self.shape) for end in (low, high))
        magnitude = self.curve.value_bound(low, high)
        error = self.curve.slope_bound(low, high) * bound.error
        noise = self.noise * torch.maximum(low.abs(), high.abs())
        return Bound(magnitude, error + self.eps * (self.rounding * magnitude + noise))

    def to(self, device: torch.device, move: Callable[[Tensor], Tensor]) -> Nonlinearity:
        curve = self.curve.to(device)
        operation = Operation(apply_curve, (Operation.VARIABLE, curve), {})
        return replace(self, curve=curve, operation=operation)

    def _refuse(self) -> NoReturn:
        raise TypeError(
            f"{self.name} ({self.target}) is smooth and has no linear pieces: it is replaced by "
            "pieces with smooth=1e-3"
        )
