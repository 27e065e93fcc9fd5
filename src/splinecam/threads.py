"""Threads for compiled loops: each goes on with what is in the cache of its own core."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch

__all__ = ["number_of_threads", "share"]


def number_of_threads() -> int:
    """How many threads there are: as many as tensor operations have."""
    return torch.get_num_threads()


def share(work: Callable[[int, int, int], None], count: int, step: int) -> None:
    """Call work(thread, begin, end) for parts of ``count``; whoever is free takes the next one."""
    starts = iter(range(0, count, step))

    def take_part(thread: int) -> None:
        with torch.inference_mode():  # which each thread is in or not
            for start in starts:
                work(thread, start, min(start + step, count))

    threads = number_of_threads()
    if min(threads * step, count) <= step:
        take_part(0)
        return
    pool = _pool(threads)
    for done in [pool.submit(take_part, thread) for thread in range(threads)]:
        done.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads in which a tensor operation uses no others."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="splinecam")
    ready = Barrier(threads)

    def begin() -> None:
        torch.set_num_threads(1)
        ready.wait()

    for begun in [pool.submit(begin) for _ in range(threads)]:
        begun.result()
    torch.set_num_threads(threads)  # what threads have that others begin from now on
    return pool


if hasattr(os, "register_at_fork"):  # there are no threads in a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
