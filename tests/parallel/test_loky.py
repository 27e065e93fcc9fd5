"""Sweeps by processes on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

import splinecam as sc

joblib = pytest.importorskip("joblib")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def domains(count: int = 24) -> list[sc.Domain]:
    generator = torch.Generator().manual_seed(1)
    centers = torch.randn(count, 5, generator=generator)
    return [sc.Domain.around(x, side=2.0, seed=i) for i, x in enumerate(centers)]


def test_the_same_partitions_come_from_workers() -> None:
    model, places = network(), domains()
    here = sc.sweep(model, places)
    there = sc.sweep(model, places, n_jobs=2)
    for a, b in zip(here, there, strict=True):
        assert a.domain is b.domain
        assert torch.equal(a.edges, b.edges)
        assert torch.equal(a.edge_layer, b.edge_layer)
        assert torch.equal(a.edge_unit, b.edge_unit)
        assert torch.equal(a.face_vertices, b.face_vertices)
        assert float((a.vertices - b.vertices).abs().max()) <= 1e-12 * a.domain.diameter
    assert there[0].validate().ok


def test_the_same_chunks_give_the_same_bits() -> None:
    model, places = network(), domains()
    once, again = (sc.sweep(model, places, n_jobs=2, chunk=5) for _ in range(2))
    for a, b in zip(once, again, strict=True):
        assert torch.equal(a.vertices, b.vertices)
        assert torch.equal(a.values, b.values)


def test_a_function_is_applied_in_the_workers() -> None:
    model, places = network(), domains()
    found = sc.sweep(model, places, reduce=lambda part: (len(part), os.getpid()), n_jobs=2)
    assert [count for count, _ in found] == [len(part) for part in sc.sweep(model, places)]
    assert os.getpid() not in {process for _, process in found}


def test_a_stream_in_any_order_has_every_domain_once() -> None:
    model, places = network(), domains()
    stream = sc.sweep(model, iter(places), n_jobs=2, stream=True, order=False, reduce=len, chunk=2)
    found = dict(stream)
    assert [found[i] for i in range(len(places))] == sc.sweep(model, places, reduce=len)


def test_an_error_in_a_worker_names_the_domain() -> None:
    with pytest.raises(sc.LimitError, match=r"domains\[\d+\]: .*max_regions=2"):
        sc.sweep(network(), domains(), n_jobs=2, max_regions=2)


def test_the_domains_of_a_lost_worker_are_done_again(tmp_path: Path) -> None:
    model, places = network(), domains()
    mark = tmp_path / "killed"

    def count_or_die(part: sc.Partition) -> int:
        if not mark.exists() and part.domain.origin[0] > 0:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return len(part)

    found = sc.sweep(model, places, reduce=count_or_die, n_jobs=2, chunk=3)
    assert mark.exists()
    assert found == sc.sweep(model, places, reduce=len)
