"""Numbers that describe each region: its size, shape, slope and output."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import lengths, take
from splinecam._util.optional import pandas_if_installed
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.subdivision import Mesh

__all__ = [
    "MOST_OUTPUTS",
    "centroid_values",
    "largest_outputs",
    "measures",
    "shapes",
    "slopes",
    "slopes_in_input_space",
    "table",
]

_BLOCK = 1 << 20  # corners in a block
MOST_OUTPUTS = 16  # outputs that get a column each


def table(part: PartitionData, *, full: bool = False) -> Any:
    """One row per region: a pandas DataFrame, or without pandas a dict of numpy arrays (F,).

    Columns: ``area``, ``vertices``, ``perimeter``, ``diameter`` and ``eccentricity`` (largest and
    largest over smallest distance between two vertices), ``slope_spectral`` and
    ``slope_frobenius`` (norms of the derivative within the plane; with ``full`` also those in
    input space, ``slope_spectral_full`` and ``slope_frobenius_full``), ``centroid_u`` and
    ``centroid_v``, ``class`` (the largest output at the centroid; of one output 1 above 0, else 0)
    and, of up to 16 outputs, their values there: ``output_0``, ... If smooth functions of the model
    were replaced, also how far the model is from the region's map at most: ``bound_0``, ...

    >>> import torch, splinecam as sc
    >>> relu = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
    >>> rows = sc.partition(relu, sc.Domain.box(-1, 1), progress=False).table()
    >>> [f"{x:.1f}" for x in sorted(rows["slope_frobenius"])]
    ['0.0', '1.0', '1.0', '1.4']
    """
    arrays, pandas = table_columns(part, full=full), pandas_if_installed()
    return arrays if pandas is None else pandas.DataFrame(arrays).rename_axis("region")


def table_columns(part: PartitionData, *, full: bool = False) -> dict[str, NDArray[Any]]:
    """The columns of the table of regions, (F,) each."""
    with torch.no_grad():
        columns = measures(part, full=full)
        columns["centroid_u"], columns["centroid_v"] = part.centroids.unbind(1)
        values = centroid_values(part)
        columns["class"] = largest_outputs(values)
        if values.shape[1] <= MOST_OUTPUTS:
            columns |= {f"output_{k}": column for k, column in enumerate(values.unbind(1))}
            if part.smoothing is not None:
                bounds = part.region_bounds.unbind(1)
                columns |= {f"bound_{k}": column for k, column in enumerate(bounds)}
        return {name: column.cpu().numpy().copy() for name, column in columns.items()}


def measures(part: PartitionData, *, full: bool = False) -> dict[str, Tensor]:
    """The sizes, shapes and slopes of all regions by their names in the table, (F,) each."""
    scale = part.frame.scale  # local coordinates lose no digits of short lengths
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


def largest_outputs(values: Tensor) -> Tensor:
    """The class of each row of outputs (N, n_out): the largest; of one output 1 above 0, (N,)."""
    return (values[:, 0] > 0).long() if values.shape[1] == 1 else values.argmax(1)


def centroid_values(part: PartitionData) -> Tensor:
    """The output at each region's centroid, which is its mean over the region, (F, n_out)."""
    maps = part.maps
    u, v = (part.frame.to_local(part.centroids) - maps.anchor).unbind(1)
    return maps.value + maps.weight[:, :, 0] * u[:, None] + maps.weight[:, :, 1] * v[:, None]


# -- shapes -----------------------------------------------------------------------------------


class Shapes(NamedTuple):
    """Of each face the perimeter, and the largest and smallest distance of two corners, (F,)."""

    perimeter: Tensor
    diameter: Tensor
    nearest: Tensor

    @property
    def eccentricity(self) -> Tensor:
        """The largest over the smallest distance between two corners, (F,)."""
        return self.diameter / self.nearest


def shapes(mesh: Mesh) -> Shapes:
    """Distances between all pairs of corners of each face, in the mesh's coordinates.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> [f"{float(x):.3f}" for x in (shapes(square).perimeter, shapes(square).eccentricity)]
    ['4.000', '1.414']
    """
    found = Shapes(*mesh.uv.new_empty((3, mesh.num_faces)))
    for face, vertex in mesh.by_size(_BLOCK):
        k = vertex.shape[1]
        uv = take(mesh.uv, vertex.view(-1)).view(-1, k, 2)
        distance = lengths(uv - uv.roll(-1, 1))
        farthest, nearest = distance.amax(1), distance.amin(1)
        found.perimeter[face] = distance.sum(1)
        for step in range(2, k // 2 + 1):  # half a turn visits all pairs
            distance = lengths(uv - uv.roll(-step, 1))
            farthest = torch.maximum(farthest, distance.amax(1))
            nearest = torch.minimum(nearest, distance.amin(1))
        found.diameter[face], found.nearest[face] = farthest, nearest
    return found


# -- slopes -----------------------------------------------------------------------------------


class Slopes(NamedTuple):
    """The largest singular value and the Frobenius norm of each region's derivative, (F,)."""

    spectral: Tensor
    frobenius: Tensor


def slopes(part: PartitionData) -> Slopes:
    """Norms of the derivative within the plane, which is (n_out, 2) on each region."""
    weight = part.maps.weight
    blocks = torch.split(weight, _rows(part, 2 * weight.shape[1]))
    spectral, frobenius = (torch.cat(norms) for norms in zip(*map(_norms, blocks), strict=True))
    return Slopes(spectral / part.frame.scale, frobenius / part.frame.scale)


def slopes_in_input_space(part: PartitionData) -> Slopes:
    """Norms of the derivative by all inputs, which is (n_out, D) on each region."""
    if part.domain.dim == 2:  # the plane is the input space
        return slopes(part)

    def compute() -> Slopes:
        units = sum(error.shape[0] for error in part.layer_errors.values())
        rows = _rows(part, part.values.shape[1] * part.domain.dim + units)
        regions = torch.arange(len(part), device=part.values.device)
        norms = [_norms(part.jacobian(block).flatten(2)) for block in torch.split(regions, rows)]
        return Slopes(*(torch.cat(each) for each in zip(*norms, strict=True)))

    return part._remembered("slopes in input space", None, compute)


def _rows(part: PartitionData, numbers: int) -> int:
    """How many regions with so many numbers each make up a block."""
    return max(1, backend_of(part.values.device).numbers // max(1, numbers))


def _norms(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The largest singular value and the Frobenius norm of matrices (N, n, m), (N,) each.

    The largest singular value is the root of the largest eigenvalue of the Gram matrix. Squaring
    costs the largest one no digits, unlike the smaller ones. The division by a power of two does
    not round, and keeps the squares of very large and very small numbers within range.
    """
    largest = float(matrix.abs().max()) if matrix.numel() else 0.0
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    matrix = matrix / unit
    frobenius = matrix.square().sum((1, 2)).sqrt() * unit
    short = matrix if matrix.shape[1] <= matrix.shape[2] else matrix.mT
    if short.shape[1] == 1:
        return frobenius, frobenius
    if short.shape[1] == 2:
        a, b = short.unbind(1)
        p, q = short.square().sum(2).unbind(1)
        # All terms are positive, so that nothing cancels.
        square = (p + q) / 2 + torch.hypot((p - q) / 2, (a * b).sum(1))
    else:
        square = torch.linalg.eigvalsh(short @ short.mT)[:, -1].clamp(min=0)
    return square.sqrt() * unit, frobenius
