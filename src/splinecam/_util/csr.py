"""Rows of different lengths in one flat tensor: the few helpers everything else is written in."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from splinecam._util.backend import backend_of

__all__ = [
    "argsort_rows",
    "blocks_of",
    "counts_of",
    "entries_of",
    "following",
    "lengths",
    "offsets_of",
    "owners_of",
    "places_in",
    "places_of",
    "sort_rows",
    "take",
    "take_each",
    "take_rows",
]

# Bits of a sort key: short keys sort twice as fast, if they leave room for enough of a fraction.
_SHORT, _LONG, _ENOUGH = 31, 63, 10
_MANTISSA = 52

_EXCHANGES = 8  # rounds of putting neighbours right, before everything is sorted exactly

_FEW = 1 << 12  # entries for which fewer operations count more than fewer passes


def take(x: Tensor, index: Tensor) -> Tensor:
    """``x[index]`` along the first axis, which on a CPU is twice as fast this way."""
    return x.index_select(0, index)


def lengths(d: Tensor) -> Tensor:
    """Euclidean lengths of vectors (..., 2); ``norm`` is much slower for short rows."""
    return (d[..., 0].square() + d[..., 1].square()).sqrt()


def take_each(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """``x[:, index]`` row by row, which on a GPU is one operation."""
    if backend_of(index.device).asynchronous:
        return x.index_select(1, index).unbind()
    return tuple(take(row, index) for row in x)


def places_in(mask: Tensor, count: int) -> Tensor:
    """Where a mask (N,) is set, if it is known at how many places: a GPU need not wait for that."""
    if backend_of(mask.device).asynchronous:
        rank = torch.cumsum(mask, 0).mul_(mask)  # from 1 on; the others do not matter
        index = torch.arange(mask.shape[0], device=mask.device)
        return rank.new_empty(count + 1).scatter_(0, rank, index)[1:]
    return mask.nonzero()[:, 0]


def offsets_of(counts: Tensor) -> Tensor:
    """Row starts, with the total appended: ``counts (R,) -> (R + 1,)``."""
    out = counts.new_zeros(counts.shape[0] + 1)
    torch.cumsum(counts, 0, out=out[1:])
    return out


def counts_of(owners: Tensor, rows: int) -> Tensor:
    """How many entries each of so many rows has; a GPU need not wait, as for ``bincount``."""
    return owners.new_zeros(rows).scatter_add_(0, owners, torch.ones_like(owners))


def owners_of(counts: Tensor, total: int | None = None) -> Tensor:
    """The row of every entry: ``[2, 0, 3] -> [0, 0, 2, 2, 2]``."""
    if total is not None and (total < _FEW or backend_of(counts.device).asynchronous):
        return torch.repeat_interleave(counts, output_size=total)
    begin = torch.cumsum(counts, 0)
    if total is None:
        total = int(begin[-1]) if begin.shape[0] else 0
    # One more at each row's end; a running sum is several times faster than repeating.
    steps = counts.new_zeros(total + 1).scatter_add_(0, begin, torch.ones_like(counts))
    return torch.cumsum(steps, 0, out=steps)[:total]


def places_of(counts: Tensor, owners: Tensor, offsets: Tensor) -> Tensor:
    """The place of every entry in its row: ``[2, 0, 3] -> [0, 1, 0, 1, 2]``."""
    return torch.arange(owners.shape[0], device=counts.device) - take(offsets, owners)


def take_rows(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Flat indices of the entries of the chosen rows, one row after the other, and their counts."""
    begin, end = take(offsets, rows), take(offsets[1:], rows)
    counts = end - begin
    return entries_of(begin, end, offsets_of(counts)), counts


def entries_of(begin: Tensor, end: Tensor, offsets: Tensor, total: int | None = None) -> Tensor:
    """All of begin[0], ..., end[0] - 1, begin[1], ...; offsets: (R + 1,) where each row begins."""
    if total is None:
        total = int(offsets[-1])
    if total < _FEW and not backend_of(begin.device).asynchronous:
        shift = torch.repeat_interleave(begin - offsets[:-1], end - begin, output_size=total)
        return shift.add_(torch.arange(total, device=shift.device))
    jump = begin - 1
    torch.sub(begin[1:], end[:-1], out=jump[1:])
    steps = begin.new_ones(total + 1).scatter_add_(0, offsets[:-1], jump)
    return torch.cumsum(steps, 0, out=steps)[:total]


def following(offsets: Tensor, total: int) -> Tensor:
    """The entry after each one around its row, (N,): the last is followed by the first."""
    after = torch.arange(1, total + 2, device=offsets.device)
    begin, end = offsets[:-1], offsets[1:]
    return after.scatter_(0, torch.where(end > begin, end - 1, total), begin)[:total]


def blocks_of(counts: Tensor, limit: int) -> list[tuple[int, int]]:
    """Cut rows into runs (first, last + 1) with about ``limit`` entries each."""
    starts = offsets_of(counts)[:-1]
    runs = torch.unique_consecutive(starts // limit, return_counts=True)[1]
    return list(pairwise([0, *torch.cumsum(runs, 0).tolist()]))


def argsort_rows(row: Tensor, s: Tensor) -> Tensor:
    """Order by row, then by ``s`` in [0, 1] within the row."""
    return sort_rows(row, s)[0]


def sort_rows(row: Tensor, s: Tensor, rows: int = 1 << 32) -> tuple[Tensor, Tensor, Tensor]:
    """The order by row, then by ``s`` in [0, 1], and both in that order; rows: at most so many.

    One sort of (row, leading bits of s) is several times faster than sorting twice. What it leaves
    in the wrong order, neighbours whose leading bits are equal, is then exchanged.
    """
    if backend_of(s.device).asynchronous:  # numbers with the row before the point, and s after it
        below = 1 - 2.0 ** (rows.bit_length() - _MANTISSA)
        key, order = torch.sort(torch.add(row, s, alpha=below), stable=True)
        at = key.long()
    else:
        key, bits = _keys(row, s, rows)
        key, order = torch.sort(key, stable=True)
        at = (key >> bits).long()
    for _ in range(_EXCHANGES):
        along = take(s, order)
        wrong = ((at[1:] == at[:-1]) & (along[1:] < along[:-1])).nonzero()[:, 0]
        if not wrong.shape[0]:
            return order, at, along
        _exchange(order, wrong)
    by_s = torch.sort(s, stable=True).indices
    order = take(by_s, torch.sort(take(row, by_s), stable=True).indices)
    return order, at, take(s, order)


def _keys(row: Tensor, s: Tensor, rows: int) -> tuple[Tensor, int]:
    """Whole numbers to sort by, the row and so many leading bits of ``s``."""
    high = rows.bit_length()
    short = _SHORT - high >= _ENOUGH
    bits = _SHORT - high if short else min(_SHORT, _LONG - high)
    key = (s * (1 << bits)).long().clamp_(0, (1 << bits) - 1)
    key += row << bits
    return key.int() if short else key, bits


def _exchange(order: Tensor, wrong: Tensor) -> None:
    """Turn pairs round that begin at the given places; of overlapping ones, every other."""
    index = torch.arange(wrong.shape[0], device=wrong.device)
    follows = torch.zeros_like(wrong, dtype=torch.bool)
    follows[1:] = wrong[1:] - wrong[:-1] == 1
    run = torch.cummax(torch.where(follows, 0, index), 0).values
    turned = wrong[(index - run) % 2 == 0]
    order[turned], order[turned + 1] = order[turned + 1], order[turned]
