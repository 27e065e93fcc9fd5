"""Regions as shapely polygons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.csr import offsets_of, take, take_rows
from splinecam._util.shapely_arrays import polygons
from splinecam.analysis.partition_data import PartitionData

__all__ = ["to_shapely"]


def to_shapely(
    part: PartitionData, regions: Tensor | Sequence[int] | int | None = None
) -> NDArray[Any]:
    """The regions as an array of shapely polygons, (N,), in plane coordinates.

    Corners have the bits of ``part.vertices``, so that neighbours share theirs exactly. Where
    corners are as close together as the rounding of their coordinates, which is rare and mostly at
    ``part.unresolved`` places, a polygon may not be valid in shapely's sense: ``shapely.is_valid``
    finds such polygons, and ``shapely.make_valid`` repairs them.

    Curves (``decision_boundary``, ``level_set``, ``neurons``) and ``class_regions`` have a method
    of the same name.

    regions: numbers of regions, or a mask (F,), by default all.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> [polygon.area for polygon in part.to_shapely()]
    [1.0, 1.0, 1.0, 1.0]
    """
    vertex, offsets = part.face_vertices, part.face_offsets
    if regions is not None:
        entries, counts = take_rows(offsets, part._indices(regions))
        vertex, offsets = take(vertex, entries), offsets_of(counts)
    return polygons(offsets, take(part.vertices, vertex))
