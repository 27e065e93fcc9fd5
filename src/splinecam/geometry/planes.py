"""Planes of the input space: orthonormal frames, and the polygons in which planes meet boxes.

The box bounds every input coordinate from both sides, and each bound is a half-plane of the slice.
A large polygon is clipped by the half-plane that its corners violate most, until they violate none.
Floating-point numbers tell which half-plane comes next, for all bounds at once. The corners are
rational numbers, so that parallel, repeated and nearly equal bounds need no special case.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.options import as_tensor, finite
from splinecam._util.tolerances import DEGENERATE, EPS, LARGEST_DOMAIN, PLANAR, SHORT_SIDE
from splinecam.errors import DomainError, option
from splinecam.geometry.convex import require_resolved, require_size

# -- axes and directions of the input space --------------------------------------------------------


def two_of(axes: Any, name: str) -> tuple[Any, Any]:
    """The two axes or directions that a user gives as a pair, or as an array with two rows."""
    try:
        given = list(axes)
    except TypeError:
        given = []
    if len(given) != 2:
        raise DomainError(
            f"{name} is {axes!r}; give two axes, such as (0, 1), or two directions of the input "
            "shape."
        )
    return given[0], given[1]


def axis_of(axis: Any, shape: Sequence[int], name: str) -> int | None:
    """The flat index of an axis, given flat or as a tuple, or None for a direction."""
    try:
        if isinstance(axis, tuple) and len(axis) == len(shape) > 1:
            return _flat_index([operator.index(each) for each in axis], shape, name)
        index = operator.index(axis)
    except TypeError:
        return None
    return _flat_index([index], [math.prod(shape)], name)


def _flat_index(index: Sequence[int], shape: Sequence[int], name: str) -> int:
    """The flat index of an entry of an array; negative indices count from the end."""
    flat = 0
    for each, size in zip(index, shape, strict=True):
        if not -size <= each < size:
            where = index[0] if len(index) == 1 else tuple(index)
            raise DomainError(
                f"{name} has {where}, but inputs have {size} numbers there: indices are 0 to "
                f"{size - 1}."
            )
        flat = flat * size + each % size
    return flat


def direction_of(direction: Any, shape: Sequence[int], name: str) -> Tensor:
    """A direction ``(D,)`` of the input space, given as an array or by the index of an axis."""
    axis = axis_of(direction, shape, name)
    size = math.prod(shape)
    if axis is not None:
        unit = torch.zeros(size, dtype=torch.float64)
        unit[axis] = 1.0
        return unit
    vector = finite(direction, name)
    if tuple(vector.shape) not in (tuple(shape), (size,)):
        raise DomainError(
            f"{name} has a direction of shape {tuple(vector.shape)}, but inputs have shape "
            f"{tuple(shape)}."
        )
    return vector.reshape(-1)


# -- frames ----------------------------------------------------------------------------------------


def frame_through(x: Tensor) -> Tensor:
    """Orthonormal rows ``(2, D)``: along ``x[1] - x[0]``, and from that line towards ``x[2]``."""
    d1, d2 = x[1] - x[0], x[2] - x[0]
    require_resolved(x, max(float(d1.abs().max()), float(d2.abs().max())))
    return _orthonormal(
        d1,
        d2,
        none=f"{option('The samples a and b')} are identical. Give three that span a plane.",
        parallel=f"{option('The samples a, b and c')} lie on one line. Give three that span a "
        "plane.",
    )


def frame_along(directions: Iterable[Any], shape: Sequence[int], name: str) -> Tensor:
    """Orthonormal rows ``(2, D)``: along the first direction, and along the rest of the second."""
    d1, d2 = (direction_of(each, shape, name) for each in directions)
    return _orthonormal(
        _unit_size(d1),
        _unit_size(d2),
        none=f"The first direction of {name} is zero. Give two that span a plane.",
        parallel=option(f"The two directions of {name} are parallel")
        + ". Give two that span a plane.",
    )


def frame_beside(along: Tensor, direction: Tensor | None, seed: int) -> Tensor:
    """Orthonormal rows ``(2, D)``: along the first direction, and along the rest of the second."""
    if bool(along.any()):
        require_size(float(along.abs().max()))
    if direction is None and len(along) == 2:  # the first one turned to the left
        direction = torch.stack([-along[1], along[0]])
    elif direction is None:
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(len(along), generator=generator, dtype=torch.float64)
    return _orthonormal(
        _unit_size(along),
        _unit_size(direction),
        none="The samples a and b are identical. Give two different ones.",
        parallel="direction is zero or parallel to b - a. Give another one.",
    )


def _unit_size(direction: Tensor) -> Tensor:
    """A direction whose largest entry is 1; zero stays zero."""
    size = direction.abs().max()
    return direction / size if float(size) > 0 else direction


def _orthonormal(d1: Tensor, d2: Tensor, *, none: str, parallel: str) -> Tensor:
    """Orthonormal rows for two directions; none, parallel: what to say if there are none."""
    scale = max(float(d1.abs().max()), float(d2.abs().max()))
    n1 = float(torch.linalg.vector_norm(d1 / scale))
    if not n1 > DEGENERATE:
        raise DomainError(none)
    u = d1 / (scale * n1)
    rest = d2 / scale
    # The second pass removes what rounding left of u in the difference.
    v = rest - (rest @ u) * u
    v = v - (v @ u) * u
    n2 = float(torch.linalg.vector_norm(v))
    if not n2 > DEGENERATE:
        raise DomainError(parallel)
    return torch.stack([u, v / n2])


def random_frame(size: int, seed: int) -> Tensor:
    """Orthonormal rows ``(2, D)`` that span a random plane, or the axes of a space of two."""
    if size == 2:
        return torch.eye(2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    frame = torch.randn(size, 2, generator=generator, dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(frame).Q.T.contiguous()
    return basis


def principal_frame(x: Tensor, mean: Tensor) -> Tensor:
    """Orthonormal rows ``(2, D)`` along which data ``x: (N, D)`` vary most around their mean."""
    rays = x - mean
    scale = rays.abs().max()
    rays = rays / scale
    first = _leading_direction(rays)
    rest = rays - (rays @ first)[:, None] * first
    rounding = 4 * EPS * float(x.abs().max() / scale)
    if float(rest.abs().max()) <= max(DEGENERATE, rounding):
        raise DomainError(
            f"The data, {len(rays)} inputs, lie on one line, which many planes go through. Choose "
            "one of them with Domain.from_two(a, b)."
        )
    # The rest is scaled anew: a direction with little variance is then as precise.
    second = _leading_direction(rest / rest.abs().max())
    return _orthonormal(first, second, none="", parallel="")


def _leading_direction(rays: Tensor) -> Tensor:
    """The direction ``(D,)`` along which data ``(N, D)`` vary most, its largest entry positive."""
    wide = rays.shape[1] > rays.shape[0]
    gram = rays @ rays.T if wide else rays.T @ rays
    found: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -1]
    found = rays.T @ found if wide else found
    found = found / torch.linalg.vector_norm(found)
    return found * found[found.abs().argmax()].sign()


def polygon_frame(x: Tensor) -> Tensor:
    """Orthonormal rows ``(2, D)`` of the plane of a polygon ``x: (k, D)``: along its first side."""
    rays = x - x[0]
    scale = float(rays.abs().max())
    require_resolved(x, scale)
    rays = rays / scale
    length = torch.linalg.vector_norm(rays, dim=1)
    far = int(length.argmax())
    off = _distances(rays, rays[far])
    if float(off.max()) <= DEGENERATE:
        raise DomainError(f"All {len(x)} points lie on one line. Give three that span a plane.")
    end = _end_of_side(rays, length)
    if float(length[end]) >= SHORT_SIDE * float(length[far]):
        aside = int(_distances(rays, rays[end]).argmax())
        return frame_through(torch.stack([x[0], x[end], x[aside]]))
    # The direction of a short side is rounded, so it is projected into the plane of the others.
    plane = frame_through(torch.stack([x[0], x[far], x[int(off.argmax())]]))
    u = plane @ rays[end]
    u = u / torch.linalg.vector_norm(u)
    v = torch.stack([-u[1], u[0]])
    left = ((rays @ plane.T) @ v).sum()
    return torch.stack([u, v if float(left) > 0 else -v]) @ plane


def _end_of_side(rays: Tensor, length: Tensor) -> int:
    """The last of the points ``(k, D)``, relative to the first one, on one side with it."""
    # Repeated points give no direction.
    first = int((length > DEGENERATE).nonzero()[0])
    end = first
    for k in range(first + 1, len(rays)):
        along = float(rays[k] @ rays[end])
        off = float(_distances(rays[k : k + 1], rays[end])[0])
        if along <= 0 or length[k] < length[end] or off > PLANAR * float(length[k]):
            return end
        end = k
    return end


def _distances(rays: Tensor, direction: Tensor) -> Tensor:
    """The distances ``(k,)`` of points ``(k, D)`` from the line through zero."""
    u = direction / torch.linalg.vector_norm(direction)
    found: Tensor = torch.linalg.vector_norm(rays - (rays @ u)[:, None] * u, dim=1)
    return found


def require_planar(x: Tensor, flat: Tensor, *, by_basis: bool) -> None:
    """Raise an error if points ``x: (k, D)`` differ from their projections ``flat``."""
    off = torch.linalg.vector_norm(x - flat, dim=1)
    extent = float(torch.linalg.vector_norm(x - x[0], dim=1).max())
    worst = int(off.argmax())
    rounding = EPS * math.sqrt(x.shape[1]) * float(x.abs().max())
    if float(off[worst]) > PLANAR * extent + 4 * rounding:
        if by_basis:
            raise DomainError(
                f"The points are not in a plane along basis: point {worst} is "
                f"{float(off[worst]):.3g} off it (extent {extent:.3g}). Leave out basis, or give "
                "two directions between the points."
            )
        raise DomainError(
            f"The points are not in one plane: point {worst} is {float(off[worst]):.3g} off the "
            f"plane of the others (extent {extent:.3g}). Use {option('Domain.through')} for a "
            "plane through three samples, or project the points first."
        )


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
                    f"{option('at')} has shape {tuple(point.shape)}, but inputs have shape "
                    f"{self.shape}."
                )
            return point.reshape(-1)
        middle = self.lo / 2 + self.hi / 2
        # Half of a subnormal number is rounded.
        return torch.where(self.lo == self.hi, self.lo, middle)

    def name(self, axis: int) -> str:
        """An axis as an entry of an input, for messages: ``x[3]`` or ``x[0, 2, 1]``."""
        return f"x[{', '.join(map(str, np.unravel_index(axis, self.shape)))}]"

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
        shape = tuple(as_tensor(at, "at").shape)
        flat = (math.prod(shape),)
        # The bounds are numbers, or as many as the entries of the input; a batch is no input.
        if not sizes or (set(sizes) == {flat} and shape != (1, *flat)):
            input_shape = shape
    if input_shape is None and not sizes:
        raise DomainError(
            f"The bounds of box are single numbers. Give {option('at')}, which is an input, or say "
            f"which shape one input has: {option('input_shape', '5')}."
        )
    if len(set(sizes)) > 1:
        raise DomainError(f"lo has shape {sizes[0]}, but hi has shape {sizes[1]}.")
    shape = sizes[0] if input_shape is None else tuple(int(n) for n in input_shape)
    D = math.prod(shape)
    if D < 2:
        raise DomainError(f"Inputs of shape {shape} have no planes: those need two numbers.")
    if sizes and math.prod(sizes[0]) != D:
        sized = option(
            f"input_shape is {shape}", flag=f"--input-shape is {', '.join(map(str, shape))}"
        )
        raise DomainError(f"The bounds of box have shape {sizes[0]}, but {sized}.")
    found = Box(low.reshape(-1).expand(D), high.reshape(-1).expand(D), shape)
    wrong = (~(found.lo <= found.hi)).nonzero()
    if len(wrong):
        axis = int(wrong[0])
        raise DomainError(
            f"The box is empty: the bounds of {found.name(axis)} are {found.bounds(axis)}."
        )
    return found


def box_slice(box: Box, at: Tensor, basis: Tensor) -> Tensor:
    """The corners ``(k, 2)`` of the polygon ``lo <= at + uv @ basis <= hi``, counter-clockwise."""
    moving = basis.ne(0).any(0)
    _require_inside(box, at, moving)
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
                f"inside the box as {option('at')}."
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
    """The finite bounds of a box as half-planes ``normal @ uv <= limit`` of a slice."""

    normal: Tensor  # (n, 2)
    limit: Tensor  # (n,) the rounded difference of bound and at
    bound: Tensor  # (n,)
    at: Tensor  # (n,)
    axis: Tensor  # (n,) the input coordinate

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
    """Raise an error if the plane misses the box on an axis, or the box has no extent along it."""
    bad = (~at.isfinite()).nonzero()
    if len(bad):
        axis = int(bad[0])
        raise DomainError(
            f"The slice needs a finite input to go through, but {box.name(axis)} is "
            f"{float(at[axis])} there (bounds {box.bounds(axis)}). Give {option('at')}."
        )
    outside = (((at < box.lo) | (at > box.hi)) & ~moving).nonzero()
    if len(outside):
        axis = int(outside[0])
        raise DomainError(
            f"The plane misses the box: {box.name(axis)} is {float(at[axis]):.9g} in "
            f"{option('at')}, outside of its bounds {box.bounds(axis)}. Give an input of the box "
            f"as {option('at')}."
        )
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
