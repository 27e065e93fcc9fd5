from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.geometry.checks import check_mesh
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.questions.validate import run_real


@pytest.fixture
def part() -> sc.Partition:
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    return sc.partition(model, sc.Domain.box(-2, 2), progress=False)


def test_a_good_partition_passes_and_the_report_reads_well(part: sc.Partition):
    report = part.validate()
    assert report.ok
    assert report.sampled == report.regions == len(part)
    passed, count = len(report.checks), f"{len(part):,}"
    extent = f"{count} of {count} regions compared with the model at 1,000 points"
    assert repr(report) == f"Report({passed} of {passed} checks passed, {extent})"
    lines = str(report).splitlines()
    assert lines[0] == extent
    assert all(line.startswith("ok  ") for line in lines[1:])
    assert any("autograd" in line for line in lines)


def test_so_many_regions_are_compared_as_asked_for(part: sc.Partition):
    for samples in (1, 7, 16):
        report = part.validate(samples=samples)
        assert report.sampled <= samples
        assert report.points == 2 * report.sampled
    with pytest.raises(ValueError, match="at least 1"):
        part.validate(samples=0)
    with pytest.raises(ValueError, match="either samples"):
        part.validate(samples=3, thorough=True)


class Work:
    """Counts the points at which the real model is run, and what the bar is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.points = self.with_gradient = self.told = 0
        self.total: int | None = None
        monkeypatch.setattr("splinecam.questions.validate.run_real", self.run_real)
        monkeypatch.setattr("splinecam.questions.validate.progress_bar", self.bar)

    @contextmanager
    def run_real(self, *args: Any, **options: Any) -> Iterator[Callable[[Tensor], Tensor]]:
        with run_real(*args, **options) as forward:

            def counted(x: Tensor) -> Tensor:
                if torch.is_grad_enabled():
                    self.with_gradient += x.shape[0]
                else:
                    self.points += x.shape[0]
                return forward(x)

            yield counted

    @contextmanager
    def bar(self, total: int, unit: str, wanted: bool) -> Iterator[Any]:
        self.total = total
        yield SimpleNamespace(update=self.update)

    def update(self, count: int) -> None:
        self.told += count


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("units", [4, 60, 110])
def test_work_is_in_proportion(monkeypatch: pytest.MonkeyPatch, units: int, thorough: bool):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, units), nn.ReLU(), nn.Linear(units, 3))
    part = sc.partition(model, sc.Domain.box(-4, 4), progress=False)
    vertices, work = part.mesh.num_vertices, Work(monkeypatch)
    report = part.validate(thorough=thorough)
    assert work.points == report.points
    assert work.with_gradient <= (64 if thorough else 16)
    assert work.told == work.total
    assert report.points >= 1000
    if thorough:
        assert report.sampled == len(part)
    else:
        assert report.points <= min(4000, max(1000, vertices))
    assert units < 110 or vertices > 4000


def test_the_same_points_are_chosen_again(part: sc.Partition):
    assert part.validate() == part.validate()
    assert part.validate(seed=1) != part.validate(seed=2)


def test_a_model_put_in_train_mode_since_is_reported_and_not_touched():
    model = nn.Sequential(
        nn.Linear(2, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 1)
    )
    part = sc.partition(model.eval(), sc.Domain.box(-1, 1), progress=False)
    before = {name: value.clone() for name, value in model.train().state_dict().items()}
    random = torch.get_rng_state()
    with pytest.raises(sc.ValidationError, match="train mode"):
        part.validate()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def swap(x: Tensor, i: int, j: int) -> Tensor:
    out = x.clone()
    out[i], out[j] = x[j], x[i]
    return out


def change(x: Tensor, index: object, value: object) -> Tensor:
    out = x.clone()
    out[index] = value
    return out


DAMAGE: dict[str, Callable[[Mesh], Mesh]] = {
    "breaks in the cycles": lambda m: replace(m, corners=swap(m.corners, 0, 1)),
    "half-edges not used once": lambda m: replace(m, corners=change(m.corners, 0, m.corners[1])),
    "half-edges not used once ": lambda m: replace(
        m, offsets=m.offsets[:-1], corners=m.corners[: int(m.offsets[-2])]
    ),
    "indices out of range": lambda m: replace(m, corners=change(m.corners, 0, 2 * m.num_edges)),
    "indices out of range ": lambda m: replace(m, edges=change(m.edges, (0, 0), -1)),
    "vertices without an edge": lambda m: replace(
        m,
        uv=torch.cat([m.uv, m.uv[:1]]),
        vertex_layer=torch.cat([m.vertex_layer, m.vertex_layer[:1]]),
    ),
    "depth of a reflex corner": lambda m: replace(m, uv=change(m.uv, -1, m.uv[-1] + 0.5)),
    "relative error of the total area": lambda m: replace(m, uv=change(m.uv, 0, m.uv[0] * 0.999)),
    "half-edges not used once  ": lambda m: replace(
        m, edge_layer=change(m.edge_layer, m.corners[0] >> 1, -1 - m.edge_layer[m.corners[0] >> 1])
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_mesh_fails(part: sc.Partition, what: str):
    part.mesh = DAMAGE[what](part.mesh)
    with pytest.raises(sc.ValidationError, match=re.escape(what.strip())):
        part.validate()


def failed(mesh: Mesh) -> list[str]:
    area = float(mesh.areas_and_centroids()[0].sum())
    return [check.name for check in check_mesh(mesh, area) if not check.ok]


def test_a_mesh_in_two_pieces_fails():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    assert not failed(polygon_mesh(square))
    two = polygon_mesh(torch.cat([square, square + 2]), torch.tensor([4, 4]))
    assert failed(two) == ["edges of the border beside its cycle", "|V - E + F - 1|"]


def test_pieces_that_touch_in_a_corner_fail():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    two = polygon_mesh(torch.cat([square, square + 1]), torch.tensor([4, 4]))
    edges = torch.where(two.edges == 4, 2, two.edges)
    edges = torch.where(edges > 4, edges - 1, edges)
    kept = torch.arange(8) != 4
    one = replace(two, uv=two.uv[kept], edges=edges, vertex_layer=two.vertex_layer[kept])
    assert failed(one) == ["edges of the border beside its cycle"]


def test_a_face_that_winds_twice_fails():
    angle = torch.arange(5, dtype=torch.float64) * 4 * torch.pi / 5
    star = polygon_mesh(torch.stack([angle.cos(), angle.sin()], 1))
    assert failed(star) == ["regions that wind more than once"]


def test_a_turned_over_face_fails(part: sc.Partition):
    mirrored = replace(part.mesh, uv=part.mesh.uv * torch.tensor([1.0, -1.0]))
    names = [check.name for check in check_mesh(mirrored, 4.0) if not check.ok]
    assert "negative area of a region" in names
    assert "relative error of the total area" in names


def test_a_merged_face_fails_against_the_model(part: sc.Partition):
    """Two regions in one are still a fine mesh; only the model knows better."""
    fewer = sc.partition(
        nn.Sequential(*list(part.model)[:2], nn.Linear(12, 2)), part.domain, progress=False
    )
    part.mesh, part.values = fewer.mesh, fewer.values
    with pytest.raises(sc.ValidationError, match="regions inside which a unit switches"):
        part.validate()


@pytest.mark.parametrize("field", ["value", "weight"])
def test_a_wrong_map_fails(part: sc.Partition, field: str):
    wrong = change(getattr(part._maps, field), (3, 1), getattr(part._maps, field)[3, 1] + 1e-4)
    part.__dict__["_maps"] = replace(part._maps, **{field: wrong})
    with pytest.raises(sc.ValidationError, match="map against the model at"):
        part.validate()


def test_a_wrong_slope_fails_against_autograd(part: sc.Partition):
    part.__dict__["_maps"] = replace(part._maps, weight=part._maps.weight * (1 + 1e-4))
    with pytest.raises(sc.ValidationError, match="slopes against autograd"):
        part.validate()


def test_another_model_fails(part: sc.Partition):
    with torch.no_grad():
        next(part.model.parameters()).add_(1e-3)
    with pytest.raises(sc.ValidationError, match="map against the model at centroids"):
        part.validate()


def test_points_that_locate_does_not_find_fail(part: sc.Partition):
    locate = part._locator
    part.__dict__["_locator"] = lambda uv: locate(uv).masked_fill(uv[:, 0] > 0.3, -1)
    with pytest.raises(sc.ValidationError, match="points of the domain that locate finds in no"):
        part.validate()


def test_points_that_locate_finds_elsewhere_fail(part: sc.Partition):
    locate = part._locator
    part.__dict__["_locator"] = lambda uv: locate(uv).clamp(min=1)
    with pytest.raises(sc.ValidationError, match="distance of points from the region that locate"):
        part.validate()
