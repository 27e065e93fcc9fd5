"""The choice of the recorded steps of a training run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import numpy as np

__all__ = ["Every", "log_steps", "step_filter"]

Every = int | str | Iterable[int] | Callable[[int], bool]
"""The recorded steps: every n-th, ``"log"``, given ones, or a function of the step's number."""

_PER_DECADE = 20  # of "log"


def step_filter(every: Every) -> Callable[[int], bool]:
    """A function that says whether a step is recorded.

    every: a number n for the steps 0, n, 2n, ...; ``"log"`` for 0, 1, 2, ... and later about 20
    steps per power of ten; the steps themselves; or a function of the step's number.

    >>> [step for step in range(1000) if step_filter(250)(step)]
    [0, 250, 500, 750]
    >>> [step for step in range(20, 40) if step_filter("log")(step)]
    [22, 25, 28, 31, 35, 39]
    """
    if callable(every):
        return lambda step: bool(every(step))
    if isinstance(every, str):
        if every != "log":
            raise ValueError(f'every is {every!r}; give a number, steps, a function, or "log"')
        return _is_log_step
    if isinstance(every, Iterable):
        steps = frozenset(operator.index(step) for step in every)
        return lambda step: step in steps
    try:
        period = operator.index(every)
    except TypeError:
        raise TypeError(
            f'every must be a whole number, steps, a function of the step, or "log", not {every!r}'
        ) from None
    if isinstance(every, bool) or period < 1:
        raise ValueError(f"every must be at least 1, not {every!r}")
    return lambda step: step % period == 0


def _is_log_step(step: int) -> bool:
    """Whether a power of 10 ** (1 / 20) lies in (step, step + 1]; it depends on nothing else."""
    if step == 0:
        return True
    low, high = np.log10([step, step + 1]) * _PER_DECADE
    return bool(np.floor(high) > np.floor(low))


def log_steps(last: int, count: int) -> list[int]:
    """About ``count`` steps from 0 to ``last``, each once, spaced nearly logarithmically.

    Training is fast at first and slow later: between two such steps the network changes by about
    as much as between any other two.

    last: the number of the last step. count: how many steps, at most.

    >>> log_steps(1000, 10)
    [0, 1, 4, 9, 21, 45, 99, 215, 464, 1000]
    """
    if last < 0 or count < 2:
        raise ValueError(f"give last >= 0 and count >= 2, not {last} and {count}")
    return sorted({round(step) for step in (np.geomspace(1, last + 1, count) - 1).tolist()})
