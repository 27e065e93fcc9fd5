"""The record of replaced smooth functions in the file of a partition.

``about``               ``smoothing``: the layers that were replaced, each with its name, function,
                        units and pieces, and whether regions were refined
``smooth_tolerance``    (n_out,)
``smooth_bounds``       (F, n_out)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

from torch import Tensor

from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.smoothing import Smoothing, SmoothLayer

__all__ = ["check_smoothing", "smoothing_read", "smoothing_written"]


def smoothing_written(part: PartitionData) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``about`` says of the record, and its tensors; nothing if the partition is exact."""
    record = part.smoothing
    if record is None:
        return {}, {}
    layers = [astuple(layer) for layer in record.layers]
    about = {"smoothing": {"layers": layers, "refined": record.refined}}
    return about, {"smooth_tolerance": record.tolerance, "smooth_bounds": record.region_bounds}


def smoothing_read(about: Mapping[str, Any], floats: Callable[[str], Tensor]) -> Smoothing | None:
    """The record that ``about`` and the arrays of a file describe, if there is one.

    floats: gives an array by its name.
    """
    found = about.get("smoothing")
    if found is None:
        return None
    layers = tuple(
        SmoothLayer(str(name), str(function), int(units), int(pieces))
        for name, function, units, pieces in found["layers"]
    )
    tensors = floats("smooth_tolerance"), floats("smooth_bounds")
    return Smoothing(*tensors, layers, bool(found["refined"]))


def check_smoothing(part: PartitionData) -> None:
    """Raise an error unless the record has the shapes of the partition, and bounds."""
    record, n = part.smoothing, int(part.values.shape[-1])
    if record is None:
        return
    shapes = {
        "smooth_tolerance": (record.tolerance, (n,)),
        "smooth_bounds": (record.region_bounds, (part.mesh.num_faces, n)),
    }
    for name, (tensor, shape) in shapes.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, not {shape}")
        if bool((tensor < 0).any()):
            raise ValueError(f"{name} has negative entries")
