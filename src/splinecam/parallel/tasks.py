"""Hand out tasks to the workers of an engine, and take in every result once."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from splinecam.errors import SplineCamError
from splinecam.parallel.engines import Call, Engine
from splinecam.parallel.pickling import Packed, join, save
from splinecam.parallel.workers import Function, Setting, Worker, perform, received

__all__ = ["run_tasks"]

_log = logging.getLogger("splinecam")

_OUTSTANDING = 3  # tasks per worker that are handed out and have no result yet
_LOSSES = 3  # how often in a row workers may be lost without a result
_MEMORY = Path("/dev/shm")  # a folder in memory, where there is one


def run_tasks(
    engine: Engine, function: Function, shared: Packed, tasks: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of each task, as they are done.

    function: called in a worker with the ``Worker`` and the task. shared: what all tasks share,
    which every worker gets once. tasks: they are taken as workers become free, in the thread that
    asks for results, so that slow callers do not pile up results.

    Tasks of a worker that is lost, because it was killed or its machine failed, are done again.
    """
    coming = enumerate(tasks)
    waiting: dict[int, Any] = {}
    queue: deque[int] = deque()
    losses = 0

    def refill() -> None:
        while len(waiting) < _OUTSTANDING * engine.workers:
            number, task = next(coming, (None, None))
            if number is None:
                return
            waiting[number] = task
            queue.append(number)

    with _exchange(engine) as setting:
        block = _shared(engine, shared, setting)
        key = uuid4().hex
        while True:
            refill()
            if not waiting:
                return
            calls = _Calls(block, key, function, queue, waiting, setting)
            results = engine.results(calls)
            try:
                for number, result in results:
                    losses = 0
                    if waiting.pop(number, None) is None:
                        continue
                    value = received(result, setting)
                    refill()
                    yield number, value
            except engine.losses() as error:
                losses += 1
                if losses > _LOSSES:
                    raise SplineCamError(
                        f"Workers were lost {losses} times in a row, without a result in between. "
                        "Often their memory is not enough: use fewer workers, or memory=."
                    ) from error
                _log.warning("a worker was lost, its tasks are done again: %s", error)
                # What the lost worker was doing comes last: it may be the reason.
                queue.extend(waiting.keys() - set(queue))
                block = _shared(engine, shared, setting)
            finally:
                results.close()


class _Calls(Iterator[Call]):
    """The calls for the tasks in a queue, to which tasks are added meanwhile."""

    def __init__(
        self,
        block: Any,
        key: str,
        function: Function,
        queue: deque[int],
        waiting: dict[int, Any],
        setting: Setting,
    ) -> None:
        self._first, self._setting = (perform, block, key, function), setting
        self._queue, self._waiting = queue, waiting

    def __next__(self) -> Call:
        try:
            number = self._queue.popleft()
        except IndexError:
            raise StopIteration from None
        return (*self._first, number, self._waiting[number], self._setting)


def _shared(engine: Engine, shared: Packed, setting: Setting) -> Any:
    """The shared object as workers get it: itself, a file, or a block that the engine carries."""
    if engine.inside:
        return Worker(shared.value, setting)
    parts = shared.parts
    if setting.folder is not None:
        path = Path(setting.folder) / f"{uuid4().hex}.shared"
        save(parts, path)
        return str(path)
    return engine.share(join(parts))


@contextmanager
def _exchange(engine: Engine) -> Iterator[Setting]:
    """The setting of an engine's workers, with a folder if they are on this machine."""
    if not engine.local:
        yield Setting(engine.threads, engine.neighbours)
        return
    parent = os.environ.get("JOBLIB_TEMP_FOLDER")
    if parent is None and os.access(_MEMORY, os.W_OK):
        parent = str(_MEMORY)
    folder = tempfile.mkdtemp(prefix="splinecam-", dir=parent)
    tracker = import_module("joblib.externals.loky.backend.resource_tracker")
    tracker.register(folder, "folder")  # it removes the folder if this process is killed
    try:
        yield Setting(engine.threads, engine.neighbours, folder, os.getpid())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        tracker.unregister(folder, "folder")
