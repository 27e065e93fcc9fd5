"""Orthonormal frames of planes: from samples, from directions, from polygons, or at random."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from splinecam._util.points import finite
from splinecam._util.tolerances import DEGENERATE, EPS, PLANAR, SHORT_SIDE
from splinecam.errors import DomainError
from splinecam.geometry.convex import require_resolved, require_size

__all__ = [
    "axis_of",
    "direction_of",
    "frame_along",
    "frame_beside",
    "frame_through",
    "polygon_frame",
    "principal_frame",
    "random_frame",
    "require_planar",
    "two_of",
]


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
    """The flat index of an axis, or None for what is not an index but a direction.

    axis: a flat index, or a tuple with an index for each dimension of the input shape.
    """
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
        none="The samples a and b are identical. Give three that span a plane.",
        parallel="The samples a, b and c lie on one line. Give three that span a plane.",
    )


def frame_along(directions: Iterable[Any], shape: Sequence[int], name: str) -> Tensor:
    """Orthonormal rows ``(2, D)``: along the first direction, and along the rest of the second.

    The lengths of the directions do not matter.
    """
    d1, d2 = (direction_of(each, shape, name) for each in directions)
    return _orthonormal(
        _unit_size(d1),
        _unit_size(d2),
        none=f"The first direction of {name} is zero. Give two that span a plane.",
        parallel=f"The two directions of {name} are parallel. Give two that span a plane.",
    )


def frame_beside(along: Tensor, direction: Tensor | None, seed: int) -> Tensor:
    """Orthonormal rows ``(2, D)``: along the first direction, and orthogonal to it.

    direction: ``(D,)``, of which the second row is the orthogonal part; without it that is random
    by ``seed``, and in two dimensions the first one turned to the left.
    """
    if bool(along.any()):
        require_size(float(along.abs().max()))
    if direction is None and len(along) == 2:
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
    """Orthonormal rows for two directions.

    none, parallel: what to say if the first one is zero, and if they span no plane.
    """
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
    """Orthonormal rows ``(2, D)`` that span a random plane; of two dimensions the axes."""
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
    # What is left is scaled anew, so that a direction with little variance is as precise.
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
    """Orthonormal rows ``(2, D)`` that span the plane of a polygon ``x: (k, D)``.

    The first row points along the side on which the first point lies, the second one to the other
    points.
    """
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
    # The direction of a short side is rounded, so that it is taken within the plane of the others.
    plane = frame_through(torch.stack([x[0], x[far], x[int(off.argmax())]]))
    u = plane @ rays[end]
    u = u / torch.linalg.vector_norm(u)
    v = torch.stack([-u[1], u[0]])
    left = ((rays @ plane.T) @ v).sum()
    return torch.stack([u, v if float(left) > 0 else -v]) @ plane


def _end_of_side(rays: Tensor, length: Tensor) -> int:
    """The last of the points in order that lie on one side with the first one.

    rays: the points ``(k, D)`` relative to the first one; length: their distances from it.
    """
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
    """Raise an error if points ``x: (k, D)`` differ from their projections ``flat``.

    by_basis: whether the user gave the directions of the plane.
    """
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
            f"plane of the others (extent {extent:.3g}). Use Domain.through for a plane through "
            "three samples, or project the points first."
        )
