"""Numbers of given ranks among very many, which come in blocks and are not kept.

The first pass counts the numbers in narrow bins. A second pass, over the same blocks, keeps the
numbers in the few bins that have a wanted rank, so that the result is exact.

A number falls into a bin by the leading bits of its floating-point form, so that bins are as fine
for tiny numbers as for large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["OrderStatistics", "quantiles"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SHIFT = 40  # bits within a bin, which is then at most 0.02 % wide


@dataclass(frozen=True)
class _Bins:
    """Ascending keys, with how many numbers each stands for, and their lowest and highest one."""

    key: Ints
    count: Ints
    low: Ints
    high: Ints

    @classmethod
    def of(cls, numbers: Ints, shift: int) -> _Bins:
        """Numbers, which are ascending, in bins by their leading bits."""
        key = numbers >> shift
        first = np.flatnonzero(np.diff(key, prepend=~key[:1]))
        last = np.append(first[1:], len(key))
        return cls(key[first], last - first, numbers[first], numbers[last - 1])

    def with_others(self, other: _Bins) -> _Bins:
        """The bins of all numbers of both."""
        key = np.concatenate([self.key, other.key])
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=~key[order[:1]]))

        def joined(name: str) -> Ints:
            both: Ints = np.concatenate([getattr(self, name), getattr(other, name)])[order]
            return both

        return _Bins(
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
        self._bins: _Bins | None = None
        self._kept: _Bins | None = None

    def count(self, numbers: Floats) -> None:
        """Count numbers (N,), of which there is at least one."""
        found = _Bins.of(np.sort(_keys(numbers)), _SHIFT)
        self._bins = found if self._bins is None else self._bins.with_others(found)

    def keep(self, numbers: Floats) -> None:
        """Look at numbers (N,) for the second time, and keep those that matter."""
        keys = np.sort(_keys(numbers))
        wanted = self._open()
        first = np.searchsorted(keys, wanted << _SHIFT)
        last = np.searchsorted(keys, (wanted + 1) << _SHIFT)
        chosen = [keys[i:j] for i, j in zip(first, last, strict=True) if i < j]
        if chosen:
            found = _Bins.of(np.concatenate(chosen), 0)
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
            # The kept numbers below a bin are those of the open bins before it.
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
    """The ranks between which quantiles of ``count`` numbers lie, and the weight of the second.

    The ranks come in pairs; a quantile is interpolated linearly between both.
    """
    place = (count - 1) * np.asarray(shares)
    low = np.floor(place).astype(np.int64)
    pairs = np.stack([low, np.minimum(low + 1, count - 1)], 1)
    return pairs.ravel().tolist(), place - low
