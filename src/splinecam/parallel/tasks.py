"""Hand out tasks to the workers of an engine; the chunks of a sweep take about equal times."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import torch
from torch import nn

from splinecam.engine.batched import run_window
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome
from splinecam.errors import SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.network.capture import capture
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.parallel.engines import Call, Engine
from splinecam.parallel.flat import (
    FlatDomains,
    Packed,
    flat_domains,
    flat_outcomes,
    join,
    outcomes_of,
    save,
)
from splinecam.parallel.workers import Function, Setting, Worker, perform, received

_log = logging.getLogger("splinecam")

_OUTSTANDING = 3  # tasks per worker that are handed out and have no result yet
_LOSSES = 3  # how often in a row workers may be lost without a result
_MEMORY = Path("/dev/shm")  # a folder in memory, where there is one


def run_tasks(
    engine: Engine, function: Function, shared: Packed, tasks: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the result of each task, as they are done.

    Tasks of a lost worker, which was killed or whose machine failed, are done again.

    function: called in a worker with the ``Worker`` and the task. shared: what all tasks share;
    every worker gets it once. tasks: they are taken as workers become free, in the thread that asks
    for results, so that slow callers do not pile up results.
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

    def call(number: int) -> Call:
        return perform, block, key, function, number, waiting[number], setting

    with _exchange(engine) as setting:
        block = _shared(engine, shared, setting)
        key = uuid4().hex
        while True:
            refill()
            if not waiting:
                return
            results = engine.results(_Calls(queue, call))
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
    """A call for each number in a queue, to which numbers are added meanwhile."""

    def __init__(self, queue: deque[int], call: Callable[[int], Call]) -> None:
        self._queue, self._call = queue, call

    def __next__(self) -> Call:
        try:
            return self._call(self._queue.popleft())
        except IndexError:
            raise StopIteration from None


def _shared(engine: Engine, shared: Packed, setting: Setting) -> Any:
    """The shared object as workers get it: itself, a file, or a block that the engine carries."""
    if engine.inside:
        return Worker(shared.value, setting)
    if setting.folder is None:
        return engine.share(join(shared.parts))
    path = Path(setting.folder) / f"{uuid4().hex}.shared"
    save(shared.parts, path)
    return str(path)


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


# Domains of a chunk: of the first chunks, and at most.
_FIRST, _MOST = 8, 1024
_BYTES = 1 << 23  # of the domains of a chunk, at most: tasks are to be light
_GROWTH = 4  # how many times as large a chunk may be as the largest finished one

# Seconds that a chunk is to take: at the end less, so that all workers end at about the same time.
_LONG, _SHORT = 1.0, 0.1
_PER_WORKER = 4  # chunks of the remaining domains for each worker


@dataclass(frozen=True, eq=False)
class Job:
    """What all chunks of a sweep share.

    program: the network on the CPU; None to capture the model in the worker. light: whether a run
    begins on the CPU if the caller leaves the choice of the device. finish: yields the results of
    domains from their outcomes, in the worker; None for the outcomes themselves. smooth: whether
    the network may have smooth functions. window: runs the network over domains.
    """

    program: Program | None
    model: nn.Module | None
    output: Output
    input_shape: tuple[int, ...]
    device: str | torch.device
    light: bool
    memory: int | None
    max_regions: int | None
    finish: Callable[[Iterable[Domain], Iterable[Outcome], Plan], Iterable[Any]] | None = None
    smooth: bool = False
    window: Callable[..., Iterator[Outcome]] = run_window

    def plan(self, worker: Worker) -> Plan:
        """The plan of a worker, which captures the model if there is no program."""
        last, program = worker.device(self.device), self.program
        if program is None:
            assert self.model is not None
            with torch.inference_mode(False):
                how: Any = {"output": self.output, "smooth": self.smooth}
                program = capture(self.model, self.input_shape, **how)
        if self.device != "auto" or not self.light:
            program = program.to(last)
        return Plan.of(program, last, self.memory, share=worker.memory_share)


def run_chunks(
    engine: Engine,
    job: Packed,
    domains: Iterable[Domain],
    *,
    total: int | None = None,
    chunk: int | None = None,
    device: torch.device | None = None,
) -> Iterator[tuple[range, list[Any]]]:
    """Yield the numbers of some domains and their results, as they are done.

    job: a ``Job``. The results are outcomes, or what its ``finish`` makes of them.

    total: how many domains there are, if that is known; chunk: how many a task has, by default as
    many as take about a second; device: where the arrays of outcomes are to be.
    """
    pace, finish = _Pace(engine.workers, total, chunk), job.value.finish
    numbers: dict[int, range] = {}

    def tasks() -> Iterator[tuple[int, FlatDomains]]:
        coming, first, most = iter(domains), 0, _FIRST
        while some := list(islice(coming, min(pace.size(first), most))):
            most = max(1, _BYTES // some[0].basis.nbytes)
            numbers[len(numbers)] = range(first, first + len(some))
            yield first, flat_domains(some)
            first += len(some)

    for number, (seconds, result) in run_tasks(engine, _run_chunk, job, tasks()):
        members = numbers[number]
        pace.measured(len(members), seconds)
        yield members, outcomes_of(result, device) if finish is None else result


def _run_chunk(worker: Worker, task: tuple[int, FlatDomains]) -> tuple[float, Any]:
    """The seconds that a chunk takes, and its results; task: its first number, and its domains."""
    job, (first, flat) = worker.shared, task
    if "plan" not in worker.kept:
        worker.kept["plan"] = job.plan(worker)
    plan = worker.kept["plan"]
    begin = perf_counter()
    domains = flat.domains()
    outcomes = job.window(plan, domains, max_regions=job.max_regions, first=first)
    result: Any
    if job.finish is None:
        result = flat_outcomes(list(outcomes))
    else:
        result = list(job.finish(domains, outcomes, plan))
    return perf_counter() - begin, result


class _Pace:
    """Tells the size of the next chunk from the seconds that others have taken."""

    def __init__(self, workers: int, total: int | None, fixed: int | None) -> None:
        self._workers, self._total, self._fixed = workers, total, fixed
        self._seconds: float | None = None  # for a domain
        self._largest = 0  # the domains of the largest chunk that is done

    def measured(self, count: int, seconds: float) -> None:
        """Take in how long a chunk took."""
        each = seconds / count
        # The largest chunk tells most: a small one has the costs of a call as well.
        if self._seconds is None or count > self._largest:
            self._seconds = each
        else:
            self._seconds += (each - self._seconds) / 4
        self._largest = max(self._largest, count)

    def size(self, first: int) -> int:
        """The number of domains of the chunk that begins with this one."""
        if self._fixed is not None:
            return self._fixed
        rest = None if self._total is None else max(1, self._total - first)
        if self._seconds is None:
            each = _FIRST if rest is None else rest // (_PER_WORKER * self._workers)
            return max(1, min(_FIRST, each))
        goal = _LONG
        if rest is not None:
            alone = rest * self._seconds / (_PER_WORKER * self._workers)
            goal = min(_LONG, max(_SHORT, alone))
        size = int(goal / max(self._seconds, 1e-9))
        size = max(1, min(size, _GROWTH * self._largest, _MOST))
        return size if rest is None else min(size, max(1, -(-rest // self._workers)))
