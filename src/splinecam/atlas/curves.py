"""Curves of an atlas, such as its decision boundary, which run across the seams between tiles.

Only regions through which a curve may run are read into memory, where they form one partition.
Their number grows with the length of the curves, not with the area of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.csr import take
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.analysis import boundary as _boundary
from splinecam.analysis.boundary import Boundary, Kind, LevelSet, check_kind, output_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.winners import Leads, Scores
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.extracting import Extract, extract

__all__ = ["decision_boundary", "level_set"]


def decision_boundary(
    atlas: AtlasData,
    *,
    classes: tuple[int | str, int | str] | None = None,
    kind: Kind = "argmax",
    level: float = 0.0,
) -> Boundary:
    """The points of the domain at which the decision is a tie, as segments.

    Curves run across the seams between tiles. The result's ``regions`` have the numbers of the
    atlas; its ``partition`` has only the regions beside the boundary.

    classes, kind, level: as for ``Partition.decision_boundary``.
    """
    check_kind(atlas.tile(0), kind, level)
    several = atlas.tile(0).values.shape[1] > 1

    def disputed(tile: PartitionData) -> Tensor:
        if kind == "pairwise" and several:
            return _touching_pairs(tile)
        scores = Scores.of(tile, smallest=kind == "argmin", level=float(level))
        return Leads.of(scores.z, scores.error).disputed(tile.mesh)

    found = _extract(atlas, disputed)
    made = _boundary.decision_boundary(found.part, classes=classes, kind=kind, level=level)
    return replace(made, regions=found.in_atlas(made.regions))


def level_set(
    atlas: AtlasData, levels: float | Sequence[float] | Tensor, *, output: int | None = None
) -> LevelSet:
    """The points of the domain at which an output has one of the given values, as segments.

    Curves run across the seams between tiles. The result's ``regions`` have the numbers of the
    atlas; its ``partition`` has only the regions beside the level set.

    levels, output: as for ``Partition.level_set``.
    """
    index, wanted = output_of(atlas.tile(0), output), _boundary.levels_of(levels)

    def reached(tile: PartitionData) -> Tensor:
        z = tile.values[:, index]
        slack = SAFETY * (tile.value_error[index] + EPS * (z.abs().max() + wanted.abs().max()))
        low, high = _ranges(tile, z[:, None])
        first = torch.searchsorted(wanted.to(z), low[:, 0] - slack)
        last = torch.searchsorted(wanted.to(z), high[:, 0] + slack, right=True)
        return (first < last).nonzero()[:, 0]

    found = _extract(atlas, reached)
    made = _boundary.level_set(found.part, levels, output=output)
    return replace(made, regions=found.in_atlas(made.regions))


def _extract(atlas: AtlasData, choose: Callable[[PartitionData], Tensor]) -> Extract:
    """The chosen regions, or the first one if there is none, since a partition has at least one."""
    found = extract(atlas, choose)
    if len(found.part):
        return found
    first = atlas.tile(0)
    return extract(atlas, lambda tile: tile.face_offsets[: int(tile is first)])


def _ranges(tile: PartitionData, z: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest values (F, n) at each region's vertices, from those of all."""
    owner = tile.mesh.owners()[:, None].expand(-1, z.shape[1])
    corner, rows = take(z, tile.face_vertices), z.new_empty((len(tile), z.shape[1]))
    low = rows.scatter_reduce(0, owner, corner, "amin", include_self=False)
    return low, rows.scatter_reduce(0, owner, corner, "amax", include_self=False)


def _touching_pairs(tile: PartitionData) -> Tensor:
    """The regions in which the order of the outputs changes, or two of them are equal."""
    z = tile.values
    values, order = torch.sort(z, 1)
    slack = 2 * SAFETY * (tile.value_error.max() + EPS * z.abs().max())
    close = (values.diff(dim=1) <= slack).any(1)
    corner, owner = tile.face_vertices, tile.mesh.owners()
    first = take(corner, tile.face_offsets[:-1])
    unlike = (take(order, corner) != take(order, take(first, owner))).any(1) | take(close, corner)
    changed: Tensor = torch.unique(owner[unlike])
    return changed
