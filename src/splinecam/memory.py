"""Memory for activations and meshes on a CPU, which is used again by the next run.

What a system gives anew it has to clear first, page by page: for a network of middle size that is a
quarter of the time. So up to ``KEPT`` bytes stay with the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT", "SNUG", "borrowed", "hand_over", "lend"]

KEPT = 1 << 28
SNUG = 1.25  # times what is needed is not too much to be handed over

_spare: list[NDArray[np.float64]] = []
_taking = Lock()  # no two threads take the same
_lent: ContextVar[list[NDArray[np.float64]] | None] = ContextVar("lent", default=None)


def lend(numbers: int, *, grows: bool = False, snug: bool = False) -> NDArray[np.float64]:
    """Room for so many numbers at least, (N,): as much as there is if it grows, else as little.

    snug: hardly more than that.
    """
    lent = _lent.get()
    if lent is None:
        return np.empty(numbers)
    most = SNUG * numbers if snug else math.inf
    with _taking:
        fitting = [i for i, room in enumerate(_spare) if numbers <= len(room) <= most]
        fitting.sort(key=lambda i: len(_spare[i]))
        room = _spare.pop(fitting[-1 if grows else 0]) if fitting else np.empty(numbers)
    if sum(other.nbytes for other in lent) + room.nbytes <= KEPT:  # else nobody holds it back
        lent.append(room)
    return room


@contextmanager
def borrowed() -> Iterator[None]:
    """What is lent inside is given back afterwards: by then nobody may look at it any more."""
    token = _lent.set([])
    try:
        yield
        with _taking:
            _spare.extend(_lent.get() or ())
            while sum(room.nbytes for room in _spare) > KEPT:
                _spare.pop(0)
    finally:
        _lent.reset(token)


def hand_over(address: int) -> None:
    """Leave the room that this is in to whoever has it."""
    lent = _lent.get() or []
    lent[:] = [room for room in lent if not 0 <= address - room.ctypes.data < room.nbytes]
