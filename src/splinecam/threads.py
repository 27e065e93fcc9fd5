"""Threads for compiled loops: each goes on with what is in the cache of its own core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from threading import Barrier, Lock, Thread, local

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
    parts = -(-count // step)
    busy = min(threads, -(-parts // 2))  # whoever has only one part costs more than it brings
    if busy <= 1:
        take_part(0)
        return
    tasks = [_Task(join_in, thread) for thread in range(1, busy)]
    for helper, task in zip(_helpers(threads - 1), tasks, strict=False):
        helper.put(task)
    try:
        with without_helpers():
            take_part(0)
    finally:
        errors = [task.end() for task in tasks]
    for error in errors:
        if error is not None:
            raise error


class _Task:
    """Something that a helper does, unless it comes too late."""

    def __init__(self, work: Callable[[int], None], thread: int) -> None:
        self._work, self._thread = work, thread
        self._begun, self._running = Lock(), Lock()
        self._error: BaseException | None = None
        self._running.acquire()

    def begin(self) -> None:
        """Do it, if it has not ended yet."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._work(self._thread)
        except BaseException as error:  # for those who wait for it
            self._error = error
        self._running.release()

    def end(self) -> BaseException | None:
        """Wait for it, or see that it never begins; gives what went wrong."""
        if not self._begun.acquire(blocking=False):
            self._running.acquire()
        return self._error


@cache
def _helpers(number: int) -> list[SimpleQueue[_Task]]:
    """The threads beside this one: what each of them is to do.

    Those of an executor begin later, which loops of a tenth of a millisecond notice.
    """
    default, ready = torch.get_num_threads(), Barrier(number + 1)
    helpers: list[SimpleQueue[_Task]] = [SimpleQueue() for _ in range(number)]
    for tasks in helpers:
        Thread(target=_help, args=(tasks, ready), name="splinecam", daemon=True).start()
    ready.wait()
    torch.set_num_threads(default)  # what threads have that others begin from now on
    return helpers


def _help(tasks: SimpleQueue[_Task], ready: Barrier) -> None:
    torch.set_num_threads(1)
    ready.wait()
    while True:
        tasks.get().begin()


if hasattr(os, "register_at_fork"):  # there are no threads in a fork
    os.register_at_fork(after_in_child=_helpers.cache_clear)
