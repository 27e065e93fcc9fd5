"""Columns with a number for each region, as files for other programs have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.analysis.layers import last_layers
from splinecam.analysis.measures import (
    MOST_OUTPUTS,
    centroid_values,
    largest_outputs,
    measures,
)
from splinecam.analysis.partition_data import PartitionData

__all__ = ["Columns", "class_names", "column_names", "region_columns", "to_numpy"]

Columns = Sequence[str] | Literal["all"]

_USUAL = ("class", "area", "layer")
_MEASURES = ("perimeter", "diameter", "eccentricity", "slope_spectral", "slope_frobenius")


def region_columns(part: PartitionData, columns: Columns | None) -> dict[str, NDArray[Any]]:
    """The chosen columns by name, (F,) each; only what they need is computed.

    columns: names of columns of ``part.table()``, and ``"layer"``, the last layer that bounds a
    region, and ``"piece"``, its piece of ``part.merged()``. By default ``class``, ``area`` and
    ``layer``; ``"all"`` for all of them.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> region_columns(part, ["vertices", "layer"])
    {'vertices': array([4, 4, 4, 4]), 'layer': array([0, 0, 0, 0])}
    """
    known = column_names(part)
    names = _USUAL if columns is None else known if columns == "all" else columns
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f'columns must be a list of names, or "all", not {columns!r}')
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise ValueError(f"there is no column {wrong!r}; the columns are {', '.join(known)}")
    source = _Source(part)
    with torch.no_grad():
        return {name: to_numpy(source.column(name)) for name in names}


def column_names(part: PartitionData) -> tuple[str, ...]:
    """The names of all columns."""
    count = int(part.values.shape[1])
    kinds = ("output",) if part.smoothing is None else ("output", "bound")
    shown = range(count if count <= MOST_OUTPUTS else 0)
    outputs = (f"{kind}_{k}" for kind in kinds for k in shown)
    return (*_USUAL, "vertices", *_MEASURES, "centroid_u", "centroid_v", "piece", *outputs)


@dataclass
class _Source:
    """Where columns come from; what several of them need is computed once."""

    part: PartitionData

    @cached_property
    def values(self) -> Tensor:
        return centroid_values(self.part)

    @cached_property
    def measures(self) -> dict[str, Tensor]:
        return measures(self.part)

    def column(self, name: str) -> Tensor:
        """One column, (F,)."""
        part = self.part
        if name.startswith("output_"):
            return self.values[:, int(name.removeprefix("output_"))]
        if name.startswith("bound_"):
            return part.region_bounds[:, int(name.removeprefix("bound_"))]
        match name:
            case "class":
                return largest_outputs(self.values)
            case "area":
                return part.areas
            case "layer":
                return last_layers(part)
            case "vertices":
                return part.num_corners
            case "centroid_u":
                return part.centroids[:, 0]
            case "centroid_v":
                return part.centroids[:, 1]
            case "piece":
                return part.merged().labels
        return self.measures[name]


def class_names(part: PartitionData) -> list[str] | None:
    """The names of the classes as a list, if there are any."""
    return None if part.names is None else list(part.names)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor of any device as a contiguous array."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
