"""Values at new vertices of a line from those at its ends, and from where they bend in between.

Along an edge or a chord the next stage's values are straight but for a kink where a unit switches:

    a(t) = lerp(a(0), a(1), t) - sum over kinks j of  bend_j * min(t, t_j) * (1 - max(t, t_j)) * c_j

with c_j what the stage makes of unit j alone. So the stage is run at older vertices only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from splinecam._util.csr import entries_of, offsets_of, owners_of, take
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices

__all__ = ["DENSE", "LOOPS", "TENSORS", "Bags", "Costs", "Sums"]

_FIXED_BITS = 61  # of a running sum's whole numbers, which may wrap around

_NUMBERS = 1 << 23  # that are summed in one go


class Costs(NamedTuple):
    """What the ways to find values cost per number, in relation to each other, measured.

    term: a term of a sum; change: a slope change of a running sum; point: a new vertex that is
    interpolated and sent through the stage; product: a number that is multiplied for that.
    narrow: columns up to which running sums are tried. least: what sending vertices through the
    stage must cost for another way to be taken, as that rounds less.
    """

    term: float
    change: float
    point: float
    product: float
    narrow: float
    least: float = 0.0

    def ways(
        self, new: Sequence[tuple[int, int, int]], width: int, numbers: int, products: int
    ) -> list[str] | None:
        """How to find the values at new vertices, "terms" or "sums"; None: by the stage itself.

        new: of vertices on edges and of those inside faces their number, that of the slope changes
        of all lines, and that over the lines of all vertices; width: values per vertex; numbers:
        values before and after the stage; products: how many numbers are multiplied for them.
        """
        ways, total, count = [], 0.0, 0
        for vertices, changes, terms in new:
            costs = {"terms": (2 * vertices + terms) * width * self.term}
            if width <= self.narrow:
                costs["sums"] = changes * width * self.change
            way = min(costs, key=costs.__getitem__)
            ways.append(way)
            total += costs[way]
            count += vertices
        direct = count * (self.point * numbers + self.product * products)
        return None if direct <= max(total, self.least) else ways


TENSORS = Costs(term=1.5, change=12.0, point=6.0, product=1 / 16, narrow=64)
# Of the compiled kernel, in nanoseconds: where it evaluates the stage, and where it does not.
DENSE = Costs(term=0.8, change=7.0, point=1.5, product=0.13, narrow=math.inf, least=1e6)
LOOPS = Costs(term=0.8, change=7.0, point=6.0, product=0.5, narrow=math.inf, least=1e6)


@dataclass(frozen=True)
class Bags:
    """Rows of a table and their weights, of which each vertex is a sum.

    offsets: (N + 1,) the entries of each vertex; row, weight: (P,).
    """

    offsets: Tensor
    row: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, breakpoints: Breakpoints, interpolated: InterpolatedVertices, ends: int | None = None
    ) -> Bags:
        """Every kink of a vertex's line, from the table of the stage's answers to single units.

        ends: how many rows the table of values has, if that comes before the other in the table;
        then a vertex is all of its value: what is between the ends of its line, less the kinks.
        """
        begin, end = (
            take(breakpoints.offsets, breakpoints.line),
            take(breakpoints.offsets[1:], breakpoints.line),
        )
        counts = end - begin
        offsets = offsets_of(counts)
        entry = entries_of(begin, end, offsets)
        owner = owners_of(counts, entry.shape[0])
        t, at = take(interpolated.t, owner), take(breakpoints.t, entry)
        weight = (
            torch.minimum(t, at)
            * (1 - torch.maximum(t, at))
            * take(breakpoints.slope_change, entry)
        )
        row = take(breakpoints.unit, entry)
        if ends is None:
            return cls(offsets, row, weight)
        index = torch.arange(entry.shape[0] + 2 * interpolated.count, device=row.device)
        offsets += 2 * index[: offsets.shape[0]]
        places = [offsets[:-1], offsets[:-1] + 1, index[2 : 2 + entry.shape[0]] + 2 * owner]
        rows, weights = torch.empty_like(index), weight.new_empty(index.shape)
        for place, x in zip(places, (interpolated.p, interpolated.q, row + ends), strict=True):
            rows.scatter_(0, place, x)
        for place, x in zip(places, (1 - interpolated.t, interpolated.t, -weight), strict=True):
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

    breakpoints: Breakpoints
    interpolated: InterpolatedVertices

    def off(self, columns: Tensor) -> Tensor:
        """What the kinks take off at the vertices: columns (n, m) -> (N, m)."""
        step = max(1, _NUMBERS // max(1, self.breakpoints.count))
        parts = [self._off(part) for part in torch.split(columns, step, 1)]
        return torch.cat(parts, 1)

    def _off(self, columns: Tensor) -> Tensor:
        k, t = self.breakpoints, self.interpolated.t
        part = take(columns, k.unit).T * k.slope_change
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
