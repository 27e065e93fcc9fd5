"""The innermost loops of the evaluation in machine code: on a CPU, where numba is installed.

Tensor operations pass over the same numbers several times, and find room for each result; one loop
does it in one pass. Nothing else depends on it: without numba everything works, only slower.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

__all__ = ["Loops", "loops_for"]

_log = logging.getLogger("splinecam")

_PAYS = 1 << 21  # numbers of a stage from which the loops pay for being loaded
_FEWEST = 256  # rows for which another thread pays


class Loops:
    """The loops, and the threads that they run in."""

    def __init__(
        self, pool: ThreadPoolExecutor, look: Callable[..., Any], fill: Callable[..., Any]
    ) -> None:
        self._look, self._fill = look, fill
        self._pool, self._threads = pool, torch.get_num_threads()

    def look(self, z: Tensor, least: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, bool]:
        """The range (n,) of values z (B, n), and whether any is within ``least`` (n,) of zero.

        Where they are positive is put in words, (B, W).
        """
        low, high = torch.empty((2, z.shape[1]), dtype=z.dtype)
        near = self._look(*[x.numpy() for x in (z, least, low, high, positive)])
        return low, high, near

    def fill(
        self,
        table: Tensor,
        ends: tuple[Tensor, Tensor, Tensor],
        kinks: tuple[Tensor, Tensor, Tensor],
        columns: Tensor,
        out: Tensor,
        least: Tensor | None = None,
        positive: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, bool]:
        """Rows (B, m) between rows p, q of a table at t, (B,) each, less what kinks take off.

        kinks: offsets (B + 1,) into the units and their weights; columns (n, m). With ``least`` and
        ``positive`` it looks at the rows as well.
        """
        looks = least is not None and positive is not None
        if least is None or positive is None:
            least, positive = out[:0, 0], kinks[1][:0, None]
        extremes = torch.empty((2, self._threads, out.shape[1]), dtype=out.dtype)
        given = (table, *ends, *kinks, columns, out, least, extremes[0], extremes[1], positive)
        arrays = [x.numpy() for x in given]
        step = max(_FEWEST, -(-out.shape[0] // self._threads))
        parts = [
            (looks, number, start, min(start + step, out.shape[0]))
            for number, start in enumerate(range(0, out.shape[0], step))
        ]
        others = [self._pool.submit(self._fill, *part, *arrays) for part in parts[1:]]
        near = [self._fill(*parts[0], *arrays), *[other.result() for other in others]]
        low, high = extremes[:, : len(parts)]
        return low.amin(0), high.amax(0), any(near)


@contextmanager
def loops_for(device: torch.device, numbers: int) -> Iterator[Loops | None]:
    """The loops, if they can be had and are worth it for a stage with so many numbers."""
    code = _machine_code() if device.type == "cpu" and numbers >= _PAYS else None
    if code is None:
        yield None
        return
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        yield Loops(pool, *code)


@cache
def _machine_code() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The compiled loops; None where there is no numba, or one that does not work here."""
    if find_spec("numba") is None:
        return None
    try:
        from splinecam import loops
    except (ImportError, RuntimeError) as reason:  # too old, or no place to keep what it compiles
        _log.warning("numba is installed but cannot be used, which costs time only: %s", reason)
        return None
    return loops.look, loops.fill
