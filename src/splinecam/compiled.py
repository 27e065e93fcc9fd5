"""The innermost loops of the evaluation in machine code: on a CPU, where numba is installed.

Tensor operations pass over the same numbers several times, and find room for each result; one loop
does it in one pass. Nothing else depends on it: without numba everything works, only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Loops", "loops_for"]

_PAYS = 1 << 21  # numbers of a stage from which the loops pay for being loaded
_WORD = 64


class Loops:
    """The loops, and the threads that they run in."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._look, self._fill = _machine_code()
        self._pool, self._threads = pool, torch.get_num_threads()

    def look(self, z: Tensor, least: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, bool]:
        """The range (n,) of values z (B, n), and whether any is within ``least`` (n,) of zero.

        Where they are positive is put in words, (B, W).
        """
        ends = np.empty((2, z.shape[1]))
        near = self._look(z.numpy(), least.numpy(), ends[0], ends[1], positive.numpy())
        low, high = torch.from_numpy(ends)
        return low, high, near

    def fill(
        self,
        table: Tensor,
        ends: tuple[Tensor, Tensor, Tensor],
        kinks: tuple[Tensor, Tensor, Tensor],
        columns: Tensor,
        out: Tensor,
    ) -> None:
        """Rows (B, m) between rows p, q of a table at t, (B,) each, less what kinks take off.

        kinks: offsets (B + 1,) into the units and their weights; columns (n, m).
        """
        arrays = [x.numpy() for x in (table, *ends, *kinks, columns, out)]
        step = -(-out.shape[0] // self._threads)
        starts = range(0, out.shape[0], max(1, step))
        parts = [
            self._pool.submit(self._fill, start, min(start + step, out.shape[0]), *arrays)
            for start in starts
        ]
        for part in parts:
            part.result()


@contextmanager
def loops_for(device: torch.device, numbers: int) -> Iterator[Loops | None]:
    """The loops, if they can be had and are worth it for a stage with so many numbers."""
    if device.type != "cpu" or numbers < _PAYS or not _installed():
        yield None
        return
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        yield Loops(pool)


@cache
def _installed() -> bool:
    return find_spec("numba") is not None


@cache
def _machine_code() -> tuple[Callable[..., Any], Callable[..., Any]]:
    import numba

    compiled = numba.njit(nogil=True, cache=True)
    return compiled(_look), compiled(_fill)


def _look(z: Any, least: Any, low: Any, high: Any, positive: Any) -> bool:
    count, n = z.shape
    size = np.empty(n)
    for c in range(n):
        low[c] = high[c] = z[0, c]
        size[c] = abs(z[0, c])
    for i in range(count):
        for w in range(positive.shape[1]):
            first = w * _WORD
            bits = np.int64(0)
            if first + _WORD <= n:  # a loop of known length is faster
                for c in range(_WORD):
                    bits |= np.int64(z[i, first + c] > 0) << np.int64(c)
            else:
                for c in range(n - first):
                    bits |= np.int64(z[i, first + c] > 0) << np.int64(c)
            positive[i, w] = bits
        for c in range(n):
            value = z[i, c]
            low[c] = value if value < low[c] else low[c]
            high[c] = value if value > high[c] else high[c]
            size[c] = abs(value) if abs(value) < size[c] else size[c]
    near = False
    for c in range(n):
        near |= size[c] <= least[c]
    return near


def _fill(
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
) -> None:
    m = out.shape[1]
    for i in range(begin, end):
        a, b, s = p[i], q[i], t[i]
        for c in range(m):
            out[i, c] = table[a, c] + s * (table[b, c] - table[a, c])
        for k in range(offsets[i], offsets[i + 1]):
            u, w = unit[k], weight[k]
            for c in range(m):
                out[i, c] -= w * columns[u, c]
