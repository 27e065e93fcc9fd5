"""Rectangles in plane coordinates: between two corners, and around samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from splinecam.errors import DomainError
from splinecam.geometry.convex import require_size

__all__ = ["rectangle", "rectangle_around"]


def rectangle(lo: Tensor, hi: Tensor) -> Tensor:
    """Corners ``(4, 2)``, counter-clockwise from ``lo``."""
    return torch.stack([lo, torch.stack([hi[0], lo[1]]), hi, torch.stack([lo[0], hi[1]])])


def rectangle_around(uv: Tensor, *, margin: float, shape: str) -> Tensor:
    """The corners ``(4, 2)`` of a rectangle around samples ``uv: (k, 2)``.

    margin: the fraction of the samples' extent added on each side. shape: ``"square"`` has the
    larger extent on both axes, ``"tight"`` each axis its own; on an axis on which the samples have
    no extent only the margin of the other.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise DomainError(f"margin is {margin}; give a finite number that is at least 0.")
    if shape not in ("square", "tight"):
        raise DomainError(f'shape is {shape!r}; choose "square" or "tight".')
    lo, hi = uv.amin(0), uv.amax(0)
    extent = hi - lo
    half = extent * (0.5 + margin)
    if shape == "square":
        half = half.max().expand(2)
    else:
        half = torch.where(extent == 0, extent.max() * margin, half)
    require_size(2 * float(half.max()))
    if float(half.min()) == 0:
        raise DomainError('The rectangle has no height: give a margin, or shape="square".')
    mid = (lo + hi) / 2
    return rectangle(mid - half, mid + half)
