"""Statistics of an atlas, tile by tile: the numbers of ``part.stats()``.

The first pass counts the numbers in narrow bins. A second pass, over the same blocks, keeps the
numbers in the few bins that have a wanted rank, so that the result is exact.

A number falls into a bin by the leading bits of its floating-point form, so that bins are as fine
for tiny numbers as for large ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import lengths
from splinecam.questions import stats as _stats
from splinecam.questions.measures import centroid_values, measures
from splinecam.questions.partition_data import PartitionData
from splinecam.tiles.atlas_data import AtlasData
from splinecam.tiles.curves import decision_boundary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SHIFT = 40  # bits within a bin, which is then at most 0.02 % wide


@dataclass(frozen=True)
class _KeyBins:
    """Ascending keys, with how many numbers each stands for, and their lowest and highest one."""

    key: Ints
    count: Ints
    low: Ints
    high: Ints

    @classmethod
    def of(cls, numbers: Ints, shift: int) -> _KeyBins:
        """Ascending numbers in bins by their leading bits."""
        key = numbers >> shift
        first = np.flatnonzero(np.diff(key, prepend=~key[:1]))
        last = np.append(first[1:], len(key))
        return cls(key[first], last - first, numbers[first], numbers[last - 1])

    def with_others(self, other: _KeyBins) -> _KeyBins:
        """The bins of all numbers of both."""
        key = np.concatenate([self.key, other.key])
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))

        def joined(name: str) -> Ints:
            both: Ints = np.concatenate([getattr(self, name), getattr(other, name)])[order]
            return both

        return _KeyBins(
            key[order][first],
            np.add.reduceat(joined("count"), first),
            np.minimum.reduceat(joined("low"), first),
            np.maximum.reduceat(joined("high"), first),
        )

    def at(self, rank: Ints) -> tuple[Ints, Ints]:
        """The bins in which numbers of some ranks are, and how many numbers there are below."""
        total = np.cumsum(self.count)
        place = np.searchsorted(total, rank, side="right")
        return place, total[place] - self.count[place]


class OrderStatistics:
    """The numbers of some ranks, counted from 0 in ascending order.

    Give all blocks of numbers to ``count``. Unless ``complete`` then, give them to ``keep`` too.

    >>> found = OrderStatistics([0, 2])
    >>> blocks = np.array([5.0, 1.0]), np.array([5.5, 3.0])
    >>> for block in blocks:
    ...     found.count(block)
    >>> found.complete, found.values().tolist()
    (True, [1.0, 5.0])
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._rank = np.asarray(ranks, np.int64)
        self._bins: _KeyBins | None = None
        self._kept: _KeyBins | None = None

    def count(self, numbers: Floats) -> None:
        """Count numbers (N,), at least one."""
        found = _KeyBins.of(np.sort(_keys(numbers)), _SHIFT)
        self._bins = found if self._bins is None else self._bins.with_others(found)

    def keep(self, numbers: Floats) -> None:
        """Look at numbers (N,) again, and keep what matters."""
        keys = np.sort(_keys(numbers))
        wanted = self._open()
        first = np.searchsorted(keys, wanted << _SHIFT)
        last = np.searchsorted(keys, (wanted + 1) << _SHIFT)
        chosen = [keys[i:j] for i, j in zip(first, last, strict=True) if i < j]
        if chosen:
            found = _KeyBins.of(np.concatenate(chosen), 0)
            self._kept = found if self._kept is None else self._kept.with_others(found)

    @property
    def complete(self) -> bool:
        """Whether the numbers are known without a second look."""
        return not len(self._open())

    def _open(self) -> Ints:
        """The keys of bins that hold a wanted rank and different numbers, ascending."""
        assert self._bins is not None
        place = np.unique(self._bins.at(self._rank)[0])
        several = self._bins.low[place] < self._bins.high[place]
        found: Ints = self._bins.key[place[several]]
        return found

    def values(self) -> Floats:
        """The numbers of the wanted ranks."""
        assert self._bins is not None
        place, below = self._bins.at(self._rank)
        keys = self._bins.low[place].copy()
        inside = np.flatnonzero(self._bins.high[place] > keys)
        if len(inside):
            assert self._kept is not None
            # Kept numbers below a bin come from the open bins before it.
            start = np.searchsorted(self._kept.key, self._bins.key[place[inside]] << _SHIFT)
            before = np.append(0, np.cumsum(self._kept.count))[start]
            own, _ = self._kept.at(self._rank[inside] - below[inside] + before)
            keys[inside] = self._kept.key[own]
        return np.where(keys < 0, keys ^ np.int64(2**63 - 1), keys).view(np.float64)


def _keys(numbers: Floats) -> Ints:
    """Whole numbers in the same order as floating-point numbers."""
    bits = np.ascontiguousarray(numbers + 0.0, np.float64).view(np.int64)  # -0 becomes 0
    keys: Ints = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return keys


def quantiles(count: int, shares: Sequence[float]) -> tuple[list[int], Floats]:
    """Pairs of ranks between which quantiles of numbers lie, and the weight of the second."""
    place = (count - 1) * np.asarray(shares)
    low = np.floor(place).astype(np.int64)
    pairs = np.stack([low, np.minimum(low + 1, count - 1)], 1)
    return pairs.ravel().tolist(), place - low


def stats(atlas: AtlasData, *, full: bool = False) -> _stats.Stats:
    """Statistics of an atlas, by the keys of ``Partition.stats``: a dict that prints as a table.

    They are computed tile by tile, in two passes; the quantiles are exact.

    full: as for ``Partition.stats``.
    """
    atlas._require("statistics of regions")
    columns: dict[str, _Column] = {}
    edges = torch.zeros(len(atlas.layers) + 1, dtype=torch.int64)  # twice the number of each layer
    areas, edge_lengths = [], []
    integrals, lows, highs = [], [], []  # of the outputs, (n_out,) of each tile
    with torch.no_grad():
        for number, tile in enumerate(atlas.tiles()):
            for name, values in measures(tile, full=full).items():
                column = columns.setdefault(name, _Column.among(len(atlas)))
                column.add(values.double(), tile.areas)
            counts, length = _edges(tile, atlas.shared_edges(number).local)
            edges += counts
            edge_lengths.append(length * atlas.frame.scale)
            areas.append(float(tile.areas.sum()))
            integrals.append(tile.areas @ centroid_values(tile))
            lows.append(tile.values.amin(0))
            highs.append(tile.values.amax(0))
        if not all(column.order.complete for column in columns.values()):
            for tile in atlas.tiles():
                for name, values in measures(tile, full=full).items():
                    columns[name].order.keep(values.double().cpu().numpy())
        area = fsum(areas)
        numbers = {
            "num_vertices": atlas.num_vertices,
            "num_edges": atlas.num_edges,
            "domain_area": atlas.domain.area,
            "total_area": area,
            "total_edge_length": fsum(edge_lengths),
            "unresolved": len(atlas.unresolved),
            **_stats.edge_numbers(atlas.layers, (edges // 2).tolist()),
        }
        mean, low = torch.stack(integrals).sum(0) / area, torch.stack(lows).amin(0)
        return _stats.composed(
            {name: column.summary(area) for name, column in columns.items()},
            len(atlas),
            numbers,
            _stats.output_numbers(atlas.names, mean, low, torch.stack(highs).amax(0)),
            decision_boundary(atlas).length,
        )


def _edges(tile: PartitionData, shared: Tensor) -> tuple[Tensor, float]:
    """Twice the number of edges of each layer, the border first, and their local length."""
    a, b = tile.mesh.uv[tile.mesh.edges].unbind(1)
    length = lengths(b - a)
    length[shared] /= 2
    times = torch.full_like(tile.mesh.edge_layer, 2)
    times[shared] = 1
    counts = torch.zeros(len(tile.layers) + 1, dtype=torch.int64, device=times.device)
    return counts.index_add_(0, tile.mesh.edge_layer + 1, times).cpu(), float(length.sum())


@dataclass
class _Column:
    """What is known of one number per region after some tiles."""

    order: OrderStatistics  # finds the quantiles, which lie between pairs of ranks
    weight: Any  # of the second of each pair
    moments: list[tuple[int, float, float]] = field(default_factory=list)  # n, mean, variance
    weighted: list[float] = field(default_factory=list)  # sums, by area
    low: float = float("inf")
    high: float = float("-inf")

    @classmethod
    def among(cls, regions: int) -> _Column:
        """A column for so many numbers, before any is known."""
        ranks, weight = quantiles(regions, list(_stats.QUANTILES.values()))
        return cls(OrderStatistics(ranks), weight)

    def add(self, values: Tensor, areas: Tensor) -> None:
        """Add the numbers of a tile, (F,), whose regions have the given areas."""
        variance, mean = torch.var_mean(values, correction=0)
        self.moments.append((values.shape[0], float(mean), float(variance)))
        self.weighted.append(float(areas @ values))
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
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
        return _stats.summary_of(
            {
                "mean": mean,
                "mean_by_area": _sum(self.weighted) / area,
                "std": sqrt(square / count),
                "min": self.low,
                "max": self.high,
                **dict(zip(_stats.QUANTILES, between.tolist(), strict=True)),
            }
        )


def _sum(numbers: Iterable[float]) -> float:
    """The sum, rounded once; where numbers are infinite, what adding them up gives."""
    listed = list(numbers)
    return fsum(listed) if np.isfinite(listed).all() else float(np.sum(listed))
