"""What was replaced in a network with smooth functions, and how far it may be from the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from functools import cached_property

import torch
from torch import Tensor

from splinecam.smooth.knots import Tables

__all__ = ["SmoothLayer", "Smoothing"]


@dataclass(frozen=True)
class SmoothLayer:
    """A layer whose smooth function was replaced by tables, one for each of its units.

    name: of the layer; function: what was replaced, such as ``"gelu"``; units: how many it has;
    pieces: the number of linear pieces of all units together.
    """

    name: str
    function: str
    units: int
    pieces: int

    @property
    def pieces_per_unit(self) -> float:
        """The number of pieces that a unit has on average."""
        return self.pieces / max(1, self.units)


@dataclass(frozen=True, eq=False, repr=False)
class Smoothing:
    """The smooth functions that were replaced, and bounds on what this changes.

    tolerance: (n_out,) the error that each output was allowed; region_bounds: (F, n_out) how far
    the outputs of the model are from the map of each region, at most; layers: the layers that were
    replaced; refined: whether regions at the decision boundary were divided further, into triangles
    that have the model's own outputs at their corners; tables: what replaces the functions of each
    layer, by its name.

    >>> bounds = torch.tensor([[0.0005], [0.001]], dtype=torch.float64)
    >>> Smoothing(bounds[1], bounds, (SmoothLayer("1", "gelu", 64, 1984),))
    Smoothing(1 layer replaced: gelu, 31 pieces per unit on average; outputs within 0.001)
    """

    tolerance: Tensor
    region_bounds: Tensor
    layers: tuple[SmoothLayer, ...] = ()
    refined: bool = False
    tables: Mapping[str, Tables] = field(default_factory=dict)

    @cached_property
    def bound(self) -> Tensor:
        """The largest distance of each output from the model's on any region, (n_out,)."""
        return self.region_bounds.amax(0)

    def to(self, device: torch.device) -> Smoothing:
        """The same on a device."""
        tables = {name: table.to(device) for name, table in self.tables.items()}
        bounds = self.region_bounds.to(device)
        return Smoothing(self.tolerance.to(device), bounds, self.layers, self.refined, tables)

    @property
    def within(self) -> str:
        """How near the model is, in words."""
        return f"within {_upwards(float(self.bound.max()))} of the model"

    def __repr__(self) -> str:
        count, units = len(self.layers), sum(layer.units for layer in self.layers)
        functions = ", ".join(dict.fromkeys(layer.function for layer in self.layers))
        pieces = sum(layer.pieces for layer in self.layers) / max(1, units)
        replaced = f"{count} layer{'s' * (count != 1)} replaced"
        if count:
            replaced += f": {functions}, {pieces:.3g} pieces per unit on average"
        return f"Smoothing({replaced}; outputs within {_upwards(float(self.bound.max()))})"


def _upwards(number: float) -> str:
    """A number in three digits, of which the last is rounded up, so that bounds stay bounds.

    >>> _upwards(0.0009951), _upwards(0.001), _upwards(0.0)
    ('0.000996', '0.001', '0')
    """
    if not number > 0 or not math.isfinite(number):
        return f"{number:.3g}"
    with localcontext(Context(prec=3, rounding=ROUND_CEILING)):
        return f"{float(+Decimal(repr(number))):.3g}"
