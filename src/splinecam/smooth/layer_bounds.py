"""What is known of a value on boxes of the plane, carried through the layers of a network."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.tolerances import EPS
from splinecam.errors import SplineCamError
from splinecam.network.curves.curve import USUAL_ROUNDING, Curve, Derivatives
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SmoothScalar,
)
from splinecam.smooth.refinement import Extents, extremes, squared_radii

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

    @classmethod
    def around(cls, corners: Tensor) -> Boxes:
        """The least boxes around polygons with corners (C, k, 2)."""
        low, high = extremes(corners)
        return cls((low + high) / 2, (high - low) / 2)

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
    second derivatives along u twice, u and v, v twice, about in the middle of their range. The
    others are bounds. They compare the network with a smooth function, in which every layer with
    kinks keeps the piece that it has at the centre, straight beyond its kinks. turn: how far its
    gradient is from that at the centre; bend: (3, C, *shape) a form of at least the modulus by
    which second derivatives in any direction are off ``seconds``; tilt: how far its gradient at the
    centre is from the tangents; spread: the width of an interval around zero in which the network
    is beside it; rounding: how far numbers of both are off. made: if a smooth function has just
    made the value, that function and the least and the largest of its arguments.
    """

    value: Tensor
    tangents: Tensor
    seconds: Tensor
    turn: Tensor
    bend: Tensor
    tilt: Tensor
    spread: Tensor
    rounding: Tensor
    made: tuple[Curve, Tensor, Tensor] | None = field(default=None, kw_only=True)

    @property
    def length(self) -> Tensor:
        """The length of the gradient at the centre."""
        return _length(*self.tangents)

    @cached_property
    def curvature(self) -> Tensor:
        """A bound on the second derivative in any direction."""
        return (norm(once(self.form, 1)) * UPWARDS).expand(self.bend.shape[1:])

    @cached_property
    def form(self) -> Tensor:
        """A form (3, C, *shape) of at least the modulus of the second derivative everywhere."""
        found = modulus(once(self.seconds, 1)) + once(self.bend, 1)
        found[::2] += ROUNDING * (found[0] + found[2])
        return found.expand(self.bend.shape)

    @property
    def variation(self) -> Tensor:
        """A form (3, C, *shape) of at least how far second derivatives are off ``seconds``."""
        found = self.bend.clone()
        found[::2] += ROUNDING * (self.form[0] + self.form[2])
        return found

    def reach(self, half: Tensor) -> Tensor:
        """How far the value may be from that at the centre of boxes with half of these widths."""
        u, v = (self.along(half[:, k]) for k in (0, 1))
        straight = self.tangents[0].abs().mul_(u).addcmul_(self.tangents[1].abs(), v)
        return straight.mul_(UPWARDS).add_(self.beyond_tangents(half))

    def beyond_tangents(self, half: Tensor) -> Tensor:
        """How far the value may be from the plane of its tangents at the centre."""
        u, v = (self.along(half[:, k]) for k in (0, 1))
        far = (self.turn * torch.hypot(u, v)).mul_(UPWARDS)
        return far.add_(self.spread).add_(self.rounding, alpha=2)

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

    @property
    def curvatures(self) -> Tensor:
        """Bounds (2, C, *shape) on the second derivative downwards, and upwards."""
        half, seconds = (self.form + self.variation) / 2, self.seconds / 2
        return torch.stack([norm(half - seconds), norm(half + seconds)]) * UPWARDS

    def units(self, entries: Tensor) -> Followed:
        """What is known of some units, (N,), which are numbered box by box."""
        lead = self.value.dim()
        return Followed(*(part.flatten(-lead).index_select(-1, entries) for part in self.parts()))

    def minus(self, other: Followed) -> Followed:
        """What is known of the difference of two values."""
        pairs = list(zip(self.parts(), other.parts(), strict=True))
        return Followed(*(a - b for a, b in pairs[:3]), *(a + b for a, b in pairs[3:]))

    def shaped(self, *shape: int) -> Followed:
        """The same in another shape of the value."""
        lead = self.value.dim()
        each = (part.reshape(*part.shape[: part.dim() - lead], *shape) for part in self.parts())
        return Followed(*each)

    def parts(self) -> list[Tensor]:
        """All of its tensors."""
        return [getattr(self, each.name) for each in fields(self)[:-1]]

    def along(self, each: Tensor) -> Tensor:
        """Numbers (C,) in a shape that broadcasts with the value."""
        return each.view(-1, *[1] * (self.value.dim() - 1))


def once(part: Tensor, dim: int = 0) -> Tensor:
    """A tensor that is the same for all boxes, as the derivatives of the input are, for one."""
    return part.narrow(dim, 0, 1) if part.stride(dim) == 0 else part


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


_BESIDE = 2.0**-1000  # beside a kink at zero
_UNDERFLOW = 2.0**-64  # beside relative errors: what single precision takes for zero is smaller yet


def through_layer(
    layer: Nonlinearity,
    argument: Followed,
    reach: Tensor,
    extents: Extents,
    corners: list[Tensor] | None,
) -> Followed:
    """What is known of a layer's result on each box, or on a polygon in each.

    reach: how far the argument may be from its value at the centre; corners: its values (C, *shape)
    at each corner of the polygons.
    """
    if isinstance(layer, SmoothScalar | PiecewiseScalar):
        return _through_scalar(layer, argument, reach, extents, corners)
    if isinstance(layer, MaxNonlinearity):
        return _through_maximum(layer, argument, reach, extents, corners)
    raise SplineCamError(
        f"{layer.name}: {layer.target} cannot be bounded in a network with smooth functions. "
        "Functions of one variable, maxima and minima can."
    )


class _Slopes(NamedTuple):
    """Slopes of functions of one variable on intervals, (C, *shape) each.

    near: of the piece that the function has in the middle, going on straight beyond its kinks;
    rounding: how far its slope in the middle is off. Of the function: beyond: the width of an
    interval around zero, in which it is beside this piece; jumps: by how much it is steeper.
    """

    near: Derivatives
    rounding: Tensor
    beyond: Tensor
    jumps: Tensor


def _through_scalar(
    layer: SmoothScalar | PiecewiseScalar,
    argument: Followed,
    reach: Tensor,
    extents: Extents,
    corners: list[Tensor] | None,
) -> Followed:
    z = argument.value
    low, high = z - reach, z + reach
    if corners is not None:
        further = argument.beyond_corners(extents)
        low = torch.maximum(low, reduce(torch.minimum, corners) - further)
        high = torch.minimum(high, reduce(torch.maximum, corners) + further)
    if isinstance(layer, SmoothScalar):
        slopes = _smooth_slopes(layer, low, z, high)
    else:
        slopes = _piecewise_slopes(layer, *_in_network(argument, low, high))
    near, value = slopes.near, layer.apply(z)
    u, v = argument.tangents
    length, turn = argument.length, argument.turn
    square = torch.stack([u * u, u * v, v * v])
    seconds = (near.slope * argument.seconds).addcmul_(near.curvature, square)
    # Of arguments and results anywhere in the box.
    wide = reach if corners is None else torch.maximum(high - z, z - low)
    far, steepest = z.abs() + wide, near.largest_slope + slopes.jumps
    size = torch.addcmul(value.abs(), steepest, wide)
    relative: Tensor | float = layer.rounding
    off, eps = 0.0, EPS
    if isinstance(layer, SmoothScalar):
        eps, off = layer.eps, layer.curve.off
        if layer.rounding > USUAL_ROUNDING:
            relative = torch.where(high < layer.curve.rough, USUAL_ROUNDING, layer.rounding)
    rounding = eps * (relative * size + (steepest + layer.noise) * far + _UNDERFLOW) + off
    # The product of a and b is at most half of t a^2 + b^2 / t.
    part, rest = argument.turned(extents)
    turned = (part * argument.curvature + rest).sqrt()
    along, across = _ratio(turned, length), near.largest_curvature * (1 + _ratio(length, turned))
    bend = (near.largest_slope - near.slope_variation) * argument.bend
    bend.addcmul_(torch.addcmul(near.slope_variation, across, part), argument.form)
    bend.addcmul_(torch.addcmul(near.curvature_variation, near.largest_curvature, along), square)
    bend[::2].addcmul_(across, rest)
    tilt = torch.addcmul(slopes.rounding, near.largest_curvature, argument.rounding)
    bounds = (
        (near.slope_variation * length).addcmul_(near.largest_slope, turn),
        bend,
        tilt.mul_(length).addcmul_(near.largest_slope, argument.tilt),
        rounding.addcmul_(near.largest_slope, argument.rounding),
    )
    made = (layer.curve, low, high) if isinstance(layer, SmoothScalar) else None
    tangents, spread = near.slope * argument.tangents, _beside(slopes, argument.spread)
    turn, bend, tilt, rounding = (bound.mul_(UPWARDS) for bound in bounds)
    return Followed(value, tangents, seconds, turn, bend, tilt, spread, rounding, made=made)


def _beside(slopes: _Slopes, spread: Tensor) -> Tensor:
    """``Followed.spread`` of a result, which is one zero for all in a smooth network."""
    if not any(bool(once(each).any()) for each in (spread, slopes.beyond)):
        return spread.new_zeros(()).expand(spread.shape)
    # Differences of both signs have their largest width if slopes have both signs.
    near = slopes.near
    rising, falling = (
        torch.minimum(near.slope_variation + slope, near.largest_slope).clamp(min=0)
        for slope in (near.slope, -near.slope)
    )
    return torch.addcmul(slopes.beyond, rising.add_(falling), spread).mul_(UPWARDS)


def _in_network(argument: Followed, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The argument at the centre, between bounds on it in the network alone.

    What a smooth function has made is in its range. The piece at the centre need not be, if it goes
    on beyond a kink: curves are bounded where that is too, but it passes no kinks.
    """
    z = argument.value
    if argument.made is not None:
        curve, *ends = argument.made
        least, most = curve.extent(0, *ends)
        low = torch.fmax(low, least - 2 * argument.rounding)
        high = torch.fmin(high, most + 2 * argument.rounding)
    return low, z, high


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    """Ratios of numbers, and zero where one is divided by zero."""
    return torch.where(under == 0, 0.0, over / under)


def _smooth_slopes(layer: SmoothScalar, low: Tensor, z: Tensor, high: Tensor) -> _Slopes:
    curve = layer.curve
    none = z.new_zeros(()).expand(z.shape)
    beyond, jumps, furthest = none, none, none
    first, middle, last, beside = low, z, high, 0.0
    for level, jump in curve.kinks:
        above, gap = z > level, 8 * EPS * abs(level) + _BESIDE
        passed = torch.where(above, level - low, high - level).clamp(min=0)
        beyond, jumps = beyond + abs(jump) * passed, jumps + abs(jump) * (passed > 0)
        furthest, beside = torch.maximum(furthest, passed), max(beside, gap)
        # What is close to the kink on its other side would count with slopes of that side.
        first, middle, last = (
            torch.where(above, end.clamp(min=level + gap), end.clamp(max=level - gap))
            for end in (first, middle, last)
        )
    near = curve.derivatives(first, middle, last)
    rounding = curve.slope_rounding(near.slope)
    if not curve.kinks:
        return _Slopes(near, rounding, beyond, jumps)
    # Beyond its kink the piece is straight, and the function may be bent.
    bent = curve.curvature_bound(low, high) * furthest
    off, varies = near.largest_curvature * beside, near.curvature_variation
    near = near._replace(
        largest_slope=near.largest_slope + off,
        slope_variation=near.slope_variation + off,
        curvature_variation=torch.where(
            furthest > 0, torch.maximum(varies, near.curvature.abs()), varies
        ),
    )
    return _Slopes(near, rounding + off, beyond + bent * furthest, jumps + bent)


def _piecewise_slopes(layer: PiecewiseScalar, low: Tensor, z: Tensor, high: Tensor) -> _Slopes:
    if layer.period is not None or layer.apply(z[:1]).shape != z[:1].shape:
        raise SplineCamError(
            f"{layer.name}: {layer.target} cannot be bounded in a network with smooth functions."
        )
    shape = (-1, 1, *layer.shape)
    levels, slopes = layer.levels.view(shape), layer.slopes.view(shape)
    at, none = slopes[0].expand_as(z), torch.zeros_like(z)
    beyond, jumps = none, none
    for k, level in enumerate(levels):
        above, jump = z > level, (slopes[k + 1] - slopes[k]).abs()
        passed = torch.where(above, level - low, high - level).clamp(min=0)
        beyond, jumps = beyond + jump * passed, jumps + jump * (passed > 0)
        at = torch.where(above, slopes[k + 1], at)
    largest = at.abs()
    near = Derivatives(at, none, largest, none, none, none)
    return _Slopes(near, 4 * EPS * largest, beyond, jumps)


def _through_maximum(
    layer: MaxNonlinearity,
    argument: Followed,
    reach: Tensor,
    extents: Extents,
    corners: list[Tensor] | None,
) -> Followed:
    """The winner at the centre, and by how much others may be ahead of it."""
    groups, count = layer.members, len(argument.value)
    sign = -1.0 if layer.smallest else 1.0
    value, wide = (each.reshape(count, -1)[:, groups] for each in (sign * argument.value, reach))
    winner = value.argmax(2, keepdim=True)
    unit = groups.expand(count, -1, -1).gather(2, winner)
    behind = value + wide < (value - wide).gather(2, winner)  # false where these are no numbers
    may_win = ~behind & (groups != unit)
    box, group, place = may_win.nonzero().unbind(1)
    first = torch.arange(count, device=box.device) * argument.value[0].numel()
    winners = first[:, None] + unit[:, :, 0]
    own, other = winners[box, group], first[box] + groups[group, place]
    lead = argument.units(other).minus(argument.units(own))
    ahead = sign * lead.value + lead.reach(extents.half[box])
    if corners is not None:
        flat = (z.reshape(-1) for z in corners)
        leads = (sign * (take(z, other) - take(z, own)) for z in flat)
        most = reduce(torch.maximum, leads) + lead.beyond_corners(extents[box])
        ahead = torch.minimum(ahead, most)
    found = argument.units(winners.view(-1))
    entry = box * len(groups) + group
    by = torch.zeros_like(found.spread).scatter_reduce_(0, entry, ahead.clamp(min=0), "amax")
    shape = count, *layer.apply(argument.value[:1]).shape[1:]
    return replace(found, spread=(found.spread + by) * UPWARDS).shaped(*shape)
