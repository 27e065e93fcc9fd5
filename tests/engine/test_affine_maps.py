"""Affine maps: slopes through corners, and derivatives where regions are thin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam._util.backend import using
from splinecam.engine import affine_maps as maps
from splinecam.network.program import Program
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
            found.append(maps.derivative(part._network, part.domain, part._frame, points))
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)
    torch.testing.assert_close(found[0], part._maps.weight, rtol=0, atol=1e-9)
    jacobian = part.jacobian(torch.arange(len(part)))
    torch.testing.assert_close(found[0] / part._frame.scale, jacobian, rtol=0, atol=1e-13)


def test_thin_regions_get_the_derivative() -> None:
    """Two lines 1e-9 apart: the slope across the strip is not in the values at its corners."""
    first = dense([[1.0, 0.0], [1.0, 0.0]], [0.0, -1e-9])
    part = partition(nn.Sequential(first, nn.ReLU(), dense([[1.0, 5.0]], [3.0])))
    assert len(part) == 3
    slopes = part.weight[part.centroids[:, 0].argsort(), 0]
    torch.testing.assert_close(
        slopes, torch.tensor([[0.0, 0.0], [1.0, 0.0], [6.0, 0.0]], dtype=F64), rtol=0, atol=1e-12
    )


def counted(part: sc.Partition, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of points of which derivatives are taken from now on."""
    points, derivative = [], maps.derivative

    def count(*given: Any) -> torch.Tensor:
        points.append(given[3].shape[0])
        return derivative(*given)

    monkeypatch.setattr(maps, "derivative", count)
    vars(part).pop("maps", None)
    return points


def test_corners_that_give_eight_digits_need_no_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of 1e5 are off by 1e-11, so that slopes of 1 have nine digits, not ten."""
    part = partition(nn.Sequential(*mlp(2, 16, 3)[:2], dense(torch.rand(6, 16), [1e5] * 6)))
    points = counted(part, monkeypatch)
    exact = part.jacobian(torch.arange(len(part)))
    steepest = float(exact.abs().max())
    assert sum(points) < len(part) / 4
    assert float((part.weight - exact).abs().max()) < 1e-8 * steepest
    assert float(part._maps.error.max()) <= 1e-8 * float(part._maps.weight.abs().max())


def test_neighbours_that_look_the_same_get_the_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump of 1e-9 is below the noise of corners, and is no reason to merge."""
    first = dense([[1.0, 0.3], [0.2, 1.0], [1.0, -1.0]], [0.1, 0.0, 0.2])
    last = dense([[1.0, 1e-9, 2.0]] * 3, [1e5, 1e5, 1e5])
    part = partition(nn.Sequential(first, nn.ReLU(), last))
    points = counted(part, monkeypatch)
    assert len(part.merged()) == len(part) == 7
    assert 0 < sum(points) <= len(part)


@pytest.mark.parametrize("pool", [nn.Identity(), nn.MaxPool1d(2), sc.nn.GroupSort(2)])
def test_differences_of_large_outputs_give_slopes(
    pool: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of 1e8 leave few digits of slopes, but how they differ can be computed exactly."""
    width = 8 if isinstance(pool, nn.MaxPool1d) else 16
    last = dense(torch.rand(6, width, generator=torch.Generator().manual_seed(0)), [1e8] * 6)
    part = partition(nn.Sequential(*mlp(2, 16, 16, 3)[:4], pool, last))
    points = counted(part, monkeypatch)
    exact = part.jacobian(torch.arange(len(part)))
    assert float((part.weight - exact).abs().max()) < 1e-9 * float(exact.abs().max())
    known = not isinstance(pool, sc.nn.GroupSort)  # of others derivatives are taken
    assert (sum(points) < len(part) / 20) == known


def test_two_directions_share_the_pass_of_their_points(monkeypatch: pytest.MonkeyPatch) -> None:
    part = partition(mlp(2, 16, 16, 6))
    rows, advance = [], Program.advance

    def count(program: Program, i: int, live: Any, out: Any = None) -> Any:
        rows.append(live[program.stages[i].live_in[0]].shape[0])
        return advance(program, i, live, out)

    monkeypatch.setattr(Program, "advance", count)
    monkeypatch.setattr(maps, "_SHORT", 0)
    with torch.no_grad():
        maps.derivative(part._network, part.domain, part._frame, part.mesh.means())
    blocks = len(rows) // len(part._network.stages)
    assert sum(rows) == len(part._network.stages) * (3 * len(part) + blocks)


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


def test_faces_of_similar_size_come_together() -> None:
    mesh = partition(mlp(2, 16, 16, 1)).mesh
    seen, sizes = torch.zeros(mesh.num_faces, dtype=torch.int64), set()
    for faces, vertices in mesh.by_size(1 << 20, at_least=4):
        k, counts = vertices.shape[1], mesh.counts()[faces]
        sizes.add(k)
        seen[faces] += 1
        assert bool((counts <= k).all())
        assert bool((2 * counts > k).all())
        for face, row, count in zip(
            faces.tolist(), vertices.tolist(), counts.tolist(), strict=True
        ):
            own = mesh.corner_vertices()[mesh.offsets[face] : mesh.offsets[face + 1]].tolist()
            assert row == own + own[-1:] * (k - count)
    assert len(sizes) > 1
    assert sizes <= {4, 8, 16, 32}
    [(faces, vertices)] = mesh.by_size(1 << 20, at_least=32)
    assert vertices.shape == (mesh.num_faces, 32)
    assert torch.equal(faces, torch.arange(mesh.num_faces))
    assert bool((seen == 1).all())


def test_maps_are_the_same_in_few_large_blocks() -> None:
    model = mlp(2, 32, 32, 3)
    some = partition(model)
    expected = some.weight, some.bias
    with using(asynchronous=True):
        others = partition(model)
        found = others.weight, others.bias
    for x, y in zip(expected, found, strict=True):
        assert float((x - y).abs().max()) < 1e-12
    others.validate()
