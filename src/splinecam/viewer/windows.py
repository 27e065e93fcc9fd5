"""The exact partition of a window of a pane, however small, and the window to begin with.

Coordinates of a window are relative to its centre: the domain of its partition has the same basis
as that of the pane, and the input at the centre as its origin. Places in a window that is 1e-9 wide
then have all their digits, of which the rounding of the inputs leaves seven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

import torch
from torch import Tensor

from splinecam._partition import Partition
from splinecam._util.tolerances import EPS, MAX_CORNER_ERROR
from splinecam.errors import DomainError, LimitError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.viewer.networks import GivenUp, Network

__all__ = ["Box", "Limits", "TooMuch", "Window", "contains", "partition_within", "start_window"]

Box = tuple[float, float, float, float]

# If the partition of a domain is too large, the first window that is tried is the domain halved so
# often, and the last one.
_FIRST, _LAST = 10, 40
_ENOUGH = 2.5  # the growth from which on it is worth trying the next larger window
_FEW, _LEAST = 200, 1e-3  # regions and seconds from which on both grow with the window


class TooMuch(SplineCamError):
    """A partition has more regions than it may have, or takes longer; the message says which."""


@dataclass(frozen=True)
class Limits:
    """What a computation may take while one looks: regions, bytes of memory, seconds."""

    max_regions: int = 200_000
    memory: int = 1 << 30
    seconds: float = 5.0


@dataclass(frozen=True)
class Window:
    """The part of a pane's domain in a rectangle, with coordinates relative to its centre.

    box: the rectangle, in the coordinates of the pane; center: its centre; domain: what the domain
    of the pane has in it.
    """

    box: Box
    center: tuple[float, float]
    domain: Domain

    @classmethod
    def of(cls, domain: Domain, box: Sequence[float]) -> Window:
        """The window of a rectangle (u0, v0, u1, v1); a ``DomainError`` if nothing is in it."""
        u0, v0, u1, v1 = _checked(box)
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
        """The partition of the window, with the coordinates of the pane's domain.

        Its mesh stays in coordinates relative to the window's centre, so that nothing is lost but
        what ``vertices`` and other results in coordinates of the pane cannot hold.
        """
        middle = torch.tensor(self.center, dtype=torch.float64)
        shown = replace(domain, corners=part.domain.corners + middle)
        # The scale is a power of two: rounding of the corners may take it to another one.
        factor = part.frame.scale / Frame.of(shown).scale
        mesh = replace(part.mesh, uv=factor * part.mesh.uv)
        u, v = self.center
        unresolved = tuple(
            each._replace(place=(each.place[0] + u, each.place[1] + v)) for each in part.unresolved
        )
        moved = replace(part, domain=shown, mesh=mesh, unresolved=unresolved)
        moved.names = part.names
        moved._model, moved._program = part._model, part._program
        return moved


def _checked(box: Sequence[float]) -> Box:
    try:
        u0, v0, u1, v1 = map(float, box)
    except (TypeError, ValueError):
        raise DomainError(f"A window has four numbers, u0, v0, u1 and v1, not {box!r}.") from None
    if not (all(map(math.isfinite, (u0, v0, u1, v1))) and u0 < u1 and v0 < v1):
        raise DomainError(f"The window {[u0, v0, u1, v1]} is empty, or not finite.")
    return u0, v0, u1, v1


def _clipped(corners: Tensor, half: Tensor) -> Tensor:
    """The corners of a convex polygon (k, 2) within -half <= uv <= half."""
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


def contains(outer: Box, inner: Box) -> bool:
    """Whether one rectangle lies in another."""
    left, low, right, high = (a - b for a, b in zip(outer, inner, strict=True))
    return left <= 0 and low <= 0 and right >= 0 and high >= 0


def partition_within(
    network: Network,
    domain: Domain,
    limits: Limits,
    *,
    outdated: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = monotonic,
) -> Partition:
    """The exact partition of a domain; ``TooMuch`` beyond the limits, ``GivenUp`` if outdated."""
    end, late = clock() + limits.seconds, False

    def over() -> bool:
        nonlocal late
        late = clock() > end
        return late or outdated()

    try:
        return network.partition(
            domain, max_regions=limits.max_regions, memory=limits.memory, outdated=over
        )
    except LimitError as error:
        if "max_regions" in str(error):
            raise TooMuch(f"more than {limits.max_regions:,} regions") from None
        raise TooMuch("more regions than memory allows") from None
    except GivenUp:
        if late:
            raise TooMuch(f"more than {limits.seconds:g} seconds of computation") from None
        raise


def start_window(
    network: Network, domain: Domain, limits: Limits, *, clock: Callable[[], float] = monotonic
) -> tuple[Box, Partition]:
    """The largest window around the centre of a domain that is within the limits, about.

    Its size is that of the domain, halved as often as needed. The search begins with a small one.
    The number of regions, and with it the time, grows with the area at most, so that each window
    tells how much larger the next one may be, and the search takes little longer than its result.
    """
    halvings, failed, best = _FIRST, 0, None
    while True:
        box, begin = _centred(domain, halvings), clock()
        try:
            part = partition_within(network, Window.of(domain, box).domain, limits, clock=clock)
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


def _centred(domain: Domain, halvings: int) -> Box:
    """The square around the centre of a domain, as wide as the domain halved so often."""
    u, v = domain.center.tolist()
    half = float((domain.corners.amax(0) - domain.corners.amin(0)).max()) / 2 ** (halvings + 1)
    return u - half, v - half, u + half, v + half
