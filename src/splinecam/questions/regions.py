"""One region of a partition as an object."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from splinecam.questions.partition_data import PartitionData


@dataclass(frozen=True)
class Region:
    """A view of one convex cell, on which output = weight @ uv + bias; nothing is copied."""

    partition: PartitionData
    index: int

    @property
    def vertices(self) -> Tensor:
        """Plane coordinates of the vertices, counter-clockwise, (k, 2)."""
        p = self.partition
        start, end = p.mesh.offsets[self.index], p.mesh.offsets[self.index + 1]
        return p.vertices[p._face_vertices[start:end]]

    @property
    def area(self) -> float:
        """Area in plane coordinates."""
        return float(self.partition.areas[self.index])

    @property
    def centroid(self) -> Tensor:
        """Plane coordinates of the centroid, (2,)."""
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
        """The piece that each unit is on, by the name of the layer, (units,) each."""
        return {k: v[0] for k, v in self.partition.patterns([self.index]).items()}

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The numbers of the regions that share an edge with this one, ascending."""
        return tuple(self.partition.neighbours(self.index).tolist())

    def jacobian(self) -> Tensor:
        """The derivative of the output in input space, (n_out, ...)."""
        return self.partition.jacobian([self.index])[0]

    def _repr_html_(self) -> str:
        from splinecam.plot.notebook import region_card

        return region_card(self)

    def __repr__(self) -> str:
        u, v = self.centroid.tolist()
        k = int(self.partition.mesh.counts()[self.index])
        return (
            f"Region({self.index}: {k} vertices, area {self.area:.4g}, around ({u:.4g}, {v:.4g}))"
        )
