"""The error that the outputs of a network with smooth functions may have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Tolerance", "tolerance_of"]

_LEAST = 2.0**-36  # of the largest output: what is left of a percentage where outputs are constant


@dataclass(frozen=True)
class Tolerance:
    """An error that is the same for all outputs, or relative to the range of each."""

    error: float
    relative: bool = False

    def allowed(self, values: Tensor) -> Tensor:
        """The error that each output may have, (n,), given outputs (N, n) all over the domain."""
        if not self.relative:
            return torch.full_like(values[0], self.error)
        extent, least = _extent(values)
        return torch.maximum(self.error * extent, least)

    def constant(self, values: Tensor) -> Tensor:
        """Which outputs, (n,), are constant, so that a part of their range means nothing."""
        extent, least = _extent(values)
        return (extent <= least) & self.relative


def _extent(values: Tensor) -> tuple[Tensor, Tensor]:
    """The width of the range of each output, (n,), and what of it may be rounding."""
    least = _LEAST * values.abs().amax(0) + torch.finfo(values.dtype).tiny
    return values.amax(0) - values.amin(0), least


def tolerance_of(smooth: float | str) -> Tolerance:
    """The tolerance that callers mean: a positive number, or text such as "1%".

    >>> tolerance_of("1%")
    Tolerance(error=0.01, relative=True)
    """
    relative = isinstance(smooth, str) and smooth.strip().endswith("%")
    try:
        error = float(str(smooth).strip().rstrip("%")) if relative else float(smooth)
    except (TypeError, ValueError):
        error = 0.0
    if isinstance(smooth, bool) or not 0 < error < float("inf"):
        raise ValueError(
            f"smooth is {smooth!r}: give the error that outputs may have as a positive number, "
            'such as 1e-3, or relative to their range, such as "1%"'
        )
    return Tolerance(error / 100 if relative else error, relative)
