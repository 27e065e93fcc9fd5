"""What is known of a live value on every cell of a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["UPWARDS", "Boxes", "Followed", "norm"]

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


@dataclass(frozen=True)
class Followed:
    """What is known of a live value on each of C boxes, or on a polygon in it, (C, *shape) each.

    value: at the centre; tangents: (2, C, *shape) there, along u and v; seconds: (3, C, *shape) the
    second derivatives there, along u twice, u and v, v twice. The others are bounds. They compare
    the network with a smooth function: that which has everywhere the pieces of all layers with
    kinks that the network has at the centre, each going on straight beyond its kinks. turn, bend:
    how far its gradient, and its matrix of second derivatives, are from those at the centre; tilt:
    how far its gradient at the centre is from the tangents; spread: the width of an interval around
    zero in which the network is beside it; rounding: how far numbers of both are off.
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

    @property
    def curvature(self) -> Tensor:
        """A bound on the second derivative in any direction."""
        return (norm(self.seconds) + self.bend) * UPWARDS

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

    def beyond_corners(self, square: Tensor) -> Tensor:
        """By how much the value in a polygon may be beyond those at its corners.

        square: (C,) the squared radius of a circle around it.
        """
        return (
            self.curvature * (self.along(square) / 2) + self.spread
        ) * UPWARDS + 2 * self.rounding

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


def norm(seconds: Tensor) -> Tensor:
    """The largest modulus of the eigenvalues of symmetric matrices (3, ...)."""
    a, b, c = seconds.unbind(0)
    return ((a + c) / 2).abs() + torch.hypot((a - c) / 2, b)
