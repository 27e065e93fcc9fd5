"""How often the units of a layer switch along segments, each counted on its own.

Several units may switch at one breakpoint. A unit that is at its level along a piece, or a maximum
with several winners there, is on either side. So the fewest switches are counted that explain what
is seen on the pieces: a unit whose signs differ for sure at both ends switches at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import counts_of, offsets_of, take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.arrangement.crossings import Functions
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity


@dataclass(frozen=True)
class LayerAlong:
    """A layer along segments: its units at P rows, and the points with those at which it switches.

    z: (P, n) at the rows; segment: (P,) of each row, in order; error: (R, n) rounding errors, of
    which ``owner`` (P,) says the row, None if there is one. before, s: (P',) the row at or before
    each point, and the fraction of the way to the next row.
    """

    layer: Nonlinearity
    z: Tensor
    segment: Tensor
    error: Tensor
    owner: Tensor | None
    before: Tensor
    s: Tensor

    def middle(self, point: Tensor, unit: Tensor) -> Tensor:
        """Values of units halfway from points to the next ones; both broadcast."""
        return (self._at(point, unit) + self._at(point + 1, unit)) / 2

    def _at(self, point: Tensor, unit: Tensor) -> Tensor:
        row, s = self.before[point], self.s[point]
        after = (row + 1).clamp(max=self.z.shape[0] - 1)
        return torch.lerp(self.z[row, unit], self.z[after, unit], s)

    def slack(self, point: Tensor, unit: Tensor) -> Tensor:
        """The tolerances of units at points."""
        row = torch.zeros_like(point) if self.owner is None else self.owner[self.before[point]]
        return SAFETY * self.error[row, unit]


def count_switches(along: LayerAlong) -> tuple[Tensor, Tensor]:
    """Segments, of which one may come several times, and how many switches each has more."""
    z, segment = along.z, along.segment
    new = segment[1:] != segment[:-1]
    number = torch.zeros_like(segment)  # of its segment, for each row
    number[1:] = new.cumsum(0)
    points = counts_of(take(number, along.before), int(number[-1]) + 1)
    begins = offsets_of(points)
    first = torch.searchsorted(number, torch.arange(points.shape[0], device=z.device))
    none = torch.zeros_like(z[0])
    functions = along.layer.functions(z, none, z.amin(0), z.amax(0))
    blocks = _winners(along) if functions is None else _sides(along, functions)
    found = [(segment[:0], segment[:0])]
    for state, possible in blocks:
        row, column = ((state[1:] != state[:-1]) & ~new[:, None]).nonzero(as_tuple=True)
        pair = torch.unique(take(number, row) * state.shape[1] + column)
        own, column = pair // state.shape[1], pair % state.shape[1]
        count = _fewest_changes(take(begins, own), take(points, own) - 1, column, possible)
        found.append((take(segment, take(first, own)), count))
    segments, counts = zip(*found, strict=True)
    return torch.cat(segments), torch.cat(counts)


_Possible = Callable[[Tensor, Tensor], Tensor]
"""Which states columns (K,) may have between points (K,) and the next ones: (K, states)."""


def _sides(along: LayerAlong, functions: Functions) -> Iterator[tuple[Tensor, _Possible]]:
    """Yield blocks of functions: their signs at the rows, and whether they may be of each sign."""
    z = along.z
    wanted = functions.wanted.nonzero()[:, 0]
    step = max(1, backend_of(z.device).function_values // max(1, z.shape[0]))
    for some in torch.split(wanted, step):
        unit, level = functions.unit[some], functions.level[some]
        other = None if functions.other is None else functions.other[some]
        f = z[:, unit] - (level if other is None else z[:, other])

        def possible(point: Tensor, column: Tensor, given: Any = (unit, level, other)) -> Tensor:
            unit, level, other = given
            value, slack = (f(point, unit[column]) for f in (along.middle, along.slack))
            if other is None:
                border = level[column]
                value, slack = value - border, slack + SAFETY * EPS * border.abs()
            else:
                value = value - along.middle(point, other[column])
                slack = slack + along.slack(point, other[column])
            return torch.stack([value >= -slack, value <= slack], 1)

        yield f.sign(), possible


def _winners(along: LayerAlong) -> Iterator[tuple[Tensor, _Possible]]:
    """Yield the winners of all groups at the rows, and which units may be the largest."""
    layer = along.layer
    assert isinstance(layer, MaxNonlinearity)
    z = -along.z if layer.smallest else along.z

    def possible(point: Tensor, group: Tensor) -> Tensor:
        members, point = layer.members[group], point[:, None]
        value, slack = along.middle(point, members), along.slack(point, members)
        value = -value if layer.smallest else value
        return value + slack >= (value - slack).amax(1, keepdim=True)

    yield layer.groups.winners(z, z.new_zeros(layer.members.shape[0])), possible


def _fewest_changes(begin: Tensor, pieces: Tensor, column: Tensor, possible: _Possible) -> Tensor:
    """How often columns (K,) change their state at least, each along some pieces."""
    count = torch.zeros_like(begin)
    if not begin.shape[0]:
        return count
    state = possible(begin, column)
    for k in range(1, int(pieces.max())):
        seen = possible(begin + (pieces - 1).clamp(max=k), column)
        both = state & seen
        changed = ~both.any(1)
        count += changed
        state = torch.where(changed[:, None], seen, both)
    return count
