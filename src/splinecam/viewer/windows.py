"""Windows of a domain, and pixels of a network's decision where there are too many regions.

Coordinates in a window are relative to its centre: the domain of its partition has the basis of the
pane, and the input at the centre as its origin. Places in a window of width 1e-9 then have all
their digits; the rounding of inputs leaves seven of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.tolerances import EPS, MAX_CORNER_ERROR
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain, Frame
from splinecam.partitions.partition import Partition
from splinecam.plot.arrays import Floats, Pixels, classes_and_leads, in_polygon
from splinecam.plot.palette import paler
from splinecam.tiles.extracting import Box, checked_box
from splinecam.viewer.frames import Limits, Network, TooMuch

_NUMBERS = 1 << 22  # outputs that are computed at a time
_FIRST_POINTS = 256  # points of the first block, which tells the number of outputs
_COARSEST, _FINEST = 24, 768  # pixels on the longer side
_TYPICAL = 2000  # points for the typical lead
_EVEN = (0.7548776662466927, 0.5698402909980532)  # steps that fill a square evenly, on no grid


def _leads(
    network: Network, domain: Domain, uv: Tensor, level: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return the class at places (N, 2), and its lead over the second class or the level."""
    winners, leads, step, start = [], [], min(_FIRST_POINTS, len(uv)), 0
    while start < len(uv):
        outputs = network.outputs(domain.embed(uv[start : start + step]))
        winner, lead = classes_and_leads(outputs, level)
        winners.append(winner)
        leads.append(lead)
        start += step
        step = max(1, _NUMBERS // max(1, outputs.shape[1], domain.dim))
    return np.concatenate(winners), np.concatenate(leads)


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
) -> tuple[Box, Pixels]:
    """Return a rectangle, and pixels (h, w, 3 or 4) of the network's decision in it, upwards.

    The rectangle is the part of a window in the domain; pixels outside of the domain are
    transparent. Classes are paler where their lead is small; typical: the lead with half of the
    colour. pixels: on the longer side, or fewer if they would take more than some seconds.
    """
    window = Window.of(domain, box)
    corners = window.domain.corners
    low, high = corners.amin(0), corners.amax(0)
    wide, tall = (high - low).tolist()
    most, longer, end = max(_COARSEST, min(pixels, _FINEST)), _COARSEST, clock() + seconds
    while True:  # each raster takes at most four times as long as the one before
        begin = clock()
        columns, rows = (max(1, round(longer / max(wide, tall) * side)) for side in (wide, tall))
        u, v = (
            low[k] + (high[k] - low[k]) * (torch.arange(n, dtype=torch.float64) + 0.5) / n
            for k, n in enumerate((columns, rows))
        )
        grid = torch.stack([u.repeat(rows), v.repeat_interleave(columns)], 1)  # row after row
        winner, lead = _leads(network, window.domain, grid, level)
        if longer == most or clock() + 4 * (clock() - begin) > end:
            break
        longer = min(2 * longer, most)
    typical = float(np.median(lead)) if typical is None else typical
    colors = np.round(255 * paler(winner, lead, typical)).astype(np.uint8)
    image = colors.reshape(rows, columns, 3)
    is_rectangle = len(corners) == 4 and bool(((corners == low) | (corners == high)).all())
    if not is_rectangle:
        inside = in_polygon(corners, grid).reshape(rows, columns, 1)
        image = np.concatenate([image, 255 * inside.astype(np.uint8)], 2)
    (u, v), (left, down), (right, up) = window.center, low.tolist(), high.tolist()
    return (u + left, v + down, u + right, v + up), np.ascontiguousarray(image)


def typical_lead(network: Network, domain: Domain, level: float = 0.0) -> float:
    """Return about the median lead of the classes in a domain, without its partition."""
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    number = torch.arange(1, _TYPICAL + 1, dtype=torch.float64)
    uv = low + (high - low) * (number[:, None] * torch.tensor(_EVEN).double() % 1)
    inside = torch.from_numpy(in_polygon(domain.corners, uv))
    return float(np.median(_leads(network, domain, uv[inside], level)[1]))


# If the partition of a domain is too large, the first window to try is the domain halved 10 times,
# and the last one is halved 40 times.
_FIRST, _LAST = 10, 40
_ENOUGH = 2.5  # the growth that makes a larger window worth trying
_FEW, _LEAST = 200, 1e-3  # beyond these, regions and seconds grow with the window


@dataclass(frozen=True)
class Window:
    """The part of a pane's domain in a box of the pane, in coordinates relative to its centre."""

    box: Box
    center: tuple[float, float]
    domain: Domain

    @classmethod
    def of(cls, domain: Domain, box: Sequence[float]) -> Window:
        """Return the window of a rectangle (u0, v0, u1, v1), or raise a ``DomainError``."""
        u0, v0, u1, v1 = checked_box(box)
        center = u0 + (u1 - u0) / 2, v0 + (v1 - v0) / 2
        half = torch.tensor([(u1 - u0) / 2, (v1 - v0) / 2], dtype=torch.float64)
        middle = torch.tensor(center, dtype=torch.float64)
        origin = domain.origin + middle @ domain.basis
        size = max(float(origin.abs().max()), float(middle.abs().max()))
        corners = _clipped((domain.corners - middle), half)
        if len(corners) < 3:
            raise DomainError("The window is outside of the domain.")
        if 4 * EPS * size > MAX_CORNER_ERROR * 2 * float(half.min()):
            raise DomainError(
                f"float64 ends here: a window of {2 * float(half.min()):.1e} is too small to be "
                f"computed at inputs of size {size:.2g}. Zoom out."
            )
        try:
            shown = replace(domain, origin=origin, corners=corners)
        except DomainError:
            raise DomainError("The window has too little of the domain in it.") from None
        return cls((u0, v0, u1, v1), center, shown)

    def placed(self, part: Partition, domain: Domain) -> Partition:
        """Return a partition in the pane's coordinates; its mesh keeps its own, and all digits."""
        middle = torch.tensor(self.center, dtype=torch.float64)
        shown = replace(domain, corners=part.domain.corners + middle)
        # The scale is a power of two, which the rounding of corners may change.
        factor = part._frame.scale / Frame.of(shown).scale
        mesh = replace(part.mesh, uv=factor * part.mesh.uv)
        (u, v), old = self.center, part.unresolved
        unresolved = tuple(x._replace(place=(x.place[0] + u, x.place[1] + v)) for x in old)
        moved = replace(part, domain=shown, mesh=mesh, unresolved=unresolved)
        moved.names = part.names
        moved._model, moved._program = part._model, part._program
        return moved


def _clipped(corners: Tensor, half: Tensor) -> Tensor:
    """Return the corners of a convex polygon (k, 2) within -half <= uv <= half."""
    for axis in range(2):
        for sign in (1.0, -1.0):
            if not len(corners):
                return corners
            inside = half[axis] - sign * corners[:, axis]  # at least 0 inside
            found = []
            for k in range(len(corners)):
                here, there = float(inside[k - 1]), float(inside[k])
                if here < 0 <= there or there < 0 <= here:
                    t = here / (here - there)
                    crossing = corners[k - 1] + t * (corners[k] - corners[k - 1])
                    crossing[axis] = sign * half[axis]
                    found.append(crossing)
                if there >= 0:
                    found.append(corners[k])
            corners = torch.stack(found) if found else corners[:0]
    return corners


def start_window(
    network: Network, domain: Domain, limits: Limits, *, clock: Callable[[], float] = monotonic
) -> tuple[Box, Partition]:
    """Return about the largest window around the centre of a domain within the limits."""
    # The search begins with a small window. The number of regions, and with it the time, grows at
    # most with the area: each window tells how much larger the next one may be.
    u, v = domain.center.tolist()
    width = float((domain.corners.amax(0) - domain.corners.amin(0)).max())
    halvings, failed, best = _FIRST, 0, None
    while True:
        half = width / 2 ** (halvings + 1)
        box, begin = (u - half, v - half, u + half, v + half), clock()
        try:
            part = network.partition(Window.of(domain, box).domain, limits, clock=clock)
        except TooMuch:
            if best is not None:
                return best
            if halvings >= _LAST:
                raise
            failed, halvings = halvings, halvings + _FIRST
            continue
        best = box, part
        left = limits.max_regions / len(part), limits.seconds / max(clock() - begin, _LEAST)
        growth = max(min(left), 4.0 if len(part) < _FEW else 1.0)
        if growth < _ENOUGH or halvings == failed + 1:
            return best
        halvings = max(failed + 1, halvings - max(1, int(math.log2(growth) / 2)))
