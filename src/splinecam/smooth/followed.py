"""What is known of a live value on every cell of a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam.smooth.circles import Extents, squared_radii

__all__ = ["ROUNDING", "UPWARDS", "Boxes", "Followed", "modulus", "norm"]

ROUNDING = 2.0**-36  # of derivatives, relative to the terms that a stage makes them of
_SMALL = 2.0**-10  # by how much a form is increased so that a small length may be added
UPWARDS = 1 + 2.0**-30  # covers the rounding of bounds, which are computed like everything else


@dataclass(frozen=True)
class Boxes:
    """Rectangles in local coordinates: their centres, and half of their widths, (C, 2) each."""

    center: Tensor
    half: Tensor

    def __len__(self) -> int:
        return self.center.shape[0]

    def __getitem__(self, chosen: Tensor) -> Boxes:
        return Boxes(self.center[chosen], self.half[chosen])

    def extents(self, corners: Tensor | None = None, closely: bool = False) -> Extents:
        """How wide they are, or polygons in them with corners (C, k, 2).

        closely: whether triangles are to be looked at in each direction.
        """
        if corners is None:
            return Extents(self.half, self.half.square().sum(1))
        off = corners - self.center[:, None] if closely else None
        return Extents(self.half, squared_radii(corners), off)


@dataclass(frozen=True)
class Followed:
    """What is known of a live value on each of C boxes, or on a polygon in it, (C, *shape) each.

    value: at the centre; tangents: (2, C, *shape) there, along u and v; seconds: (3, C, *shape)
    second derivatives, along u twice, u and v, v twice, about in the middle of those on the box or
    polygon. The others are bounds. They compare
    the network with a smooth function: that which has everywhere the pieces of all layers with
    kinks that the network has at the centre, each going on straight beyond its kinks. turn: how far
    its gradient is from that at the centre; bend: (3, C, *shape) a form, as ``seconds`` are one, of
    at least the modulus by which the second derivative in any direction is off them; tilt: how far
    its gradient at the centre is from the tangents; spread: the width of an interval around zero in
    which the network is beside it; rounding: how far numbers of both are off.
    """

    value: Tensor
    tangents: Tensor
    seconds: Tensor
    turn: Tensor
    bend: Tensor
    tilt: Tensor
    spread: Tensor
    rounding: Tensor

    @property
    def length(self) -> Tensor:
        """The length of the gradient at the centre."""
        return self.tangents.square().sum(0).sqrt()

    @cached_property
    def curvature(self) -> Tensor:
        """A bound on the second derivative in any direction."""
        return norm(self.form) * UPWARDS

    @cached_property
    def form(self) -> Tensor:
        """A form (3, C, *shape) of at least the modulus of the second derivative everywhere."""
        found = modulus(self.seconds).add_(self.bend)
        found[::2] += ROUNDING * (found[0] + found[2])
        return found

    @property
    def branch(self) -> Tensor:
        """How far the network is from a smooth function with these derivatives."""
        return self.spread / 2 + self.rounding

    def reach(self, half: Tensor) -> Tensor:
        """How far the value may be from that at the centre of boxes with half of these widths."""
        u, v = (self.along(half[:, k]) for k in (0, 1))
        straight = self.tangents[0].abs() * u + self.tangents[1].abs() * v
        smooth = (straight + self.turn * torch.hypot(u, v)) * UPWARDS
        return smooth + self.spread + 2 * self.rounding

    def steadied(self, extents: Extents) -> Followed:
        """The same with a gradient that turns no more than the second derivative allows."""
        most = (self.curvature * extents.from_center(self.form)).sqrt() * UPWARDS + self.tilt
        found = replace(self, turn=torch.minimum(self.turn, most))
        vars(found).update(form=self.form, curvature=self.curvature)  # they are known already
        return found

    def turned(self, extents: Extents) -> tuple[Tensor, Tensor]:
        """How far the derivative in any direction v is off the tangent: factors p and q.

        Its square is at most p form(v) + q |v|^2. Second derivatives h have h(v, w)^2 <= form(v)
        form(w), so that from the centre along w the derivative changes by no more than the root.
        """
        reach = extents.from_center(self.form)
        narrow = reach < self.turn * self.along(extents.radius)
        rest = torch.where(narrow, (1 + 1 / _SMALL) * self.tilt.square(), self.turn.square())
        return torch.where(narrow, (1 + _SMALL) * reach, 0.0), rest

    def beyond_corners(self, extents: Extents) -> Tensor:
        """By how much the value in a polygon may be beyond those at its corners."""
        return self.bulge(extents) + self.spread * UPWARDS + 2 * self.rounding

    def bulge(self, extents: Extents) -> Tensor:
        """By how much the smooth function in a polygon may be beyond its values at the corners.

        With half of the form around any point it is convex. So it is largest at a corner, but for
        the largest number of that, half of the square of a radius.
        """
        if extents.corners is None:
            return self.curvature * (self.along(extents.square) / 2)
        return extents.around(self.form) / 2 * UPWARDS

    def units(self, entries: Tensor) -> Followed:
        """What is known of some units, (N,), which are numbered box by box."""
        return self._each(lambda part: part.flatten(-(self.value.dim())).index_select(-1, entries))

    def minus(self, other: Followed) -> Followed:
        """What is known of the difference of two values."""
        return Followed(
            self.value - other.value,
            self.tangents - other.tangents,
            self.seconds - other.seconds,
            self.turn + other.turn,
            self.bend + other.bend,
            self.tilt + other.tilt,
            self.spread + other.spread,
            self.rounding + other.rounding,
        )

    def shaped(self, *shape: int) -> Followed:
        """The same in another shape of the value."""
        lead = self.value.dim()
        return self._each(lambda part: part.reshape(*part.shape[: part.dim() - lead], *shape))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Followed:
        return Followed(*(change(getattr(self, field.name)) for field in fields(self)))

    def along(self, each: Tensor) -> Tensor:
        """Numbers (C,) in a shape that broadcasts with the value."""
        return each.view(-1, *[1] * (self.value.dim() - 1))


def modulus(seconds: Tensor) -> Tensor:
    """The positive parts of symmetric matrices (3, ...) less their negative parts."""
    a, b, c = seconds.unbind(0)
    mean, apart = (a + c) / 2, _length((a - c) / 2, b)
    largest = torch.maximum(mean.abs(), apart)
    some = torch.where(largest > 0, largest, 1.0)
    # If both eigenvalues, mean +- apart, have one sign, it is the matrix or its opposite.
    share, rest = mean / some, (apart - mean.abs()).clamp(min=0) * ((apart + mean.abs()) / some)
    found = share * seconds
    found[::2] += rest
    return found


def norm(seconds: Tensor) -> Tensor:
    """The largest modulus of the eigenvalues of symmetric matrices (3, ...)."""
    a, b, c = seconds.unbind(0)
    return ((a + c) / 2).abs() + _length((a - c) / 2, b)


def _length(u: Tensor, v: Tensor) -> Tensor:
    return torch.addcmul(u * u, v, v).sqrt_()
