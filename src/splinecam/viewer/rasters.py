"""Pixels of a network's decision: what is shown where there are too many regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinecam.geometry.domain import Domain
from splinecam.plot.arrays import Floats, Pixels, to_numpy
from splinecam.plot.palette import paler
from splinecam.viewer.networks import Network
from splinecam.viewer.windows import Box, Window

__all__ = ["Leads", "Raster", "raster_pixels", "typical_lead"]

_NUMBERS = 1 << 22  # outputs that are computed at a time
_FIRST = 256  # points of the first block, which tells how many outputs there are
_COARSEST, _FINEST = 24, 768  # pixels on the longer side
_TYPICAL = 2000  # points from which the typical lead is found
_EVEN = (0.7548776662466927, 0.5698402909980532)  # steps that fill a square evenly, on no grid


class Raster(NamedTuple):
    """Pixels (h, w, 3 or 4) of a rectangle, the row at v0 first."""

    box: Box
    pixels: Pixels


@dataclass(frozen=True)
class Leads:
    """The class at each point, and its lead over the second: the numbers behind class colours."""

    winner: Any
    lead: Floats

    @classmethod
    def of(cls, outputs: Tensor, level: float = 0.0) -> Leads:
        """The class of outputs (N, n); with one output, class 1 is above the level."""
        if outputs.shape[1] == 1:
            over = to_numpy(outputs[:, 0]) - level
            return cls((over > 0).astype(np.int64), np.abs(over))
        top = torch.topk(outputs, 2, 1)
        lead = to_numpy(top.values[:, 0] - top.values[:, 1])
        return cls(to_numpy(top.indices[:, 0]), lead)

    @classmethod
    def at(cls, network: Network, domain: Domain, uv: Tensor, level: float = 0.0) -> Leads:
        """The classes at places (N, 2) of a domain."""
        found, step, start = [], min(_FIRST, len(uv)), 0
        while start < len(uv):
            outputs = network.outputs(domain.embed(uv[start : start + step]))
            found.append(cls.of(outputs, level))
            start += step
            step = max(1, _NUMBERS // max(1, outputs.shape[1], domain.dim))
        return cls(
            np.concatenate([each.winner for each in found]),
            np.concatenate([each.lead for each in found]),
        )


def raster_pixels(
    network: Network,
    domain: Domain,
    box: Box,
    pixels: int,
    *,
    level: float = 0.0,
    typical: float | None = None,
    seconds: float = 0.4,
    clock: Callable[[], float] = monotonic,
) -> Raster:
    """Pixels of the network's decision in a window, as far as the domain extends.

    Where the domain is no rectangle, pixels outside of it are transparent. The colours are those of
    the classes, paler where the lead is small; typical: the lead at which a class has half of its
    colour. pixels: on the longer side; they become fewer if the network is so slow that they would
    take more than some seconds.
    """
    window = Window.of(domain, box)
    corners = window.domain.corners
    low, high = corners.amin(0), corners.amax(0)
    wide, tall = (high - low).tolist()
    most, longer, end = max(_COARSEST, min(pixels, _FINEST)), _COARSEST, clock() + seconds
    while True:  # each raster takes at most four times as long as the one before
        begin = clock()
        columns, rows = _size(longer, wide, tall)
        found = Leads.at(network, window.domain, _grid(low, high, columns, rows), level)
        if longer == most or clock() + 4 * (clock() - begin) > end:
            break
        longer = min(2 * longer, most)
    typical = float(np.median(found.lead)) if typical is None else typical
    colors = np.round(255 * paler(found.winner, found.lead, typical)).astype(np.uint8)
    image = colors.reshape(rows, columns, 3)
    if not _is_rectangle(corners, low, high):
        inside = _inside(corners, _grid(low, high, columns, rows)).reshape(rows, columns, 1)
        image = np.concatenate([image, 255 * inside.astype(np.uint8)], 2)
    u, v = window.center
    shown = (u + float(low[0]), v + float(low[1]), u + float(high[0]), v + float(high[1]))
    return Raster(shown, np.ascontiguousarray(image))


def typical_lead(network: Network, domain: Domain, level: float = 0.0) -> float:
    """The median lead of the classes in a domain, about, without its partition."""
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    number = torch.arange(1, _TYPICAL + 1, dtype=torch.float64)
    uv = low + (high - low) * (number[:, None] * torch.tensor(_EVEN).double() % 1)
    inside = torch.from_numpy(_inside(domain.corners, uv))
    return float(np.median(Leads.at(network, domain, uv[inside], level).lead))


def _grid(low: Tensor, high: Tensor, columns: int, rows: int) -> Tensor:
    """The middles of pixels (rows * columns, 2), row after row."""
    u = low[0] + (high[0] - low[0]) * (torch.arange(columns, dtype=torch.float64) + 0.5) / columns
    v = low[1] + (high[1] - low[1]) * (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    return torch.stack([u.repeat(rows), v.repeat_interleave(columns)], 1)


def _size(longer: int, wide: float, tall: float) -> tuple[int, int]:
    """Columns and rows of a raster with so many pixels on its longer side."""
    scale = longer / max(wide, tall)
    return max(1, round(scale * wide)), max(1, round(scale * tall))


def _is_rectangle(corners: Tensor, low: Tensor, high: Tensor) -> bool:
    on_side = ((corners == low) | (corners == high)).all(1)
    return len(corners) == 4 and bool(on_side.all())


def _inside(corners: Tensor, uv: Tensor) -> Any:
    """Whether points (N, 2) are in a convex polygon."""
    start, side = corners, corners.roll(-1, 0) - corners
    offset = uv[:, None] - start
    left = side[:, 0] * offset[..., 1] - side[:, 1] * offset[..., 0] >= 0
    return to_numpy(left.all(1))
