"""Ragged rows of points as arrays of shapely objects; no Python loop over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.optional import optional

__all__ = ["line_strings", "multi_polygons", "polygons"]


def polygons(offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """The polygons (R,) whose corners are the rows of points (H, 2) that begin at offsets."""
    shapely = optional("shapely", "to_shapely", "shapely")
    found: NDArray[Any] = shapely.polygons(_rows(shapely.linearrings, offsets, points))
    return found


def line_strings(offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """The lines (R,) through the rows of points (H, 2) that begin at offsets."""
    shapely = optional("shapely", "to_shapely", "shapely")
    return _rows(shapely.linestrings, offsets, points)


def multi_polygons(
    offsets: Tensor, points: Tensor, owners: Tensor, labels: Tensor, count: int
) -> NDArray[Any]:
    """The polygons of each label 0, ..., count - 1 together, (count,).

    offsets, points: the rings, as rows; owners: (R,) the polygon of each ring, ascending, the outer
    ring first; labels: (P,) of the polygons.
    """
    shapely = optional("shapely", "to_shapely", "shapely")
    rings = _rows(shapely.linearrings, offsets, points)
    pieces = shapely.polygons(rings, indices=owners.cpu().numpy())
    torn = ~shapely.is_valid(pieces)
    pieces[torn] = shapely.make_valid(pieces[torn], method="structure")
    label = labels.cpu().numpy()
    simple, piece = shapely.get_parts(pieces, return_index=True)
    order = np.argsort(label[piece], kind="stable")
    found = np.full(count, shapely.MultiPolygon(), dtype=object)
    shapely.multipolygons(simple[order], indices=label[piece][order], out=found)
    return found


def _rows(make: Any, offsets: Tensor, points: Tensor) -> NDArray[Any]:
    """What a constructor of shapely makes of each row."""
    counts = offsets.diff().cpu().numpy()
    if not len(counts):
        return np.empty(0, dtype=object)
    owner = np.repeat(np.arange(len(counts)), counts)
    found: NDArray[Any] = make(points.detach().cpu().numpy(), indices=owner)
    return found
