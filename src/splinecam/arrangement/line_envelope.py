"""Where the largest of several affine functions changes along a segment: upper envelopes on lines.

The largest of affine functions is convex. A function that is the largest at both ends of a segment
is the largest all along it. Otherwise the winners of the two ends cross at a point, at which either
both are the largest, or another function is; then it divides the segment into two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.tolerances import SAFETY

__all__ = ["WinnerChanges", "winner_changes"]


@dataclass(frozen=True)
class WinnerChanges:
    """Changes of the largest function along segments, (N,) each, in no particular order.

    row: the segment; s: the fraction of the segment; error: how far rounding may shift it; before,
    after: the functions that are the largest on either side. begin, end: (S,) the largest ones at
    the ends of all segments. inexact: (M,) segments on which smaller rounding errors might change
    the result.
    """

    row: Tensor
    s: Tensor
    error: Tensor
    before: Tensor
    after: Tensor
    begin: Tensor
    end: Tensor
    inexact: Tensor


def _end_winners(first: Tensor, last: Tensor, slack: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest functions right behind the first and right before the last ends, (N,) each.

    Also the rows (M,) in which tolerances matter. first, last: (N, R) values at the ends; slack:
    (N, R) tolerances. Functions that tie at an end are told apart by the other end. One that ties
    at both ends is the winner of both.
    """
    a, b = (here + slack >= (here - slack).amax(1, keepdim=True) for here in (first, last))
    begin = last.masked_fill(~a, -torch.inf).argmax(1)
    end = first.masked_fill(~b, -torch.inf).argmax(1)
    both = a & b
    through, tied = both.int().argmax(1), both.any(1)
    unclear = torch.zeros_like(tied)
    if int(a.sum()) + int(b.sum()) > 2 * len(tied):
        unclear = (a.sum(1) > 1) | (b.sum(1) > 1)
    chosen = torch.where(tied, through, begin), torch.where(tied, through, end)
    return *chosen, unclear.nonzero()[:, 0]


def winner_changes(first: Tensor, last: Tensor, error: Tensor) -> WinnerChanges:
    """All changes of the largest of R functions along N segments.

    first, last: (N, R) the values at the ends; error: (N, R) or (R,) their rounding errors.

    >>> first, last = torch.tensor([[3.0, 2.0, 0.0]]), torch.tensor([[0.0, 2.0, 3.0]])
    >>> found = winner_changes(first, last, torch.zeros(3))
    >>> sorted(zip(found.s.tolist(), found.before.tolist(), found.after.tolist()))
    [(0.3333333333333333, 0, 1), (0.6666666666666666, 1, 2)]
    """
    first, last = first.double(), last.double()
    error = error.expand(first.shape).to(first)
    begin, end, unclear = _end_winners(first, last, SAFETY * error)
    a, b, inexact = begin, end, [unclear]
    row = (a != b).nonzero()[:, 0]
    a, b = a[row], b[row]
    found: list[tuple[Tensor, ...]] = []
    for _ in range(first.shape[1]):
        if not row.shape[0]:
            break
        f, g, e = first[row], last[row], error[row]
        fall = _pick(f, a) - _pick(f, b)
        change = fall + _pick(g, b) - _pick(g, a)
        s = (fall / change).nan_to_num(nan=0.5).clamp(0, 1)
        value = torch.lerp(f, g, s[:, None])
        value[torch.arange(row.shape[0], device=row.device), b] = -torch.inf  # equal to that of a
        best = value.argmax(1)
        excess = _pick(value, best) - _pick(value, a)
        slack = SAFETY * (_pick(e, best) + _pick(e, a))
        divided = excess > slack
        inexact.append(row[(best != a) & (excess.abs() <= slack)])
        shift = (_pick(e, a) + _pick(e, b)) / change.abs()
        done = ~divided
        found.append((row[done], s[done], shift[done], a[done], b[done]))
        row, a, best, b = row[divided], a[divided], best[divided], b[divided]
        row, a, b = torch.cat([row, row]), torch.cat([a, best]), torch.cat([best, b])
    if not found:
        none = row[:0]
        found.append((none, first.new_zeros(0), first.new_zeros(0), none, none))
    row, s, shift, before, after = (torch.cat(part) for part in zip(*found, strict=True))
    return WinnerChanges(row, s, shift, before, after, begin, end, torch.cat(inexact))


def _pick(table: Tensor, column: Tensor) -> Tensor:
    """One entry of each row, (N,)."""
    return table.gather(1, column[:, None])[:, 0]
