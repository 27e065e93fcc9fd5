"""Compute what a store lacks: the results that no process has computed or is computing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from splinecam.stores.result_store import ResultStore

__all__ = ["Compute", "fill"]

Compute = Callable[[Iterator[int]], Iterable[tuple[int, Any]]]
"""Computes the results of the numbers that it takes, and yields each with its number."""

_CLAIM = 16  # results that are claimed at a time
_SECONDS = 1.0  # after which results are written
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
            waiting = _compute(store, _claimed(store, missing), digests, compute, seconds)
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
    none, due = True, time.monotonic() + seconds
    try:
        for number, result in compute(claimed):
            done[number] = result
            none = False
            if (now := time.monotonic()) >= due:
                _write(store, done, digests)
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


def _claimed(store: ResultStore, missing: list[int]) -> Iterator[int]:
    """Yield the missing results that can be claimed, each when it is about to be computed."""
    for start in range(0, len(missing), _CLAIM):
        some = missing[start : start + _CLAIM]
        if store.claims.take(some[0], some[-1] + 1):
            store.refresh()  # another process may have written it, and ended its claim
            yield from store.missing(some)
