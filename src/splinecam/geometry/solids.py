"""Convex bodies of three dimensions in a model's input space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from splinecam._util import options
from splinecam._util.tolerances import DEGENERATE, LARGEST_SOLID, SMALLEST_SOLID
from splinecam.errors import DomainError, option
from splinecam.geometry.convex import require_size

_SIZES = "The body", "Volumes", (SMALLEST_SOLID, LARGEST_SOLID)
_CUBE = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
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
        eye = torch.eye(3, dtype=torch.float64)
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
