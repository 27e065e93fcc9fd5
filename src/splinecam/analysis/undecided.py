"""Bands: where bounds leave open which class wins, or on which side of a level an output is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam._util.tolerances import EPS
from splinecam.analysis.band import Band, band_of
from splinecam.analysis.certainty import certainty_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.geometry.clipping import ConvexPolygons

__all__ = ["class_band", "level_band", "pairwise_band"]


def class_band(
    part: PartitionData, *, smallest: bool, level: float, pair: tuple[int, int] | None = None
) -> Band:
    """Where no class is certain, or where each of a pair of classes is possible.

    smallest, level: as for ``certainty_of``.
    """
    if part.smoothing is None:
        return band_of(part, [])
    return band_of(part, certainty_of(part, smallest=smallest, level=level).undecided(pair))


def level_band(part: PartitionData, levels: Sequence[float], output: int) -> Band:
    """Where an output may have one of some levels; the label of a polygon is the level's place."""
    if part.smoothing is None:
        return band_of(part, [])
    z, bounds = part.values[:, output], part.region_bounds[:, output]
    rounding = float(part.value_error[output]) + EPS * float(z.abs().max())
    strips = [_strip(part, z - x, bounds + rounding + EPS * abs(x)) for x in levels]
    return band_of(part, strips, range(len(strips)))


def pairwise_band(part: PartitionData, pairs: Sequence[tuple[int, int]]) -> Band:
    """Where two outputs may be equal, for some pairs; the label i n_out + j stands for a pair."""
    if part.smoothing is None:
        return band_of(part, [])
    n, z, bounds = int(part.values.shape[1]), part.values, part.region_bounds
    bounds = bounds + part.value_error + EPS * z.abs().amax(0)
    strips = [_strip(part, z[:, i] - z[:, j], bounds[:, i] + bounds[:, j]) for i, j in pairs]
    return band_of(part, strips, [i * n + j for i, j in pairs])


def _strip(part: PartitionData, h: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where a function, h (V,) at the vertices, is within slack (F,) from zero on each region."""
    mesh = part.mesh
    corner, owner = take(h, part.face_vertices), mesh.owners()
    none = h.new_full((mesh.num_faces,), torch.inf)
    low = none.scatter_reduce(0, owner, corner, "amin")
    high = (-none).scatter_reduce(0, owner, corner, "amax")
    met = ((low <= slack) & (high >= -slack)).nonzero()[:, 0]
    found = ConvexPolygons.of_faces(mesh, met, h[:, None])
    for sign in (1, -1):
        limit = take(slack, found.source)[found.owners]
        found = found.split(sign * found.values[:, 0] - limit)[1]
    return found.offsets, found.uv, found.source
