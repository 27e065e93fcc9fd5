from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.mesh import Mesh
from splinecam.validate import check_mesh


@pytest.fixture
def part() -> sc.Partition:
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    return sc.partition(model, sc.Domain.box(-2, 2), progress=False)


def test_a_good_partition_passes_and_the_report_reads_well(part: sc.Partition):
    report = part.validate()
    assert report.ok
    assert report.sampled == report.regions == len(part)
    passed = len(report.checks)
    assert repr(report) == f"Report({passed} of {passed} checks passed, {len(part):,} regions)"
    lines = str(report).splitlines()
    assert lines[0] == f"{len(part):,} regions, {len(part):,} compared with the model"
    assert all(line.startswith("ok  ") for line in lines[1:])
    assert any("autograd" in line for line in lines)


def test_large_partitions_are_sampled(part: sc.Partition):
    for samples in (1, 7, 16):
        assert part.validate(samples=samples).sampled <= samples
    with pytest.raises(ValueError, match="at least 1"):
        part.validate(samples=0)


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
        m, uv=torch.cat([m.uv, m.uv[:1]]), vertex_op=torch.cat([m.vertex_op, m.vertex_op[:1]])
    ),
    "depth of a reflex corner": lambda m: replace(m, uv=change(m.uv, -1, m.uv[-1] + 0.5)),
    "relative error of the total area": lambda m: replace(m, uv=change(m.uv, 0, m.uv[0] * 0.999)),
    "half-edges not used once  ": lambda m: replace(
        m, edge_op=change(m.edge_op, m.corners[0] >> 1, -1 - m.edge_op[m.corners[0] >> 1])
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_mesh_fails(part: sc.Partition, what: str):
    part.mesh = DAMAGE[what](part.mesh)
    with pytest.raises(sc.ValidationError, match=re.escape(what.strip())):
        part.validate()


def test_a_turned_over_face_fails(part: sc.Partition):
    mirrored = replace(part.mesh, uv=part.mesh.uv * torch.tensor([1.0, -1.0]))
    failed = [check.name for check in check_mesh(mirrored, 4.0) if not check.ok]
    assert "negative area of a region" in failed
    assert "relative error of the total area" in failed


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
    wrong = change(getattr(part.maps, field), (3, 1), getattr(part.maps, field)[3, 1] + 1e-4)
    part.__dict__["maps"] = replace(part.maps, **{field: wrong})
    with pytest.raises(sc.ValidationError, match="map against the model at"):
        part.validate()


def test_a_wrong_slope_fails_against_autograd(part: sc.Partition):
    part.__dict__["maps"] = replace(part.maps, weight=part.maps.weight * (1 + 1e-4))
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
