"""How often the units of a layer switch along segments, each counted on its own.

Several units may switch at one breakpoint. A unit that is at its level along a piece, or a maximum
with several winners there, is on either side. So the fewest switches are counted that explain what
is seen on the pieces: a unit whose signs differ for sure at both ends switches at least once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import take
from splinecam._util.backend import backend_of
from splinecam._util.tolerances import EPS, SAFETY
from splinecam.network.nonlinearities import MaxNonlinearity, Nonlinearity


class PieceValues(NamedTuple):
    """The values z (M, n) of a layer's units in the middle of M pieces, in order.

    segment: (M,) of each piece; error: (R, n) the rounding errors; row: (M,) the row of each piece.
    """

    z: Tensor
    segment: Tensor
    error: Tensor
    row: Tensor


def count_switches(layer: Nonlinearity, pieces: PieceValues) -> tuple[Tensor, Tensor]:
    """Segments, of which one may come several times, and how many switches each has more."""
    z, segment = pieces.z, pieces.segment
    start = torch.ones_like(segment, dtype=torch.bool)
    start[1:] = segment[1:] != segment[:-1]
    begins = start.nonzero()[:, 0]
    number = start.cumsum(0) - 1
    lengths = torch.diff(begins, append=torch.tensor([segment.shape[0]], device=z.device))
    none = torch.zeros_like(z[0])
    functions = layer.functions(z, none, z.amin(0), z.amax(0))
    if functions is None:
        assert isinstance(layer, MaxNonlinearity)
        width, possible = layer.members.shape[0], _winners(layer, pieces)
        seen = layer.groups.winners(-z if layer.smallest else z, torch.zeros(width).to(z))
    else:
        chosen = functions.wanted.nonzero()[:, 0]
        unit, level = functions.unit[chosen], functions.level[chosen]
        other = None if functions.other is None else functions.other[chosen]
        width, possible = chosen.shape[0], _sides(pieces, unit, level, other)
        seen = None
    every = torch.arange(z.shape[0], device=z.device)[:, None]
    found = [(segment[:0], segment[:0])]
    step = max(1, backend_of(z.device).function_values // max(1, z.shape[0]))
    for low in range(0, width, step):
        columns = torch.arange(low, min(low + step, width), device=z.device)
        state = possible(every, columns) if seen is None else seen[:, columns, None]
        changed = (state[1:] != state[:-1]).any(2) & ~start[1:, None]
        piece, column = changed.nonzero(as_tuple=True)
        pair = torch.unique(take(number, piece) * width + column + low)
        own, column = pair // width, pair % width
        count = _fewest_changes(take(begins, own), take(lengths, own), column, possible)
        found.append((take(segment, take(begins, own)), count))
    segments, counts = zip(*found, strict=True)
    return torch.cat(segments), torch.cat(counts)


_Possible = Callable[[Tensor, Tensor], Tensor]
"""Which states functions or groups (K,) may have at pieces (K,): (K, states)."""


def _sides(pieces: PieceValues, unit: Tensor, level: Tensor, other: Tensor | None) -> _Possible:
    """Whether functions may be positive, and negative."""
    z, _, error, row = pieces

    def possible(at: Tensor, column: Tensor) -> Tensor:
        mine, rows = unit[column], row[at]
        value, off = z[at, mine] - level[column], error[rows, mine] + EPS * level[column].abs()
        if other is not None:
            value, off = z[at, mine] - z[at, other[column]], off + error[rows, other[column]]
        return torch.stack([value >= -SAFETY * off, value <= SAFETY * off], -1)

    return possible


def _winners(layer: MaxNonlinearity, pieces: PieceValues) -> _Possible:
    """Which units of groups may be the largest."""
    z, _, error, row = pieces

    def possible(at: Tensor, group: Tensor) -> Tensor:
        members = layer.members[group]
        value, off = z[at[:, None], members], SAFETY * error[row[at][:, None], members]
        value = -value if layer.smallest else value
        return value + off >= (value - off).amax(1, keepdim=True)

    return possible


def _fewest_changes(
    begin: Tensor, length: Tensor, column: Tensor, possible: _Possible
) -> Tensor:
    """How often functions or groups (K,) change at least, each along ``length`` pieces."""
    state, count = possible(begin, column), torch.zeros_like(begin)
    for k in range(1, int(length.max()) if length.shape[0] else 0):
        seen = possible(begin + (length - 1).clamp(max=k), column)
        both = state & seen
        changed = ~both.any(1)
        count += changed
        state = torch.where(changed[:, None], seen, both)
    return count
