"""Threads for compiled loops: each goes on with what is in the cache of its own core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier, local

import torch

__all__ = ["number_of_threads", "share", "without_helpers"]

_here = local()


def number_of_threads() -> int:
    """How many threads there are: as many as tensor operations have by default."""
    return getattr(_here, "threads", None) or torch.get_num_threads()


@contextmanager
def without_helpers() -> Iterator[None]:
    """Let tensor operations use one thread: others, after their part, would stay busy waiting."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _here.threads = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _here.threads = None


def share(work: Callable[[int, int, int], None], count: int, step: int) -> None:
    """Call work(thread, begin, end) for parts of ``count``; whoever is free takes the next one.

    A tensor operation in ``work`` uses no other threads.
    """
    starts = iter(range(0, count, step))

    def take_part(thread: int) -> None:
        for start in starts:
            work(thread, start, min(start + step, count))

    def join_in(thread: int) -> None:
        with torch.inference_mode(inference):
            take_part(thread)

    inference, threads = torch.is_inference_mode_enabled(), number_of_threads()
    if threads == 1 or count <= step:
        take_part(0)
        return
    helpers = _helpers(threads)
    others = [helpers.submit(join_in, thread) for thread in range(1, threads)]
    with without_helpers():
        take_part(0)
    for other in others:
        if not other.cancel():  # one that has not begun yet is not needed any more
            other.result()


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """The threads beside this one."""
    pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="splinecam")
    ready, default = Barrier(threads), torch.get_num_threads()

    def begin() -> None:
        torch.set_num_threads(1)
        ready.wait()

    begun = [pool.submit(begin) for _ in range(threads - 1)]
    ready.wait()
    for one in begun:
        one.result()
    torch.set_num_threads(default)  # what threads have that others begin from now on
    return pool


if hasattr(os, "register_at_fork"):  # there are no threads in a fork
    os.register_at_fork(after_in_child=_helpers.cache_clear)
