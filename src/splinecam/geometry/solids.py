"""Convex bodies of three dimensions in a model's input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from splinecam._util import options
from splinecam._util.tolerances import DEGENERATE, LARGEST_SOLID, PLANAR, SMALLEST_SOLID
from splinecam.errors import DomainError, option
from splinecam.geometry.convex import require_size

_SIZES = "The body", "Volumes", (SMALLEST_SOLID, LARGEST_SOLID)
_CUBE = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
_MOST_POINTS = 100  # of a polytope
_TETRAHEDRON = ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2))


@dataclass(frozen=True, eq=False, repr=False)
class Solid:
    """A convex body of three dimensions, at the inputs ``x = origin + uvw @ basis``.

    ``origin: (D,)``, ``basis: (3, D)`` with orthonormal rows, ``corners: (k, 3)``; ``sides`` has
    the corners of each side, counter-clockwise seen from outside; D is the product of
    ``input_shape``.
    """

    origin: Tensor
    basis: Tensor
    corners: Tensor
    sides: tuple[tuple[int, ...], ...]
    input_shape: tuple[int, ...]

    def to_input(self, uvw: Tensor) -> Tensor:
        """The inputs ``(N, *input_shape)`` at some points.

        uvw: (N, 3) their coordinates.
        """
        x = uvw.to(torch.float64)
        if not self._plain:
            x = x @ self.basis.to(x.device) + self.origin.to(x.device)
        return x.reshape(x.shape[0], *self.input_shape)

    @cached_property
    def _plain(self) -> bool:
        """Whether coordinates are the inputs themselves."""
        eye = torch.eye(3, dtype=torch.float64, device=self.basis.device)
        return self.basis.shape == (3, 3) and torch.equal(self.basis, eye) and not self.origin.any()

    @property
    def planes(self) -> tuple[Tensor, Tensor]:
        """Normals (P, 3) of the sides, outwards, and offsets (P,): ``normal @ uvw <= offset``."""
        first, second, third = (
            torch.stack([self.corners[side[i]] for side in self.sides]) for i in range(3)
        )
        normals = torch.linalg.cross(second - first, third - first)
        normals = normals / normals.norm(dim=1, keepdim=True)
        return normals, (normals * first).sum(1)

    @property
    def middle(self) -> Tensor:
        """The mean of the corners, (3,)."""
        return self.corners.mean(0)

    @property
    def centred(self) -> Solid:
        """The same body in coordinates whose origin is its middle."""
        origin = self.origin + self.middle @ self.basis
        return replace(self, origin=origin, corners=self.corners - self.middle)

    def to(self, device: torch.device) -> Solid:
        """The same body with its arrays on a device."""
        origin, basis, corners = (x.to(device) for x in (self.origin, self.basis, self.corners))
        return replace(self, origin=origin, basis=basis, corners=corners)

    @property
    def dim(self) -> int:
        """D, the number of entries of one input."""
        return math.prod(self.input_shape)

    @property
    def volume(self) -> float:
        """The volume in the three dimensions of the body."""
        total = self.corners.new_zeros(())
        for side in self.sides:
            fan = self.corners[list(side)] - self.corners[0]
            for k in range(1, len(side) - 1):
                total = total + torch.linalg.det(fan[[0, k, k + 1]])
        return float(total) / 6

    def __repr__(self) -> str:
        size = f"volume {self.volume:.3g}, input shape {self.input_shape}"
        return f"Solid({len(self.corners)} corners, {size})"


def cube(lo: float, hi: float) -> Solid:
    """The cube from ``lo`` to ``hi`` on all three axes, for inputs of three numbers.

    lo, hi: numbers for all axes.

    >>> cube(-1, 1)
    Solid(8 corners, volume 8, input shape (3,))
    """
    return box3([lo] * 3, [hi] * 3)


def box3(lo: Any, hi: Any, *, input_shape: Sequence[int] = (3,)) -> Solid:
    """The axis-aligned box from ``lo`` to ``hi`` for inputs of three numbers.

    lo, hi: opposite corners, three numbers each. input_shape: the shape of one input, which holds
    three numbers.

    >>> box3((0, 0, 0), (1, 2, 3)).volume
    6.0
    """
    low, high = (options.finite(x, name).reshape(-1) for x, name in ((lo, "lo"), (hi, "hi")))
    shape = tuple(int(n) for n in input_shape)
    if low.shape != (3,) or high.shape != (3,) or math.prod(shape) != 3:
        raise DomainError(
            f"{option('Domain.box3')} takes corners of three numbers, for inputs of three numbers; "
            f"use {option('Domain.tetrahedron')} for a body in a larger space."
        )
    if not bool((low < high).all()):
        raise DomainError(f"lo is {low.tolist()} and hi {high.tolist()}: lo must be below hi.")
    require_size(float((high - low).max()), *_SIZES)
    ends, places = torch.stack([low, high]), torch.cartesian_prod(*[torch.arange(2)] * 3)
    zero, eye = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    return Solid(zero, eye, ends[places, torch.arange(3)], _CUBE, shape)


def tetrahedron(a: Any, b: Any, c: Any, d: Any) -> Solid:
    """The tetrahedron with four inputs as its corners, in an input space of any dimension.

    The first corner is the origin of its coordinates, the u axis points to the second, and the
    third lies in the plane of u and v. For inputs of three numbers coordinates equal inputs.

    a, b, c, d: single inputs, of the model's input shape.

    >>> tetrahedron([0., 0, 0, 1], [2, 0, 0, 1], [0, 2, 0, 1], [0, 0, 2, 1]).volume
    1.3333333333333333
    """
    x, shape = options.samples_of(a=a, b=b, c=c, d=d)
    edges = x[1:] - x[0]
    size = float(edges.abs().max())
    if size:
        require_size(size, *_SIZES)
    basis, lower = torch.linalg.qr(edges.T / (size or 1.0))
    if x.shape[1] < 3 or float(lower.diagonal().abs().min()) <= DEGENERATE:
        raise DomainError("The four inputs lie in one plane: give four corners of a tetrahedron.")
    signs = torch.where(lower.diagonal() < 0, -1.0, 1.0)
    origin, basis = x[0], (basis * signs).T.contiguous()
    corners = torch.cat([torch.zeros_like(edges[:1]), edges]) @ basis.T
    if x.shape[1] == 3:
        origin, basis, corners = torch.zeros_like(origin), torch.eye(3).to(x), x
    if float(torch.linalg.det(corners[1:] - corners[0])) < 0:
        corners = corners[[0, 2, 1, 3]]
    return Solid(origin, basis, corners.contiguous(), _TETRAHEDRON, shape)


def polytope(points: Any) -> Solid:
    """The convex hull of points that span three dimensions, in an input space of any dimension.

    So ``polytope(a + shares @ edges)``, with the eight corners (8, 3) of the unit cube as shares,
    is a box along any three directions (3, D). For inputs of three numbers coordinates equal
    inputs; else they begin in the first point.

    points: up to 100 inputs, of the model's input shape; those inside of the hull do not matter.

    >>> polytope([[1., 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]])
    Solid(6 corners, volume 1.33, input shape (3,))
    """
    given = options.finite(points, "points")
    x, shape = given.flatten(1) if given.dim() > 1 else given[:, None], tuple(given.shape[1:])
    if not 4 <= len(x) <= _MOST_POINTS:
        raise DomainError(f"{len(x)} points: give 4 to {_MOST_POINTS}, which span the body.")
    off = x - x[0]
    size = float(off.abs().max())
    if size:
        require_size(size, *_SIZES)
    _, spread, ways = torch.linalg.svd(off / (size or 1.0), full_matrices=False)
    widths = [*spread.tolist(), 0.0, 0.0, 0.0, 0.0]
    if widths[2] <= DEGENERATE * widths[0]:
        raise DomainError("The points lie in one plane: give points that span three dimensions.")
    if widths[3] > PLANAR * widths[0]:
        raise DomainError("The points span more than three dimensions: give points in a body of 3.")
    plain = x.shape[1] == 3
    basis = torch.eye(3, dtype=torch.float64) if plain else ways[:3].contiguous()
    origin = torch.zeros_like(x[0]) if plain else x[0]
    corners = x if plain else off @ basis.T
    again = torch.cdist(corners, corners, compute_mode="donot_use_mm_for_euclid_dist")
    first = (again <= DEGENERATE * size).to(torch.int8).argmax(1) == torch.arange(len(x))
    corners = corners[first]
    sides = _sides_of(corners - corners[0], DEGENERATE * size)
    used = sorted({k for side in sides for k in side})
    place = {k: i for i, k in enumerate(used)}
    numbered = tuple(tuple(place[k] for k in side) for side in sides)
    return Solid(origin, basis, corners[used].contiguous(), numbered, shape)


def _sides_of(points: Tensor, slack: float) -> list[list[int]]:
    """The sides of the hull of points (k, 3), as their corners, counter-clockwise from outside."""
    found: dict[frozenset[int], list[int]] = {}
    for i, j in combinations(range(len(points)), 2):
        along = points[j] - points[i]
        normals = torch.linalg.cross(along.expand_as(points[j + 1 :]), points[j + 1 :] - points[i])
        length = normals.norm(dim=1, keepdim=True)
        heights = (normals / length.clamp(min=1e-300)) @ (points - points[i]).T
        flat = length[:, 0] <= slack * float(along.norm())
        outside = (heights <= slack).all(1) & ~flat
        inside = (heights >= -slack).all(1) & ~flat
        for k in (outside | inside).nonzero()[:, 0].tolist():
            on = frozenset((heights[k].abs() <= slack).nonzero()[:, 0].tolist())
            normal = normals[k] if bool(outside[k]) else -normals[k]
            if on not in found:
                found[on] = _outline(points, sorted(on), normal, slack)
    return list(found.values())


def _outline(points: Tensor, on: list[int], normal: Tensor, slack: float) -> list[int]:
    """The corners of the hull of points in a plane, counter-clockwise seen from a normal's end."""
    first = torch.linalg.cross(normal, torch.eye(3, dtype=normal.dtype)[int(normal.abs().argmin())])
    first = first / first.norm()
    second = torch.linalg.cross(normal / normal.norm(), first)
    at = {k: (float(points[k] @ first), float(points[k] @ second)) for k in on}

    def chain(order: list[int]) -> list[int]:
        kept: list[int] = []
        for k in order:
            while len(kept) > 1 and _left(at[kept[-2]], at[kept[-1]], at[k]) <= slack:
                kept.pop()
            if not kept or math.dist(at[kept[-1]], at[k]) > slack:
                kept.append(k)
        return kept[:-1]

    order = sorted(on, key=at.__getitem__)
    return chain(order) + chain(order[::-1])


def _left(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """How far b lies to the right of the way from a to c."""
    (x, y), (s, t) = (b[0] - a[0], b[1] - a[1]), (c[0] - a[0], c[1] - a[1])
    return (x * t - y * s) / (math.hypot(s, t) or 1.0)
