"""Preimages of constraints on outputs against exact fractions, random points, and the models."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from exact_boundaries import exact_preimage_area
from splinecam.errors import SplineCamError
from splinecam.files.properties import Conjunction
from splinecam.questions.preimage import Preimage

F64 = torch.float64


def mlp(*sizes: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def coarse(*sizes: int, seed: int = 0, levels: int = 2) -> nn.Sequential:
    """Weights on a coarse grid, so that kinks meet, coincide and pass through vertices."""
    model = mlp(*sizes, seed=seed)
    for weight in model.parameters():
        weight.data = (levels * weight.data).round() / levels
    return model


def part_of(model: nn.Module, half: float = 2.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-half, half), device="cpu", progress=False)


def random_condition(n: int, sizes: list[int], seed: int, grid: float = 0.0) -> sc.OutputCondition:
    """Conjunctions with the given numbers of random rows; rounded to a grid if there is one."""
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(sum(sizes), n, generator=generator, dtype=F64)
    b = 0.3 * torch.randn(sum(sizes), generator=generator, dtype=F64)
    if grid:
        A, b = (A / grid).round() * grid, (b / grid).round() * grid
    strict = torch.rand(sum(sizes), generator=generator) < 0.5
    start = torch.tensor([0, *sizes]).cumsum(0)
    return sc.OutputCondition(A, b, strict, None, start)


def exact_area(model: nn.Module, part: sc.Partition, condition: sc.OutputCondition) -> float:
    rows = [
        list(zip(each.A.tolist(), each.b.tolist(), each.strict.tolist(), strict=True))
        for each in condition
    ]
    return float(exact_preimage_area(model, part.domain, rows))


def check(found: Preimage) -> None:
    """All forms of the same area agree."""
    total = sum(piece.area for piece in found.polygons())
    scale = found.partition.domain.area
    assert total == pytest.approx(found.area, abs=1e-12 * scale)
    assert found.to_shapely().area == pytest.approx(found.area, abs=1e-12 * scale)
    assert found.to_shapely().is_valid
    assert len(found) == len(found.polygons())
    assert -1e-12 * scale <= found.certain_area <= found.area + 1e-12 * scale
    if found.certain_area > 1e-6 * scale:
        assert all(witness.confirmed for witness in found.witnesses(3))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sizes", [[1], [3], [2, 2], [1, 1, 1], [2, 3, 1]])
def test_areas_agree_with_exact_fractions(seed: int, sizes: list[int]) -> None:
    model = mlp(2, 5, 4, 3, seed=seed)
    part = part_of(model)
    condition = random_condition(3, sizes, seed)
    found = part.preimage(condition)
    assert found.area == pytest.approx(exact_area(model, part, condition), abs=1e-11)
    check(found)


@pytest.mark.parametrize("seed", range(25))
def test_near_degenerate_networks(seed: int) -> None:
    model = coarse(2, 4, 3, 2, seed=seed)
    part = part_of(model)
    for sizes in ([1], [2], [1, 2]):
        condition = random_condition(2, sizes, seed, grid=0.5)
        found = part.preimage(condition)
        assert found.area == pytest.approx(exact_area(model, part, condition), abs=1e-10)
        assert not found.unresolved
        check(found)


@pytest.mark.slow
def test_areas_agree_with_random_points() -> None:
    model = mlp(2, 24, 24, 4, seed=1).double()
    part = part_of(model)
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(1_000_000, 2, generator=generator, dtype=F64) - 2
    with torch.no_grad():
        y = model(x)
    for sizes in ([2], [2, 2], [1] * 5):
        found = part.preimage(random_condition(4, sizes, seed=len(sizes)))
        share = float(found.condition(y).double().mean())
        assert found.share == pytest.approx(share, abs=5 * (0.25 / len(x)) ** 0.5)


def test_the_smallest_output_is_a_class() -> None:
    part = part_of(mlp(2, 16, 16, 3, seed=2))
    found = part.preimage([[1, -1, 0], [1, 0, -1]], [0, 0])
    assert found.area == pytest.approx(float(part.class_regions(kind="argmin").areas[0]), abs=1e-12)
    inner = part.decision_boundary(kind="argmin")
    length = inner.between(0, 1).length + inner.between(0, 2).length
    assert found.outline.length == pytest.approx(length, rel=1e-9)


def test_many_constraints() -> None:
    part = part_of(mlp(2, 8, 8, 3, seed=5).double())
    circle = torch.linspace(0, 2 * torch.pi, 201, dtype=F64)[:-1]
    A = torch.stack([circle.cos(), circle.sin(), 0 * circle], 1)
    middle = part.values.mean(0)
    found = part.preimage(A, A @ middle + 0.1)
    x = part.sample(100_000, dtype=F64)
    with torch.no_grad():
        share = float(found.condition(part.model(x)).double().mean())
    assert 0.001 < share < 0.999
    assert found.share == pytest.approx(share, abs=0.01)
    either = part.preimage(
        [(-row[None], -limit[None]) for row, limit in zip(A, A @ middle + 0.1, strict=True)]
    )
    assert either.area + found.area == pytest.approx(part.domain.area, rel=1e-11)


def relu() -> sc.Partition:
    return part_of(nn.ReLU(), 1.0)


def test_everywhere_and_nowhere() -> None:
    part = relu()
    everywhere = part.preimage([[1, 0]], [5])
    assert (everywhere.share, len(everywhere), len(everywhere.outline)) == (1.0, 1, 0)
    nowhere = part.preimage([[1, 0]], [-1])
    assert (nowhere.area, len(nowhere), nowhere.witnesses()) == (0.0, 0, [])
    assert not nowhere.touches
    assert repr(nowhere) == "Preimage(no area)"
    assert part.preimage([[0, 0]], [0]).share == 1.0
    assert part.preimage([[0, 0]], [-1]).share == 0.0


def test_an_equality_on_an_area() -> None:
    part = relu()
    found = part.preimage([[1, 0]], [0])
    assert (found.area, found.tied_area, found.certain_area) == (2.0, 2.0, 0.0)
    strict = Conjunction(
        *(torch.tensor(x, dtype=F64) for x in ([[1.0, 0]], [0.0])), torch.tensor([True]), None
    )
    found = part.preimage(strict)
    assert (found.area, found.tied_area) == (0.0, 2.0)
    assert found.touches


def test_equations_hold_on_curves() -> None:
    part = part_of(mlp(2, 12, 12, 2, seed=4))
    level = float(part.values[:, 0].median())
    found = part.preimage([[1, 0], [-1, 0]], [level, -level])
    assert found.area == 0
    assert found.curves.length == pytest.approx(part.level_set(level, output=0).length, rel=1e-12)
    assert found.curves.length > 0
    assert "without area" in repr(found)
    assert float(found.witnesses()[0].outputs[0]) == pytest.approx(level, abs=1e-5)


def test_a_condition_that_holds_at_an_edge_or_a_corner() -> None:
    part = relu()
    edge = part.preimage([[-1, 0]], [-1])
    assert (edge.area, edge.curves.length) == (0.0, 2.0)
    corner = part.preimage([[-1, -1]], [-2])
    assert corner.points.tolist() == [[1.0, 1.0]]
    assert len(corner.curves) == 0
    assert corner.touches


def test_inputs_in_a_condition() -> None:
    part = relu()
    one = torch.ones(1, dtype=F64)
    limits = Conjunction(
        -one[None] * torch.eye(2, dtype=F64)[:1],
        -one / 2,
        one < 0,
        torch.tensor([[0.0, 1.0]]).double(),
    )
    found = part.preimage(limits)  # y0 - x1 >= 1/2
    # The triangle below x1 = x0 - 1/2 for x0 > 0, and all below x1 = -1/2 for x0 < 0.
    assert found.area == pytest.approx(0.5 + (0.5 + 1.5) / 2, abs=1e-14)
    assert found.witnesses()[0].confirmed


def test_thin_and_shifted_slices() -> None:
    model = mlp(6, 16, 16, 3, seed=7).double()
    lo = torch.tensor([100.0, -1e-3, 0, 0, 0, 0], dtype=F64)
    hi = torch.tensor([101.0, 1e-3, 1, 1, 1, 1], dtype=F64)
    part = sc.partition(model, sc.Domain.slice((lo, hi), (0, 1)), progress=False)
    middle = part.values.mean(0)
    found = part.preimage([[1, 0, 0]], middle[:1])
    x = part.sample(50_000, dtype=F64)
    with torch.no_grad():
        share = float(found.condition(model(x)).double().mean())
    assert found.share == pytest.approx(share, abs=0.02)


def test_a_final_softmax() -> None:
    part = part_of(nn.Sequential(*mlp(2, 8, 3, seed=2), nn.Softmax(1)))
    areas = part.class_regions().areas
    best = int(areas.argmax())
    A = torch.eye(3, dtype=F64) - torch.eye(3, dtype=F64)[best]
    found = part.preimage(A, [0, 0, 0])
    assert found.area == pytest.approx(float(areas[best]), abs=1e-12)
    assert found.witnesses()[0].confirmed
    with pytest.raises(SplineCamError, match="softmax"):
        part.preimage([[1, 0, 0]], [0.5])


def test_pictures() -> None:
    part = part_of(mlp(2, 12, 3, seed=2))
    found = part.preimage([[1, -1, 0], [1, 0, -1]], [0, 0])
    ax = found.plot(witness=found.witnesses()[0], fill="white")
    assert len(ax.patches) >= 1
    relu().preimage([[-1, -1]], [-2]).plot(hatch=None)


@pytest.mark.parametrize(
    ("A", "b", "message"),
    [
        ([[1, 0]], [1], "2 outputs"),
        ([[1, 0, 0]], [1, 2, 3], "1 rows"),
        ([[float("nan"), 0, 0]], [1], "finite"),
        ("text", None, "A and b"),
        ([], None, "empty"),
    ],
)
def test_arguments_that_do_not_fit(A: object, b: object, message: str) -> None:
    part = part_of(nn.Linear(2, 3))
    with pytest.raises((SplineCamError, TypeError, ValueError), match=message):
        part.preimage(A, b).area  # noqa: B018


def test_without_the_model() -> None:
    import io

    part = part_of(mlp(2, 8, 2))
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    found = sc.load(file).preimage([[1, -1]], [0])
    assert found.area == part.preimage([[1, -1]], [0]).area
    if found.area:
        with pytest.raises(SplineCamError, match="network"):
            found.witnesses()


def test_a_row_and_its_opposite_share_a_function() -> None:
    part = relu()
    found = part.preimage([[1, 1], [-1, -1], [2, 2]], [0.5, -0.5, 1.0])
    assert found.cells.constraints.A.shape[0] <= 2
    assert isinstance(found.curves.length, float)
    assert isinstance(found.points, Tensor)
