"""One large domain over workers: its parts are joined to the same partition."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

import splinecam as sc
from checks import assert_same_partition

joblib = pytest.importorskip("joblib")


def mlp(*widths: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [module for a, b in pairwise(widths[:-1]) for module in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).double()


@pytest.mark.slow
def test_processes_give_the_same_partition() -> None:
    model, domain = mlp(2, 40, 30, 20, 2), sc.Domain.box(-2, 2)
    part = sc.partition(model, domain, device="cpu", n_jobs=2, names=["a", "b"], progress=False)
    assert part.model is model
    assert part.names == ("a", "b")
    assert_same_partition(part, sc.partition(model, domain, device="cpu", progress=False))


def test_the_same_number_of_processes_gives_the_same_bits() -> None:
    model, domain = mlp(2, 40, 30, 2), sc.Domain.box(-2, 2)
    once, again = (sc.partition(model, domain, device="cpu", n_jobs=2) for _ in range(2))
    assert torch.equal(once.vertices, again.vertices)
    assert torch.equal(once.values, again.values)


@pytest.mark.slow
def test_a_wide_first_layer_is_divided_among_workers() -> None:
    model, domain = mlp(2, 650, 1), sc.Domain.box(-2, 2)
    whole = sc.partition(model, domain, device="cpu", progress=False)
    assert len(whole) > 1 << 16
    with joblib.parallel_config(backend="threading", n_jobs=2):
        part = sc.partition(model, domain, device="cpu", progress=False)
    assert len(part) == len(whole)
    for mine, theirs in (
        (part.mesh.edge_unit, whole.mesh.edge_unit),
        (part.mesh.vertex_layer, whole.mesh.vertex_layer),
    ):
        assert torch.equal(torch.bincount(mine + 1), torch.bincount(theirs + 1))
    areas = [torch.sort(each.areas).values for each in (part, whole)]
    assert torch.allclose(*areas, rtol=0, atol=1e-12)
    assert part.validate(samples=100).ok


def test_a_small_partition_needs_no_worker() -> None:
    model, domain = mlp(2, 8, 1), sc.Domain.box(-2, 2)
    part = sc.partition(model, domain, device="cpu", n_jobs=2, progress=False)
    whole = sc.partition(model, domain, device="cpu", progress=False)
    assert torch.equal(part.vertices, whole.vertices)


def test_the_limit_of_regions_holds_for_all_workers_together() -> None:
    model, domain = mlp(2, 40, 30, 2), sc.Domain.box(-2, 2)
    count = len(sc.partition(model, domain, device="cpu", progress=False))
    given = {"device": "cpu", "n_jobs": 2, "progress": False}
    assert len(sc.partition(model, domain, max_regions=count, **given)) == count
    with pytest.raises(sc.LimitError, match=f"max_regions={count - 1:,}"):
        sc.partition(model, domain, max_regions=count - 1, **given)


def test_other_kinds_of_partitions_take_no_workers() -> None:
    segment = sc.Domain.segment(torch.zeros(2), torch.ones(2))
    with pytest.raises(TypeError, match=r"along\(\) got an unexpected keyword argument 'n_jobs'"):
        sc.along(mlp(2, 4, 1), segment, n_jobs=2)
