"""Types of the numpy arrays that pictures are made of, and how tensors become such."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Pixels = NDArray[np.uint8]


def to_numpy(values: Any) -> Any:
    """A tensor as an array on the CPU, without its gradient; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def classes_and_leads(outputs: torch.Tensor, level: float = 0.0) -> tuple[Any, Any]:
    """The class of outputs (..., n) at each point, and its lead over the next or the level."""
    if outputs.shape[-1] == 1:
        over = outputs[..., 0] - level
        return to_numpy((over > 0).long()), to_numpy(over.abs())
    first, second = torch.topk(outputs, 2, -1).values.unbind(-1)
    return to_numpy(outputs.argmax(-1)), to_numpy(first - second)


def in_polygon(corners: Any, uv: Any, slack: float = 0.0) -> Bools:
    """Which points (N, 2) lie in a convex polygon (k, 2), or beside it within a slack, (N,)."""
    corners, uv = to_numpy(corners), to_numpy(uv)
    side = np.roll(corners, -1, 0) - corners
    off = uv[:, None] - corners
    cross = side[:, 0] * off[:, :, 1] - side[:, 1] * off[:, :, 0]
    return np.asarray((cross >= -slack * np.linalg.norm(side, axis=1)).all(1))


def weighted_quantiles(values: Any, shares: Any, weights: Floats | None = None) -> Floats:
    """The numbers below which the given shares of the total weight lie; zeros without values."""
    if not len(values):
        return np.zeros(len(shares))
    if weights is None or not weights.sum() > 0:
        return np.asarray(np.quantile(values, shares), np.float64)
    order = np.argsort(values)
    total = np.cumsum(np.maximum(weights[order], 0))
    place = np.searchsorted(total, np.asarray(shares) * total[-1])
    return np.asarray(values[order[np.minimum(place, len(order) - 1)]], np.float64)
