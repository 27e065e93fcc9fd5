"""The areas of the classes of an atlas, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam.analysis import class_regions as _classes
from splinecam.analysis.boundary import Kind
from splinecam.analysis.partition_data import Unresolved
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.curves import decision_boundary

__all__ = ["ClassAreas", "class_regions"]


class _Totals(NamedTuple):
    """The sums over all tiles."""

    areas: Tensor
    tied_area: float
    unresolved: tuple[Unresolved, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ClassAreas:
    """The domain of an atlas divided by class, of which only numbers are held in memory.

    n_classes: the number of classes; kind, level: as for ``atlas.class_regions``.
    """

    atlas: AtlasData
    n_classes: int
    kind: Kind
    level: float

    @cached_property
    def _totals(self) -> _Totals:
        found = [
            (each.areas, each.tied_area, each.unresolved)
            for each in (
                _classes.class_regions(tile, kind=self.kind, level=self.level)
                for tile in self.atlas.tiles()
            )
        ]
        areas, tied, unresolved = zip(*found, strict=True)
        return _Totals(torch.stack(areas).sum(0), sum(tied), sum(unresolved, ()))

    @property
    def areas(self) -> Tensor:
        """Area of each class, (n_classes,); the areas add up to that of the domain."""
        return self._totals.areas

    @property
    def tied_area(self) -> float:
        """Area on which two classes or more tie, which counts for the first of them."""
        return self._totals.tied_area

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """Places that float64 could not settle, usually none."""
        return self._totals.unresolved

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
    first = _classes.class_regions(atlas.tile(0), kind=kind, level=level)
    return ClassAreas(atlas, first.n_classes, first.kind, first.level)
