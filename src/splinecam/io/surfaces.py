"""The regions as polygons in space, with numbers at their corners and on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from splinecam.analysis.boundary import output_of
from splinecam.analysis.measures import MOST_OUTPUTS
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import SplineCamError
from splinecam.io.region_columns import Columns, region_columns, to_numpy

__all__ = ["Heights", "Space", "Surface", "surface_of"]

Heights = int | Sequence[int] | None
Space = Literal["plane", "input"]


@dataclass(frozen=True)
class Surface:
    """V points in space and F polygons between them.

    points: (V, 3) float64; offsets: (F + 1,) the place in ``corners`` where each polygon begins;
    corners: (H,) indices of points, counter-clockwise seen from above; point_data: columns with V
    rows, the layer of each vertex and the outputs there; cell_data: columns with F rows.
    """

    points: NDArray[np.float64]
    offsets: NDArray[np.int64]
    corners: NDArray[np.int64]
    point_data: dict[str, NDArray[Any]]
    cell_data: dict[str, NDArray[Any]]


def surface_of(
    part: PartitionData, output: Heights, space: Space, columns: Columns | None
) -> Surface:
    """The surface of a partition.

    output: the output that is the height, None for a flat surface, or three outputs that are the
    coordinates. space: the coordinates below the heights. columns: of the regions.
    """
    values = to_numpy(part.values)
    outputs = {f"output_{k}": values[:, k] for k in range(values.shape[1])}
    if len(outputs) > MOST_OUTPUTS:
        outputs = {"outputs": values}
    regions = np.arange(len(part))
    return Surface(
        points=_points(part, output, space),
        offsets=to_numpy(part.face_offsets),
        corners=to_numpy(part.face_vertices),
        point_data={"layer": to_numpy(part.vertex_layer), **outputs},
        cell_data={"region": regions, **region_columns(part, columns)},
    )


def _points(part: PartitionData, output: Heights, space: Space) -> NDArray[np.float64]:
    """Where the vertices are in space, (V, 3)."""
    if space not in ("plane", "input"):
        raise ValueError(f"space is {space!r}; choose 'plane' or 'input'")
    if output is not None and not isinstance(output, int | np.integer):
        return _image(part, output)
    points = np.zeros((part.mesh.num_vertices, 3))
    if space == "plane":
        points[:, :2] = to_numpy(part.vertices)
    else:
        dim = part.domain.dim
        if dim > 3:
            raise SplineCamError(
                f"The model has {dim} inputs, and points of a file have three coordinates. Leave "
                "space='input' out, for plane coordinates."
            )
        if dim == 3 and output is not None:
            raise SplineCamError(
                "The points of a network with 3 inputs have no room for a height: leave output= or "
                "space='input' out."
            )
        points[:, :dim] = to_numpy(part.domain.embed(part.vertices).reshape(-1, dim))
    if output is not None:
        points[:, 2] = to_numpy(part.values[:, output_of(part, int(output))])
    return points


def _image(part: PartitionData, output: Any) -> NDArray[np.float64]:
    """Three outputs as coordinates."""
    try:
        which = [output_of(part, k) for k in output]
    except TypeError:
        raise TypeError(f"output must be a number, three of them or None, not {output!r}") from None
    if len(which) != 3:
        raise ValueError(f"output must be one output or three, not {len(which)} of them")
    return to_numpy(part.values[:, which])
