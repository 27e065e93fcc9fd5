"""Time sweeps that are spread over workers, beside one process on one thread.

Run ``python benchmarks/workers.py``, or ``--jobs 16 --only acas --backend dask``. Without the
folder of trained networks a random network of the same shape stands for ACAS Xu. What the columns
mean is described in benchmarks/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import joblib
import networks
import torch
from common import Table, in_turns, machine, options, seconds
from segments import BOX, acas
from torch import nn

import splinecam as sc

SIDE = {"acas": 0.5, "cnn": 2.0}
COUNT = {"acas": 500, "cnn": 90}

TABLE = Table(
    {
        "workload": "<10",
        "domains": ">9,",
        "regions": ">12,",
        "one": ">9.2f",
        "first": ">9.2f",
        "workers": ">9.2f",
        "ratio": ">7.2f",
        "numbers": ">9.2f",
        "number ratio": ">14.2f",
        "overhead": ">10.3f",
    }
)


def network(name: str) -> nn.Module:
    """ACAS Xu, or a random CNN for images of 28 x 28 pixels."""
    return acas() if name == "acas" else networks.strided()


def squares(name: str, count: int) -> list[sc.Domain]:
    """Squares around random inputs, each in a plane of its own."""
    generator = torch.Generator().manual_seed(0)
    if name == "acas":
        low, high = torch.tensor(BOX, dtype=torch.float64)
        centers = low + (high - low) * torch.rand(count, 5, generator=generator)
    else:
        centers = torch.rand(count, 1, 28, 28, generator=generator)
    return [sc.Domain.around(x, side=SIDE[name], seed=i) for i, x in enumerate(centers)]


def measure(name: str, count: int, jobs: int | None, repeat: int) -> dict[str, Any]:
    """One process on one thread, and workers: with whole partitions, and with numbers alone.

    overhead: of a call for so little that nothing is computed.
    """
    model, domains = network(name), squares(name, count)
    few = squares(name, 2)
    quiet = {"device": "cpu", "progress": False}
    here = partial(sc.sweep, model, n_jobs=1, **quiet)
    there = partial(sc.sweep, model, n_jobs=jobs, **quiet)
    cpu = torch.device("cpu")
    regions = sum(here(domains, reduce=len))
    first = seconds(lambda: there(domains, reduce=len), cpu)  # the workers start
    works: list[Callable[[], object]] = [
        partial(here, domains),
        partial(there, domains),
        partial(here, domains, reduce=len),
        partial(there, domains, reduce=len),
    ]
    one, many, one_number, many_numbers = (time.best for time in in_turns(works, repeat, cpu))
    little = [partial(here, few, reduce=len), partial(there, few, reduce=len)]
    alone, spread = (time.best for time in in_turns(little, repeat, cpu))
    return {
        "workload": name,
        "domains": count,
        "regions": regions,
        "one": one,
        "first": first,
        "workers": many,
        "ratio": one / many,
        "numbers": many_numbers,
        "number ratio": one_number / many_numbers,
        "overhead": spread - alone,
    }


@contextmanager
def engine(backend: str, jobs: int) -> Iterator[int | None]:
    """The workers of a backend, and what to give as n_jobs."""
    if backend == "loky":
        yield jobs
    elif backend == "dask":
        from distributed import Client, LocalCluster

        options = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        dask = joblib.parallel_config
        with LocalCluster(**options) as cluster, Client(cluster), dask(backend="dask"):
            yield None
    else:
        import ray
        from ray.util.joblib import register_ray

        ray.init(num_cpus=jobs, include_dashboard=False)
        register_ray()
        with joblib.parallel_config(backend="ray"):
            yield None
        ray.shutdown()


def main() -> None:
    """Print the table."""
    parser = options(__doc__, COUNT)
    parser.add_argument("--count", type=int, help="domains, if not as many as the table has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="workers (all cores)")
    parser.add_argument("--backend", choices=("loky", "dask", "ray"), default="loky")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    where = f"{settings.jobs} workers by {settings.backend}"
    print(f"{machine(torch.device('cpu'))}, {where}, best of {settings.repeat}, seconds\n")
    print(TABLE.heading())
    with engine(settings.backend, settings.jobs) as jobs:
        for name, count in COUNT.items():
            if not settings.only or name in settings.only:
                row = measure(name, settings.count or count, jobs, settings.repeat)
                print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
