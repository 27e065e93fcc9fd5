"""Bounds on the cells of a grid are carried through the layers of a network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.tolerances import EPS
from splinecam.errors import SplineCamError
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.followed import UPWARDS, Followed, norm

__all__ = ["through_layer"]


def through_layer(
    layer: Nonlinearity, argument: Followed, reach: Tensor, apart: Tensor | None
) -> Followed:
    """What is known of a layer's result on each box.

    reach: how far the argument may be from its value at the centre. apart: how far it may be from
    that of the replaced network, whose pieces count; None if kinks do not count.
    """
    if isinstance(layer, SmoothScalar | PiecewiseScalar):
        return _through_scalar(layer, argument, reach, apart)
    if isinstance(layer, MaxNonlinearity):
        return _through_maximum(layer, argument, reach, apart)
    raise SplineCamError(
        f"{layer.name}: {layer.target} cannot be bounded in a network with smooth functions. "
        "Functions of one variable, maxima and minima can."
    )


@dataclass(frozen=True)
class _Slopes:
    """Slopes of functions of one variable on intervals, (C, *shape) each.

    at, second: the first and the second derivative in the middle; largest, curvature: their largest
    moduli; variation, bend: how far they are from those in the middle; jumps: by how much slopes
    change at kinks altogether; rounding: how far ``at`` is from the slope in the middle.
    """

    at: Tensor
    second: Tensor
    largest: Tensor
    curvature: Tensor
    variation: Tensor
    bend: Tensor
    jumps: Tensor
    rounding: Tensor


def _through_scalar(
    layer: SmoothScalar | PiecewiseScalar, argument: Followed, reach: Tensor, apart: Tensor | None
) -> Followed:
    z, off = argument.value, torch.zeros_like(reach) if apart is None else apart
    wide = reach + off
    low, high = z - wide, z + wide
    if isinstance(layer, SmoothScalar):
        slopes = _smooth_slopes(layer, low, z, high)
    else:
        slopes = _piecewise_slopes(layer, low, z, high)
    value = layer.apply(z)
    u, v = argument.tangents
    length, turn = argument.length, argument.turn
    seconds = slopes.at * argument.seconds
    seconds = seconds + slopes.second * torch.stack([u * u, u * v, v * v])
    # Of results anywhere in the box.
    size, far = value.abs() + slopes.largest * wide, z.abs() + wide
    rounding = EPS * (layer.rounding * size + (slopes.largest + layer.noise) * far)
    other = slopes.jumps + slopes.curvature * argument.branch + slopes.rounding
    # A piece that goes on straight beyond its kink leaves the function by the jump of the slope,
    # and by as much as the function is bent there.
    beyond = off * (slopes.jumps + torch.where(slopes.jumps > 0, slopes.curvature * off / 2, 0.0))
    bounds = (
        slopes.largest * turn + slopes.variation * length,
        slopes.largest * argument.bend
        + slopes.variation * norm(argument.seconds)
        + slopes.bend * length.square()
        + slopes.curvature * (2 * length + turn) * turn,
        slopes.largest * argument.switch + other * length,
        slopes.largest * argument.branch + beyond + rounding,
    )
    return Followed(
        value, slopes.at * argument.tangents, seconds, *(UPWARDS * bound for bound in bounds)
    )


def _smooth_slopes(layer: SmoothScalar, low: Tensor, z: Tensor, high: Tensor) -> _Slopes:
    curve = layer.curve
    jumps = torch.zeros_like(z)
    for level, jump in curve.kinks:
        jumps = jumps + abs(jump) * ((low <= level) & (high >= level))
    at = curve.slope(z)
    return _Slopes(
        at,
        curve.curvature(z),
        curve.slope_bound(low, high),
        curve.curvature_bound(low, high),
        curve.slope_variation(low, z, high),
        curve.curvature_variation(low, z, high),
        jumps,
        curve.slope_rounding(at),
    )


def _piecewise_slopes(layer: PiecewiseScalar, low: Tensor, z: Tensor, high: Tensor) -> _Slopes:
    if layer.period is not None or layer.apply(z[:1]).shape != z[:1].shape:
        raise SplineCamError(
            f"{layer.name}: {layer.target} cannot be bounded in a network with smooth functions."
        )
    shape = (-1, 1, *layer.shape)
    levels, slopes = layer.levels.view(shape), layer.slopes.view(shape)
    at = slopes[0].expand_as(z)
    steepest, flattest = slopes[0].expand_as(z).clone(), slopes[0].expand_as(z).clone()
    reached = low <= levels[0] if len(levels) else torch.ones_like(z, dtype=torch.bool)
    steepest[~reached], flattest[~reached] = -torch.inf, torch.inf
    jumps = torch.zeros_like(z)
    for k, level in enumerate(levels):
        at = torch.where(z > level, slopes[k + 1], at)
        after = levels[k + 1] if k + 1 < len(levels) else torch.inf
        reached = (high >= level) & (low <= after)
        steepest = torch.where(reached, torch.maximum(steepest, slopes[k + 1]), steepest)
        flattest = torch.where(reached, torch.minimum(flattest, slopes[k + 1]), flattest)
        jump = (slopes[k + 1] - slopes[k]).abs()
        jumps = jumps + torch.where((low <= level) & (high >= level), jump, 0.0)
    largest = torch.maximum(steepest.abs(), flattest.abs())
    variation = torch.maximum(steepest - at, at - flattest)
    none = torch.zeros_like(z)
    return _Slopes(at, none, largest, none, variation, none, jumps, 4 * EPS * largest)


def _through_maximum(
    layer: MaxNonlinearity, argument: Followed, reach: Tensor, apart: Tensor | None
) -> Followed:
    """The winner at the centre, and bounds over all units that may win on the box.

    Where several may, the winner of the network and that of the replaced network are no more than
    twice as far from each other as the units of both networks.
    """
    groups, count = layer.members, len(argument.value)
    sign = -1.0 if layer.smallest else 1.0
    shape = layer.apply(argument.value[:1]).shape[1:]

    def members(value: Tensor) -> Tensor:
        return value.reshape(count, -1)[:, groups]

    off = torch.zeros_like(reach) if apart is None else apart
    value, wide = sign * members(argument.value), members(reach + off)
    may_win = value + wide >= (value - wide).amax(2, keepdim=True)
    winner = value.argmax(2, keepdim=True)
    others = may_win & (groups != groups.expand(count, -1, -1).gather(2, winner))

    def largest(bound: Tensor) -> Tensor:
        return torch.where(may_win, bound, 0.0).amax(2) * UPWARDS

    tangents, seconds = (
        torch.stack([members(each) for each in rows])
        for rows in (argument.tangents, argument.seconds)
    )
    ahead = tangents.gather(3, winner.expand(2, *winner.shape))
    bent = seconds.gather(3, winner.expand(3, *winner.shape))
    between = (tangents - ahead).square().sum(0).sqrt()
    found = (
        sign * value.gather(2, winner)[..., 0],
        ahead[..., 0],
        bent[..., 0],
        largest(between + members(argument.turn)),
        largest(norm(seconds - bent) + members(argument.bend)),
        largest(between + members(argument.switch)),
        largest(members(argument.branch)) + 2 * others.any(2) * largest(members(off)),
    )
    return Followed(*(each.reshape(*each.shape[:-1], *shape) for each in found))
