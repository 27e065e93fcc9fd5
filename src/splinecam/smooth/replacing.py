"""A network whose smooth layers are replaced by tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from splinecam.kernels import kernel_for
from splinecam.network.nonlinearities import Nonlinearity, Operation, PiecewiseScalar
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.knots import Tables, piecewise_linear, tables_of
from splinecam.smooth.survey import LayerSurvey, all_smooth

__all__ = ["choose_tables", "first_scale", "in_single", "replaced"]

_LEAST = 2.0**-100
# Lines would be fewest with 2/3 and 2/3 if errors never cancelled, and with 2/5 and 4/5 if they
# were independent. These are the best of what was tried on trained and random networks.
_LENGTH, _INFLUENCE = 2 / 5, 2 / 3
_SMALL = 2.0**-7  # of the mean: what a unit without lines, or without influence, counts as


def choose_tables(layers: Mapping[str, LayerSurvey], scale: float) -> dict[str, Tables]:
    """Tables for all smooth layers, whose errors add up to about ``scale`` times the tolerance.

    Of all errors that have a given effect on the outputs, these make few lines: a unit with many
    lines may be off more, and one with much influence less.
    """
    return {name: _tables(layer, scale) for name, layer in layers.items()}


def _tables(found: LayerSurvey, scale: float) -> Tables:
    tolerance = scale * _errors(found)
    return tables_of(found.layer.curve, found.low, found.high, tolerance)


def _errors(found: LayerSurvey) -> Tensor:
    """How large the errors of a layer's units should be relative to each other, (n,)."""
    length = found.length + _SMALL * found.length.mean() + _LEAST
    influence = found.influence + _SMALL * found.influence.mean() + _LEAST
    return length.pow(_LENGTH) / influence.pow(_INFLUENCE)


def first_scale(layers: Mapping[str, LayerSurvey]) -> float:
    """A scale for which the outputs are off by about the tolerance, if errors have random signs."""
    sums = [(_errors(found) * found.influence).square().sum() for found in layers.values()]
    return float(torch.stack(sums).sum().sqrt().clamp(min=_LEAST) ** -1)


def replaced(program: Program, tables: Mapping[str, Tables]) -> Program:
    """The program with tables in place of its smooth layers."""
    return _with_layers(program, lambda layer: _table_layer(layer, tables[layer.name]))


def in_single(program: Program) -> Program:
    """A program of smooth layers with values in single precision, where that is much faster."""

    def faster(layer: SmoothScalar) -> SmoothScalar:
        return replace(layer, single=layer.curve.single_noise is not None)

    return _with_layers(program, faster) if all_smooth(program) else program


def _with_layers(program: Program, other: Callable[[SmoothScalar], Nonlinearity]) -> Program:
    """The program with other layers in place of its smooth ones."""
    stages = []
    for stage in program.stages:
        if isinstance(stage.layer, SmoothScalar):
            stage = replace(stage, layer=other(stage.layer))
        stages.append(stage)
    return program.with_constants(tuple(stages))


@dataclass(frozen=True, eq=False, kw_only=True)
class _TableScalar(PiecewiseScalar):
    """Tables in place of a smooth layer, which compiled loops look up where there are any."""

    def apply(self, argument: Tensor, out: Tensor | None = None) -> Tensor:
        numbers = out is not None or argument.is_inference()  # nobody asks for derivatives
        kernel = kernel_for(argument.device) if numbers and argument.is_contiguous() else None
        if kernel is None:
            return self.operation(argument)
        out = torch.empty_like(argument) if out is None else out
        kernel.table_values(argument, self.operation.args[1:], out)
        return out


def _table_layer(layer: SmoothScalar, tables: Tables) -> PiecewiseScalar:
    variable = Operation.VARIABLE
    args = (variable, tables.levels, tables.start, tables.value, tables.slope)
    return _TableScalar(
        name=layer.name,
        target=layer.target,
        source=layer.source,
        argument=layer.argument,
        result=layer.result,
        shape=layer.shape,
        operation=Operation(piecewise_linear, args, {}),
        after=layer.after,
        levels=tables.levels,
        slopes=tables.slope,
        exact=False,
    )
