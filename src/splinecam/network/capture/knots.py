"""The knots of a call, as one level and one slope per unit."""

from __future__ import annotations

from itertools import pairwise
from math import inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.network.ops import Knots
from splinecam.network.values import Rows

__all__ = ["spread_knots"]


def spread_knots(
    knots: Knots, shape: list[int], rows: Rows, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Levels ``(K, n)`` and slopes ``(K + 1, n)`` of every unit; ``shape`` is that of one point.

    A knot is dropped where the slope does not change; where only some units drop it, theirs is
    moved to infinity.
    """
    if _plain(knots):
        return _same(knots.levels, shape, device), _same(knots.slopes, shape, device)

    def spread(value: float | Tensor) -> Tensor:
        wide = torch.as_tensor(value, dtype=torch.float64, device=device).expand(shape)
        return rows.out(wide).reshape(-1)

    levels = [spread(level) for level in knots.levels]
    slopes = [spread(slope) for slope in knots.slopes]
    for k, level in enumerate(levels):
        # Nothing lies below minus infinity, above infinity, or between two equal levels.
        slopes[k] = torch.where(level == -inf, slopes[k + 1], slopes[k])
        if k + 1 < len(levels):
            empty = level == levels[k + 1]
            slopes[k + 1] = torch.where(empty, slopes[k], slopes[k + 1])
    for k in range(len(levels)):
        slopes[k + 1] = torch.where(levels[k] == inf, slopes[k], slopes[k + 1])
    return _without_idle(levels, slopes)


def _plain(knots: Knots) -> bool:
    """Whether all units have the same knots, of which none is dropped or moved."""
    if any(isinstance(value, Tensor) for value in (*knots.levels, *knots.slopes)):
        return False
    ends = (-inf, *knots.levels, inf)
    ascending = all(low < high for low, high in pairwise(ends))
    return ascending and all(before != after for before, after in pairwise(knots.slopes))


def _same(numbers: tuple[Any, ...], shape: list[int], device: torch.device) -> Tensor:
    """The same numbers for each unit, (K, n)."""
    wide = np.empty((len(numbers), prod(shape)))
    for row, number in zip(wide, numbers, strict=True):
        row.fill(number)
    return torch.from_numpy(wide).to(device)


def _without_idle(levels: list[Tensor], slopes: list[Tensor]) -> tuple[Tensor, Tensor]:
    if not levels:
        return slopes[0].new_empty(0, slopes[0].numel()), torch.stack(slopes)
    level, slope = torch.stack(levels), torch.stack(slopes)
    idle = slope[1:] == slope[:-1]
    order = idle.to(torch.int8).argsort(dim=0, stable=True)
    level = torch.where(idle, inf, level).gather(0, order)
    # The slope after each kept knot follows it; the idle ones repeat the last slope.
    slope = torch.cat([slope[:1], slope[1:].gather(0, order)])
    for k in range(len(levels)):
        slope[k + 1] = torch.where(level[k] == inf, slope[k], slope[k + 1])
    keep = (level != inf).any(1)
    return level[keep], torch.cat([slope[:1], slope[1:][keep]])
