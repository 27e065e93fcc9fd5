"""Bounds on a network's derivatives in boxes of the plane.

A network with smooth layers is followed through all of its stages at the centre of each box,
together with its first and second derivatives, and with bounds on how far these may change within
the box. Affine stages carry values and derivatives by their coefficients, and bounds by the moduli
of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.program import Program
from splinecam.smooth.followed import UPWARDS, Boxes, Followed
from splinecam.smooth.layer_bounds import through_layer

__all__ = ["follow"]

_ROUNDING = 2.0**-36  # of the derivatives that a stage makes, relative to their terms

Live = dict[str, Followed]
Visit = Callable[[Nonlinearity, Followed, Tensor], None]
"""Called at every layer with its argument, and how far that reaches from the centre's value."""


def follow(
    program: Program,
    domain: Domain,
    boxes: Boxes,
    apart: Mapping[str, Tensor] | None = None,
    visit: Visit = lambda layer, argument, reach: None,
) -> Followed:
    """What is known of a network's output on boxes.

    apart: by the name of a layer, (C, *shape) how far its argument is at most from that of a
    replaced network whose pieces count, at the corners of regions in the boxes. Without it, kinks
    do not count.
    """
    widest = max([domain.dim, *program.widths])
    step = max(1, 4 * backend_of(program.device).activations // widest)
    found = []
    for some in torch.split(torch.arange(len(boxes), device=program.device), step):
        live = {program.input_name: _entry(domain, boxes[some])}
        for index, stage in enumerate(program.stages):
            live = _through_stage(program, index, live, boxes[some])
            layer = stage.layer
            if layer is None:
                continue
            argument = live[layer.argument]
            reach = argument.reach(boxes.half[some])
            visit(layer, argument, reach)
            off = None if apart is None else apart[layer.name][some]
            if off is not None:
                square = argument.along(boxes.half[some].square().sum(1))
                off = off + argument.curvature * (square / 2) + 2 * argument.branch
            live[layer.result] = through_layer(layer, argument, reach, off)
        found.append(live[program.output_name])
    return _joined(found)


def _entry(domain: Domain, boxes: Boxes) -> Followed:
    """The input on boxes."""
    frame = Frame.of(domain)
    x = domain.embed(frame.to_plane(boxes.center))
    axes = (frame.scale * domain.basis.to(x)).view(2, 1, *domain.input_shape)
    none, straight = torch.zeros_like(x), x.new_zeros(()).expand(3, *x.shape)
    rounding = 8 * EPS * (x.abs() + axes.abs().sum(0))
    return Followed(x, axes.expand(2, *x.shape), straight, none, none, none, rounding)


def _through_stage(program: Program, index: int, live: Live, boxes: Boxes) -> Live:
    """Affine steps: values and derivatives by the coefficients, bounds by their moduli."""
    stage = program.stages[index]
    taken = {name: live[name] for name in stage.live_in}
    if not stage.steps:
        return {name: taken[name] for name in stage.live_out}
    values = {
        name: _rows(each.value, *each.tangents, *each.seconds) for name, each in taken.items()
    }
    made = program.advance(index, values)
    bounds = {
        name: _rows(
            each.value.abs() + each.reach(boxes.half),
            each.turn + _ROUNDING * each.tangents.abs().sum(0),
            each.bend + _ROUNDING * each.seconds.abs().sum(0),
            each.switch + _ROUNDING * each.tangents.abs().sum(0),
            each.branch,
        )
        for name, each in taken.items()
    }
    moduli = program.moduli(index, bounds)
    terms = sum(each.value[0].numel() for each in taken.values()) + len(stage.steps)
    found = {}
    for name in stage.live_out:
        zero, value, *derivatives = _parts(made[name], 6)
        least, size, *largest = _parts(moduli[name], 5)
        u, v, *second = (derivative - zero for derivative in derivatives)
        # Rounding is relative to the sum of the moduli of all terms, the offset among them.
        turn, bend, switch, branch = (
            (each - least).clamp(min=0) * UPWARDS + (terms + 8) * EPS * least for each in largest
        )
        branch = branch + (terms + 4) * EPS * size
        tangents, seconds = torch.stack([u, v]), torch.stack(second)
        each = Followed(value, tangents, seconds, turn, bend, switch, branch)
        radius = each.along(boxes.half.square().sum(1).sqrt())
        # Two bounds hold: that of the terms, and that of the second derivative.
        turn = torch.minimum(turn, each.curvature * radius * UPWARDS + switch)
        found[name] = replace(each, turn=turn)
    return found


def _rows(*parts: Tensor) -> Tensor:
    """A batch of zeros and of all parts: (1 + P * C, *shape)."""
    return torch.cat([torch.zeros_like(parts[0][:1]), *parts])


def _parts(rows: Tensor, count: int) -> list[Tensor]:
    """The result at zero, and the parts of a batch."""
    return [rows[:1], *rows[1:].chunk(count)]


def _joined(parts: list[Followed]) -> Followed:
    """What is known on the boxes of all parts."""
    if len(parts) == 1:
        return parts[0]
    rows = {"tangents": 1, "seconds": 1}
    return Followed(
        *(
            torch.cat([getattr(part, field.name) for part in parts], rows.get(field.name, 0))
            for field in fields(Followed)
        )
    )
