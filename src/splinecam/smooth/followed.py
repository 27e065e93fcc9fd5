"""What is known of a live value on every cell of a grid."""

from __future__ import annotations

from dataclasses import dataclass

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
    """What is known of a live value on each of C boxes, (C, *shape) each.

    value: at the centre; tangents: (2, C, *shape) there, along u and v; seconds: (3, C, *shape) the
    second derivatives there, along u twice, u and v, v twice. The others are bounds on the box for
    any smooth function that has one piece of each layer with kinks. turn, bend: how far its
    gradient, and its matrix of second derivatives, are from those at the centre; switch: how far
    its gradient at the centre is from the tangents; branch: how far the network is from it, and
    rounding.
    """

    value: Tensor
    tangents: Tensor
    seconds: Tensor
    turn: Tensor
    bend: Tensor
    switch: Tensor
    branch: Tensor

    @property
    def length(self) -> Tensor:
        """The length of the gradient at the centre."""
        return self.tangents.square().sum(0).sqrt()

    @property
    def curvature(self) -> Tensor:
        """A bound on the second derivative in any direction."""
        return (norm(self.seconds) + self.bend) * UPWARDS

    def reach(self, half: Tensor) -> Tensor:
        """How far the value may be from that at the centre of boxes with half of these widths."""
        u, v = (self.along(half[:, k]) for k in (0, 1))
        straight = self.tangents[0].abs() * u + self.tangents[1].abs() * v
        return (straight + self.turn * torch.hypot(u, v)) * UPWARDS + self.branch

    def along(self, each: Tensor) -> Tensor:
        """Numbers (C,) in a shape that broadcasts with the value."""
        return each.view(-1, *[1] * (self.value.dim() - 1))


def norm(seconds: Tensor) -> Tensor:
    """The largest modulus of the eigenvalues of symmetric matrices (3, ...)."""
    a, b, c = seconds.unbind(0)
    return ((a + c) / 2).abs() + torch.hypot((a - c) / 2, b)
