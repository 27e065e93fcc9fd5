"""Curves in the plane: segments that know their regions and hang together in polylines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from splinecam.ragged import lengths

if TYPE_CHECKING:
    from splinecam.partition import Partition

__all__ = ["Curves"]


@dataclass(frozen=True, eq=False, repr=False)
class Curves:
    """S segments between P points of the plane.

    points: (P, 2) plane coordinates; segments: (S, 2) start and end, as indices of points;
    regions: (S, 2) the regions left and right of each segment, the same twice inside a region and
    -1 outside the domain; label: (S,) the curve that it belongs to (see ``key``).
    """

    partition: Partition
    points: Tensor
    segments: Tensor
    regions: Tensor
    label: Tensor

    def __len__(self) -> int:
        return int(self.segments.shape[0])

    @cached_property
    def ends(self) -> Tensor:
        """Plane coordinates of both ends of each segment, (S, 2, 2)."""
        return self.points[self.segments]

    @cached_property
    def lengths(self) -> Tensor:
        """Length of each segment, (S,)."""
        return lengths(self.ends[:, 1] - self.ends[:, 0])

    @property
    def length(self) -> float:
        """Length of all segments together."""
        return float(self.lengths.sum())

    def key(self, label: int) -> Any:
        """What a label means to the reader, such as a pair of classes."""
        return label

    def select(self, chosen: Tensor) -> Self:
        """Only some of the segments, (N,) indices or (S,) booleans."""
        rows = {
            name: value[chosen]
            for name, value in vars(self).items()
            if name in self.__dataclass_fields__ and isinstance(value, Tensor) and name != "points"
        }
        return replace(self, **rows)
