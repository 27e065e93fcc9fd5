"""Affine maps: slopes through corners, and derivatives where regions are thin."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.engine import affine_maps as maps
from strategies import dense, mlp

F64 = torch.float64


def partition(model: nn.Module, half: float = 2.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-half, half), device="cpu", progress=False)


@pytest.mark.parametrize("outputs", [1, 6])
def test_both_ways_to_a_derivative(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    part = partition(mlp(2, 16, 16, outputs))
    points = part.mesh.means()
    found = []
    for few, short in ((100, 0), (0, 0)):  # backward passes, forward mode
        monkeypatch.setattr(maps, "_FEW", few)
        monkeypatch.setattr(maps, "_SHORT", short)
        with torch.no_grad():
            found.append(maps.derivative(part.program, part.domain, part.frame, points))
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)
    torch.testing.assert_close(found[0], part.maps.weight, rtol=0, atol=1e-9)
    jacobian = part.jacobian(torch.arange(len(part)))
    torch.testing.assert_close(found[0] / part.frame.scale, jacobian, rtol=0, atol=1e-13)


def test_thin_regions_get_the_derivative() -> None:
    """Two lines 1e-9 apart: the slope across the strip is not in the values at its corners."""
    first = dense([[1.0, 0.0], [1.0, 0.0]], [0.0, -1e-9])
    part = partition(nn.Sequential(first, nn.ReLU(), dense([[1.0, 5.0]], [3.0])))
    assert len(part) == 3
    slopes = part.weight[part.centroids[:, 0].argsort(), 0]
    torch.testing.assert_close(
        slopes, torch.tensor([[0.0, 0.0], [1.0, 0.0], [6.0, 0.0]], dtype=F64), rtol=0, atol=1e-12
    )


def test_a_constant_output_needs_no_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*mlp(2, 16, 3)[:2], dense([[0.0] * 16], [2.5]))
    part = partition(model)
    assert len(part) > 30

    def never(*_: object) -> torch.Tensor:
        raise AssertionError("all slopes are zero")

    monkeypatch.setattr(maps, "derivative", never)
    assert float(part.weight.abs().max()) == 0
    assert torch.equal(part.bias, torch.full_like(part.bias, 2.5))
    assert len(part.merged()) == 1


def test_faces_of_equal_size_come_together() -> None:
    mesh = partition(mlp(2, 16, 16, 1)).mesh
    seen = torch.zeros(mesh.num_faces, dtype=torch.int64)
    for faces, vertices in mesh.by_size(40):
        k = vertices.shape[1]
        assert faces.shape[0] * k <= max(40, k)
        seen[faces] += 1
        entries = mesh.offsets[faces][:, None] + torch.arange(k)
        assert torch.equal(mesh.corner_vertices()[entries], vertices)
        assert bool((mesh.counts()[faces] == k).all())
    assert bool((seen == 1).all())
