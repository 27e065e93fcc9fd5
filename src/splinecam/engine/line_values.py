"""Values at new vertices from those at the ends of their lines, by tensor operations.

New vertices lie on edges and on chords. Along such a line the values of the next stage are straight
but for a breakpoint wherever a unit passes a knot of the layer:

    a(t) = lerp(a(0), a(1), t) - sum over breakpoints j of  s_j min(t, t_j) (1 - max(t, t_j)) c_j

Here s_j is the slope change, and c_j are the stage's results for unit j alone. The stage itself is
run at older vertices only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from splinecam._util.csr import entries_of, offsets_of, owners_of, take
from splinecam.geometry.interpolation import Breakpoints, InterpolatedVertices

__all__ = ["LineTerms", "running_sums"]

_FIXED_BITS = 61  # of the integers in running sums, which may wrap around

_NUMBERS = 1 << 23  # that are summed at a time


@dataclass(frozen=True)
class LineTerms:
    """Values at new vertices as weighted sums of the rows of a table.

    The table has the values at all vertices, and behind them the results for single units.
    offsets: (N + 1,) the terms of each vertex; row, weight: (P,) of each term.
    """

    offsets: Tensor
    row: Tensor
    weight: Tensor

    @classmethod
    def of(
        cls, breakpoints: Breakpoints, interpolated: InterpolatedVertices, vertices: int
    ) -> LineTerms:
        """The two ends of each vertex's line, and all of its breakpoints.

        vertices: how many rows of the table come before the results for single units.
        """
        begin, end = (
            take(x, breakpoints.line) for x in (breakpoints.offsets[:-1], breakpoints.offsets[1:])
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
        unit = take(breakpoints.unit, entry)
        index = torch.arange(entry.shape[0] + 2 * interpolated.count, device=unit.device)
        offsets += 2 * index[: offsets.shape[0]]
        places = [offsets[:-1], offsets[:-1] + 1, index[2 : 2 + entry.shape[0]] + 2 * owner]
        rows, weights = torch.empty_like(index), weight.new_empty(index.shape)
        for place, x in zip(places, (interpolated.p, interpolated.q, unit + vertices), strict=True):
            rows.scatter_(0, place, x)
        for place, x in zip(places, (1 - interpolated.t, interpolated.t, -weight), strict=True):
            weights.scatter_(0, place, x)
        return cls(offsets, rows, weights)

    def sums(self, table: Tensor, step: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the values (B, m) of ``step`` vertices at a time from a table (V + n, m)."""
        count = self.offsets.shape[0] - 1
        starts = [*range(0, count, step), count]
        terms = [0, self.row.shape[0]]
        if len(starts) > 2:
            terms = self.offsets[torch.tensor(starts, device=self.offsets.device)].tolist()
        for (start, first), (stop, last) in pairwise(zip(starts, terms, strict=True)):
            offsets = self.offsets[start:stop] - first if first else self.offsets[start:stop]
            weights = self.weight[first:last]
            found = embedding_bag(
                self.row[first:last], table, offsets, mode="sum", per_sample_weights=weights
            )
            yield slice(start, stop), found


def running_sums(
    breakpoints: Breakpoints, interpolated: InterpolatedVertices, columns: Tensor
) -> Tensor:
    """The sums over the breakpoints of each vertex's line: columns (n, m) -> (N, m).

    For lines with many breakpoints, and few columns. Before a vertex's place each breakpoint counts
    with t_j (1 - t), behind it with t (1 - t_j). The sums run on over all lines, as integers: these
    may wrap around, but their differences are exact.
    """
    step = max(1, _NUMBERS // max(1, breakpoints.count))
    parts = torch.split(columns, step, 1)
    return torch.cat([_running_sums(breakpoints, interpolated.t, part) for part in parts], 1)


def _running_sums(breakpoints: Breakpoints, t: Tensor, columns: Tensor) -> Tensor:
    part = take(columns, breakpoints.unit).T * breakpoints.slope_change
    # No line's sum can be larger than this.
    largest = part.abs().amax(1, keepdim=True) * breakpoints.offsets.diff().amax()
    scale = torch.ldexp(torch.ones_like(largest), _FIXED_BITS - torch.frexp(largest).exponent)
    part *= scale
    weighted = part * breakpoints.t
    place, line = breakpoints.place + 1, breakpoints.line
    before = _between(weighted, take(breakpoints.offsets, line), place)
    behind = _between(part.sub_(weighted), place, take(breakpoints.offsets[1:], line))
    return torch.lerp(before, behind, t).div_(scale).T


def _between(part: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Sums of the entries begin .. end - 1, (m, K) and (N,) -> (m, N)."""
    running = pad(part.long(), (1, 0)).cumsum(1)
    return (running.index_select(1, end) - running.index_select(1, begin)).to(part.dtype)
