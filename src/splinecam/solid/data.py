"""The arrays of a surface in three dimensions, as the complex of cells leaves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class SurfaceData:
    """V vertices, and F flat convex polygons between them with C corners in all.

    vertices: (V, 3) float64, uvw in the box's own coordinates; face_offsets: (F + 1,) int64, where
    the corners of each face begin; face_vertices: (C,) int64, counter-clockwise seen from the side
    where the output is larger; edge_layer: (C,) int32, the layer of the edge from each corner to
    the next one of its face, -1 on a side of the box, -2 for an artificial edge; gradients: (F, 3)
    and bias: (F,) of the output, or of the difference of two, which is ``gradients @ uvw + bias``
    on the face; face_region: (F,) int64; report: numbers of the proof that no face is missing;
    unresolved: places that float64 arithmetic could not settle.
    """

    vertices: Tensor
    face_offsets: Tensor
    face_vertices: Tensor
    edge_layer: Tensor
    gradients: Tensor
    bias: Tensor
    face_region: Tensor
    report: Mapping[str, Any]
    unresolved: list[Any]
