"""The innermost loops of the evaluation, for numba: import this only where it is installed."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["fill", "look"]

_WORD = 64

_compiled = numba.njit(nogil=True, cache=True)


@_compiled
def _see(row: Any, low: Any, high: Any, size: Any, words: Any) -> None:
    """One more row, (n,): its range, its least modulus, and where it is positive, (W,)."""
    n = row.shape[0]
    for w in range(words.shape[0]):
        first = w * _WORD
        bits = np.int64(0)
        if first + _WORD <= n:  # a loop of known length is faster
            for c in range(_WORD):
                bits |= np.int64(row[first + c] > 0) << np.int64(c)
        else:
            for c in range(n - first):
                bits |= np.int64(row[first + c] > 0) << np.int64(c)
        words[w] = bits
    for c in range(n):
        value = row[c]
        low[c] = value if value < low[c] else low[c]
        high[c] = value if value > high[c] else high[c]
        size[c] = abs(value) if abs(value) < size[c] else size[c]


@_compiled
def look(z: Any, least: Any, low: Any, high: Any, positive: Any) -> bool:
    """See all rows (B, n); whether any number is within ``least`` (n,) of zero."""
    low[:], high[:] = np.inf, -np.inf
    size = np.full(z.shape[1], np.inf)
    for i in range(z.shape[0]):
        _see(z[i], low, high, size, positive[i])
    return bool((size <= least).any())


@_compiled
def fill(
    looks: bool,
    number: int,
    begin: int,
    end: int,
    table: Any,
    p: Any,
    q: Any,
    t: Any,
    offsets: Any,
    unit: Any,
    weight: Any,
    columns: Any,
    out: Any,
    least: Any,
    lows: Any,
    highs: Any,
    positive: Any,
) -> bool:
    """Fill the rows from ``begin`` to ``end``, and see each of them while it is at hand."""
    m = out.shape[1]
    low, high, size = lows[number], highs[number], np.full(m, np.inf)
    low[:], high[:] = np.inf, -np.inf
    for i in range(begin, end):
        a, b, s = p[i], q[i], t[i]
        for c in range(m):
            out[i, c] = table[a, c] + s * (table[b, c] - table[a, c])
        for k in range(offsets[i], offsets[i + 1]):
            u, w = unit[k], weight[k]
            for c in range(m):
                out[i, c] -= w * columns[u, c]
        if looks:
            _see(out[i], low, high, size, positive[i])
    return looks and bool((size <= least).any())
