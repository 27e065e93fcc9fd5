"""Shared set-up: one torch thread per test process, and no leaks of random state or figures.

Nothing here or in a test depends on how fast or how busy the machine is, or on its free memory.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from splinecam._util import options
from splinecam.engine import plan

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)
gc.disable()  # until all tests are collected: what is imported stays

# How much memory a partition may take by default is the same on every machine, busy or not.
_FILES = tempfile.TemporaryDirectory(prefix="splinecam-tests-")
plan._MEMINFO = Path(_FILES.name) / "meminfo"
plan._MEMINFO.write_text(f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n")

settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("brief", settings.get_profile("default"), max_examples=20)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_unconfigure() -> None:
    """At the very end."""
    _FILES.cleanup()


_SLOW = {"browser"}  # folders


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow some folders, and all but few cases of each test that is marked ``few``.

    The cases that stay lie on a diagonal of those that the parameters span, and begin anywhere, so
    that tests with the same parameters have different ones.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _SLOW.intersection(item.path.parts):
            item.add_marker("slow")
        if item.get_closest_marker("few") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in cases.items():
        marker = group[0].get_closest_marker("few")
        count = len(group) if marker is None else marker.args[0]
        if count < len(group):
            step, start = len(group) // count + 1, zlib.crc32(name.encode())
            kept = {(start + i * step) % len(group) for i in range(count)}
            for i in set(range(len(group))) - kept:
                group[i].add_marker("slow")


_cuda_is_there = options.cuda_is_there


def pytest_collection_finish() -> None:
    """Tests, and the fixtures of whole modules, compare with numbers on the CPU.

    The collector of garbage no longer walks through all that is imported by now: it took a tenth of
    the time of the tests.
    """
    options.cuda_is_there = lambda: False
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 10, 10)
    gc.enable()


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
