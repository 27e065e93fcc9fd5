"""Values at new vertices of a line from those at its ends, and from where they bend in between.

Along an edge or a chord the next stage's values are straight but for a kink where a unit switches:

    a(t) = lerp(a(0), a(1), t) - sum over kinks j of  bend_j * min(t, t_j) * (1 - max(t, t_j)) * c_j

with c_j what the stage makes of unit j alone. So the stage is run at older vertices only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from splinecam.births import Births, Kinks
from splinecam.ragged import entries_of, offsets_of, owners_of, take

__all__ = ["Bags", "Sums", "cheapest", "direct_cost"]

_FIXED_BITS = 61  # of a running sum's whole numbers, which may wrap around

# Relative costs per number, measured: an entry of a bag, a kink of a running sum, a new vertex that
# is interpolated and sent through the stage.
_BAG, _SUM, _POINT = 1.5, 12.0, 6.0
_PRODUCT = 1 / 16  # of a number that is multiplied in a matrix product

_NARROW = 64  # columns up to which running sums are tried
_NUMBERS = 1 << 23  # that are summed in one go


def cheapest(new: Sequence[tuple[Kinks, Births]], width: int) -> tuple[list[str], float]:
    """The cheaper ways to find values, so many per vertex: "bag" or "sum"; and their cost."""
    pairs = torch.stack([kinks.per_vertex().sum() for kinks, _ in new]).tolist()
    ways, total = [], 0.0
    for (kinks, births), count in zip(new, pairs, strict=True):
        costs = {"bag": (2 * births.count + count) * width * _BAG}
        if width <= _NARROW:
            costs["sum"] = kinks.count * width * _SUM
        way = min(costs, key=costs.__getitem__)
        ways.append(way)
        total += costs[way]
    return ways, total


def direct_cost(count: int, numbers: int, product: int) -> float:
    """That of sending so many new vertices through the stage instead.

    numbers: per vertex, before and after it; product: how many are multiplied for that.
    """
    return count * (_POINT * numbers + _PRODUCT * product)


@dataclass(frozen=True)
class Bags:
    """Rows of a table and their weights, of which each vertex is a sum.

    offsets: (N + 1,) the entries of each vertex; row, weight: (P,).
    """

    offsets: Tensor
    row: Tensor
    weight: Tensor

    @classmethod
    def of(cls, kinks: Kinks, births: Births, ends: int | None = None) -> Bags:
        """Every kink of a vertex's line, from the table of the stage's answers to single units.

        ends: how many rows the table of values has, if that comes before the other in the table;
        then a vertex is all of its value: what is between the ends of its line, less the kinks.
        """
        begin, end = take(kinks.offsets, kinks.line), take(kinks.offsets[1:], kinks.line)
        counts = end - begin
        offsets = offsets_of(counts)
        entry = entries_of(begin, end, offsets)
        owner = owners_of(counts, entry.shape[0])
        t, at = take(births.t, owner), take(kinks.t, entry)
        weight = torch.minimum(t, at) * (1 - torch.maximum(t, at)) * take(kinks.bend, entry)
        row = take(kinks.unit, entry)
        if ends is None:
            return cls(offsets, row, weight)
        index = torch.arange(entry.shape[0] + 2 * births.count, device=row.device)
        offsets += 2 * index[: offsets.shape[0]]
        places = [offsets[:-1], offsets[:-1] + 1, index[2 : 2 + entry.shape[0]] + 2 * owner]
        rows, weights = torch.empty_like(index), weight.new_empty(index.shape)
        for place, x in zip(places, (births.p, births.q, row + ends), strict=True):
            rows.scatter_(0, place, x)
        for place, x in zip(places, (1 - births.t, births.t, -weight), strict=True):
            weights.scatter_(0, place, x)
        return cls(offsets, rows, weights)

    def blocks(self, step: int) -> Iterator[tuple[slice, slice]]:
        """So many vertices at a time, and the entries of their bags."""
        count = self.offsets.shape[0] - 1
        if count <= step:
            yield slice(0, count), slice(0, self.row.shape[0])
            return
        starts = [*range(0, count, step), count]
        marks = self.offsets[torch.tensor(starts, device=self.offsets.device)].tolist()
        for (start, first), (stop, last) in pairwise(zip(starts, marks, strict=True)):
            yield slice(start, stop), slice(first, last)

    def sums(self, rows: slice, entries: slice, table: Tensor) -> Tensor:
        """The sums of a block of vertices: (n, m) -> (B, m)."""
        return embedding_bag(
            self.row[entries],
            table,
            self.offsets[rows] - entries.start if entries.start else self.offsets[rows],
            mode="sum",
            per_sample_weights=self.weight[entries],
        )


@dataclass(frozen=True)
class Sums:
    """Running sums along the lines: for many kinks a line, and few columns.

    Before a vertex's place every kink counts with t_j (1 - t), behind it with t (1 - t_j). The sums
    run on over all lines, in whole numbers: these may wrap around, but their differences are exact.
    """

    kinks: Kinks
    births: Births

    def off(self, columns: Tensor) -> Tensor:
        """What the kinks take off at the vertices: columns (n, m) -> (N, m)."""
        step = max(1, _NUMBERS // max(1, self.kinks.count))
        parts = [self._off(part) for part in torch.split(columns, step, 1)]
        return torch.cat(parts, 1)

    def _off(self, columns: Tensor) -> Tensor:
        k, t = self.kinks, self.births.t
        part = take(columns, k.unit).T * k.bend
        # No line's sum can be larger than this.
        largest = part.abs().amax(1, keepdim=True) * k.offsets.diff().amax()
        scale = torch.ldexp(torch.ones_like(largest), _FIXED_BITS - torch.frexp(largest).exponent)
        part *= scale
        ahead = part * k.t
        place, line = k.place + 1, k.line
        before = _between(ahead, take(k.offsets, line), place)
        behind = _between(part.sub_(ahead), place, take(k.offsets[1:], line))
        return torch.lerp(before, behind, t).div_(scale).T


def _between(part: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Sums of the entries begin .. end - 1, (m, K) and (N,) -> (m, N)."""
    running = pad(part.long(), (1, 0)).cumsum(1)
    return (running.index_select(1, end) - running.index_select(1, begin)).to(part.dtype)
