"""What runs tasks elsewhere: joblib with its own processes or Dask, and Ray."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from splinecam._util.text import optional

Call = tuple[Any, ...]
"""A function and its arguments."""

_AHEAD = 2  # tasks per worker that wait at the engine, so that no worker waits for one


class Engine(Protocol):
    """Something that runs calls elsewhere.

    workers: how many calls run at a time. neighbours: how many workers share a machine. local:
    whether they are on this machine, in processes of their own. inside: whether they are threads of
    this process. threads: of each worker, None for as many as the engine gives it.
    """

    workers: int
    neighbours: int
    local: bool
    inside: bool
    threads: int | None

    def share(self, block: Any) -> Any:
        """A large argument of many calls, in the form in which they get it."""

    def results(self, calls: Iterator[Call]) -> Generator[Any, None, None]:
        """Run the calls and yield their results as they are done.

        It ends when there are no more calls, and raises an error of ``losses`` if results are lost.
        """

    def losses(self) -> tuple[type[BaseException], ...]:
        """The errors that say that a worker was lost."""


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
        return _Ray.of(configured if n_jobs is None else n_jobs, backend)
    workers = joblib.effective_n_jobs(n_jobs)
    if kind == "SequentialBackend" or (workers == 1 and kind != "DaskDistributedBackend"):
        return None
    return _Joblib.of(joblib, n_jobs, workers, backend)


@dataclass
class _Joblib:
    """An engine of joblib: processes, threads, or a Dask cluster."""

    workers: int
    neighbours: int
    local: bool
    inside: bool
    threads: int | None
    parallel: Callable[[Iterator[Any]], Any]
    delayed: Callable[..., Any]

    @classmethod
    def of(cls, joblib: Any, n_jobs: int | None, workers: int, backend: Any) -> _Joblib:
        inside = bool(getattr(backend, "supports_sharedmem", False))
        cluster = type(backend).__name__ == "DaskDistributedBackend"
        local = not inside and not cluster
        streams = bool(backend.supports_return_generator)
        parallel = joblib.Parallel(
            n_jobs=n_jobs,
            return_as="generator_unordered" if streams else "list",
            batch_size=1,
            pre_dispatch=_AHEAD * workers,
            mmap_mode="c",
        )
        threads = getattr(backend, "inner_max_num_threads", None)
        if local and threads is None and "OMP_NUM_THREADS" not in os.environ:
            threads = max(1, joblib.cpu_count() // workers)
        neighbours = _dask_neighbours(backend) if cluster else workers
        return cls(workers, neighbours, local, inside, threads, parallel, joblib.delayed)

    def share(self, block: Any) -> Any:
        return block

    def results(self, calls: Iterator[Call]) -> Generator[Any, None, None]:
        made = self.parallel(_Delayed(calls, self.delayed))
        try:
            # A "yield from" would close it outside of this function.
            for result in made:  # noqa: UP028
                yield result
        finally:
            if not isinstance(made, list):
                with warnings.catch_warnings():  # it warns that tasks were not done
                    warnings.simplefilter("ignore")
                    made.close()

    def losses(self) -> tuple[type[BaseException], ...]:
        from concurrent.futures import BrokenExecutor

        found: list[type[BaseException]] = [BrokenExecutor]
        if "distributed" in sys.modules:
            distributed = sys.modules["distributed"]
            found += [distributed.KilledWorker, distributed.CancelledError]
        return tuple(found)


class _Delayed:
    """Calls as joblib takes them; unlike a generator, it may go on after it has been empty."""

    def __init__(self, calls: Iterator[Call], delayed: Callable[..., Any]) -> None:
        self._calls, self._delayed = calls, delayed

    def __iter__(self) -> _Delayed:
        return self

    def __next__(self) -> Any:
        function, *arguments = next(self._calls)
        return self._delayed(function)(*arguments)


def _dask_neighbours(backend: Any) -> int:
    """The most tasks that run on one machine of a Dask cluster at a time."""
    tasks: dict[str, int] = {}
    for address, cores in backend.client.ncores().items():
        host = address.rpartition(":")[0]
        tasks[host] = tasks.get(host, 0) + cores
    return max(tasks.values(), default=1)


@dataclass
class _Ray:
    """A Ray cluster: tasks in its worker processes, which Ray runs again if it loses one."""

    workers: int
    neighbours: int
    ray: Any
    options: dict[str, Any]
    local: bool = False
    inside: bool = False
    threads: int | None = None

    @classmethod
    def of(cls, n_jobs: int | None, backend: Any) -> _Ray:
        ray = optional("ray", "A Ray cluster")
        if not ray.is_initialized():
            ray.init()
        options = dict(getattr(backend, "ray_remote_args", None) or {})
        cores = int(ray.cluster_resources().get("CPU", 1))
        machines = max(1, sum(1 for node in ray.nodes() if node["Alive"]))
        workers = max(1, cores if n_jobs is None or n_jobs < 0 else n_jobs)
        return cls(workers, -(-workers // machines), ray, options)

    def share(self, block: Any) -> Any:
        return self.ray.put(block)

    def results(self, calls: Iterator[Call]) -> Generator[Any, None, None]:
        pending: list[Any] = []
        remote: dict[Any, Any] = {}
        try:
            while True:
                while len(pending) < _AHEAD * self.workers:
                    call = next(calls, None)
                    if call is None:
                        break
                    function, *arguments = call
                    if function not in remote:
                        remote[function] = self.ray.remote(function).options(**self.options)
                    pending.append(remote[function].remote(*arguments))
                if not pending:
                    return
                (done, *_), pending = self.ray.wait(pending, num_returns=1)
                try:
                    result = self.ray.get(done)
                except self.ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                yield result
        finally:
            for each in pending:
                with suppress(Exception):
                    self.ray.cancel(each)

    def losses(self) -> tuple[type[BaseException], ...]:
        errors = self.ray.exceptions
        return (errors.WorkerCrashedError, errors.ObjectLostError, errors.NodeDiedError)
