"""Shared set-up of the paper's tests, which are left out if ``splinecam_paper`` is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

collect_ignore_glob = [] if find_spec("splinecam_paper") else ["*"]


@pytest.fixture(autouse=True)
def _same_conditions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts from the same random state, on the CPU, and leaves no figures open."""
    monkeypatch.setattr("splinecam._util.options.cuda_is_there", lambda: False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
