"""Sweeps on a Dask cluster and on a Ray cluster, each with two processes of its own."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import splinecam as sc
from parallel_cases import domains, kill_once, network, same_partitions

joblib = pytest.importorskip("joblib")

pytestmark = pytest.mark.slow


@contextmanager
def dask() -> Iterator[None]:
    distributed = pytest.importorskip("distributed")
    config = pytest.importorskip("dask").config
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "memory_limit": 0}
    limits = {"connect": "300s", "tcp": "300s"}  # a busy machine is given time
    with (
        config.set({"distributed.comm.timeouts": limits}),
        distributed.LocalCluster(dashboard_address=None, silence_logs=50, **options) as made,
        distributed.Client(made),
        joblib.parallel_config(backend="dask"),
    ):
        yield


@contextmanager
def ray() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    limits = {"worker_register_timeout_seconds": 600, "memory_monitor_refresh_ms": 0}
    quiet: Any = {"include_dashboard": False, "log_to_driver": False, "logging_level": 50}
    ray.init(num_cpus=2, _system_config=limits, **quiet)
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_config(backend="ray"):
        yield
    with warnings.catch_warnings():  # Ray does not wait for the processes that it ends
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
        gc.collect()


@pytest.fixture(scope="module", autouse=True, params=[dask, ray])
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Two workers, which are the ones that joblib uses."""
    with request.param():
        yield


def test_the_same_partitions_come_from_a_cluster() -> None:
    model, places = network(), domains()
    there = sc.sweep(model, places)
    assert len(there) == len(places)
    same_partitions(there, sc.sweep(model, places, n_jobs=1))


def test_the_domains_of_a_killed_worker_are_done_again(tmp_path: Path) -> None:
    model, places = network(), domains()
    mark = tmp_path / "killed"
    kill = kill_once(mark, places)
    found = list(sc.sweep(model, places, reduce=kill, stream=True, order=False, chunk=3))
    assert mark.exists()
    assert sorted(number for number, _ in found) == list(range(len(places)))
    alone = sc.sweep(model, places, reduce=len, n_jobs=1)
    assert [dict(found)[i] for i in range(len(places))] == alone


def test_a_stream_may_be_left_and_the_cluster_used_again() -> None:
    model, places = network(), domains()
    stream = sc.sweep(model, places, stream=True, chunk=1)
    assert len(next(stream)) == len(sc.partition(model, places[0], n_jobs=1))
    stream.close()
    assert len(sc.sweep(model, places[:3], reduce=len)) == 3


def test_an_error_on_a_cluster_names_the_domain() -> None:
    with pytest.raises(sc.LimitError, match=r"domains\[\d+\]: .*max_regions=2"):
        sc.sweep(network(), domains(), max_regions=2)
