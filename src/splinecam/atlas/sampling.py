"""Random inputs from an atlas, uniform by area, drawn tile by tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam.analysis.partition_data import region_numbers
from splinecam.analysis.sampling import NO_AREA, choose, points_inside, sample_count, uniform
from splinecam.atlas.atlas_data import AtlasData
from splinecam.errors import SplineCamError
from splinecam.geometry.subdivision import polygon_mesh

__all__ = ["by_tile", "sample"]


def sample(
    atlas: AtlasData,
    n: int,
    *,
    regions: Tensor | Sequence[int] | int | None = None,
    per_region: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Tensor:
    """Random inputs, uniform by area over the domain or over the chosen regions, (n, ...).

    A tile is read only if a region of it is chosen.

    n, regions, per_region, generator, dtype, device: as for ``Partition.sample``.
    """
    n = sample_count(n)
    chosen = None if regions is None else region_numbers(regions, len(atlas), atlas.device)
    count = len(atlas) if chosen is None else chosen.shape[0]
    chance = uniform((n * count if per_region else n, 4), generator, atlas.device)
    if chosen is None and not per_region:  # the regions cover the domain
        whole = polygon_mesh(atlas.frame.to_local(atlas.domain.corners.to(chance)))
        local = points_inside(whole, torch.zeros(n, dtype=torch.int64).to(chance.device), chance)
        return _inputs(atlas, local, dtype, device)
    if per_region:
        face = torch.arange(count, device=chance.device).repeat_interleave(n)
        face = face if chosen is None else take(chosen, face)
    else:
        assert chosen is not None
        weight = _areas(atlas, chosen).clamp(min=0)
        if n and not float(weight.sum()) > 0:
            raise SplineCamError(NO_AREA)
        face = take(chosen, choose(weight, chance[:, 3]))
    local = chance.new_empty((face.shape[0], 2))
    for number, points, own in by_tile(atlas, face):
        local[points] = points_inside(atlas.tile(number).mesh, own, chance[points, :3])
    return _inputs(atlas, local, dtype, device)


def _inputs(
    atlas: AtlasData,
    local: Tensor,
    dtype: torch.dtype | None,
    device: str | torch.device | None,
) -> Tensor:
    """The inputs (N, ...) at local coordinates (N, 2)."""
    return atlas.tile(0).inputs(atlas.frame.to_plane(local), dtype=dtype, device=device)


def by_tile(atlas: AtlasData, regions: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each tile that has some of the regions (N,): their places, and numbers in the tile."""
    tile = torch.searchsorted(atlas.first_region.to(regions.device), regions, right=True) - 1
    order = torch.argsort(tile, stable=True)
    number, count = torch.unique_consecutive(tile[order], return_counts=True)
    for each, places in zip(number.tolist(), torch.split(order, count.tolist()), strict=True):
        yield each, places, regions[places] - int(atlas.first_region[each])


def _areas(atlas: AtlasData, regions: Tensor) -> Tensor:
    """The areas of some regions (N,), (N,)."""
    areas = torch.empty(regions.shape, dtype=torch.float64, device=regions.device)
    for number, places, own in by_tile(atlas, regions):
        areas[places] = take(atlas.tile(number).areas, own)
    return areas
