"""One row per region: its size, shape, slope and output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from splinecam.analysis.measures import shapes
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.slopes import slopes, slopes_in_input_space

__all__ = ["centroid_values", "measures", "table", "winners"]

_FEW = 16  # outputs that get a column each


def table(part: PartitionData, *, full: bool = False) -> Any:
    """One row per region: a pandas DataFrame, or without pandas a dict of numpy arrays (F,).

    Columns: ``area``, ``vertices``, ``perimeter``, ``diameter`` and ``eccentricity`` (largest and
    largest over smallest distance between two vertices), ``slope_spectral`` and
    ``slope_frobenius`` (norms of the derivative within the plane; with ``full`` also those in
    input space, ``slope_spectral_full`` and ``slope_frobenius_full``), ``centroid_u`` and
    ``centroid_v``, ``class`` (the largest output at the centroid; of one output 1 above 0, else 0)
    and, of up to 16 outputs, their values there: ``output_0``, ...

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> rows = sc.partition(relu, sc.Domain.box(-1, 1), progress=False).table()
    >>> [f"{x:.1f}" for x in sorted(rows["slope_frobenius"])]
    ['0.0', '1.0', '1.0', '1.4']
    """
    with torch.no_grad():
        columns = measures(part, full=full)
        columns["centroid_u"], columns["centroid_v"] = part.centroids.unbind(1)
        values = centroid_values(part)
        columns["class"] = winners(values)
        if values.shape[1] <= _FEW:
            columns |= {f"output_{k}": column for k, column in enumerate(values.unbind(1))}
        arrays = {name: column.cpu().numpy().copy() for name, column in columns.items()}
    try:
        import pandas
    except ImportError:
        return arrays
    return pandas.DataFrame(arrays).rename_axis("region")


def measures(part: PartitionData, *, full: bool = False) -> dict[str, Tensor]:
    """The sizes, shapes and slopes of all regions by their names in the table, (F,) each."""
    scale = part.frame.scale  # lengths are taken in the engine's frame, where none is cancelled
    shape, slope = shapes(part.mesh), slopes(part)
    columns = {
        "area": part.areas,
        "vertices": part.num_corners,
        "perimeter": shape.perimeter * scale,
        "diameter": shape.diameter * scale,
        "eccentricity": shape.eccentricity,
        "slope_spectral": slope.spectral,
        "slope_frobenius": slope.frobenius,
    }
    if full:
        slope = slopes_in_input_space(part)
        columns["slope_spectral_full"] = slope.spectral
        columns["slope_frobenius_full"] = slope.frobenius
    return columns


def centroid_values(part: PartitionData) -> Tensor:
    """The output at each region's centroid, which is its mean over the region, (F, n_out)."""
    maps = part.maps
    u, v = (part.frame.to_local(part.centroids) - maps.anchor).unbind(1)
    return maps.value + maps.weight[:, :, 0] * u[:, None] + maps.weight[:, :, 1] * v[:, None]


def winners(values: Tensor) -> Tensor:
    """The class of outputs (N, n_out), (N,): the largest one; of one output 1 above 0, else 0."""
    return (values[:, 0] > 0).long() if values.shape[1] == 1 else values.argmax(1)
