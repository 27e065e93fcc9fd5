"""Segments in the plane that know the regions beside them: the data of curves."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

from torch import Tensor

from splinecam._util.bvh import BoxTree
from splinecam._util.csr import lengths
from splinecam.analysis.partition_data import PartitionData

__all__ = ["Segments"]


@dataclass(frozen=True, eq=False, repr=False)
class Segments:
    """S segments between P points of the plane, each of which belongs to a labelled curve.

    partition: the partition in which the segments lie; points: (P, 2) plane coordinates; segments:
    (S, 2) start and end, as indices of points; regions: (S, 2) the regions left and right of each
    segment, the same twice inside a region and -1 outside the domain; label: (S,) the curve that a
    segment belongs to, see ``key``.

    Further fields of subclasses are tensors with S rows, or no tensors.
    """

    partition: PartitionData
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
        """What a label stands for, such as a pair of classes."""
        return label

    def select(self, chosen: Tensor) -> Self:
        """Return some of the segments.

        chosen: their indices (N,), or a mask (S,).
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        rows: dict[str, Any] = {
            name: value[chosen]
            for name, value in values.items()
            if isinstance(value, Tensor) and name != "points"
        }
        return replace(self, **rows)

    @cached_property
    def local_ends(self) -> Tensor:
        """Both ends of each segment in the coordinates of the partition's frame, (S, 2, 2)."""
        return self.partition.frame.to_local(self.ends)

    @cached_property
    def tree(self) -> BoxTree:
        """The bounding boxes of the segments in local coordinates, for searching."""
        return BoxTree(self.local_ends.amin(1), self.local_ends.amax(1))
