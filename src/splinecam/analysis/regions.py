"""One region of a partition as an object: a light view of its arrays."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from splinecam._util.views import Views
from splinecam.analysis.partition_data import PartitionData

__all__ = ["Region", "RegionViews", "Regions"]


class RegionViews(Views["Region"]):
    """A sequence of all regions of a partition; indexing makes a view, nothing is copied."""

    _noun = "region"

    @property
    @abstractmethod
    def _owner(self) -> PartitionData: ...

    def _view(self, index: int) -> Region:
        return Region(self._owner, index)

    def __contains__(self, region: object) -> bool:
        return isinstance(region, Region) and region.partition is self._owner

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The number of a region; a ``ValueError`` if it is of another partition."""
        if value not in self or value.index not in range(*slice(start, stop).indices(len(self))):
            raise ValueError(f"{value!r} is not among these regions")
        return int(value.index)

    def count(self, value: Any) -> int:
        """How often a region is among these: once, or never."""
        return int(value in self)


@dataclass(frozen=True)
class Regions(RegionViews):
    """The regions of a partition."""

    partition: PartitionData

    @property
    def _owner(self) -> PartitionData:
        return self.partition

    def __len__(self) -> int:
        return len(self.partition)

    def __repr__(self) -> str:
        return f"Regions({len(self):,})"


@dataclass(frozen=True)
class Region:
    """One convex cell: output = weight @ uv + bias on it."""

    partition: PartitionData
    index: int

    @property
    def vertices(self) -> Tensor:
        """Plane coordinates of the corners, counter-clockwise, (k, 2)."""
        p = self.partition
        start, end = p.face_offsets[self.index], p.face_offsets[self.index + 1]
        return p.vertices[p.face_vertices[start:end]]

    @property
    def area(self) -> float:
        """Area in plane coordinates."""
        return float(self.partition.areas[self.index])

    @property
    def centroid(self) -> Tensor:
        """Plane coordinates, (2,)."""
        return self.partition.centroids[self.index]

    @property
    def weight(self) -> Tensor:
        """Slope of the output in plane coordinates, (n_out, 2)."""
        return self.partition.weight[self.index]

    @property
    def bias(self) -> Tensor:
        """Offset of the output, (n_out,)."""
        return self.partition.bias[self.index]

    @property
    def pattern(self) -> dict[str, Tensor]:
        """Which piece each unit is in, per cut, (n,) each."""
        return {k: v[0] for k, v in self.partition.patterns([self.index]).items()}

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of the regions on the other side of its edges, ascending."""
        return tuple(self.partition.neighbours(self.index).tolist())

    def jacobian(self) -> Tensor:
        """Derivative of the output in input space, (n_out, ...)."""
        return self.partition.jacobian([self.index])[0]

    def _repr_html_(self) -> str:
        """The region and its neighbours, as notebooks show it."""
        from splinecam.plot.notebook import region_card

        return region_card(self)

    def __repr__(self) -> str:
        u, v = self.centroid.tolist()
        k = int(self.partition.num_corners[self.index])
        return (
            f"Region({self.index}: {k} vertices, area {self.area:.4g}, around ({u:.4g}, {v:.4g}))"
        )
