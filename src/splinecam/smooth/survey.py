"""What decides where pieces are spent: the range of each unit, its lines, and its influence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.network.nonlinearities import Nonlinearity
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.followed import Followed, norm
from splinecam.smooth.following import follow
from splinecam.smooth.grid import CellBounds, Grid

__all__ = ["LayerSurvey", "Survey", "all_smooth", "survey", "with_influence"]

_POINTS = 1 << 10  # at which derivatives are taken
_OUTPUTS = 16  # of so many outputs at most


@dataclass(frozen=True)
class LayerSurvey:
    """The units of one smooth layer, (n,) each.

    low, high: their range on the domain; length: the mean of the root of |f''| times the length of
    the gradient, to which the length of their lines is proportional; influence: the largest
    derivative of an output by the unit's result, relative to the error that the output may have.
    """

    layer: SmoothScalar
    low: Tensor
    high: Tensor
    length: Tensor
    influence: Tensor

    def with_cells_of(self, other: LayerSurvey) -> LayerSurvey:
        """The same layer on the cells of both."""
        return replace(
            self,
            low=torch.minimum(self.low, other.low),
            high=torch.maximum(self.high, other.high),
            length=self.length + other.length,
        )


@dataclass(frozen=True)
class Survey:
    """A network on the cells of a grid.

    program: the network, with its rounding; layers: the smooth ones by name; values: (C, n) the
    outputs at the centres; bounds: on the outputs of the cells, close ones if there are no kinks.
    bluntness: how many times larger than second derivatives at the centres bounds on them are.
    """

    program: Program
    layers: dict[str, LayerSurvey]
    values: Tensor
    bounds: CellBounds
    bluntness: float

    @property
    def kinked(self) -> bool:
        """Whether the layers are not all smooth."""
        return not all_smooth(self.program)


def all_smooth(program: Program) -> bool:
    """Whether no layer of a network has kinks."""
    layers = program.layers
    return all(isinstance(layer, SmoothScalar) and not layer.curve.kinks for layer in layers)


def survey(
    program: Program, domain: Domain, grid: Grid, note: Callable[[float], None] = lambda share: None
) -> Survey:
    """Look at a network on the cells of a grid.

    note: is told which share of the work has been done since the last call.
    """
    layers: dict[str, LayerSurvey] = {}
    boxes = grid.boxes

    def visit(layer: Nonlinearity, argument: Followed, reach: Tensor) -> None:
        if isinstance(layer, SmoothScalar):
            seen = _look(layer, argument, reach, len(boxes))
            known = layers.get(layer.name)
            layers[layer.name] = seen if known is None else known.with_cells_of(seen)
        note(len(reach) / len(boxes) / len(program.layers))

    found = follow(program, domain, boxes, visit=visit)
    bounds, exact = found.curvature.amax(), norm(found.seconds).amax()
    bluntness = float(bounds / (exact + torch.finfo(exact.dtype).tiny))
    cells = CellBounds.of(grid, found)
    return Survey(program, layers, found.value.flatten(1), cells, bluntness)


def _look(layer: SmoothScalar, argument: Followed, reach: Tensor, count: int) -> LayerSurvey:
    """A smooth layer on some of so many cells."""
    z = argument.value
    low, high = ((z - reach).flatten(1).amin(0), (z + reach).flatten(1).amax(0))
    density = argument.length * layer.curve.curvature(z).abs().sqrt()
    length = density.flatten(1).sum(0) / count
    return LayerSurvey(layer, low, high, length, torch.zeros_like(length))


def with_influence(
    found: Survey, program: Program, domain: Domain, tolerance: Tensor
) -> dict[str, LayerSurvey]:
    """The smooth layers with the influence of their units, from derivatives at some centres.

    tolerance: (n_out,) the error that each output may have.
    """
    uv, frame = found.bounds.grid.boxes.center, Frame.of(domain)
    uv = uv[:: max(1, len(uv) // _POINTS)]
    step = max(1, backend_of(program.device).traced_activations * 8 // max(program.widths))
    influence = {name: torch.zeros_like(layer.low) for name, layer in found.layers.items()}
    with torch.inference_mode(False), torch.enable_grad():
        for some in torch.split(uv.clone(), step):
            output, results = _results(program, domain.embed(frame.to_plane(some)))
            scaled = output.flatten(1) / tolerance.clone()
            for column in _columns(scaled):
                slopes = torch.autograd.grad(
                    column.sum(), list(results.values()), retain_graph=True, materialize_grads=True
                )
                for name, slope in zip(results, slopes, strict=True):
                    largest = slope.flatten(1).abs().amax(0)
                    influence[name] = torch.maximum(influence[name], largest)
    return {name: replace(layer, influence=influence[name]) for name, layer in found.layers.items()}


def _columns(outputs: Tensor) -> tuple[Tensor, ...]:
    """Outputs of which the derivatives are taken: all, or as many sums with random signs."""
    if outputs.shape[1] <= _OUTPUTS:
        return outputs.unbind(1)
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn((outputs.shape[1], _OUTPUTS), generator=generator).sign()
    return (outputs @ signs.to(outputs)).unbind(1)


def _results(program: Program, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the result of each smooth layer, with derivatives."""
    live, results = {program.input_name: x.clone()}, {}
    for index, stage in enumerate(program.stages):
        live = program.advance(index, live)
        layer = stage.layer
        if layer is None:
            continue
        live[layer.result] = layer.apply(live[layer.argument])
        if isinstance(layer, SmoothScalar):
            if not live[layer.result].requires_grad:
                live[layer.result].requires_grad_()
            results[layer.name] = live[layer.result]
    return live[program.output_name], results
