"""Bounds on boxes, or on polygons in them, are carried through the layers of a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam._util.tolerances import EPS
from splinecam.errors import SplineCamError
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.circles import Extents
from splinecam.smooth.followed import UPWARDS, Followed

__all__ = ["through_layer"]

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


@dataclass(frozen=True)
class _Slopes:
    """Slopes of functions of one variable on intervals, (C, *shape) each.

    at: the first derivative in the middle; second: a second derivative, from which others are no
    farther than need be. Of the piece that the function has in the middle, going on straight beyond
    its kinks: largest, curvature: the largest moduli of both derivatives; variation, bend: how far
    they are from ``at`` and ``second``; rounding: how far ``at`` is from the
    slope in the middle. Of the function: beyond: the width of an interval around zero, in which it
    is beside this piece; jumps: by how much it is steeper.
    """

    at: Tensor
    second: Tensor
    largest: Tensor
    curvature: Tensor
    variation: Tensor
    bend: Tensor
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
        slopes = _piecewise_slopes(layer, low, z, high)
    value = layer.apply(z)
    u, v = argument.tangents
    length, turn = argument.length, argument.turn
    seconds = slopes.at * argument.seconds
    square = torch.stack([u * u, u * v, v * v])
    seconds = seconds + slopes.second * square
    # Of arguments and results anywhere in the box.
    far, steepest = torch.maximum(low.abs(), high.abs()), slopes.largest + slopes.jumps
    size = value.abs() + steepest * torch.maximum(high - z, z - low)
    eps = layer.eps if isinstance(layer, SmoothScalar) else EPS
    rounding = eps * (layer.rounding * size + (steepest + layer.noise) * far + _UNDERFLOW)
    # Differences of both signs have their largest width if slopes have both signs.
    rising, falling = (
        torch.minimum(slopes.variation + slope, slopes.largest).clamp(min=0)
        for slope in (slopes.at, -slopes.at)
    )
    # The product of a and b is at most half of t a^2 + b^2 / t.
    part, rest = argument.turned(extents)
    off = (part * argument.curvature + rest).sqrt()
    along, across = _ratio(off, length), slopes.curvature * (1 + _ratio(length, off))
    bend = (slopes.largest - slopes.variation) * argument.bend
    bend += (slopes.variation + across * part) * argument.form
    bend += (slopes.bend + slopes.curvature * along) * square
    bend[::2] += across * rest
    bounds = (
        slopes.largest * turn + slopes.variation * length,
        bend,
        slopes.largest * argument.tilt
        + (slopes.curvature * argument.rounding + slopes.rounding) * length,
        (rising + falling) * argument.spread + slopes.beyond,
        slopes.largest * argument.rounding + rounding,
    )
    return Followed(
        value, slopes.at * argument.tangents, seconds, *(UPWARDS * bound for bound in bounds)
    )


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    """Ratios of numbers, and zero where one is divided by zero."""
    return torch.where(under == 0, 0.0, over / torch.where(under == 0, 1.0, under))


def _smooth_slopes(layer: SmoothScalar, low: Tensor, z: Tensor, high: Tensor) -> _Slopes:
    curve = layer.curve
    none = torch.zeros_like(z)
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
    found = _Slopes(
        at=near.slope,
        second=near.curvature,
        largest=near.largest_slope,
        curvature=near.largest_curvature,
        variation=near.slope_variation,
        bend=near.curvature_variation,
        rounding=curve.slope_rounding(near.slope),
        beyond=beyond,
        jumps=jumps,
    )
    if not curve.kinks:
        return found
    # Beyond its kink the piece is straight, and the function may be bent.
    bent = curve.curvature_bound(low, high) * furthest
    off = near.largest_curvature * beside
    return replace(
        found,
        largest=found.largest + off,
        variation=found.variation + off,
        rounding=found.rounding + off,
        bend=torch.where(furthest > 0, torch.maximum(found.bend, found.second.abs()), found.bend),
        beyond=beyond + bent * furthest,
        jumps=jumps + bent,
    )


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
    return _Slopes(at, none, largest, none, none, none, 4 * EPS * largest, beyond, jumps)


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
        leads = (sign * (take(z, other) - take(z, own)) for z in map(_flat, corners))
        most = reduce(torch.maximum, leads) + lead.beyond_corners(extents[box])
        ahead = torch.minimum(ahead, most)
    found = argument.units(winners.view(-1))
    entry = box * len(groups) + group
    by = torch.zeros_like(found.spread).scatter_reduce_(0, entry, ahead.clamp(min=0), "amax")
    shape = count, *layer.apply(argument.value[:1]).shape[1:]
    return replace(found, spread=(found.spread + by) * UPWARDS).shaped(*shape)


def _flat(value: Tensor) -> Tensor:
    return value.reshape(-1)
