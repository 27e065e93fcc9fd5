"""The exact oracle on maxima and sorted groups: known cases, and points by brute force."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from splinecam.errors import CaptureError
from splinecam.geometry.domain import Domain
from splinecam.testing import (
    Abs,
    ExactCell,
    ExactPartition,
    Max,
    Maximum,
    Min,
    Minimum,
    Residual,
    SortedGroups,
    exact_partition,
    maxout,
)
from splinecam.testing.oracle.steps import Largest, layer_step, windows
from strategies import dense

ATOL = 1e-12
BOX = Domain.box(-1, 1)


def maximum_of(*planes: tuple[float, float, float]) -> nn.Sequential:
    """The largest of functions (a, b, c): a u + b v + c."""
    return nn.Sequential(
        dense([p[:2] for p in planes], [p[2] for p in planes]), Max(1, keepdim=True)
    )


# ------------------------------------------------------------------------------ the windows


POOLS = {
    "plain": (nn.MaxPool2d(2), (2, 4, 6)),
    "odd size": (nn.MaxPool2d(2), (1, 5, 5)),
    "ceil": (nn.MaxPool2d(2, ceil_mode=True), (1, 5, 4)),
    "overlapping": (nn.MaxPool2d(3, 1), (1, 4, 4)),
    "padded": (nn.MaxPool2d(3, 2, 1), (2, 4, 5)),
    "padded, ceil": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 6, 4)),
    "dilated": (nn.MaxPool2d(2, 1, dilation=2), (1, 4, 5)),
    "per axis": (nn.MaxPool2d((1, 3), (2, 1), (0, 1), (1, 2)), (1, 4, 5)),
    "1d": (nn.MaxPool1d(3, 2, 1), (2, 7)),
    "1d, dilated, ceil": (nn.MaxPool1d(2, 3, 1, 2, ceil_mode=True), (1, 9)),
    "3d": (nn.MaxPool3d(2, 1), (1, 3, 2, 3)),
    "3d, padded": (nn.MaxPool3d((1, 2, 3), 2, (0, 1, 1)), (2, 2, 3, 3)),
    "adaptive 1d": (nn.AdaptiveMaxPool1d(3), (2, 7)),
    "adaptive 2d": (nn.AdaptiveMaxPool2d((2, 3)), (1, 5, 4)),
    "adaptive 2d, one axis": (nn.AdaptiveMaxPool2d((None, 1)), (2, 2, 3)),
    "adaptive 3d": (nn.AdaptiveMaxPool3d(2), (1, 2, 3, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_windows_hold_the_units_that_torch_sees(name: str) -> None:
    pool, shape = POOLS[name]
    groups = windows(pool, shape)
    values = torch.randn(50, *shape)  # negative ones are below a padding with zeros
    largest = [values.flatten(1)[:, group].amax(1) for group in groups]
    assert torch.equal(torch.stack(largest, 1), pool(values).flatten(1))


@pytest.mark.parametrize("dim", [1, 2, 3, -1, -2])
def test_groups_along_a_dimension(dim: int) -> None:
    values = torch.randn(1, 2, 3, 4)
    groups = windows(Max(dim), (2, 3, 4))
    largest = torch.stack([values.flatten()[group].max() for group in groups])
    assert torch.equal(largest, values.amax(dim).flatten())
    assert sorted(unit for group in groups for unit in group) == list(range(24))


def test_a_window_in_the_padding_is_refused() -> None:
    pool = nn.MaxPool1d(2, padding=1, dilation=3)
    assert pool(torch.zeros(1, 1, 2)).shape == (1, 1, 1)
    with pytest.raises(CaptureError, match="in the padding"):
        windows(pool, (1, 2))


def test_winners_have_their_place_among_the_units_of_the_window() -> None:
    # The first window is padding and unit 0; unit 1 is in the second one, before unit 2.
    step, shape = layer_step(nn.MaxPool1d(2, padding=1), (1, 3))
    assert isinstance(step, Largest)
    assert step.groups == [[0], [1, 2]]
    assert shape == (1, 2)


# ----------------------------------------------------------------------- cases known by hand


def test_voronoi_diagram_of_four_sites() -> None:
    model = maximum_of((2, 2, -2), (-2, 2, -2), (-2, -2, -2), (2, -2, -2))
    exact = exact_partition(model, BOX)
    assert [cell.pattern for cell in exact.cells] == [(0,), (1,), (2,), (3,)]
    assert all(cell.area == 1 for cell in exact.cells)
    assert all((0, 0) in cell.vertices for cell in exact.cells)


def test_two_that_lose_to_a_third_make_no_border() -> None:
    # u and -u cross at u = 0, but only below v + 3.
    assert len(exact_partition(maximum_of((1, 0, 0), (-1, 0, 0), (0, 1, 3)), BOX)) == 1
    two = exact_partition(maximum_of((1, 0, 0), (-1, 0, 0), (0, 0, 0.5)), BOX)
    assert [(cell.pattern, cell.area) for cell in two.cells] == [((0,), 1), ((1,), 1), ((2,), 2)]


def test_the_first_of_equal_functions_wins() -> None:
    plane = (1.0, 2.0, 0.5)
    exact = exact_partition(maximum_of(plane, plane, plane), BOX)
    assert [cell.pattern for cell in exact.cells] == [(0,)]
    exact = exact_partition(maximum_of((0, 0, -3), plane, (-1, -2, -0.5), plane), BOX)
    assert [cell.pattern for cell in exact.cells] == [(1,), (2,)]


def test_a_piece_that_wins_strictly_inside_the_domain() -> None:
    planes = ((4, 0, 0), (-4, 0, 0), (0, 4, 0), (0, -4, 0), (0, 0, 1))
    exact = exact_partition(maximum_of(*planes), BOX)
    inner = next(cell for cell in exact.cells if cell.pattern == (4,))
    assert inner.area == Fraction(1, 4)
    assert len(exact) == 5


def test_dead_units_before_a_maximum_are_equal() -> None:
    # relu(u), relu(-u), relu(-5): where two are zero the first zero never shows.
    model = nn.Sequential(dense([[1, 0], [-1, 0], [0, 0]], [0, 0, -5]), nn.ReLU(), Max())
    exact = exact_partition(model, BOX)
    assert sorted(cell.pattern for cell in exact.cells) == [(0, 1, 0, 1), (1, 0, 0, 0)]


def test_minimum_is_the_maximum_of_the_negative() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(2, 6).double()
    negative = dense(-linear.weight, -linear.bias)
    for smallest, largest in ((Min(), Max()), (Minimum(), Maximum())):
        low = exact_partition(nn.Sequential(linear, smallest), BOX)
        high = exact_partition(nn.Sequential(negative, largest), BOX)
        assert [c.vertices for c in low.cells] == [c.vertices for c in high.cells]
        assert [c.pattern for c in low.cells] == [c.pattern for c in high.cells]
        assert len(low) > 1


def test_sorted_pairs_are_the_smaller_and_the_larger() -> None:
    model = nn.Sequential(dense([[1, 0], [0, 1], [1, 1], [1, 1]]), SortedGroups(2))
    exact = exact_partition(model, BOX)
    assert [(cell.pattern, cell.weight) for cell in exact.cells] == [
        ((1, 0), ((0, 1), (1, 0), (1, 1), (1, 1))),
        ((0, 0), ((1, 0), (0, 1), (1, 1), (1, 1))),
    ]


def test_every_two_of_a_sorted_group_make_a_border() -> None:
    # Three lines through the origin: six orders.
    model = nn.Sequential(dense([[1, 0], [0, 1], [-1, -1]]), SortedGroups(3))
    exact = exact_partition(model, BOX)
    assert len({cell.pattern for cell in exact.cells}) == len(exact) == 6
    # Of a maximum only half of each border is left.
    assert len(exact_partition(nn.Sequential(model[0], Max(1, keepdim=True)), BOX)) == 3


# ----------------------------------------------------------------------- points by brute force


def random_points(count: int, domain: Domain) -> Tensor:
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    return low + torch.rand(count, 2, dtype=torch.float64) * (high - low)


def located(cells: tuple[ExactCell, ...], points: np.ndarray) -> list[list[int]]:
    """The cells around every point; one, but for points on a border."""
    homes: list[list[int]] = [[] for _ in points]
    for index, cell in enumerate(cells):
        corners = np.array(cell.vertices, dtype=float)
        along = np.roll(corners, -1, axis=0) - corners
        to = points[:, None] - corners
        inside = (along[:, 0] * to[..., 1] - along[:, 1] * to[..., 0] > 0).all(1)
        for place in np.flatnonzero(inside):
            homes[place].append(index)
    return homes


def assert_right(model: nn.Module, domain: Domain, count: int = 500) -> ExactPartition:
    """Cells that cover the domain once, with the model's own outputs at random points."""
    exact = exact_partition(model, domain)
    assert float(exact.area) == pytest.approx(float(domain.area))
    points = random_points(count, domain)
    homes = located(exact.cells, points.numpy())
    assert all(len(home) == 1 for home in homes)
    with torch.no_grad():
        outputs = model.double()(domain.embed(points)).flatten(1).numpy()
    for point, home, output in zip(points.tolist(), homes, outputs, strict=True):
        cell = exact.cells[home[0]]
        wanted = np.array(cell.value((Fraction(point[0]), Fraction(point[1]))), dtype=float)
        assert np.abs(output - wanted).max() < ATOL * (1 + np.abs(wanted).max())
    # No border is drawn for nothing: all cells are on different pieces.
    assert len({cell.pattern for cell in exact.cells}) == len(exact)
    return exact


def conv_net(pool: nn.Module, *, image: tuple[int, ...] = (1, 4, 4)) -> nn.Sequential:
    body = [nn.Unflatten(1, image), nn.Conv2d(image[0], 2, 2), nn.ReLU(), pool, nn.Flatten()]
    size = nn.Sequential(*body)(torch.zeros(1, math.prod(image))).shape[1]
    return nn.Sequential(nn.Linear(2, math.prod(image)), *body, nn.Linear(size, 2))


MODELS = {
    "maxout": lambda: nn.Sequential(maxout(2, 3, 4), maxout(3, 2, 3), nn.Linear(2, 1)),
    "pool after relu": lambda: conv_net(nn.MaxPool2d(2)),
    "overlapping pool": lambda: conv_net(nn.MaxPool2d(2, 1)),
    "padded pool": lambda: conv_net(nn.MaxPool2d(3, 2, 1)),
    "adaptive pool": lambda: conv_net(nn.AdaptiveMaxPool2d(2)),
    "sorted groups": lambda: nn.Sequential(
        nn.Linear(2, 6), SortedGroups(3), nn.Linear(6, 4), SortedGroups(2), nn.Linear(4, 2)
    ),
    "larger and smaller halves": lambda: nn.Sequential(
        nn.Linear(2, 8), Maximum(), nn.Linear(4, 6), Minimum(), Abs(), nn.Linear(3, 1)
    ),
    "skip connection around a pool": lambda: nn.Sequential(
        nn.Linear(2, 6),
        nn.Unflatten(1, (2, 3)),
        Residual(nn.MaxPool1d(3, 1, 1)),
        nn.Flatten(),
        nn.LeakyReLU(),
        nn.Linear(6, 1),
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_cells_have_the_outputs_of_the_model(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    exact = assert_right(MODELS[name](), Domain.box(-3, 3))
    assert len(exact) > 3


def test_pool_on_a_plane_in_input_space() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1))
    exact = assert_right(model, Domain.around(torch.randn(1, 4, 5), side=8.0, seed=1))
    assert len(exact) > 3


def test_winners_are_those_of_a_dense_sample() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 12), nn.Unflatten(1, (3, 4)), Max(2)).double()
    exact = exact_partition(model, BOX)
    with torch.no_grad():
        winners = model[:2](random_points(20_000, BOX)).argmax(2)
    seen = {tuple(row) for row in winners.tolist()}
    cells = {cell.pattern: float(cell.area) for cell in exact.cells}
    assert seen <= set(cells)
    assert {pattern for pattern, area in cells.items() if area > 0.01} <= seen
