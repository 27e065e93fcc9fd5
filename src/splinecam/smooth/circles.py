"""How wide boxes and triangles are, also by quadratic forms that count directions differently."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Extents", "squared_radii"]

_SLACK = 2.0**-46  # of the terms of a form: rounding where they cancel


@dataclass(frozen=True)
class Extents:
    """Boxes, or triangles that touch all sides of them, around their centres.

    half: (C, 2) half of the widths of the boxes; square: (C,) the squared radius of a circle around
    each box or triangle; corners: (C, 3, 2) of the triangles, relative to the centres of their
    boxes, or none if directions do not matter. Forms are (3, C, *shape), by their coefficients of
    u u, u v and v v as those of matrices are: f(w) = f0 w0^2 + 2 f1 w0 w1 + f2 w1^2.
    None is negative anywhere.
    """

    half: Tensor
    square: Tensor
    corners: Tensor | None = None

    def __getitem__(self, chosen: Tensor) -> Extents:
        corners = None if self.corners is None else self.corners[chosen]
        return Extents(self.half[chosen], self.square[chosen], corners)

    @property
    def radius(self) -> Tensor:
        """(C,) how far a point may be from the centre of its box."""
        return self.half.square().sum(1).sqrt()

    def from_center(self, form: Tensor) -> Tensor:
        """The largest number of a form between the centre and any point, (C, *shape)."""
        if self.corners is None:
            u, v = (_along(each, form) for each in self.half.unbind(1))
            return form[0] * (u * u) + form[1].abs() * (2 * u * v) + form[2] * (v * v)
        ends = [_on(form, end) for end in self.corners.unbind(1)]
        return torch.stack(ends).amax(0) + self._slack(form)

    def around(self, form: Tensor) -> Tensor:
        """The squared radius of the smallest circle around each triangle, (C, *shape).

        A form is the square of lengths.
        """
        assert self.corners is not None
        sides = (self.corners.roll(-1, 1) - self.corners).unbind(1)
        return circles(*(_on(form, side) for side in sides)) + self._slack(form)

    def _slack(self, form: Tensor) -> Tensor:
        return (form[0] + form[2]) * _along(_SLACK * self.half.square().sum(1), form)


def _on(form: Tensor, along: Tensor) -> Tensor:
    """A form on vectors (C, 2)."""
    u, v = (_along(each, form) for each in along.unbind(1))
    found = form[0] * (u * u) + form[1] * (2 * u * v) + form[2] * (v * v)
    return found.clamp_(min=0)


def _along(each: Tensor, form: Tensor) -> Tensor:
    return each.view(-1, *[1] * (form.dim() - 2))


def circles(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The squared radii of the smallest circles around triangles, by their squared sides."""
    largest = torch.maximum(torch.maximum(a, b), c)
    least = torch.minimum(torch.minimum(a, b), c)
    both = a + b + c - largest  # of the other two sides
    other = torch.maximum(both - least, least)
    # If no angle is obtuse, the circle goes through all three corners, and the largest angle has a
    # cosine of at most 1/2; otherwise only through the ends of the longest side.
    acute = both - largest
    cosine = (acute / other) * (acute / torch.where(acute > 0, least, 1.0)) / 4
    return largest / (4 * (1 - torch.where(acute > 0, cosine.clamp(max=0.25), 0.0)))


def squared_radii(corners: Tensor) -> Tensor:
    """The squared radius of a circle around each polygon with corners (N, k, 2), (N,).

    It is the smallest one around a triangle, and that around the box of any other polygon.
    """
    if corners.shape[1] != 3:
        return (corners.amax(1) - corners.amin(1)).square().sum(1) / 4
    return circles(*(corners.roll(-1, 1) - corners).square().sum(2).unbind(1))
