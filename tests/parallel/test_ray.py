"""Sweeps on a Ray cluster."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import splinecam as sc
from parallel_cases import domains, kill_once, network, same_partitions

joblib = pytest.importorskip("joblib")
ray = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two workers, which are the ones that joblib uses."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=50)
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_config(backend="ray"):
        yield
    ray.shutdown()
    with warnings.catch_warnings():  # Ray does not wait for the processes that it ends
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_the_same_partitions_come_from_a_cluster() -> None:
    model, places = network(), domains()
    same_partitions(sc.sweep(model, places), sc.sweep(model, places, n_jobs=1))


def test_the_domains_of_a_killed_worker_are_done_again(tmp_path: Path) -> None:
    model, places = network(), domains()
    mark = tmp_path / "killed"
    kill = kill_once(mark, places)
    found = list(sc.sweep(model, places, reduce=kill, stream=True, order=False, chunk=3))
    assert mark.exists()
    assert sorted(number for number, _ in found) == list(range(len(places)))
    alone = sc.sweep(model, places, reduce=len, n_jobs=1)
    assert [dict(found)[i] for i in range(len(places))] == alone


def test_an_error_on_a_cluster_names_the_domain() -> None:
    with pytest.raises(sc.LimitError, match=r"domains\[\d+\]: .*max_regions=2"):
        sc.sweep(network(), domains(), max_regions=2)
