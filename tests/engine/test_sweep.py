"""Many domains at once: each partition is the one that the domain has alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

import splinecam as sc
from splinecam._util.backend import using
from splinecam.arrangement.crossings import Ambiguities
from splinecam.engine import run as engine
from splinecam.engine.batched import (
    _groups,
    batch_mesh,
    select_domains,
    split_ambiguities,
    split_batch,
)
from splinecam.engine.step import Computation, Waiting
from splinecam.geometry.domain import Domain
from splinecam.jobs import sweep as windows
from splinecam.partitions.partition import Partition, assemble
from strategies import ImageNet, Net, dense, domains, examples, image_nets, maxima_nets, mlp, nets

INTEGERS = ("edges", "offsets", "corners", "edge_layer", "edge_unit", "vertex_layer")
ATOL = 1e-10


def alone(model: nn.Module, domain: Domain) -> Partition:
    return sc.partition(model, domain, device="cpu", progress=False)


def assert_same(part: Partition, other: Partition, *, same_domain: bool = True) -> None:
    """The same cells in the same order, with the same vertices, edges and provenance."""
    for name in INTEGERS:
        assert torch.equal(getattr(part.mesh, name), getattr(other.mesh, name)), name
    assert torch.allclose(part.mesh.uv, other.mesh.uv, rtol=0, atol=ATOL)
    size = 1 + float(other.values.abs().max())
    assert torch.allclose(part.values, other.values, rtol=0, atol=ATOL * size)
    assert not same_domain or part.domain is other.domain
    assert (part.layers, part.stripped, part._dtype) == (other.layers, other.stripped, other._dtype)


def assert_as_alone(model: nn.Module, chosen: Sequence[Domain], **options: float) -> None:
    parts = sc.sweep(model, chosen, device="cpu", **options)
    assert len(parts) == len(chosen)
    for part, domain in zip(parts, chosen, strict=True):
        with torch.no_grad():
            outcome = engine.run(part._network, domain)
        other = assemble(model, part._network, domain, outcome)
        assert part.mesh.uv.shape[1] == 2
        if part.unresolved or other.unresolved:
            assert part.validate().ok
        else:
            assert_same(part, other)


@examples(30)
@given(nets(), st.lists(domains(), min_size=2, max_size=6))
def test_small_and_degenerate_networks(net: Net, chosen: list[Domain]) -> None:
    assert_as_alone(net.module(), chosen)


@examples(20)
@given(maxima_nets(), st.lists(domains(), min_size=2, max_size=4))
def test_maxima_and_sorted_groups(net: Net, chosen: list[Domain]) -> None:
    assert_as_alone(net.module(), chosen)


@pytest.mark.slow
@examples(12)
@given(image_nets(), st.lists(domains(), min_size=2, max_size=4))
def test_convolutions_and_max_pooling(net: ImageNet, chosen: list[Domain]) -> None:
    assume(net.side + net.padding > 3)  # or there is nothing left to pool
    assert_as_alone(net.module(), chosen)


def planes(count: int, inputs: int = 12, side: float = 2.0) -> list[Domain]:
    return [Domain.around(torch.randn(inputs), side=side, seed=i) for i in range(count)]


class Convolutional(nn.Module):
    """A convolution with a skip connection and max-pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(4 * 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.stem(x))
        h = self.pool(torch.relu(h + self.body(h)))
        return self.head(h.flatten(1))


@pytest.mark.slow
def test_planes_of_an_image_network() -> None:
    squares = [Domain.around(torch.randn(1, 8, 8), side=0.3, seed=i) for i in range(8)]
    through = Domain.through(*torch.randn(3, 1, 8, 8), margin=0.0, shape="tight")
    assert_as_alone(Convolutional().double(), [*squares, through])


def test_polygons_with_different_numbers_of_corners_and_the_same_one_twice() -> None:
    triangle = Domain.polygon([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    pentagon = Domain.polygon([[0.0, 0.0], [2.0, 0.0], [3.0, 1.0], [1.0, 2.0], [-1.0, 1.0]])
    box = Domain.box(-1, 1)
    assert_as_alone(mlp(2, 20, 20, 2), [triangle, box, pentagon, box, triangle])


def test_every_partition_is_a_full_one(tmp_path: Path) -> None:
    model, chosen = mlp(12, 16, 16, 3), planes(7)
    parts = sc.sweep(model, chosen)
    for part in parts:
        assert part.validate().ok
        assert part.model is model
        assert part._network is parts[0]._network
    part, other = parts[4], alone(model, chosen[4])
    assert part.stats()["NR"] == other.stats()["NR"]
    assert torch.allclose(part.weight, other.weight)
    inputs = part._inputs(part.centroids)
    assert torch.equal(part.locate(inputs), torch.arange(len(part)))
    assert torch.equal(part.jacobian([0, 1]), other.jacobian([0, 1]))
    assert all(torch.equal(part.patterns()[cut], other.patterns()[cut]) for cut in part.layers)
    assert part.decision_boundary().length == pytest.approx(other.decision_boundary().length)
    part.save(tmp_path / "part.npz")
    assert_same(sc.load(tmp_path / "part.npz", model=model), part, same_domain=False)


def test_no_domains_and_one() -> None:
    model = mlp(2, 10, 1)
    assert sc.sweep(model, []) == []
    assert list(sc.sweep(model, iter(()), stream=True)) == []
    assert_as_alone(model, [Domain.box(-1, 1)])


def test_a_stack_that_is_too_large_is_divided_without_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, chosen = nn.Sequential(mlp(12, 24, 24, 4), nn.ReLU(), mlp(4, 6, 2)), planes(13)
    counts = []
    carry = Computation.carry

    def carried(work: Computation, at: Waiting, *rest: Any, **named: Any) -> Any:
        counts.append((at.index, at.faces))
        return carry(work, at, *rest, **named)

    monkeypatch.setattr(Computation, "carry", carried)
    for enough in (30_000, 100_000, 300_000):
        with using(batch_bytes=enough):
            assert_as_alone(model, chosen)
        assert len(counts) > 1 + len(chosen)
    assert any(index > 0 for index, _ in counts), "what was done is not done again"


def test_a_little_memory_is_enough() -> None:
    model, chosen = mlp(12, 24, 24, 24, 2), planes(6, side=4.0)
    free = sc.sweep(model, chosen)
    tight = sc.sweep(model, chosen, memory=max(map(len, free)) * 4000)
    for part, other in zip(tight, free, strict=True):
        assert len(part) == len(other)
        assert part.validate().ok


def test_limits_are_those_of_each_domain() -> None:
    model, chosen = mlp(12, 24, 24, 2), planes(9)
    chosen[5] = Domain.around(torch.randn(12), side=8.0)
    sizes = [len(part) for part in sc.sweep(model, chosen)]
    assert sum(sizes) > max(sizes) == sizes[5]
    assert len(sc.sweep(model, chosen, max_regions=sizes[5])) == 9
    for limit in (sizes[5] - 1, sizes[5] // 2):
        message = rf"domains\[5\]: .* max_regions={limit:,}.* smaller domain"
        with pytest.raises(sc.LimitError, match=message):
            sc.sweep(model, chosen, max_regions=limit)
        stream = sc.sweep(model, chosen, max_regions=limit, stream=True)
        assert [len(part) for part in islice(stream, 5)] == sizes[:5]
        with pytest.raises(sc.LimitError, match=r"domains\[5\]"):
            next(stream)
    with pytest.raises(sc.LimitError, match=r"domains\[0\]: .* memory=10,000 bytes"):
        sc.sweep(model, chosen, memory=10_000)


def test_a_stream_takes_domains_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_FIRST", 3)
    taken: list[int] = []

    def made() -> Iterator[Domain]:
        for i in range(1000):
            taken.append(i)
            yield Domain.around(torch.ones(4).double() * (1 + i / 1000), side=1.0)

    model = mlp(4, 6, 1)
    stream = sc.sweep(model, made(), stream=True)
    assert not taken
    first = next(stream)
    assert len(taken) == 3
    assert_same(first, alone(model, first.domain))
    assert len([next(stream), next(stream)]) == 2
    assert len(taken) == 3
    assert next(stream).domain.origin[0] == 1.003
    assert len(taken) == 3 + 12, "small partitions: more at a time"
    monkeypatch.setattr(windows, "_SHARE", 0.0)
    taken.clear()
    assert len(list(islice(sc.sweep(model, made(), stream=True), 4))) == 4
    assert len(taken) == 3 + 1, "large ones: fewer at a time"


def test_a_stream_leaves_the_readers_context_alone() -> None:
    model, chosen = mlp(3, 6, 1), planes(4, inputs=3)
    for part in sc.sweep(model, chosen, stream=True):
        assert torch.is_grad_enabled()
        x = part._inputs(part.centroids).requires_grad_()
        model(x).sum().backward()
        assert x.grad is not None
    with torch.inference_mode():
        inside = sc.sweep(model, chosen)
    assert not any(part.mesh.uv.is_inference() for part in inside)


def test_domains_of_all_sizes_do_not_disturb_each_other() -> None:
    model, middle = mlp(5, 12, 12, 1), torch.linspace(-1, 1, 5)
    chosen = [
        Domain.around(middle * size, side=size * side, seed=i)
        for i, (size, side) in enumerate(
            [(1, 2), (1e6, 1), (1e-6, 1), (1e3, 2), (1, 1e-6), (1.2, 2)]
        )
    ]
    assert_as_alone(model, chosen)
    groups = _groups(chosen)
    assert sorted(place for group in groups for place in group) == list(range(6))
    assert [0, 5] in groups
    assert len(groups) == 5


def test_doubts_go_to_their_domains() -> None:
    # (v + 4 + tiny u) - (v + 4) is tiny where v + 4 > 0, and changes sign at u = 0.
    model = nn.Sequential(
        dense([[0.0, 1.0], [7e-15, 1.0]], [4.0, 4.0]), nn.ReLU(), dense([[-1.0, 1.0]]), nn.ReLU()
    )
    dead, alive = Domain.box((-2, -6), (2, -5)), Domain.box((-2, 5), (2, 6))
    chosen = [dead, alive, dead, Domain.box((-2, 4.5), (2, 6)), dead]
    others = [alone(model, domain) for domain in chosen]
    assert [bool(other.unresolved) for other in others] == [False, True, False, True, False]
    parts = sc.sweep(model, chosen)
    assert [part.unresolved for part in parts] == [other.unresolved for other in others]


def test_misuse_is_named() -> None:
    model, box = mlp(2, 4, 1), Domain.box(-1, 1)
    with pytest.raises(TypeError, match=r"iterable of domains, not Domain"):
        sc.sweep(model, box)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"iterable of domains, not int"):
        sc.sweep(model, 3, stream=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"domains\[1\] must be a splinecam.Domain, not list"):
        sc.sweep(model, [box, [0, 1]])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"model must be an nn.Module, not function"):
        sc.sweep(lambda x: x, [box], stream=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"domains\[1\] has input shape \(3,\), the first one"):
        sc.sweep(model, [box, Domain.around([0.0, 0.0, 0.0], side=1.0)])
    with pytest.raises(TypeError, match=r"max_regions must be a whole number"):
        sc.sweep(model, [box], max_regions=1.5)
    with pytest.raises(sc.SplineCamError, match=r"device 'tpu' is not available"):
        sc.sweep(model, [box], device="tpu")


def test_the_log_tells_of_every_cut(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="splinecam"):
        parts = sc.sweep(mlp(2, 4, 4, 1), [Domain.box(-1, 1), Domain.box(0, 1)])
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["1", "3"]
    assert f"{sum(map(len, parts))} regions" in caplog.records[-1].getMessage()


def test_a_stack_comes_apart_as_it_was() -> None:
    polygons = [torch.rand(4, 2), torch.rand(3, 2), torch.rand(5, 2)]
    mesh = batch_mesh(polygons)
    values = torch.arange(12.0)[:, None]
    pieces = split_batch(mesh, values, range(3))
    assert [piece.uv.tolist() for piece, _ in pieces] == [polygon.tolist() for polygon in polygons]
    assert [piece.edges.max() + 1 for piece, _ in pieces] == [4, 3, 5]
    assert torch.equal(torch.cat([mine for _, mine in pieces]), values)
    upper = select_domains(mesh, range(1, 3))
    assert upper.vertex_ids.tolist() == list(range(4, 12))
    assert upper.mesh.uv[:, 2].tolist() == [1.0] * 3 + [2.0] * 5
    last = select_domains(upper.mesh, range(2, 3))
    assert last.mesh.uv.shape == (5, 2)
    ambiguities = [
        ("a", Ambiguities(mesh.uv[[9, 0, 10]], "first")),
        ("b", Ambiguities(mesh.uv[4:5], "second")),
    ]
    shares = split_ambiguities(ambiguities, [range(1), range(1, 2), range(2, 3)])
    assert [[(name, len(ambiguity.uv)) for name, ambiguity in share] for share in shares] == [
        [("a", 1)],
        [("b", 1)],
        [("a", 2)],
    ]


@pytest.mark.cuda
def test_on_a_gpu_as_on_a_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    model, chosen = mlp(12, 24, 24, 2), planes(20)
    there = sc.sweep(model, chosen, device="cuda")
    for part, domain in zip(there, chosen, strict=True):
        other = alone(model, domain)
        assert part.mesh.uv.device.type == "cuda"
        assert all(
            torch.equal(getattr(part.mesh, name).cpu(), getattr(other.mesh, name))
            for name in INTEGERS
        )
