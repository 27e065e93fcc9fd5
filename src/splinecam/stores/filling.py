"""Compute what a store lacks: the results that no process has computed or is computing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import length_hint
from typing import Any, TypeVar

from splinecam.stores.result_store import ResultStore

__all__ = ["Compute", "Taken", "fill"]

Compute = Callable[[Iterator[int]], Iterable[tuple[int, Any]]]
"""Computes the results of the numbers that it takes, and yields each with its number."""

T = TypeVar("T")

_CLAIM = 16  # results that are claimed at a time
_SECONDS = 1.0  # after which results are written
_BYTES = 1 << 28  # of results that are written, however long ago others were
_SHARE = 1 / 20  # of the time that writing may take, where the disk is slow
_PAUSE = 0.2  # seconds between two looks at what other processes compute


def fill(
    store: ResultStore,
    digests: Mapping[int, bytes],
    compute: Compute,
    *,
    seconds: float = _SECONDS,
) -> None:
    """Compute the results that are missing in a store, and write them as they are done.

    What other processes are computing is left to them, and computed here if they end without it.
    The results are in the store in the end, none of them in memory.

    digests: of the domain of each result, by its number. compute: see ``Compute``; it may take
    numbers ahead of the results that it yields. seconds: what is done is written that often, or
    less often where writing takes long; 0 writes every result on its own.
    """
    store.check(digests)
    while missing := store.missing(digests):
        try:
            waiting = _compute(store, _Claimed(store, missing), digests, compute, seconds)
        finally:
            store.claims.release()
        if waiting:  # other processes have claimed all that is missing
            time.sleep(_PAUSE)
        store.refresh()


def _compute(
    store: ResultStore,
    claimed: Iterator[int],
    digests: Mapping[int, bytes],
    compute: Compute,
    seconds: float,
) -> bool:
    """Compute and write what can be claimed; returns whether that is nothing."""
    done: dict[int, Any] = {}
    none, size, due = True, 0, time.monotonic() + seconds
    try:
        for number, result in compute(claimed):
            done[number] = result
            none = False
            size += store.codec.size(result)
            if (now := time.monotonic()) >= due or size > _BYTES:
                _write(store, done, digests)
                size = 0
                took = time.monotonic() - now
                due = now + took + (max(seconds, took / _SHARE) if seconds else 0.0)
    finally:  # also what was done before an error is kept
        _write(store, done, digests)
    return none


def _write(store: ResultStore, done: dict[int, Any], digests: Mapping[int, bytes]) -> None:
    """Write results, a file for each run of consecutive numbers, and forget them."""
    numbers = sorted(done)
    starts = [k for k, n in enumerate(numbers) if not k or numbers[k - 1] != n - 1]
    for start, stop in pairwise([*starts, len(numbers)]):
        some = numbers[start:stop]
        store.write(some[0], [digests[n] for n in some], [done[n] for n in some])
    done.clear()


class Taken(Iterator[T]):
    """The items of the numbers that are taken to compute their results, when they are asked for.

    first: the number of the first item. numbers: those that were taken, in order. The items may be
    fewer than ``__length_hint__`` says: other processes may compute them.

    >>> items = Taken(iter([2, 0]), "abc")
    >>> list(items), items.numbers
    (['c', 'a'], [2, 0])
    """

    def __init__(self, numbers: Iterator[int], items: Sequence[T], first: int = 0) -> None:
        self._coming, self._items, self._first = numbers, items, first
        self.numbers: list[int] = []

    def __next__(self) -> T:
        self.numbers.append(next(self._coming))
        return self._items[self.numbers[-1] - self._first]

    def __length_hint__(self) -> int:
        return length_hint(self._coming)


class _Claimed(Iterator[int]):
    """The missing results that can be claimed, each when it is about to be computed."""

    def __init__(self, store: ResultStore, missing: list[int]) -> None:
        self._store, self._waiting = store, deque(missing)
        self._mine: deque[int] = deque()

    def __next__(self) -> int:
        while not self._mine:
            if not self._waiting:
                raise StopIteration
            count = min(_CLAIM, len(self._waiting))
            some = [self._waiting.popleft() for _ in range(count)]
            if self._store.claims.take(some[0], some[-1] + 1):
                self._store.refresh()  # another process may have written it, and ended its claim
                self._mine.extend(self._store.missing(some))
        return self._mine.popleft()

    def __length_hint__(self) -> int:
        return len(self._mine) + len(self._waiting)
