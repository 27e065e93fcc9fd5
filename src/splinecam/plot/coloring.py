"""Numbers for cells such that neighbours always differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[np.int64]

__all__ = ["color_apart"]

_COLORS = 14  # to choose from at first; more where neighbours have them all


def color_apart(count: int, pairs: Whole, seed: int = 0) -> Whole:
    """Random numbers 0, 1, ... for cells so that the two of each pair (N, 2) differ, (count,).

    Pairs with -1 say nothing. In each round those cells choose that come before all of their
    neighbours that are still to choose: cells with many neighbours first, then by chance.

    >>> a, b, c = color_apart(3, np.array([[0, 1], [1, 2], [2, 0], [-1, 0]]))
    >>> len({int(a), int(b), int(c)})
    3
    """
    random = np.random.default_rng(seed)
    pairs = pairs[(pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])]
    turn = np.empty(count, np.int64)
    turn[np.lexsort((random.random(count), -np.bincount(pairs.ravel(), minlength=count)))] = (
        np.arange(count)
    )
    color = np.full(count, -1)
    taken = np.zeros((count, _COLORS), bool)
    open_ = np.arange(count)
    while len(open_):
        later = np.where(turn[pairs[:, 0]] > turn[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
        waits = np.zeros(count, bool)
        waits[later] = True
        now = open_[~waits[open_]]
        if taken[now].all(1).any():
            taken = np.concatenate([taken, np.zeros_like(taken)], 1)
        chance = random.random((len(now), taken.shape[1]), np.float32)
        color[now] = np.where(taken[now], -1, chance).argmax(1)
        chosen = color[pairs] >= 0
        for a, b in ((0, 1), (1, 0)):
            told = pairs[chosen[:, a]]
            taken[told[:, b], color[told[:, a]]] = True
        pairs = pairs[~chosen.any(1)]
        open_ = open_[waits[open_]]
    return color
