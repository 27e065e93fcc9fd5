"""A network whose smooth layers are replaced by tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from splinecam.network.nonlinearities import Operation, PiecewiseScalar
from splinecam.network.program import Program
from splinecam.network.smooth_scalar import SmoothScalar
from splinecam.smooth.knots import Tables, piecewise_linear, tables_of
from splinecam.smooth.survey import LayerSurvey

__all__ = ["choose_tables", "first_scale", "replaced"]

_LEAST = 2.0**-100
_SMALL = 2.0**-7  # of the mean: what a unit without lines, or without influence, counts as


def choose_tables(layers: Mapping[str, LayerSurvey], scale: float) -> dict[str, Tables]:
    """Tables for all smooth layers, whose errors add up to about ``scale`` times the tolerance.

    Of all errors that have a given sum in the outputs, these make the fewest lines: a unit with
    many lines may be off more, and one with much influence less.
    """
    return {name: _tables(layer, scale) for name, layer in layers.items()}


def _tables(found: LayerSurvey, scale: float) -> Tables:
    tolerance = scale * _errors(found)
    return tables_of(found.layer.curve, found.low, found.high, tolerance)


def _errors(found: LayerSurvey) -> Tensor:
    """How large the errors of a layer's units should be relative to each other, (n,)."""
    length = found.length + _SMALL * found.length.mean() + _LEAST
    influence = found.influence + _SMALL * found.influence.mean() + _LEAST
    return (length / influence).pow(2 / 3)


def first_scale(layers: Mapping[str, LayerSurvey]) -> float:
    """A scale for which the outputs are off by about the tolerance, if errors have random signs."""
    sums = [(_errors(found) * found.influence).square().sum() for found in layers.values()]
    return float(torch.stack(sums).sum().sqrt().clamp(min=_LEAST) ** -1)


def replaced(program: Program, tables: Mapping[str, Tables]) -> Program:
    """The program with tables in place of its smooth layers."""
    stages = []
    for stage in program.stages:
        layer = stage.layer
        if isinstance(layer, SmoothScalar):
            stage = replace(stage, layer=_table_layer(layer, tables[layer.name]))
        stages.append(stage)
    return program.with_constants(tuple(stages))


def _table_layer(layer: SmoothScalar, tables: Tables) -> PiecewiseScalar:
    variable = Operation.VARIABLE
    args = (variable, tables.levels, tables.start, tables.value, tables.slope)
    return PiecewiseScalar(
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
