"""Sweeps with a store: the same partitions, computed once, whatever interrupts them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from store_cases import domains, network

SQUARES = [domain for some in domains(20).values() for domain in some]
MODEL = network()
OPTIONS: dict[str, Any] = {"progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def alone() -> list[sc.Partition]:
    return sc.sweep(MODEL, SQUARES, **OPTIONS)


def same(a: sc.Partition, b: sc.Partition) -> bool:
    """Whether two partitions have the same regions and provenance, and equal maps."""
    topology = ("edges", "edge_layer", "edge_unit", "vertex_layer", "offsets", "corners")
    return (
        all(torch.equal(getattr(a.mesh, name), getattr(b.mesh, name)) for name in topology)
        and torch.allclose(a.vertices, b.vertices, rtol=0, atol=1e-12)
        and torch.allclose(a._maps.weight, b._maps.weight, rtol=1e-9)
        and (a.names, a.layers, a.unresolved) == (b.names, b.layers, b.unresolved)
        and a.domain == b.domain
    )


def test_partitions_come_back_from_a_store(tmp_path: Path, alone: list[sc.Partition]) -> None:
    store = tmp_path / "run"
    for _ in range(2):
        parts = sc.sweep(MODEL, SQUARES, store=store, names=["a", "b", "c"], **OPTIONS)
        assert [part.names for part in parts] == [("a", "b", "c")] * 20
        for part, other in zip(parts, alone, strict=True):
            part.names = None
            assert same(part, other)
    assert parts[3].validate().ok
    assert parts[3].model is MODEL


def test_only_what_is_missing_is_computed(tmp_path: Path, alone: list[sc.Partition]) -> None:
    seen = []

    def regions(part: sc.Partition) -> int:
        seen.append(part.domain)
        return len(part)

    options: dict[str, Any] = {**OPTIONS, "store": tmp_path, "reduce": regions}
    assert sc.sweep(MODEL, SQUARES[:7], **options) == [len(part) for part in alone[:7]]

    def generated() -> Iterator[sc.Domain]:
        yield from SQUARES

    counts = list(sc.sweep(MODEL, generated(), stream=True, **options))
    assert counts == [len(part) for part in alone]
    pairs = list(sc.sweep(MODEL, SQUARES, stream=True, order=False, **options))
    assert sorted(pairs) == list(enumerate(counts))
    assert seen == SQUARES, "each domain once"


def test_what_a_store_is_not_for_is_refused(tmp_path: Path) -> None:
    sc.sweep(MODEL, SQUARES[:3], store=tmp_path, reduce=len, **OPTIONS)
    wrong: dict[str, tuple[Any, Any, Any]] = {
        "a model with other weights": (network(1), SQUARES[:3], len),
        "a model with other layers": (nn.Sequential(MODEL, nn.ReLU()), SQUARES[:3], len),
        "another function": (MODEL, SQUARES[:3], None),
        "other domains: domain 1 differs": (MODEL, [*SQUARES[:1], SQUARES[2]], len),
    }
    for message, (model, some, reduce) in wrong.items():
        match = "other weights" if "layers" in message else message
        with pytest.raises(sc.FileError, match=match):
            sc.sweep(model, some, store=tmp_path, reduce=reduce, **OPTIONS)
    with pytest.raises(TypeError, match=r"along\(\) got an unexpected keyword argument 'store'"):
        sc.along(MODEL, sc.Domain.segments(torch.zeros(1, 4), torch.ones(1, 4)), store=tmp_path)


def test_an_error_names_the_domain_and_keeps_the_others(tmp_path: Path) -> None:
    sc.sweep(MODEL, SQUARES[:4], store=tmp_path, reduce=len, **OPTIONS)
    wide = sc.Domain.around(torch.zeros(4), side=50.0)
    options: dict[str, Any] = {**OPTIONS, "store": tmp_path, "reduce": len}
    with pytest.raises(sc.LimitError, match=r"domains\[6\]: .* exceeds max_regions=40"):
        sc.sweep(MODEL, [*SQUARES[:6], wide], max_regions=40, **options)
    assert len(sc.sweep(MODEL, [*SQUARES[:6], wide], **options)) == 7


def test_unresolved_places_are_kept(tmp_path: Path) -> None:
    # (v + 4 + tiny u) - (v + 4) is tiny where v + 4 > 0, and changes sign at u = 0.
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU()).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 1.0], [7e-15, 1.0]]))
        model[0].bias.fill_(4.0)
        model[2].weight.copy_(torch.tensor([[-1.0, 1.0]]))
        model[2].bias.zero_()
    boxes = [sc.Domain.box((-2, -6), (2, -5)), sc.Domain.box((-2, 5), (2, 6))]
    parts = sc.sweep(model, boxes, **OPTIONS)
    assert parts[1].unresolved
    for _ in range(2):
        again = sc.sweep(model, boxes, store=tmp_path, **OPTIONS)
        assert [part.unresolved for part in again] == [part.unresolved for part in parts]


@pytest.mark.slow
def test_workers_fill_a_store(tmp_path: Path, alone: list[sc.Partition]) -> None:
    pytest.importorskip("joblib")
    for _ in range(2):
        parts = sc.sweep(MODEL, SQUARES, store=tmp_path, n_jobs=2, **OPTIONS)
        assert all(same(part, other) for part, other in zip(parts, alone, strict=True))


def test_forged_partitions_are_refused(tmp_path: Path) -> None:
    """Every array of a file, with right checksums: no index out of range is ever used."""
    some: Any = (MODEL, SQUARES[:2])
    sc.sweep(*some, store=tmp_path, **OPTIONS)
    (path,) = tmp_path.glob("*.npz")
    with np.load(path) as found:
        good = {name: found[name] for name in found.files}
    refused = set()
    for name, array in good.items():
        if name in ("domains", "results"):
            continue
        number: Any = np.nan if array.dtype.kind == "f" else 1 << 40
        wrong = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        wrong.flat[array.size // 2] = number
        for forged in (wrong, array[:-1], array[..., None], array.astype("U9")):
            np.savez(path, **good | {name: forged})
            with contextlib.suppress(sc.FileError):
                for part in sc.sweep(*some, store=tmp_path, **OPTIONS):
                    assert part.decision_boundary().length < 1e9
                continue
            refused.add(name)
    assert len(refused) >= 8, "all but rounding errors"
