"""Curves of an atlas, which run across seams, and the areas of its classes.

Only regions through which a curve may run are read into memory, where they form one partition.
Their number grows with the length of the curves, not with the area of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.partitions.partition import Partition
from splinecam.questions import boundary as _boundary
from splinecam.questions import class_regions as _classes
from splinecam.questions.boundary import Boundary, Kind, LevelSet, check_kind, output_of, pair_of
from splinecam.questions.partition_data import PartitionData, Unresolved
from splinecam.questions.wanted import Wanted
from splinecam.questions.winners import Scores, disputed, find_leads
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.extracting import extract


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
    n, level = check_kind(atlas.tile(0), kind, level)
    outputs = atlas.tile(0)._n_out
    pair = None if classes is None else pair_of(classes, n, atlas.names)
    atlas._require("other boundaries", Wanted.classes(outputs, kind, level, pair))

    def chosen(tile: PartitionData) -> Tensor:
        if kind == "pairwise" and outputs > 1:
            return _touching_pairs(tile)
        scores = Scores.of(tile, smallest=kind == "argmin", level=float(level))
        return disputed(tile.mesh, find_leads(scores.z, scores.error))

    part, numbers = _extract(atlas, chosen)
    made = _boundary.decision_boundary(part, classes=classes, kind=kind, level=level)
    return replace(made, regions=_in_atlas(numbers, made.regions))


def level_set(
    atlas: AtlasData, levels: float | Sequence[float] | Tensor, *, output: int | None = None
) -> LevelSet:
    """The points of the domain at which an output has one of the given values, as segments.

    Curves run across the seams between tiles. The result's ``regions`` have the numbers of the
    atlas; its ``partition`` has only the regions beside the level set.

    levels, output: as for ``Partition.level_set``.
    """
    index, wanted = output_of(atlas.tile(0), output), _boundary.levels_of(levels)
    atlas._require("other levels", Wanted("level", None, index, tuple(wanted.tolist())))

    def reached(tile: PartitionData) -> Tensor:
        z = tile._outputs[:, index]
        slack = SAFETY * (tile._value_error[index] + EPS * (z.abs().max() + wanted.abs().max()))
        low, high = _ranges(tile, z[:, None])
        first = torch.searchsorted(wanted.to(z), low[:, 0] - slack)
        last = torch.searchsorted(wanted.to(z), high[:, 0] + slack, right=True)
        return (first < last).nonzero()[:, 0]

    part, numbers = _extract(atlas, reached)
    made = _boundary.level_set(part, levels, output=output)
    return replace(made, regions=_in_atlas(numbers, made.regions))


def _in_atlas(numbers: Tensor, regions: Tensor) -> Tensor:
    """Which of the numbers in the atlas (F,) some regions have; -1 stays -1."""
    if not numbers.shape[0]:
        return regions
    return torch.where(regions < 0, -1, numbers[regions.clamp(min=0)])


def _extract(
    atlas: AtlasData, choose: Callable[[PartitionData], Tensor]
) -> tuple[Partition, Tensor]:
    """The chosen regions, or the first one if there is none, since a partition has at least one."""
    found = extract(atlas, choose)
    if len(found[0]):
        return found
    first = atlas.tile(0)
    return extract(atlas, lambda tile: tile.mesh.offsets[: int(tile is first)])


def _ranges(tile: PartitionData, z: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest of values z (V, n) at the vertices of each region, (F, n)."""
    owner = tile.mesh.owners()[:, None].expand(-1, z.shape[1])
    corner, rows = take(z, tile._face_vertices), z.new_empty((len(tile), z.shape[1]))
    low = rows.scatter_reduce(0, owner, corner, "amin", include_self=False)
    return low, rows.scatter_reduce(0, owner, corner, "amax", include_self=False)


def _touching_pairs(tile: PartitionData) -> Tensor:
    """The regions in which the order of the outputs changes, or two of them are equal."""
    z = tile._outputs
    values, order = torch.sort(z, 1)
    slack = 2 * SAFETY * (tile._value_error.max() + EPS * z.abs().max())
    close = (values.diff(dim=1) <= slack).any(1)
    corner, owner = tile._face_vertices, tile.mesh.owners()
    first = take(corner, tile.mesh.offsets[:-1])
    unlike = (take(order, corner) != take(order, take(first, owner))).any(1) | take(close, corner)
    changed: Tensor = torch.unique(owner[unlike])
    return changed


@dataclass(frozen=True, eq=False, repr=False)
class ClassAreas:
    """The domain of an atlas divided by class; only numbers are held in memory.

    n_classes: the number of classes; kind, level: as for ``atlas.class_regions``.
    """

    atlas: AtlasData
    n_classes: int
    kind: Kind
    level: float

    @cached_property
    def _totals(self) -> tuple[Tensor, float, tuple[Unresolved, ...]]:
        found = [
            (each.areas, each.tied_area, each.unresolved)
            for each in (
                _classes.class_regions(tile, kind=self.kind, level=self.level)
                for tile in self.atlas.tiles()
            )
        ]
        areas, tied, unresolved = zip(*found, strict=True)
        return torch.stack(areas).sum(0), sum(tied), sum(unresolved, ())

    @property
    def areas(self) -> Tensor:
        """Area of each class, (n_classes,); the areas add up to that of the domain."""
        return self._totals[0]

    @property
    def tied_area(self) -> float:
        """Area on which two classes or more tie, which counts for the first of them."""
        return self._totals[1]

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        return self._totals[2]

    def boundary_length(self) -> float:
        """Length of the borders between classes."""
        found = decision_boundary(self.atlas, kind=self.kind, level=self.level)
        between = (found.sides[:, 0] != found.sides[:, 1]) & (found.sides >= 0).all(1)
        return float(found.lengths[between].sum())

    def __repr__(self) -> str:
        share = (self.areas / self.areas.sum()).tolist()
        top = sorted(range(self.n_classes), key=lambda k: -share[k])[:5]
        names = self.atlas.names or range(self.n_classes)
        parts = [f"{names[k]}: {100 * share[k]:.3g} %" for k in top if share[k] > 0]
        more = ", ..." if self.n_classes > 5 and int((self.areas > 0).sum()) > 5 else ""
        return f"ClassAreas({', '.join(parts)}{more})"


def class_regions(atlas: AtlasData, *, kind: Kind = "argmax", level: float = 0.0) -> ClassAreas:
    """The domain divided by class: the area of each, and the length of the borders between them.

    kind, level: as for ``Partition.class_regions``.
    """
    atlas._require("other classes", Wanted.classes(atlas.tile(0)._n_out, kind, float(level)))
    first = _classes.class_regions(atlas.tile(0), kind=kind, level=level)
    return ClassAreas(atlas, first.n_classes, first.kind, first.level)
