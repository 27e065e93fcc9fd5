"""Partitions made by other threads and processes: what joblib, Dask, Ray and Spark need."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import cloudpickle
import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.network.capture.models import EXCLUSIVE

BOX = sc.Domain.box(-1, 1)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def regions_of_a_network() -> Callable[[], int]:
    """A function that names the package, as a user writes it in a notebook."""

    def count() -> int:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        return len(sc.partition(model, sc.Domain.box(-1, 1), device="cpu", progress=False))

    return count


def test_a_function_that_names_the_package_is_pickled_by_value() -> None:
    count = regions_of_a_network()
    assert type(sc) is ModuleType
    assert pickle.loads(cloudpickle.dumps(count))() == count()


@pytest.mark.slow
def test_a_pickled_function_runs_in_a_fresh_process() -> None:
    count = regions_of_a_network()
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)())"
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        content = cloudpickle.dumps(count)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    result = subprocess.run(
        [sys.executable, "-c", code], input=content, capture_output=True, check=True
    )
    assert int(result.stdout) == count()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["models of their own", "one model"])
def test_partitions_from_several_threads(shared: bool) -> None:
    models = [network(0 if shared else seed) for seed in range(16)]
    if shared:
        models = models[:1] * 16

    def count(model: nn.Module) -> int:
        part = sc.partition(model, BOX, device="cpu", progress=False)
        assert part.validate().ok
        return len(part)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(count, models))
    assert found == [count(model) for model in models]


def test_a_model_is_not_called_while_another_is_captured() -> None:
    """torch.export replaces the call of every module of the process."""

    locked: list[bool] = []  # not of the model, which may be copied

    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                locked.append(EXCLUSIVE._is_owned())  # type: ignore[attr-defined]
            return self.linear(x).relu()

    model = Watched()
    assert sc.partition(model, BOX, device="cpu", progress=False).validate().ok
    assert locked
    assert all(locked)
