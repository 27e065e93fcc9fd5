"""Decision boundaries: on the tie, complete, drawn once, also along edges and through vertices."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.boundary import WinnerCells, boundary_segments, winner_cells

F64 = torch.float64


def mlp(*widths: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).double().eval()


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


def partition(model: nn.Module, half: float = 1.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-half, half), device="cpu", progress=False)


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = model(x)
    return torch.cat([torch.zeros_like(y), y], 1) if y.shape[1] == 1 else y


def length(segments: Tensor) -> float:
    return float((segments[:, 1] - segments[:, 0]).norm(dim=1).sum())


def cell_sides(cells: WinnerCells) -> tuple[Tensor, Tensor]:
    """Start and end of every side of every cell."""
    index = torch.arange(len(cells.uv))
    last = cells.offsets[1:] - 1
    following = index + 1
    following[last] = cells.offsets[:-1]
    return cells.uv, cells.uv[following]


NETWORKS = {
    "one output": mlp(2, 16, 16, 1, seed=3),
    "two outputs": mlp(2, 16, 16, 2, seed=1),
    "ten outputs": mlp(2, 16, 16, 10, seed=2),
    "no hidden layer": mlp(2, 5, seed=4),
}


@pytest.fixture(scope="module", params=list(NETWORKS))
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, sc.Partition]:
    model = NETWORKS[request.param]
    with torch.no_grad():  # move the boundary into the domain
        model[-1].bias -= model(torch.zeros(1, 2, dtype=F64))[0]
    return model, partition(model, 4.0)


def test_outputs_tie_on_every_segment(case: tuple[nn.Module, sc.Partition]) -> None:
    model, part = case
    segments = boundary_segments(part)
    assert len(segments) > 2
    t = torch.rand(len(segments), 10, 1, dtype=F64)
    points = segments[:, :1] + t * (segments[:, 1:] - segments[:, :1])
    top = outputs(model, points.reshape(-1, 2)).topk(2, 1).values
    torch.testing.assert_close(top[:, 0], top[:, 1], rtol=0, atol=1e-13)


def test_cells_fill_the_domain_and_name_the_winner(case: tuple[nn.Module, sc.Partition]) -> None:
    model, part = case
    cells = winner_cells(part)
    p, q = cell_sides(cells)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    assert float(cross.sum()) / 2 == pytest.approx(64.0, rel=1e-12)
    counts = cells.offsets[1:] - cells.offsets[:-1]
    row = torch.repeat_interleave(counts)
    mean = torch.zeros(len(counts), 2, dtype=F64).index_add_(0, row, p) / counts[:, None]
    y = outputs(model, mean)
    assert torch.equal(y.argmax(1), cells.winner)
    top = y.topk(2, 1).values
    torch.testing.assert_close(cells.lead, top[:, 0] - top[:, 1], rtol=1e-9, atol=1e-12)


def test_boundary_is_complete_and_drawn_once(case: tuple[nn.Module, sc.Partition]) -> None:
    """The sides of the winner cells on which outputs tie are the boundary, seen from both sides."""
    model, part = case
    p, q = cell_sides(winner_cells(part))
    top = outputs(model, (p + q) / 2).topk(2, 1).values
    tied = top[:, 0] - top[:, 1] < 1e-12
    sides = torch.stack([p, q], 1)[tied]
    assert length(sides) / 2 == pytest.approx(length(boundary_segments(part)), rel=1e-9)


def test_level() -> None:
    part = partition(linear([[1.0, 0.0]], [0.0]))
    segments = boundary_segments(part, level=0.25)
    assert segments.shape == (1, 2, 2)
    assert torch.equal(segments[0, :, 0], torch.tensor([0.25, 0.25], dtype=F64))
    assert length(segments) == 2.0
    assert len(boundary_segments(part, level=2.0)) == 0


def test_through_two_corners() -> None:
    segments = boundary_segments(partition(linear([[1.0, 1.0]], [0.0])))
    assert len(segments) == 1
    assert length(segments) == pytest.approx(2 * math.sqrt(2))


@pytest.mark.parametrize(
    "head",
    [
        [[1.0, -1.0]],  # x: through zero along the region edge x = 0
        [[1.0, 1.0]],  # |x|: touches zero along the edge
        [[0.0, 1.0]],  # relu(-x): zero on the right half; the edge of that area is the boundary
    ],
)
def test_along_a_region_edge(head: list[list[float]]) -> None:
    first = linear([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0])
    part = partition(nn.Sequential(first, nn.ReLU(), linear(head, [0.0])))
    assert len(part.regions) == 2
    segments = boundary_segments(part)
    assert torch.equal(segments[:, :, 0], torch.zeros(1, 2, dtype=F64))
    assert length(segments) == 2.0


@pytest.mark.parametrize(
    "weight",
    [
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]],  # three outputs tie along one line
        [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]],  # two outputs are the same
        [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0]],
        [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]],
    ],
)
def test_each_place_is_drawn_once(weight: list[list[float]]) -> None:
    segments = boundary_segments(partition(linear(weight, [0.0] * len(weight))))
    assert len(segments) == 1
    assert length(segments) == 2.0


def test_three_classes_meet_in_a_point() -> None:
    weight = [[math.cos(a), math.sin(a)] for a in (0.1, 2.3, 4.1)]
    part = partition(linear(weight, [0.0] * 3))
    segments = boundary_segments(part)
    assert len(segments) == 3
    assert float(segments.norm(dim=2).amin(1).max()) < 1e-15
    cells = winner_cells(part)
    assert sorted(cells.winner.tolist()) == [0, 1, 2]


def test_a_class_that_wins_at_no_corner() -> None:
    weight = [[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0], [0.0, 0.0]]
    part = partition(linear(weight, [0.0, 0.0, 0.0, 0.0, 1.0]))
    segments = boundary_segments(part)
    # A square of side 1 around the origin, and four diagonals from its corners to the domain's.
    assert length(segments) == pytest.approx(4 + 4 * math.sqrt(0.5))
    assert 4 in winner_cells(part).winner


def test_no_boundary() -> None:
    part = partition(linear([[1.0, 0.0], [1.0, 0.0]], [5.0, 0.0]))
    assert boundary_segments(part).shape == (0, 2, 2)
    cells = winner_cells(part)
    assert cells.winner.tolist() == [0]
    assert cells.face.tolist() == [0]
