"""Shared set-up: one torch thread per test process, and no leaks of random state or figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from splinecam import options

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


_cuda_is_there = options.cuda_is_there


def pytest_collection_finish() -> None:
    """Tests, and the fixtures of whole modules, compare with numbers on the CPU."""
    options.cuda_is_there = lambda: False


@pytest.fixture(autouse=True)
def _cuda_where_marked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked ``cuda`` use the GPU if there is one."""
    if request.node.get_closest_marker("cuda") is not None:
        monkeypatch.setattr(options, "cuda_is_there", _cuda_is_there)


@pytest.fixture(autouse=True)
def _same_seed() -> Iterator[None]:
    """Every test starts from the same random state and leaves the caller's as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Figures that a test leaves open are closed; matplotlib warns of too many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
