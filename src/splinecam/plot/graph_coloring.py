"""Random numbers for the nodes of a graph such that neighbours differ."""

from __future__ import annotations

import numpy as np

from splinecam.plot.arrays import Ints

__all__ = ["color_graph"]

_COLORS = 14  # to choose from at first; more where the neighbours of a node have them all


def color_graph(count: int, pairs: Ints, seed: int = 0) -> Ints:
    """Random colours 0, 1, ... of nodes, (count,), such that the two of each pair (N, 2) differ.

    Pairs with -1 are ignored. In each round those nodes choose a colour that come before all of
    their neighbours without one: nodes with many neighbours first, then in random order.

    >>> a, b, c = color_graph(3, np.array([[0, 1], [1, 2], [2, 0], [-1, 0]]))
    >>> len({int(a), int(b), int(c)})
    3
    """
    random = np.random.default_rng(seed)
    pairs = pairs[(pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])]
    degree = np.bincount(pairs.ravel(), minlength=count)
    turn = np.empty(count, np.int64)
    turn[np.lexsort((random.random(count), -degree))] = np.arange(count)
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
            known = pairs[chosen[:, a]]
            taken[known[:, b], color[known[:, a]]] = True
        pairs = pairs[~chosen.any(1)]
        open_ = open_[waits[open_]]
    return color
