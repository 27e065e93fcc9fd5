"""Statistics of an atlas, tile by tile: the numbers of ``part.stats()``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam._util.csr import lengths
from splinecam.analysis.measures import centroid_values, measures
from splinecam.analysis.partition_data import PartitionData
from splinecam.analysis.stats import (
    QUANTILES,
    Stats,
    composed,
    edge_numbers,
    output_numbers,
    summary_of,
)
from splinecam.atlas.atlas_data import AtlasData
from splinecam.atlas.curves import decision_boundary
from splinecam.atlas.order_statistics import OrderStatistics, quantiles

__all__ = ["stats"]


def stats(atlas: AtlasData, *, full: bool = False) -> Stats:
    """Statistics of an atlas, by the keys of ``Partition.stats``: a dict that prints as a table.

    They are computed tile by tile, in two passes; the quantiles are exact.

    full: as for ``Partition.stats``.
    """
    with torch.no_grad():
        sizes, outputs = _Sizes.of(atlas), _Outputs()
        columns: dict[str, _Column] = {}
        for number, tile in enumerate(atlas.tiles()):
            areas = tile.areas
            for name, values in measures(tile, full=full).items():
                columns.setdefault(name, _Column.among(len(atlas))).add(values.double(), areas)
            sizes.add(tile, atlas.shared_edges(number).local)
            outputs.add(tile)
        if not all(column.order.complete for column in columns.values()):
            for tile in atlas.tiles():
                for name, values in measures(tile, full=full).items():
                    columns[name].order.keep(values.double().cpu().numpy())
        area = sizes.area
        summaries = {name: column.summary(area) for name, column in columns.items()}
        return composed(
            summaries,
            len(atlas),
            sizes.numbers(atlas),
            output_numbers(atlas.names, outputs.mean(area), *outputs.extremes()),
            decision_boundary(atlas).length,
        )


@dataclass
class _Column:
    """What is known of one number per region after some tiles.

    order: finds the quantiles, which lie between pairs of ranks; weight: of the second of a pair.
    moments: of each tile the number of regions, and the numbers' mean and variance; weighted: their
    sum weighted by area.
    """

    order: OrderStatistics
    weight: Any
    moments: list[tuple[int, float, float]] = field(default_factory=list)
    weighted: list[float] = field(default_factory=list)
    low: float = float("inf")
    high: float = float("-inf")

    @classmethod
    def among(cls, regions: int) -> _Column:
        """A column of so many numbers, of which none is known yet."""
        ranks, weight = quantiles(regions, list(QUANTILES.values()))
        return cls(OrderStatistics(ranks), weight)

    def add(self, values: Tensor, areas: Tensor) -> None:
        """Add the numbers of a tile, (F,), whose regions have the given areas."""
        variance, mean = torch.var_mean(values, correction=0)
        self.moments.append((values.shape[0], float(mean), float(variance)))
        self.weighted.append(float(areas @ values))
        self.low, self.high = (
            min(self.low, float(values.min())),
            max(self.high, float(values.max())),
        )
        self.order.count(values.cpu().numpy())

    def summary(self, area: float) -> dict[str, float]:
        """The summary of the numbers of all tiles; area: of all regions."""
        count = sum(n for n, _, _ in self.moments)
        mean = _sum(n * part for n, part, _ in self.moments) / count
        square = _sum(n * (var + (part - mean) ** 2) for n, part, var in self.moments)
        below, above = self.order.values().reshape(-1, 2).T
        with np.errstate(invalid="ignore"):
            step, t = above - below, self.weight
            # This is how numpy interpolates, to the last bit.
            between = np.where(t >= 0.5, above - step * (1 - t), below + step * t)
        return summary_of(
            {
                "mean": mean,
                "mean_by_area": _sum(self.weighted) / area,
                "std": sqrt(square / count),
                "min": self.low,
                "max": self.high,
                **dict(zip(QUANTILES, between.tolist(), strict=True)),
            }
        )


def _sum(numbers: Iterable[float]) -> float:
    """The sum, rounded once; where numbers are infinite, what adding them up gives."""
    listed = list(numbers)
    return fsum(listed) if np.isfinite(listed).all() else float(np.sum(listed))


@dataclass
class _Sizes:
    """Areas, lengths and numbers of edges; an edge on a seam counts half in each of its tiles."""

    scale: float
    edges: Tensor  # (layers + 1,) twice the number of each layer, those on the border first
    areas: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, atlas: AtlasData) -> _Sizes:
        return cls(atlas.frame.scale, torch.zeros(len(atlas.layers) + 1, dtype=torch.int64))

    def add(self, tile: PartitionData, shared: Tensor) -> None:
        """Add a tile; shared: its edges on seams."""
        a, b = tile.mesh.uv[tile.edges].unbind(1)
        length = lengths(b - a)
        length[shared] /= 2
        times = torch.full_like(tile.edge_layer, 2)
        times[shared] = 1
        counts = torch.zeros_like(self.edges, device=times.device)
        self.edges += counts.index_add_(0, tile.edge_layer + 1, times).to(self.edges.device)
        self.areas.append(float(tile.areas.sum()))
        self.lengths.append(float(length.sum()) * self.scale)

    @property
    def area(self) -> float:
        """The area of all regions."""
        return fsum(self.areas)

    def numbers(self, atlas: AtlasData) -> dict[str, Any]:
        """The numbers by their names."""
        return {
            "num_vertices": atlas.num_vertices,
            "num_edges": atlas.num_edges,
            "domain_area": atlas.domain.area,
            "total_area": self.area,
            "total_edge_length": fsum(self.lengths),
            "unresolved": len(atlas.unresolved),
            **edge_numbers(atlas.layers, (self.edges // 2).tolist()),
        }


@dataclass
class _Outputs:
    """The integral and the extremes of the outputs, (n_out,) of each tile."""

    integrals: list[Tensor] = field(default_factory=list)
    lows: list[Tensor] = field(default_factory=list)
    highs: list[Tensor] = field(default_factory=list)

    def add(self, tile: PartitionData) -> None:
        self.integrals.append(tile.areas @ centroid_values(tile))
        self.lows.append(tile.values.amin(0))
        self.highs.append(tile.values.amax(0))

    def mean(self, area: float) -> Tensor:
        return torch.stack(self.integrals).sum(0) / area

    def extremes(self) -> tuple[Tensor, Tensor]:
        return torch.stack(self.lows).amin(0), torch.stack(self.highs).amax(0)
