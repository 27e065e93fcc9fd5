"""Checks and settings that several test modules share."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam
from splinecam import Partition
from splinecam.arrangement import refine as breakpoints
from splinecam.engine import plan
from splinecam.geometry.domain import Domain
from splinecam.testing import assert_same_cells, assert_valid, exact_partition

ATOL = 1e-9
PRECISION = 1e-12  # of coordinates, relative to the domain


def assert_exact(model: nn.Module, domain: Domain) -> None:
    """The fast partition is valid, leaves nothing open and has the oracle's cells."""
    part = splinecam.partition(model, domain, device="cpu", progress=False)
    assert not part.unresolved
    assert_same_cells(part, exact_partition(model, domain), atol=ATOL)
    assert_valid(part)


def assert_same_partition(part: Partition, other: Partition) -> None:
    """Raise unless both have the same regions, edges, vertices, values and provenance."""
    for rows in (_cells, _edges, _vertices):
        mine, theirs = rows(part), rows(other)
        assert mine.shape == theirs.shape, rows.__name__
        distance, place = torch.cdist(mine, theirs, p=torch.inf).min(1)
        assert torch.unique(place).shape == place.shape, rows.__name__
        assert float(distance.max()) <= PRECISION * part.domain.diameter, rows.__name__
    assert not part.unresolved
    assert_valid(part)


def _cells(part: Partition) -> Tensor:
    return torch.cat([part.centroids, part.areas[:, None]], 1)


def _edges(part: Partition) -> Tensor:
    provenance = torch.stack([part.mesh.edge_layer, part.mesh.edge_unit], 1)
    return torch.cat([part.vertices[part.mesh.edges].mean(1), provenance.double()], 1)


def _vertices(part: Partition) -> Tensor:
    return torch.cat([part.vertices, part.mesh.vertex_layer[:, None].double(), part.values], 1)


def follow_lines(monkeypatch: pytest.MonkeyPatch, narrow: float = float("inf")) -> None:
    """Find the values at new vertices along their lines, however few there are.

    narrow: columns up to which running sums are tried.
    """
    monkeypatch.setattr(breakpoints, "FEWEST", 0)
    for name in ("TENSORS", "KERNEL", "DENSE"):
        costs = getattr(plan, name)._replace(point=float("inf"), narrow=narrow)
        monkeypatch.setattr(plan, name, costs)
