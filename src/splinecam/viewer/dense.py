"""Dense networks for pages that compute the regions of planes by themselves."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from splinecam.errors import SplineCamError
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity, PiecewiseScalar
from splinecam.network.program import Program
from splinecam.solid.outputs import chosen_output
from splinecam.solid.surface import Surface
from splinecam.viewer.container import Message

_MOST = 1 << 21  # weights of a network in a file


def network_message(surface: Surface) -> Message:
    """Return the network of a surface as dense layers, from the box to the output less the level.

    If it is of another kind, the message has the reason in place of layers.
    """
    try:
        layers, arrays = _layers(surface)
    except _OtherKind as error:
        reason = f"{error}, so the regions of a plane need Python: surface.view() shows them."
        return Message({"kind": "network", "layers": [], "reason": reason})
    return Message({"kind": "network", "layers": layers, "reason": ""}, arrays)


class _OtherKind(SplineCamError):
    """A network is no sequence of dense layers."""


def _layers(surface: Surface) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    program = surface.network.program.to("cpu")
    box, source = surface.box, program.input_name
    layers, arrays = list[dict[str, Any]](), dict[str, Tensor]()
    for i, stage in enumerate(program.stages):
        if stage.live_in != (source,) or len(stage.live_out) != 1:
            raise _OtherKind("The network has connections that pass layers by")
        last = i + 1 == len(program.stages)
        weight, bias = _affine(program, i, source)
        if not i:
            basis, origin = box.basis.cpu().double(), box.origin.cpu().double().reshape(-1)
            weight, bias = basis @ weight, bias + origin @ weight
        if last:
            weight = chosen_output(weight, surface.output)[:, None]
            bias = chosen_output(bias[None], surface.output) - surface.level
        activation = {"name": "linear"} if stage.layer is None else _activation(stage.layer)
        layers.append({"inputs": len(weight), "units": len(bias), "activation": activation})
        arrays |= {f"weight{i}": weight.contiguous(), f"bias{i}": bias}
        if sum(array.numel() for array in arrays.values()) > _MOST:
            raise _OtherKind("The network is too large for a file")
        source = "" if stage.layer is None else stage.layer.result
    return layers, arrays


def _affine(program: Program, i: int, source: str) -> tuple[Tensor, Tensor]:
    """The weights (n, m) and the bias (m,) of a stage."""
    zeros = program.zeros(i, 1)
    n, name = zeros[source].numel(), program.stages[i].live_out[0]
    (bias,) = program.advance(i, zeros).values()
    if n * bias.numel() > _MOST:
        raise _OtherKind("The network is too large for a file")
    live = {source: torch.ones_like(zeros[source])}
    return program.columns(i, source, live)[name], bias.reshape(-1)


def _activation(layer: Nonlinearity) -> dict[str, Any]:
    """How the page calls the function of a layer."""
    if isinstance(layer, MaxNonlinearity) and not layer.smallest:
        pairs = torch.arange(prod(layer.shape)).view(-1, 2) if prod(layer.shape) % 2 == 0 else None
        if pairs is not None and torch.equal(layer.members.cpu(), pairs):
            return {"name": "maxout"}
    other = _OtherKind(f"Layer {layer.name!r} is of a kind that pages do not know")
    if not isinstance(layer, PiecewiseScalar) or layer.period is not None:
        raise other
    levels, slopes = layer.levels.cpu(), layer.slopes.cpu()
    if not (bool((levels == levels[:, :1]).all()) and bool((slopes == slopes[:, :1]).all())):
        raise other
    knots, rises = levels[:, 0].tolist(), slopes[:, 0].tolist()
    if len(knots) == 2 and knots[1] == float("inf"):
        knots, rises = knots[:1], rises[:2]
    known = {(0.0, 1.0): {"name": "relu"}, (-1.0, 1.0): {"name": "abs"}}
    if knots == [0.0] and rises[1] == 1.0:
        found = known.get((rises[0], 1.0), {"name": "leaky", "slope": rises[0]})
    elif len(knots) == 2 and rises == [0.0, 1.0, 0.0]:
        found = {"name": "clip", "low": knots[0], "high": knots[1]}
    else:
        raise other
    shift = layer.apply(torch.full((1, *layer.shape), knots[0], dtype=torch.float64))
    if not bool((shift == knots[0]).all()):  # the function is not 0 at 0, or cut elsewhere
        raise other
    return found
