"""Convex polygons: their corners in order, and how lines divide many of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.arrays import following, lengths, offsets_of, owners_of, take, take_rows
from splinecam._util.tolerances import (
    DEGENERATE,
    EPS,
    LARGEST_DOMAIN,
    MAX_CORNER_ERROR,
    SMALLEST_DOMAIN,
)
from splinecam.errors import DomainError
from splinecam.geometry.subdivision import Mesh

_LISTED = 12  # points up to which an error lists the order of a convex polygon
_PAIRS = 1 << 22  # pairs of sides in a block


def cross(p: Tensor, q: Tensor) -> Tensor:
    """The cross products of vectors ``(..., 2)``: positive where q is to the left of p."""
    return p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]


def fan(corners: Tensor) -> tuple[Tensor, Tensor]:
    """The sides ``p, q: (k - 2, 2)`` of the triangles between the first corner and the others."""
    rays = corners[1:] - corners[0]
    return rays[:-1], rays[1:]


def require_resolved(x: Tensor, extent: float) -> None:
    """Raise an error if points ``(k, D)`` of an extent are equal up to rounding, or extreme."""
    if extent == 0:
        raise DomainError(f"All {len(x)} points are identical. Give three that span a plane.")
    require_size(extent)
    magnitude = float(x.abs().max())
    if extent <= EPS * magnitude:
        raise DomainError(
            f"The points are identical to float64 precision: they extend over {extent:.3g} at "
            f"coordinates of size {magnitude:.3g}. Give a larger polygon or one nearer to zero."
        )


def require_size(
    extent: float,
    what: str = "The polygon",
    numbers: str = "Areas and squared distances",
    limits: tuple[float, float] = (SMALLEST_DOMAIN, LARGEST_DOMAIN),
) -> None:
    """Raise an error if areas, or other numbers, may leave the range of float64."""
    if limits[0] <= extent <= limits[1]:
        return
    size = "large" if extent > limits[1] else "small"
    raise DomainError(
        f"{what} is too {size}: it is {extent:.3g} wide. {numbers} stay within the range of "
        f"float64 for widths of {limits[0]:.0e} to {limits[1]:.0e}: give the inputs in other units."
    )


def convex_corners(corners: Tensor, magnitude: float) -> Tensor:
    """Counter-clockwise, strictly convex corners ``(k, 2)``, or an error that names the corner.

    Repeated points and points on a straight side are dropped. magnitude: the size of the input
    coordinates, whose rounding may make a straight side appear to turn.
    """
    if len(corners) < 3:
        raise DomainError(f"A polygon needs at least three corners, got {len(corners)}.")
    extent = float((corners.amax(0) - corners.amin(0)).max())
    require_resolved(corners, extent)
    index = torch.arange(len(corners))
    index = index[(corners - corners.roll(-1, 0)).abs().amax(1) > DEGENERATE * extent]
    # With unit extent, products neither underflow nor overflow.
    unit = (corners - corners[0]) / extent
    if len(index) >= 3:
        p, q = fan(unit[index])
        doubled = float(cross(p, q).sum())
    if len(index) < 3 or abs(doubled) <= 2 * DEGENERATE:
        _require_simple(unit, index)
        raise DomainError(
            f"The polygon is degenerate: its area is below {DEGENERATE:g} of its squared extent "
            f"({extent:.3g}). Give at least three corners, not on one line, in order around it."
        )
    if doubled < 0:
        index = index.flip(0)
    size = max(magnitude, float(corners.abs().max()))
    noise = 4 * EPS * size / extent
    if noise > MAX_CORNER_ERROR:
        raise DomainError(
            f"The domain ({extent:.3g} wide) is too small for float64 around inputs of size "
            f"{size:.3g}. Make it larger, or shift the inputs towards zero."
        )
    index = index[_turns(unit, index, noise)]
    return corners[index.roll(-int(index.argmin()))].contiguous()


def _turns(unit: Tensor, index: Tensor, noise: float) -> Tensor:
    """Whether each corner ``unit[index]`` turns left, ``(k,)``; right turns are an error."""
    ring = unit[index]
    before, after = ring - ring.roll(1, 0), ring.roll(-1, 0) - ring
    turn = cross(before, after)
    b, a = torch.linalg.vector_norm(before, dim=1), torch.linalg.vector_norm(after, dim=1)
    slack = DEGENERATE * a * b + noise * (a + b)
    straight: Tensor = (turn.abs() <= slack) & ((before * after).sum(1) > 0)
    wrong = (turn <= slack) & ~straight
    if bool(wrong.any()):
        _require_simple(unit, index)
        raise DomainError(
            f"The polygon is not convex at point {int(index[wrong][0])}. Give the corners of a "
            "convex polygon in order; split other shapes into convex parts."
        )
    angle = torch.atan2(turn, (before * after).sum(1)).sum()
    if float(angle) > 3 * math.pi:
        _require_simple(unit, index)
        raise DomainError(
            "The polygon winds around more than once. Give the corners of a convex polygon in "
            "order around it."
        )
    return straight.logical_not()


# -- polygons that cross themselves ----------------------------------------------------------------


def _require_simple(unit: Tensor, index: Tensor) -> None:
    """Raise an error if two sides of a polygon ``unit[index]`` of unit extent cross."""
    found = _crossing(unit[index])
    if found is None:
        return
    sides = []
    for side in found:
        ends = sorted((int(index[side]), int(index[(side + 1) % len(index)])))
        sides.append(f"from point {ends[0]} to {ends[1]}")
    raise DomainError(
        f"The polygon crosses itself: its sides {' and '.join(sorted(sides))} meet. "
        f"{_advice(unit, index)}"
    )


def _crossing(ring: Tensor) -> tuple[int, int] | None:
    """Two sides of a polygon ``(k, 2)`` that cross between their ends, or None."""
    k, end = len(ring), ring.roll(-1, 0)
    rows = max(1, _PAIRS // k)
    for start in range(0, k, rows):
        block = slice(start, start + rows)
        a, b = ring[block, None], end[block, None]
        apart = _side(a, b, ring) * _side(a, b, end)
        divided = _side(ring, end, a) * _side(ring, end, b)
        pairs = ((apart < 0) & (divided < 0)).nonzero()
        if len(pairs):
            return start + int(pairs[0, 0]), int(pairs[0, 1])
    return None


def _side(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The side of the line from a to b on which the points c lie: 1, -1, or 0 if it is unclear."""
    turn = cross(b - a, c - a)
    return torch.where(turn.abs() <= DEGENERATE, 0.0, turn.sign())


def _advice(unit: Tensor, index: Tensor) -> str:
    """Say in which order the points make a convex polygon, if there is one."""
    ring = unit[index]
    offset = ring - ring.mean(0)
    order = torch.atan2(offset[:, 1], offset[:, 0]).argsort()
    order = order.roll(-int(index[order].argmin()))
    sides = ring[order].roll(-1, 0) - ring[order]
    if not bool((cross(sides.roll(1, 0), sides) > DEGENERATE).all()):
        return "Give the corners of a convex polygon in order around it."
    if len(order) > _LISTED:
        return "Sorted by their angle around their mean, the points make a convex polygon."
    return f"In the order {index[order].tolist()} the points make a convex polygon."


@dataclass(frozen=True)
class ConvexPolygons:
    """P convex polygons with N corners, and m numbers at every corner that are affine on each."""

    offsets: Tensor  # (P + 1,) where the corners of each polygon begin, counter-clockwise
    uv: Tensor  # (N, 2) the corners
    values: Tensor  # (N, m) the numbers
    source: Tensor  # (P,) what each polygon is a part of

    @classmethod
    def of_faces(cls, mesh: Mesh, faces: Tensor, values: Tensor) -> ConvexPolygons:
        """Some faces (P,) of a mesh with values (V, m) at its vertices; they are the sources."""
        entries, counts = take_rows(mesh.offsets, faces)
        vertex = take(mesh.edges.view(-1), take(mesh.corners, entries))
        return cls(offsets_of(counts), take(mesh.uv, vertex), take(values, vertex), faces)

    def __len__(self) -> int:
        return int(self.source.shape[0])

    @property
    def counts(self) -> Tensor:
        """The number of corners of each polygon, (P,)."""
        return self.offsets.diff()

    @property
    def owners(self) -> Tensor:
        """The polygon of each corner, (N,)."""
        return owners_of(self.counts, self.uv.shape[0])

    def areas(self) -> Tensor:
        """The area of each polygon, (P,), from coordinates relative to its first corner."""
        corner, owner = self.uv - take(self.uv, self.offsets[self.owners]), self.owners
        ahead = take(corner, following(self.offsets, corner.shape[0]))
        doubled = corner.new_zeros(len(self)).index_add_(0, owner, cross(corner, ahead))
        return doubled.clamp(min=0) / 2

    def perimeters(self) -> Tensor:
        """The length around each polygon, (P,)."""
        sides = lengths(take(self.uv, following(self.offsets, self.uv.shape[0])) - self.uv)
        return sides.new_zeros(len(self)).index_add_(0, self.owners, sides)

    def select(self, chosen: Tensor) -> ConvexPolygons:
        """Some of the polygons, by their numbers (Q,)."""
        entries, counts = take_rows(self.offsets, chosen)
        uv, values = (take(each, entries) for each in (self.uv, self.values))
        return ConvexPolygons(offsets_of(counts), uv, values, take(self.source, chosen))

    def split(self, h: Tensor) -> tuple[ConvexPolygons, ConvexPolygons]:
        """The parts on which a function, h (N,) at the corners, is positive, and the others.

        A polygon that the function only touches with its zeros is not divided; if it is zero on all
        of a polygon, that is not positive.
        """
        owner, zero = self.owners, torch.zeros_like(self.source)
        above = zero.index_add(0, owner, (h > 0).long()) > 0
        below = (zero.index_add(0, owner, (h < 0).long()) > 0) | ~above
        if not bool(above.any()) or not bool(below.any()):
            none = self.select(self.source.new_zeros(0))
            return (self, none) if bool(above.any()) else (none, self)
        both = (above & below).nonzero()[:, 0]
        cut, inside = self.select(both), take(h, take_rows(self.offsets, both)[0])
        sides = zip((above & ~below, below & ~above), (inside, -inside), strict=True)
        positive, other = (
            joined([self.select(whole.nonzero()[:, 0]), cut._clipped(side)])
            for whole, side in sides
        )
        return positive, other

    def _clipped(self, h: Tensor) -> ConvexPolygons:
        """The parts with positive h (N,), which is positive and negative on every polygon."""
        ahead = following(self.offsets, h.shape[0])
        after = take(h, ahead)
        kept, crossed = h >= 0, (h > 0) & (after < 0) | (h < 0) & (after > 0)
        place = offsets_of(kept.long() + crossed.long())
        share = (h / (h - torch.where(crossed, after, h - 1)))[crossed, None]

        def corners(x: Tensor) -> Tensor:
            found = x.new_empty((int(place[-1]), *x.shape[1:]))
            found[place[:-1][kept]] = x[kept]
            start = x[crossed]
            met = start + share * (take(x, ahead[crossed]) - start)
            found[place[:-1][crossed] + kept[crossed].long()] = met
            return found

        offsets = take(place, self.offsets)
        return ConvexPolygons(offsets, corners(self.uv), corners(self.values), self.source)


def joined(parts: list[ConvexPolygons]) -> ConvexPolygons:
    """All polygons of several lists in one; each has the same number of values."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    counts = torch.cat([part.counts for part in parts])
    columns = zip(*((part.uv, part.values, part.source) for part in parts), strict=True)
    return ConvexPolygons(offsets_of(counts), *(torch.cat(column) for column in columns))


Claim = Callable[[ConvexPolygons, slice], Tensor]
"""A conjunction: gives some of its functions at the corners of polygons, (N, k)."""


def divided(
    polygons: ConvexPolygons, claims: Sequence[Claim], *, closed: bool = False
) -> tuple[list[ConvexPolygons], ConvexPolygons]:
    """The parts of polygons on which each of some claims holds, and those on which none does.

    Where several hold, the first one counts. closed: a claim also holds where functions are zero.
    """
    found = []
    for claim in claims:
        part, polygons = _cut_off(polygons, claim, closed)
        found.append(part)
    return found, polygons


def _cut_off(
    polygons: ConvexPolygons, claim: Claim, closed: bool
) -> tuple[ConvexPolygons, ConvexPolygons]:
    """The parts of polygons on which a claim holds, and the rest; others stay undivided."""

    def split(some: ConvexPolygons, h: Tensor) -> tuple[ConvexPolygons, ConvexPolygons]:
        return some.split(-h)[::-1] if closed else some.split(h)

    values = claim(polygons, slice(None))
    if values.shape[1] == 1:
        return split(polygons, values[:, 0])
    index = polygons.owners[:, None].expand_as(values)
    none = values.new_full((len(polygons), values.shape[1]), torch.inf)
    low = none.scatter_reduce(0, index, values, "amin")
    high = (-none).scatter_reduce(0, index, values, "amax")
    met = (high >= 0 if closed else high > 0).all(1).nonzero()[:, 0]
    part, rest = replace(polygons.select(met), source=met), []

    def with_sources(some: ConvexPolygons) -> ConvexPolygons:
        return replace(some, source=take(polygons.source, some.source))

    for k in (low[met] < 0).any(0).nonzero()[:, 0].tolist():
        h = claim(with_sources(part), slice(k, k + 1))[:, 0]
        part, other = split(part, h)
        rest.append(other)
    holds = torch.zeros_like(polygons.source, dtype=torch.bool)
    holds[part.source] = True
    cut = [each.select(holds[each.source].nonzero()[:, 0]) for each in rest]
    whole = polygons.select((~holds).nonzero()[:, 0])
    return with_sources(part), joined([whole, *map(with_sources, cut)])
