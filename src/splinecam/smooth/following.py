"""Bounds on a network's derivatives in boxes of the plane.

A network with smooth layers is followed through all of its stages at the centre of each box,
together with its first and second derivatives, and with bounds on how far these may change within
the box. Affine stages carry values and derivatives by their coefficients, and bounds by the moduli
of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import take
from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.program import Program
from splinecam.smooth.circles import Extents
from splinecam.smooth.followed import ROUNDING, UPWARDS, Boxes, Followed
from splinecam.smooth.layer_bounds import through_layer

__all__ = ["follow"]

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
    """Affine steps: values and derivatives by the coefficients, bounds by their moduli."""
    stage = program.stages[index]
    taken = {name: live[name] for name in stage.live_in}
    if not stage.steps:
        return {name: taken[name] for name in stage.live_out}
    made, sizes = _rows(
        {name: [each.value, *each.tangents, *each.seconds] for name, each in taken.items()}
    )
    made = program.advance(index, made)
    moduli, widths = _rows({name: _moduli(each, extents) for name, each in taken.items()})
    terms = sum(each.value[0].numel() for each in taken.values()) + len(stage.steps)
    moduli = _through_moduli(program, index, moduli, 1 + widths[0], (terms + 8) * EPS)
    found = {}
    for name in stage.live_out:
        zero, value, *derivatives = _parts(made[name], sizes)
        least, size, *largest = _parts(moduli[name], widths)
        u, v, *second = (derivative - zero for derivative in derivatives)
        # Rounding is relative to the sum of the moduli of all terms, the offset among them.
        slack = (terms + 8) * EPS
        turn, tilt, spread, rounding, *bend = (
            (each - least).clamp(min=0) * UPWARDS for each in largest
        )
        turn, tilt = (each + slack * least for each in (turn, tilt))
        bent = torch.stack(
            [
                bend[0] + 3 * slack * least,
                (bend[1] - bend[0] - bend[2]) / 2,
                bend[2] + 3 * slack * least,
            ]
        )
        rounding = rounding + slack * (2 * least + size)
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


def _through_moduli(
    program: Program, index: int, rows: dict[str, Tensor], first: int, slack: float
) -> dict[str, Tensor]:
    """A stage on rows by the moduli of its coefficients, and of all of its steps together.

    Zeros and sizes, which come before the row ``first``, count by every step, as rounding does.
    slack: the rounding of a coefficient, relative to what the moduli of all steps make of it.
    """
    found, dense = program.moduli(index, rows), program.dense_moduli(index)
    if dense is None:
        return found
    for name, by_steps in found.items():
        least, bounds = by_steps[:1], by_steps[first:]
        close = sum(rows[key][first:].flatten(1) @ each for key, each in dense[name].items())
        close = torch.as_tensor(close).view_as(bounds) * UPWARDS + slack * bounds
        # The lesser of both in each row would be no form: its directions belong together.
        found[name] = torch.cat([by_steps[:first], close + least])
    return found


def _moduli(each: Followed, extents: Extents) -> list[Tensor]:
    """The size of a value on boxes, and its bounds with the rounding of its derivatives."""
    steep = ROUNDING * _once(each.tangents, 1).abs().sum(0)
    uu, uv, vv = _once(each.bend, 1)
    bent = ROUNDING * (_once(each.seconds, 1).abs().sum(0) + uu + vv)
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
