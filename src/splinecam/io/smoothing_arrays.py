"""The record of replaced smooth functions in the file of a partition.

``about``               ``smoothing``: the layers that were replaced, each with its name, function,
                        units and pieces, and whether regions were refined
``smooth_tolerance``    (n_out,)
``smooth_bounds``       (F, n_out)
``smooth_table_0_*``    the fields of ``Tables`` of each layer that was replaced
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.smoothing import Smoothing, SmoothLayer
from splinecam.smooth.knots import Tables

__all__ = ["check_smoothing", "smoothing_read", "smoothing_written"]


def smoothing_written(part: PartitionData) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``about`` says of the record, and its tensors; nothing if the partition is exact."""
    record = part.smoothing
    if record is None:
        return {}, {}
    layers = [astuple(layer) for layer in record.layers]
    about = {
        "smoothing": {"layers": layers, "refined": record.refined, "tables": list(record.tables)}
    }
    tensors = {"smooth_tolerance": record.tolerance, "smooth_bounds": record.region_bounds}
    for k, table in enumerate(record.tables.values()):
        tensors |= {_key(k, name): tensor for name, tensor in vars(table).items()}
    return about, tensors


def _key(table: int, name: str) -> str:
    return f"smooth_table_{table}_{name}"


def smoothing_read(
    about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], floats: Callable[[str], Tensor]
) -> Smoothing | None:
    """The record that ``about`` and the arrays of a file describe, if there is one.

    floats: gives an array of finite numbers by its name.
    """
    found = about.get("smoothing")
    if found is None:
        return None
    layers = tuple(
        SmoothLayer(str(name), str(function), int(units), int(pieces))
        for name, function, units, pieces in found["layers"]
    )
    tensors = floats("smooth_tolerance"), floats("smooth_bounds")
    tables = {
        str(name): Tables(**{f.name: _array(arrays, _key(k, f.name)) for f in fields(Tables)})
        for k, name in enumerate(found["tables"])
    }
    return Smoothing(*tensors, layers, bool(found["refined"]), tables)


def _array(arrays: Mapping[str, NDArray[Any]], name: str) -> Tensor:
    """A tensor of a table, whose levels may be infinite; numbers of pieces are whole."""
    array = arrays[name]
    if array.dtype.kind == "i":
        array = array.astype(np.int64)
    elif array.dtype != np.float64 or np.isnan(array).any():
        raise ValueError(f"{name} is no array of numbers")
    return torch.from_numpy(array)


def check_smoothing(part: PartitionData) -> None:
    """Raise an error unless the record has the shapes of the partition, and bounds."""
    record, n = part.smoothing, int(part.values.shape[-1])
    if record is None:
        return
    bounds = {"smooth_tolerance": record.tolerance, "smooth_bounds": record.region_bounds}
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "smooth_tolerance": (record.tolerance, (n,)),
        "smooth_bounds": (record.region_bounds, (part.mesh.num_faces, n)),
    }
    for k, table in enumerate(record.tables.values()):
        pieces, units = table.slope.shape
        shapes[_key(k, "levels")] = table.levels, (pieces - 1, units)
        shapes |= {_key(k, x): (getattr(table, x), (pieces, units)) for x in ("start", "value")}
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")
    for name, tensor in bounds.items():
        if bool((tensor < 0).any()):
            raise ValueError(f"{name} has negative entries")
