"""Memory for activations on a CPU, which is used again by the next run.

What a system gives anew it has to clear first, page by page: for a network of middle size that is a
quarter of the time. So up to ``KEPT`` bytes stay with the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT", "borrowed", "lend"]

KEPT = 1 << 28

_spare: list[NDArray[np.float64]] = []
_lent: ContextVar[list[NDArray[np.float64]] | None] = ContextVar("lent", default=None)


def lend(numbers: int, *, grows: bool = False) -> NDArray[np.float64]:
    """Room for so many numbers at least, (N,): as much as there is if it grows, else as little."""
    lent = _lent.get()
    if lent is None:
        return np.empty(numbers)
    fitting = sorted((room for room in list(_spare) if len(room) >= numbers), key=len)
    if fitting:
        room = fitting[-1 if grows else 0]
        _forget(room)
    else:
        room = np.empty(numbers)
    if sum(other.nbytes for other in lent) + room.nbytes <= KEPT:  # else nobody holds it back
        lent.append(room)
    return room


@contextmanager
def borrowed() -> Iterator[None]:
    """What is lent inside is given back afterwards: by then nobody may look at it any more."""
    token = _lent.set([])
    try:
        yield
        _spare.extend(_lent.get() or ())
        while sum(room.nbytes for room in list(_spare)) > KEPT:
            _spare.pop(0)
    finally:
        _lent.reset(token)


def _forget(room: NDArray[np.float64]) -> None:
    for i, other in enumerate(_spare):
        if other is room:
            del _spare[i]
            return
