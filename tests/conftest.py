"""Shared set-up: one torch thread per test process, and no leaks of the global random state."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def _on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests compare with numbers on the CPU; those marked ``cuda`` use the GPU if there is one."""
    if request.node.get_closest_marker("cuda") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(autouse=True)
def _same_seed() -> Iterator[None]:
    """Every test starts from the same random state and leaves the caller's as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
