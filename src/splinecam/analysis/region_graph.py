"""The graph of regions: its nodes are the regions, and neighbours share an edge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from splinecam._util.graphs import Graph, diameter_bounds, graph_of
from splinecam.analysis.partition_data import PartitionData

__all__ = ["RegionGraph", "region_graph"]


@dataclass(frozen=True, eq=False, repr=False)
class RegionGraph:
    """The graph of F regions, of which neighbours share an edge.

    offsets: (F + 1,) the place in ``neighbours`` where those of each region begin; neighbours: the
    neighbours of all regions, ascending for each.
    """

    offsets: Tensor
    neighbours: Tensor

    def __len__(self) -> int:
        return int(self.offsets.shape[0]) - 1

    @property
    def num_edges(self) -> int:
        """The number of pairs of neighbours."""
        return int(self.neighbours.shape[0]) // 2

    @cached_property
    def degrees(self) -> Tensor:
        """The number of neighbours of each region, (F,)."""
        return self.offsets.diff()

    @property
    def min_degree(self) -> int:
        """The smallest number of neighbours."""
        return int(self.degrees.min())

    @property
    def mean_degree(self) -> float:
        """The mean number of neighbours."""
        return 2 * self.num_edges / len(self)

    @property
    def max_degree(self) -> int:
        """The largest number of neighbours."""
        return int(self.degrees.max())

    @property
    def degree_histogram(self) -> Tensor:
        """How many regions have 0, 1, 2, ... neighbours, (max_degree + 1,)."""
        return torch.bincount(self.degrees)

    @cached_property
    def diameter_bounds(self) -> tuple[int, int]:
        """The diameter between two bounds, which are equal if it is known exactly.

        The diameter is the largest number of edges that have to be crossed on the way from one
        region to another. The lower bound is the distance of two regions; the upper bound follows
        from the triangle inequality. The regions whose distances are computed are chosen so that
        the bounds soon meet. For up to 2,000 regions they always do; for more regions, the search
        ends after about 4 million distances.
        """
        return diameter_bounds(Graph(self.offsets, self.neighbours))

    @property
    def diameter(self) -> int:
        """The largest distance between two regions, exact if ``diameter_is_exact``.

        Otherwise this is the lower one of ``diameter_bounds``.
        """
        return self.diameter_bounds[0]

    @property
    def diameter_is_exact(self) -> bool:
        """Whether the bounds of the diameter are equal."""
        low, high = self.diameter_bounds
        return low == high

    def __repr__(self) -> str:
        low, high = self.diameter_bounds
        diameter = str(low) if low == high else f"{low} to {high}"
        return (
            f"RegionGraph({len(self):,} regions, {self.num_edges:,} pairs of neighbours, degrees "
            f"{self.min_degree} to {self.max_degree}, mean {self.mean_degree:.4g}, "
            f"diameter {diameter})"
        )


def region_graph(part: PartitionData) -> RegionGraph:
    """The graph of the regions of a partition; regions that only touch at a vertex are apart.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> region_graph(part)
    RegionGraph(4 regions, 4 pairs of neighbours, degrees 2 to 2, mean 2, diameter 2)
    """
    beside = part.edge_faces
    a, b = beside[(beside >= 0).all(1)].unbind(1)
    return RegionGraph(*graph_of(len(part), a, b))
