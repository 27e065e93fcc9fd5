"""Bounds on a network's derivatives in boxes of the plane.

A network with smooth layers is followed through all of its stages at the centre of each box,
together with its first and second derivatives, and with bounds on how far these may change within
the box. Affine stages carry values and derivatives by their coefficients, and bounds by the moduli
of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import as_rows, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain, Frame
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.program import FAR, Program, Step
from splinecam.smooth.layer_bounds import ROUNDING, UPWARDS, Boxes, Followed, once, through_layer
from splinecam.smooth.refinement import Extents

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
    """A network's live values at points, stage after stage; index: (C, k) points of polygons."""

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
    scaled = {
        name: [each.value, *(FAR * once(part) for part in (*each.tangents, *each.seconds))]
        for name, each in taken.items()
    }
    rows, sizes = _rows(scaled)
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
        zero, value, derivatives = _parts(made[name], [sizes[0], sum(sizes[1:])])
        least, size, bounds = _parts(moduli[name], [widths[0], sum(widths[1:])])
        first, second = torch.split((derivatives - zero).div_(FAR), [2 * sizes[1], 3 * sizes[3]])
        largest = (bounds - least).clamp_(min=0).mul_(UPWARDS / FAR)
        turn, tilt, spread, rounding, *bend = torch.split(largest, widths[1:])
        own, turned, again = (slack * size, 0, 0) if errors is None else errors[name]
        lost = 3 * slack / FAR * least  # by the rounding of offsets, which are then subtracted
        rounding, turned, again = rounding + own + lost, turned + lost, again + lost
        turn, tilt = (each + turned for each in (turn, tilt))
        bent = torch.stack([bend[0] + again, (bend[1] - bend[0] - bend[2]) / 2, bend[2] + again])
        tangents, seconds, bent = (
            each.view(count, -1, *value.shape[1:]).expand(-1, *value.shape)
            for count, each in ((2, first), (3, second), (3, bent))
        )
        turn, tilt, spread, rounding = (
            each.expand(value.shape) for each in (turn, tilt, spread, rounding)
        )
        each = Followed(value, tangents, seconds, turn, bent, tilt, spread, rounding)
        found[name] = each.steadied(extents)
    return found


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
            total = total + (as_rows(error) @ dense[name][key]).view_as(total)
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
        close = sum(as_rows(each[first:]) @ dense[name][key] for key, each in rows.items())
        close = torch.as_tensor(close).view_as(bounds) * UPWARDS
        # The lesser of both in each row would be no form: its directions belong together.
        found[name] = torch.cat([by_steps[:first], close + slack * (bounds - least) + least])
    return found


def _moduli(each: Followed, extents: Extents, slack: float) -> list[Tensor]:
    """The size of a value on boxes, and its bounds with the rounding of its derivatives."""
    relative = max(ROUNDING, 2 * slack)
    steep = relative * once(each.tangents, 1).abs().sum(0)
    uu, uv, vv = once(each.bend, 1)
    bent = relative * (once(each.seconds, 1).abs().sum(0) + uu + vv)
    return [
        each.value.abs() + each.reach(extents.half),
        once(each.turn) + steep,
        once(each.tilt) + steep,
        each.spread,
        each.rounding,
        # A form is not negative in three directions, which say all about it.
        uu + bent,
        (uu + 2 * uv + vv + 2 * bent).clamp(min=0),
        vv + bent,
    ]


def _rows(live: Mapping[str, list[Tensor]]) -> tuple[dict[str, Tensor], list[int]]:
    """Batches of zeros and of all parts of live values, and how many rows each part has."""
    small = {name: [once(part) for part in parts] for name, parts in live.items()}
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
    columns = zip(*(part.parts() for part in parts), strict=True)
    return Followed(*(torch.cat(each, each[0].dim() - parts[0].value.dim()) for each in columns))
