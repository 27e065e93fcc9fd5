"""Engines that run tasks elsewhere: joblib with its own processes or Dask, and Ray."""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from splinecam._util.text import optional

Call = tuple[Any, ...]
"""A function and its arguments."""

_AHEAD = 2  # tasks per worker that wait at the engine, so that no worker waits for one


@dataclass(frozen=True, eq=False)
class Engine:
    """Something that runs calls elsewhere.

    workers: how many calls run at a time. neighbours: how many workers share a machine. results:
    runs calls and yields their results as they are done, until there are no more calls. losses: the
    errors that ``results`` raises if a worker is lost. share: sends a large argument of many calls
    once, and returns what stands for it. local: whether workers are processes on this machine.
    inside: whether they are threads of this process. threads: of each worker, None for as many as
    the engine gives it.
    """

    workers: int
    neighbours: int
    results: Callable[[Iterator[Call]], Generator[Any, None, None]]
    losses: Callable[[], tuple[type[BaseException], ...]]
    share: Callable[[Any], Any] = lambda block: block
    local: bool = False
    inside: bool = False
    threads: int | None = None


def engine_for(n_jobs: int | None) -> Engine | None:
    """The engine that joblib is configured for; None to compute in this process.

    n_jobs: as in scikit-learn. None is 1 unless ``joblib.parallel_config`` says something else, 1
    is this process, -1 all cores.
    """
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool)):
        raise TypeError(f"n_jobs must be a whole number or None, not {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: use None or 1 for this process, -1 for all cores")
    if n_jobs == 1 or (n_jobs is None and "joblib" not in sys.modules):
        return None
    joblib = optional("joblib", "Work in other processes", "parallel")
    backend, configured = joblib.parallel.get_active_backend()
    kind = type(backend).__name__
    if kind == "RayBackend":
        return _ray_engine(configured if n_jobs is None else n_jobs, backend)
    workers = joblib.effective_n_jobs(n_jobs)
    if kind == "SequentialBackend" or (workers == 1 and kind != "DaskDistributedBackend"):
        return None
    return _joblib_engine(joblib, n_jobs, workers, backend)


def _joblib_engine(joblib: Any, n_jobs: int | None, workers: int, backend: Any) -> Engine:
    """An engine of joblib: processes, threads, or a Dask cluster."""
    inside = bool(getattr(backend, "supports_sharedmem", False))
    cluster = type(backend).__name__ == "DaskDistributedBackend"
    local = not inside and not cluster
    parallel = joblib.Parallel(
        n_jobs=n_jobs,
        return_as="generator_unordered" if backend.supports_return_generator else "list",
        batch_size=1,
        pre_dispatch=_AHEAD * workers,
        mmap_mode="c",
    )
    threads = getattr(backend, "inner_max_num_threads", None)
    if local and threads is None and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, joblib.cpu_count() // workers)

    def delayed(call: Call) -> Any:
        return joblib.delayed(call[0])(*call[1:])

    def results(calls: Iterator[Call]) -> Generator[Any, None, None]:
        # Unlike a generator, a map may go on after the calls have been empty.
        made = parallel(map(delayed, calls))
        try:
            # A "yield from" would close the results outside of this function.
            for result in made:  # noqa: UP028
                yield result
        finally:
            if not isinstance(made, list):
                with warnings.catch_warnings():  # joblib warns that tasks were not done
                    warnings.simplefilter("ignore")
                    made.close()

    neighbours = _dask_neighbours(backend) if cluster else workers
    about: Any = {"local": local, "inside": inside, "threads": threads}
    return Engine(workers, neighbours, results, _joblib_losses, **about)


def _joblib_losses() -> tuple[type[BaseException], ...]:
    from concurrent.futures import BrokenExecutor

    distributed = sys.modules.get("distributed")
    if distributed is None:
        return (BrokenExecutor,)
    return BrokenExecutor, distributed.KilledWorker, distributed.CancelledError


def _dask_neighbours(backend: Any) -> int:
    """The most tasks that run on one machine of a Dask cluster at a time."""
    tasks: Counter[str] = Counter()
    for address, cores in backend.client.ncores().items():
        tasks[address.rpartition(":")[0]] += cores
    return max(tasks.values(), default=1)


def _ray_engine(n_jobs: int | None, backend: Any) -> Engine:
    """An engine of a Ray cluster, which runs tasks again if it loses a worker."""
    ray = optional("ray", "A Ray cluster")
    if not ray.is_initialized():
        ray.init()
    options = dict(getattr(backend, "ray_remote_args", None) or {})
    cores = int(ray.cluster_resources().get("CPU", 1))
    machines = max(1, sum(1 for node in ray.nodes() if node["Alive"]))
    workers = max(1, cores if n_jobs is None or n_jobs < 0 else n_jobs)
    errors = ray.exceptions

    def results(calls: Iterator[Call]) -> Generator[Any, None, None]:
        pending: list[Any] = []
        remote: dict[Any, Any] = {}
        try:
            while True:
                for function, *arguments in islice(calls, _AHEAD * workers - len(pending)):
                    if function not in remote:
                        remote[function] = ray.remote(function).options(**options)
                    pending.append(remote[function].remote(*arguments))
                if not pending:
                    return
                (done, *_), pending = ray.wait(pending, num_returns=1)
                try:
                    result = ray.get(done)
                except errors.RayTaskError as error:
                    raise error.cause from None
                yield result
        finally:
            for each in pending:
                with suppress(Exception):
                    ray.cancel(each)

    losses = errors.WorkerCrashedError, errors.ObjectLostError, errors.NodeDiedError
    return Engine(workers, -(-workers // machines), results, lambda: losses, share=ray.put)
