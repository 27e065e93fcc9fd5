"""Checks and settings that several test modules share."""

from __future__ import annotations

import pytest
from torch import nn

import splinecam
from splinecam.arrangement import breakpoints
from splinecam.engine import plan
from splinecam.geometry.domain import Domain
from splinecam.testing import assert_same_cells, assert_valid, exact_partition

ATOL = 1e-9


def assert_exact(model: nn.Module, domain: Domain) -> None:
    """The fast partition is valid, leaves nothing open and has the oracle's cells."""
    part = splinecam.partition(model, domain, device="cpu", progress=False)
    assert not part.unresolved
    assert_same_cells(part, exact_partition(model, domain), atol=ATOL)
    assert_valid(part)


def follow_lines(monkeypatch: pytest.MonkeyPatch, narrow: float = float("inf")) -> None:
    """Find the values at new vertices along their lines, however few there are.

    narrow: columns up to which running sums are tried.
    """
    monkeypatch.setattr(breakpoints, "FEWEST", 0)
    for name in ("TENSORS", "KERNEL", "DENSE"):
        costs = getattr(plan, name)._replace(point=float("inf"), narrow=narrow)
        monkeypatch.setattr(plan, name, costs)
