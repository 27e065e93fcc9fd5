"""What tests of all engines do: a small network, domains, and a worker that is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import splinecam as sc


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def domains(count: int = 24) -> list[sc.Domain]:
    generator = torch.Generator().manual_seed(1)
    centers = torch.randn(count, 5, generator=generator)
    return [sc.Domain.around(x, side=2.0, seed=i) for i, x in enumerate(centers)]


def same_partitions(one: list[sc.Partition], other: list[sc.Partition]) -> None:
    """Regions and provenance are equal, and coordinates to 1e-12 of the domain."""
    for a, b in zip(one, other, strict=True):
        assert a.domain is b.domain
        for name in ("edges", "edge_layer", "edge_unit", "vertex_layer", "corners"):
            assert torch.equal(getattr(a.mesh, name), getattr(b.mesh, name)), name
        assert float((a.vertices - b.vertices).abs().max()) <= 1e-12 * a.domain.diameter


def kill_once(mark: Path, places: list[sc.Domain]) -> Callable[[sc.Partition], int]:
    """A function that counts regions and kills its worker at the middle domain, once.

    It is defined in here so that it is pickled with its code: workers do not have this module.
    """
    where = places[len(places) // 2].origin.tolist()

    def count(part: sc.Partition) -> int:
        if not mark.exists() and part.domain.origin.tolist() == where:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return len(part)

    return count
