"""Bounds on a network's derivatives in boxes of the plane, carried through its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial, reduce
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain, Frame
from splinecam.network.nonlinearities import (
    MaxNonlinearity,
    Nonlinearity,
    PiecewiseScalar,
    SmoothScalar,
)
from splinecam.network.program import FAR, Program, Step
from splinecam.smooth.refinement import Extents, squared_radii

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
        return _length(*self.tangents)

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
    square = torch.stack([u * u, u * v, v * v])
    seconds = (slopes.at * argument.seconds).addcmul_(slopes.second, square)
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
    bend.addcmul_(torch.addcmul(slopes.variation, across, part), argument.form)
    bend.addcmul_(torch.addcmul(slopes.bend, slopes.curvature, along), square)
    bend[::2].addcmul_(across, rest)
    tilt = torch.addcmul(slopes.rounding, slopes.curvature, argument.rounding)
    bounds = (
        (slopes.variation * length).addcmul_(slopes.largest, turn),
        bend,
        tilt.mul_(length).addcmul_(slopes.largest, argument.tilt),
        torch.addcmul(slopes.beyond, rising.add_(falling), argument.spread),
        rounding.addcmul_(slopes.largest, argument.rounding),
    )
    return Followed(
        value, slopes.at * argument.tangents, seconds, *(bound.mul_(UPWARDS) for bound in bounds)
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


_MOST = 1 << 26  # numbers of a tensor in a block, of which there are some dozens at a time
_MIXING = -7046029254386353131, 2685821657736338717  # odd numbers without a pattern

Live = dict[str, Followed]
Visit = Callable[[Nonlinearity, Followed, Tensor], None]
"""Called at every layer with its argument, and how far that reaches from the centre's value."""


def follow(
    program: Program,
    domain: Domain,
    boxes: Boxes,
    corners: Tensor | None = None,
    closely: bool = False,
    visit: Visit = lambda layer, argument, reach: None,
) -> Followed:
    """What is known of a network's output on boxes.

    corners: (C, k, 2) of a convex polygon that touches all sides of each box, so that the centre of
    the box lies in it. If they are given, bounds hold on the polygon alone, and are closer.
    closely: whether triangles are looked at in each direction, as long ones should be.
    """
    widest = max([domain.dim, *program.widths])
    wide = widest if corners is None else widest * corners.shape[1]
    step = max(1, min(4 * backend_of(program.device).activations, _MOST) // wide)
    found = []
    for some in torch.split(torch.arange(len(boxes), device=program.device), step):
        live = {program.input_name: _entry(domain, boxes[some])}
        points = None if corners is None else _Points.of(program, domain, corners[some])
        extents = boxes[some].extents(None if corners is None else corners[some], closely)
        for index, stage in enumerate(program.stages):
            live = _through_stage(program, index, live, extents)
            layer = stage.layer
            if layer is None:
                continue
            argument = live[layer.argument]
            reach = argument.reach(extents.half)
            visit(layer, argument, reach)
            at = None if points is None else points.before(program, index)
            live[layer.result] = through_layer(layer, argument, reach, extents, at)
        found.append(live[program.output_name])
    return _joined(found)


@dataclass
class _Points:
    """A network at the corners of polygons, (C, k) of its points, stage after stage.

    live: the values there.
    """

    index: Tensor
    live: dict[str, Tensor]

    @classmethod
    def of(cls, program: Program, domain: Domain, corners: Tensor) -> _Points:
        uv, index = _distinct(corners.flatten(0, 1))
        x = domain.embed(Frame.of(domain).to_plane(uv))
        return cls(index.view(corners.shape[:2]), {program.input_name: x})

    def before(self, program: Program, index: int) -> list[Tensor]:
        """The argument of the layer after a stage; stages are asked for in their order."""
        layer = program.stages[index - 1].layer if index else None
        if layer is not None:
            self.live[layer.result] = layer.apply(self.live[layer.argument])
        self.live = program.advance(index, self.live)
        layer = program.stages[index].layer
        assert layer is not None
        z = self.live[layer.argument]
        return [take(z, column) for column in self.index.unbind(1)]


def _distinct(uv: Tensor) -> tuple[Tensor, Tensor]:
    """The points among (N, 2) that differ, and which of them each one is, (N,)."""
    u, v = uv.contiguous().view(torch.int64).unbind(1)
    own = torch.unique(u * _MIXING[0] + v * _MIXING[1], return_inverse=True)[1]
    points = uv.new_empty((int(own.max()) + 1, 2)).index_copy_(0, own, uv)
    if torch.equal(take(points, own), uv):
        return points, own
    return uv, torch.arange(len(uv), device=uv.device)  # two points have the same key


def _entry(domain: Domain, boxes: Boxes) -> Followed:
    """The input on boxes."""
    frame = Frame.of(domain)
    x = domain.embed(frame.to_plane(boxes.center))
    axes = (frame.scale * domain.basis.to(x)).view(2, 1, *domain.input_shape)
    none = x.new_zeros(())
    rounding = 8 * EPS * (x.abs() + axes.abs().sum(0))
    still = none.expand(3, *x.shape)
    bounds = [none.expand(x.shape), still, *[none.expand(x.shape)] * 2, rounding]
    return Followed(x, axes.expand(2, *x.shape), still, *bounds)


def _through_stage(program: Program, index: int, live: Live, extents: Extents) -> Live:
    """Affine steps: values and derivatives by the coefficients, bounds by their moduli.

    Derivatives and bounds are taken many times as large, so that offsets, of which they have none,
    do not round them.
    """
    stage, errors = program.stages[index], None
    taken = {name: live[name] for name in stage.live_in}
    if not stage.steps:
        return {name: taken[name] for name in stage.live_out}
    rows, sizes = _rows({name: _scaled(each) for name, each in taken.items()})
    # Of a number that is made by all steps together, relative to the moduli of them all.
    slack = 2 * sum(program.roundings(index).values())
    moduli, widths = _rows({name: _moduli(each, extents, slack) for name, each in taken.items()})
    if program.dense_moduli(index) is None:
        made = program.advance(index, rows)
    else:
        made, errors = _rounded(program, index, taken, rows, sizes, extents)
    moduli = _through_moduli(program, index, moduli, 1 + widths[0], slack)
    found = {}
    for name in stage.live_out:
        zero, value, *derivatives = _parts(made[name], sizes)
        least, size, *largest = _parts(moduli[name], widths)
        u, v, *second = ((derivative - zero) / FAR for derivative in derivatives)
        turn, tilt, spread, rounding, *bend = (
            (each - least).clamp(min=0) * (UPWARDS / FAR) for each in largest
        )
        own, first, again = (slack * size, 0, 0) if errors is None else errors[name]
        lost = 3 * slack / FAR * least  # by the rounding of offsets, which are then subtracted
        rounding, first, again = rounding + own + lost, first + lost, again + lost
        turn, tilt = (each + first for each in (turn, tilt))
        bent = torch.stack([bend[0] + again, (bend[1] - bend[0] - bend[2]) / 2, bend[2] + again])
        tangents, seconds, bent = (
            each.expand(-1, *value.shape)
            for each in (torch.stack([u, v]), torch.stack(second), bent)
        )
        turn, tilt, spread, rounding = (
            each.expand(value.shape) for each in (turn, tilt, spread, rounding)
        )
        each = Followed(value, tangents, seconds, turn, bent, tilt, spread, rounding)
        found[name] = each.steadied(extents)
    return found


def _scaled(each: Followed) -> list[Tensor]:
    """A value, and its derivatives many times as large."""
    return [each.value, *(FAR * _once(part) for part in (*each.tangents, *each.seconds))]


def _rounded(
    program: Program,
    index: int,
    taken: Live,
    rows: dict[str, Tensor],
    sizes: list[int],
    extents: Extents,
) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """A stage on rows, and how far rounding in its steps takes each of its results off.

    The latter are bounds for values anywhere in each box, and for first and second derivatives, as
    sums over those in all directions.

    A step S makes S(y) + d of the numbers y that it gets, and |d| is at most its rounding times
    |S|(|y|). As all steps are affine, results are off by the sum of M d over all steps, where M has
    the coefficients of the steps after each one together. At some steps ``dense_moduli`` knows |M|.
    Errors are added up by the moduli of each step until they come to such a step. There they count
    by |M|, and are done with. ``late`` are those that are not done with, ``inner`` the others.
    ``far`` adds up all of them, so that the rounding of |M| is a share of it.
    ``large`` says how large y may be: in a box no more than at the centre, plus the first
    derivatives there times the way, plus twice ``far``. That has also what the stage makes of half
    the distance from the plane of the tangents; the errors count twice, as the centre has them too.
    """
    roundings, shapes = program.roundings(index), program.row_shapes(index)
    dense = program.dense_moduli(index)
    assert dense is not None
    widths = [len(extents.half), sizes[1], sizes[3]]
    far: dict[str, Any] = {}
    for name, each in taken.items():
        parts = [
            torch.zeros_like(each.value[:1]).expand(width, *each.value.shape[1:])
            for width in (1, *widths)
        ]
        parts[1] = (FAR / 2) * each.beyond_tangents(extents.half)
        far[name] = torch.cat(parts)
    late: dict[str, Any] = {name: torch.zeros_like(each) for name, each in far.items()}
    known = partial(_largest, sizes=sizes, widths=widths, half=extents.half)
    large: dict[str, Any] = {name: known(rows[name], each) for name, each in far.items()}
    inner: dict[str, Tensor] = {}

    def visit(step: Step, env: dict[str, Any]) -> None:
        name, share = step.name, roundings[step.name]
        for each in (large, far, late):
            each[name] = step.modulus(each, 1 + sum(widths), program.device)
        if share:
            far[name], late[name] = (
                _plus(each[name], FAR * share, large[name]) for each in (far, late)
            )
            large[name] = _plus(large[name], share, large[name])
        if share and name in shapes:
            large[name] = torch.minimum(large[name], known(env[name], far[name]))
        if any(name in each for each in dense.values()):
            inner[name], late[name] = late[name], torch.zeros_like(late[name])
        for done in step.frees:
            for each in (large, far, late):
                del each[done]

    made, errors = program.advance(index, rows, visit=visit), {}
    slack = 2 * sum(roundings.values())
    for name in program.stages[index].live_out:
        total = late[name] + slack * far[name]
        for key, error in inner.items():
            total = total + (error.flatten(1) @ dense[name][key]).view_as(total)
        zero, value, first, second = _parts(total * (UPWARDS / FAR), widths)
        errors[name] = [value, (first + 2 * zero) / FAR, (second + 3 * zero) / FAR]
    return made, errors


def _largest(
    made: Tensor, beyond: Tensor, sizes: list[int], widths: list[int], half: Tensor
) -> Tensor:
    """How large numbers of a batch may be: at zero, of values in boxes, of derivatives.

    beyond: ``far`` in ``_rounded``; half: (C, 2) half of the widths of the boxes.
    """
    zero, value, *tangents, uu, uv, vv = _parts(made, sizes)
    at_zero, off, turned, _ = _parts(beyond, widths)
    ways = (each.view(-1, *[1] * (value.dim() - 1)) for each in half.unbind(1))
    reach = 2 * off
    for tangent, way in zip(tangents, ways, strict=True):
        reach = reach + ((tangent - zero).abs() + turned / FAR + 2 * at_zero / FAR) * way
    steep = torch.stack(tangents).abs().sum(0)
    large = [zero.abs(), value.abs() + reach * (UPWARDS / FAR), steep]
    return torch.cat([*large, uu.abs() + uv.abs() + vv.abs()])


def _plus(value: Any, share: float, other: Any) -> Any:
    """A result of a step, and a share of another one."""
    if isinstance(value, Tensor):
        return value + share * other
    return tuple(_plus(each, share, more) for each, more in zip(value, other, strict=True))


def _through_moduli(
    program: Program, index: int, rows: dict[str, Tensor], first: int, slack: float
) -> dict[str, Tensor]:
    """A stage on rows by the moduli of its coefficients, and of all of its steps together.

    Zeros and sizes, which come before the row ``first``, count by every step, as rounding does.
    The others become many times as large, in ``rows`` as well.
    slack: the rounding of a coefficient, relative to what the moduli of all steps make of it.
    """
    for each in rows.values():
        each[first:].mul_(FAR)
    found, dense = program.moduli(index, rows), program.dense_moduli(index)
    if dense is None:
        return found
    for name, by_steps in found.items():
        least, bounds = by_steps[:1], by_steps[first:]
        close = sum(each[first:].flatten(1) @ dense[name][key] for key, each in rows.items())
        close = torch.as_tensor(close).view_as(bounds) * UPWARDS
        # The lesser of both in each row would be no form: its directions belong together.
        found[name] = torch.cat([by_steps[:first], close + slack * (bounds - least) + least])
    return found


def _moduli(each: Followed, extents: Extents, slack: float) -> list[Tensor]:
    """The size of a value on boxes, and its bounds with the rounding of its derivatives."""
    relative = max(ROUNDING, 2 * slack)
    steep = relative * _once(each.tangents, 1).abs().sum(0)
    uu, uv, vv = _once(each.bend, 1)
    bent = relative * (_once(each.seconds, 1).abs().sum(0) + uu + vv)
    return [
        each.value.abs() + each.reach(extents.half),
        _once(each.turn) + steep,
        _once(each.tilt) + steep,
        each.spread,
        each.rounding,
        # A form is not negative in three directions, which say all about it.
        uu + bent,
        (uu + 2 * uv + vv + 2 * bent).clamp(min=0),
        vv + bent,
    ]


def _once(part: Tensor, dim: int = 0) -> Tensor:
    """A tensor that is the same for all boxes, as the derivatives of the input are, for one."""
    return part.narrow(dim, 0, 1) if part.stride(dim) == 0 else part


def _rows(live: Mapping[str, list[Tensor]]) -> tuple[dict[str, Tensor], list[int]]:
    """Batches of zeros and of all parts of live values, and how many rows each part has."""
    small = {name: [_once(part) for part in parts] for name, parts in live.items()}
    sizes = [max(map(len, parts)) for parts in zip(*small.values(), strict=True)]
    return {
        name: torch.cat(
            [torch.zeros_like(parts[0][:1])]
            + [part.expand(size, *part.shape[1:]) for part, size in zip(parts, sizes, strict=True)]
        )
        for name, parts in small.items()
    }, sizes


def _parts(rows: Tensor, sizes: list[int]) -> list[Tensor]:
    """The result at zero, and the parts of a batch."""
    return [rows[:1], *torch.split(rows[1:], sizes)]


def _joined(parts: list[Followed]) -> Followed:
    """What is known on the boxes of all parts."""
    if len(parts) == 1:
        return parts[0]
    rows = {"tangents": 1, "seconds": 1, "bend": 1}
    return Followed(
        *(
            torch.cat([getattr(part, field.name) for part in parts], rows.get(field.name, 0))
            for field in fields(Followed)
        )
    )
