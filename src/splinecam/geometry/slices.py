"""Slices of boxes: the convex polygon in which a plane meets an axis-aligned box.

The box bounds every input coordinate from both sides, and each bound is a half-plane of the slice.
A polygon that is large enough is clipped by the half-plane that its corners violate most, until
they violate none. Which one that is, floating-point numbers say for all bounds at once; corners and
their sides of a line are rational numbers, so that parallel, repeated and nearly equal bounds need
no special case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from splinecam._util.points import as_tensor
from splinecam._util.tolerances import EPS, LARGEST_DOMAIN
from splinecam.errors import DomainError

__all__ = ["Box", "box_of", "box_slice"]

_Line = tuple[Fraction, Fraction, Fraction]  # a, b, c of the half-plane a u + b v <= c
_Corner = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Box:
    """The inputs between ``lo: (D,)`` and ``hi: (D,)``, whose bounds may be infinite."""

    lo: Tensor
    hi: Tensor
    shape: tuple[int, ...]

    def fixed(self, at: Any) -> Tensor:
        """The input ``(D,)`` that a slice goes through, by default the centre of the box."""
        if at is not None:
            point = as_tensor(at, "at")
            if tuple(point.shape) not in (self.shape, (self.lo.numel(),)):
                raise DomainError(
                    f"at has shape {tuple(point.shape)}, but inputs have shape {self.shape}."
                )
            return point.reshape(-1)
        middle = self.lo / 2 + self.hi / 2
        # Half of a subnormal number is rounded.
        return torch.where(self.lo == self.hi, self.lo, middle)

    def name(self, axis: int) -> str:
        """An axis as an entry of an input, for messages: ``x[3]`` or ``x[0, 2, 1]``."""
        index = []
        for size in reversed(self.shape):
            axis, each = divmod(axis, size)
            index.append(str(each))
        return f"x[{', '.join(reversed(index))}]"

    def bounds(self, axis: int) -> str:
        """The bounds on an axis, for messages."""
        return f"{float(self.lo[axis]):.6g} to {float(self.hi[axis]):.6g}"


def box_of(box: Any, input_shape: Sequence[int] | None, at: Any = None) -> Box:
    """The checked box of ``(lo, hi)``, two arrays of the input shape.

    input_shape: the shape of one input, by default that of the arrays; if they are numbers or flat,
    that of the input ``at``.
    """
    try:
        lo, hi = box
    except (TypeError, ValueError):
        shape = tuple(getattr(box, "shape", ()))
        hint = " Yours has a row for each feature: give box.T." if shape[1:] == (2,) else ""
        hint = " Of a property, that is .box." if hasattr(box, "box") else hint
        raise DomainError(
            f"box is not a pair: give (lo, hi), two arrays of the input shape.{hint}"
        ) from None
    low, high = as_tensor(lo, "lo"), as_tensor(hi, "hi")
    sizes = [tuple(each.shape) for each in (low, high) if each.ndim]
    if input_shape is None and at is not None:
        input_shape = _shape_of(at, sizes)
    if input_shape is None and not sizes:
        raise DomainError(
            "The bounds of box are single numbers. Give at, which is an input, or say which shape "
            "one input has: input_shape=5."
        )
    if len(set(sizes)) > 1:
        raise DomainError(f"lo has shape {sizes[0]}, but hi has shape {sizes[1]}.")
    shape = sizes[0] if input_shape is None else tuple(int(n) for n in input_shape)
    D = math.prod(shape)
    if D < 2:
        raise DomainError(f"Inputs of shape {shape} have no planes: those need two numbers.")
    if sizes and math.prod(sizes[0]) != D:
        raise DomainError(f"The bounds of box have shape {sizes[0]}, but input_shape is {shape}.")
    found = Box(low.reshape(-1).expand(D), high.reshape(-1).expand(D), shape)
    wrong = (~(found.lo <= found.hi)).nonzero()
    if len(wrong):
        axis = int(wrong[0])
        raise DomainError(
            f"The box is empty: the bounds of {found.name(axis)} are {found.bounds(axis)}."
        )
    return found


def _shape_of(at: Any, sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape of the input ``at``, if bounds of these sizes are numbers or its entries.

    A batch of one input has these entries, too, but is not taken for an input.
    """
    shape = tuple(as_tensor(at, "at").shape)
    flat = (math.prod(shape),)
    taken = not sizes or (set(sizes) == {flat} and shape != (1, *flat))
    return shape if taken else None


def box_slice(box: Box, at: Tensor, basis: Tensor) -> Tensor:
    """The corners ``(k, 2)`` of the polygon ``lo <= at + uv @ basis <= hi``, counter-clockwise.

    at: ``(D,)``, a point of the plane; basis: ``(2, D)``, orthonormal.
    """
    moving = basis.ne(0).any(0)
    _require_inside(box, at, moving)
    _require_extent(box, moving)
    bounds = _bounds(box, at, moving.nonzero()[:, 0], basis)
    square = _square(box, at, moving, basis)
    ring = square
    for _ in range(len(bounds.axis)):
        worst = bounds.most_violated(_rounded(ring))
        if worst is None:
            break
        ring = _clipped(ring, bounds.line(worst))
        if not ring:
            axis = int(bounds.axis[worst])
            raise DomainError(
                f"The plane does not meet the inside of the box: none of its points fits the "
                f"bounds {box.bounds(axis)} of {box.name(axis)} and the others. Give an input "
                "inside the box as at."
            )
    if any(side is each for side in ring for each in square):
        axis = int(torch.where(moving, box.hi - box.lo, -1.0).argmax())
        raise DomainError(
            f"The slice is unbounded, or wider than {LARGEST_DOMAIN:.0e}: the bounds of "
            f"{box.name(axis)} are {box.bounds(axis)}. Give narrower ones for what is sliced."
        )
    corners = _rounded(ring)
    first = min(range(len(corners)), key=corners.tolist().__getitem__)
    return corners.roll(-first, 0)


@dataclass(frozen=True)
class _Bounds:
    """The finite bounds of a box as half-planes ``normal @ uv <= limit`` of a slice.

    normal: ``(n, 2)``; limit: ``(n,)``, the rounded difference of bound and at; bound, at:
    ``(n,)``; axis: ``(n,)``, the input coordinate.
    """

    normal: Tensor
    limit: Tensor
    bound: Tensor
    at: Tensor
    axis: Tensor

    def most_violated(self, corners: Tensor) -> int | None:
        """The half-plane that a corner violates most, or None if rounding explains it all."""
        excess = corners @ self.normal.T - self.limit
        size = corners.abs() @ self.normal.abs().T + self.bound.abs() + self.at.abs()
        worst = (excess - 4 * EPS * size).amax(0)
        found = int(worst.argmax())
        return found if float(worst[found]) > 0 else None

    def line(self, index: int) -> _Line:
        """One of the half-planes, without rounding."""
        a, b = (Fraction(each) for each in self.normal[index].tolist())
        return a, b, Fraction(float(self.bound[index])) - Fraction(float(self.at[index]))


def _bounds(box: Box, at: Tensor, axes: Tensor, basis: Tensor) -> _Bounds:
    """The finite bounds of the coordinates ``axes`` along which a plane extends."""
    normal = basis[:, axes].T
    # A lower bound is an upper one of the negative coordinate.
    normals = torch.cat([normal, -normal])
    bound, start = torch.cat([box.hi[axes], -box.lo[axes]]), torch.cat([at[axes], -at[axes]])
    finite = bound.isfinite()
    axis = torch.cat([axes, axes])[finite]
    return _Bounds(normals[finite], (bound - start)[finite], bound[finite], start[finite], axis)


def _require_inside(box: Box, at: Tensor, moving: Tensor) -> None:
    """Raise an error if the plane misses the box on an axis along which it does not extend."""
    bad = (~at.isfinite()).nonzero()
    if len(bad):
        axis = int(bad[0])
        raise DomainError(
            f"The slice needs a finite input to go through, but {box.name(axis)} is "
            f"{float(at[axis])} there (bounds {box.bounds(axis)}). Give at."
        )
    outside = (((at < box.lo) | (at > box.hi)) & ~moving).nonzero()
    if len(outside):
        axis = int(outside[0])
        raise DomainError(
            f"The plane misses the box: {box.name(axis)} is {float(at[axis]):.9g} in at, outside "
            f"of its bounds {box.bounds(axis)}. Give an input of the box as at."
        )


def _require_extent(box: Box, moving: Tensor) -> None:
    """Raise an error if the box has no extent on an axis along which the plane extends."""
    flat = ((box.lo == box.hi) & moving).nonzero()
    if len(flat):
        axis = int(flat[0])
        raise DomainError(
            f"The slice is degenerate: {box.name(axis)} is {float(box.lo[axis]):.6g} in all of the "
            "box, and the slice extends along it. Slice along other axes, or widen the box."
        )


def _square(box: Box, at: Tensor, moving: Tensor, basis: Tensor) -> list[_Line]:
    """A square around the origin that contains the slice, if that is bounded."""
    reach = torch.maximum((box.lo - at).abs(), (box.hi - at).abs()).clamp(max=LARGEST_DOMAIN)
    radius = float((basis[:, moving].abs() @ reach[moving]).max())
    size = Fraction(2 * min(radius, LARGEST_DOMAIN))
    one, zero = Fraction(1), Fraction(0)
    return [(-one, zero, size), (zero, -one, size), (one, zero, size), (zero, one, size)]


def _corners(ring: Sequence[_Line]) -> list[_Corner]:
    """The corners of a polygon: each is the end of a side and the start of the next one."""
    found = []
    for k, (a, b, c) in enumerate(ring):
        p, q, r = ring[(k + 1) % len(ring)]
        det = a * q - b * p
        found.append(((c * q - b * r) / det, (a * r - c * p) / det))
    return found


def _rounded(ring: Sequence[_Line]) -> Tensor:
    """The corners ``(k, 2)`` of a polygon as float64 numbers."""
    return torch.tensor([[float(u), float(v)] for u, v in _corners(ring)], dtype=torch.float64)


def _clipped(ring: list[_Line], line: _Line) -> list[_Line]:
    """The sides of a polygon within a half-plane; none if they have no inner point in common."""
    a, b, c = line
    corners = _corners(ring)
    inside = [a * u + b * v < c for u, v in corners]
    if not any(inside):
        return []
    if all(a * u + b * v <= c for u, v in corners):
        return ring
    count = len(ring)
    # A side stays if one of its ends is inside; the corner before side k is that of side k - 1.
    start = next(k for k in range(count) if inside[k] and not inside[k - 1])
    order = [k % count for k in range(start, start + count)]
    return [*(ring[k] for k in order if inside[k] or inside[k - 1]), line]
