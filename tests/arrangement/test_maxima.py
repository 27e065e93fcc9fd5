"""Maxima and sorted groups, degenerate ones above all: each gives the exact oracle's cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam
import splinecam.engine.run
from splinecam.engine.tiling import MeshTile, tile_of
from splinecam.geometry.domain import Domain
from splinecam.geometry.subdivision import Mesh
from splinecam.testing import (
    Abs,
    Max,
    Maximum,
    Min,
    SortedGroups,
    assert_same_cells,
    assert_valid,
    exact_partition,
)
from strategies import dense

pytestmark = pytest.mark.few(2)

ATOL = 1e-9
BOX = Domain.box(-1, 1)
EIGHTHS = (-0.125, 0.0, 0.125)
Plane = tuple[float, float, float]  # a u + b v + c


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).double()


def assert_exact(
    model: nn.Module,
    domain: Domain = BOX,
    *,
    regions: int | None = None,
    memory: int | None = None,
    atol: float = ATOL,
) -> Any:
    """The partition, after seeing that it is valid, complete and the oracle's."""
    exact = exact_partition(model, domain)
    if regions is not None:
        assert len(exact) == regions
    part = splinecam.partition(model, domain, device="cpu", memory=memory, progress=False)
    assert not part.unresolved
    assert_same_cells(part, exact, atol=atol)
    assert_valid(part)
    return part


def planes(*rows: Plane) -> nn.Linear:
    return dense([row[:2] for row in rows], [row[2] for row in rows])


def maxout(units: int, pieces: int) -> nn.Sequential:
    return nn.Sequential(nn.Unflatten(1, (units, pieces)), Max(2))


def largest(*rows: Plane) -> nn.Sequential:
    return nn.Sequential(planes(*rows), Max(1, keepdim=True))


def groups(*rows: list[Plane]) -> nn.Sequential:
    """One maximum for each list of functions."""
    functions = planes(*(row for group in rows for row in group))
    return nn.Sequential(functions, maxout(len(rows), len(rows[0])))


# ---------------------------------------------------------------------------------- one group


def test_four_cells_meet_in_a_point() -> None:
    part = assert_exact(largest((2, 2, -2), (-2, 2, -2), (-2, -2, -2), (2, -2, -2)), regions=4)
    assert part.vertices.abs().amax(1).min() == 0


@pytest.mark.parametrize("side", [3, 6])
def test_sites_on_a_grid(side: int) -> None:
    sites = [(x / 2, y / 2) for x in range(side) for y in range(side)]
    model = largest(*((2 * x, 2 * y, -x * x - y * y) for x, y in sites))
    assert_exact(model, Domain.box(-1, side / 2), regions=side * side)


@pytest.mark.parametrize("spacing", [0.1, 0.3])
def test_sites_on_a_grid_up_to_rounding(spacing: float) -> None:
    line = (-spacing, 0.0, spacing)
    sites = [(x, y) for x in line for y in line]
    assert_exact(largest(*((2 * x, 2 * y, -x * x - y * y) for x, y in sites)), regions=9)


def test_four_sites_on_a_circle_in_flat_pairs() -> None:
    # The borders of the pairs next to each other meet those of the others at small angles.
    sites = [(-0.875, 0.515625), (0.515625, -0.875), (-0.8125, 0.609375), (0.0, -1.015625)]
    assert len({x * x + y * y for x, y in sites}) == 1
    assert_exact(largest(*((x, y, -0.25) for x, y in sites)), regions=4)


def test_all_functions_equal() -> None:
    assert_exact(largest(*[(1.0, 2.0, 0.5)] * 5), regions=1)
    assert_exact(largest(*[(0.0, 0.0, 0.0)] * 3), regions=1)


def test_one_function_always_wins() -> None:
    rows = [tuple(row) for row in normal(6, 3).tolist()]
    assert_exact(largest(*rows, (0.1, 0.2, 50.0)), regions=1)


def test_a_function_that_wins_strictly_inside() -> None:
    # No corner and no side of the domain sees the last one.
    rows = [(4.0, 0.0, 0.0), (-4.0, 0.0, 0.0), (0.0, 4.0, 0.0), (0.0, -4.0, 0.0)]
    assert_exact(largest(*rows, (0.0, 0.0, 1.0)), regions=5)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7])
def test_a_tiny_cell_strictly_inside(gap: float) -> None:
    rows = [(4.0, 0.0, 0.0), (-4.0, 1.0, 0.0), (1.0, 4.0, 0.0), (0.5, -4.0, 0.0)]
    assert_exact(largest(*rows, (0.1, 0.2, gap)), regions=5)


@pytest.mark.parametrize("last", [Max(1, keepdim=True), SortedGroups(3)], ids=["max", "sort"])
def test_thin_cells_have_exact_slopes(last: nn.Module) -> None:
    # The second is the largest in a strip 1e-10 wide, where values at corners tell no slopes.
    model = nn.Sequential(planes((0, 0, 0), (1, 0.5, 0), (2, 1, -(2.0**-33))), last)
    assert_exact(model, Domain.box(-4, 4))
    image = nn.Sequential(model[0], nn.Unflatten(1, (1, 3)), nn.MaxPool1d(3), nn.Flatten())
    assert_exact(image, Domain.box(-4, 4), regions=3)


def test_nested_cells_strictly_inside() -> None:
    # A pyramid cut off at five heights: each slope wins in a ring, the last in the middle.
    rows = [
        (slope * x, slope * y, 2.0 - slope)
        for slope in (1.0, 2.0, 4.0, 8.0)
        for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1))
    ]
    assert_exact(largest(*rows, (0.0, 0.0, 1.5)))
    convex = [(2 * p, 2 * q, -p * p - q * q) for p in EIGHTHS for q in EIGHTHS]
    assert_exact(largest(*convex, (9.0, 0.0, -5.0), (-9.0, 0.0, -5.0)), regions=11)


def test_a_function_that_only_touches() -> None:
    assert_exact(largest((1, 0, 0), (-1, 0, 0), (0, 0, 0)), regions=2)
    corner = [(1.0, 1.0, 0.0), (-1.0, 1.0, 0.0), (0.0, -1.0, 0.0)]
    assert_exact(largest(*corner, (0.0, 0.0, 0.0)), regions=3)


def test_a_border_that_ends_at_the_domain_only_in_a_corner() -> None:
    # u + v = 2 touches the corner (1, 1), u = v runs from corner to corner.
    assert_exact(largest((1, 1, -2), (0, 0, 0)), regions=1)
    assert_exact(largest((1, -1, 0), (-1, 1, 0), (0, 0, -1)), regions=2)


def test_a_border_along_an_edge_of_the_domain() -> None:
    # The first two are equal at u = 1, the third beats them left of u = 0.
    assert_exact(largest((1, 0, 0), (2, 0, -1), (0, 0, 0)), regions=2)
    assert_exact(largest((1, 0.5, 0), (2, 0.5, -1), (1, 1, -0.5), (0, 0, 0)))


def test_a_corner_of_the_domain_where_three_meet() -> None:
    rows = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.25, 0.25, 0.0)]
    assert_exact(largest(*rows), Domain.box(0, 1))
    assert_exact(largest(*rows), Domain.polygon([(0.0, 0.0), (2.0, 1.0), (1.0, 2.0)]))


@pytest.mark.parametrize("pieces", [3, 8, 20])
@pytest.mark.parametrize("corner", [-1.0, 0.0], ids=["inside", "on a corner"])
def test_bias_free_functions_make_a_fan(pieces: int, corner: float) -> None:
    model = nn.Sequential(dense(normal(pieces, 2)), Max(1, keepdim=True))
    assert_exact(model, Domain.box(corner, 1))


@pytest.mark.parametrize("pieces", [12, 40])
@pytest.mark.parametrize("smallest", [False, True])
def test_random_functions(pieces: int, smallest: bool) -> None:
    sites = normal(pieces, 2) / 2
    sign = -1 if smallest else 1
    bias = (-(sites**2).sum(1) + normal(pieces, seed=1) / 8) * sign
    extreme = Min(1, keepdim=True) if smallest else Max(1, keepdim=True)
    part = assert_exact(nn.Sequential(dense(2 * sign * sites, bias), extreme))
    assert len(part) > 8


# ----------------------------------------------------------------------------- several groups


def test_borders_of_two_groups_coincide() -> None:
    one: list[Plane] = [(1, 0, 0), (0, 0, 0), (0, 0, -5)]
    assert_exact(groups(one, one), regions=2)
    assert_exact(groups(one, [(2, 1, 0), (0, 1, 0), (0, 0, -9)]), regions=2)
    bent: list[Plane] = [(1, 1, 0), (0, 1, 0), (0, -1, 0)]
    assert_exact(groups(one, bent), regions=4)


def test_borders_of_two_groups_overlap_in_part() -> None:
    # Both have a border on u = 0, one for v > 0 only and the other for v < 1/2.
    upper: list[Plane] = [(1, 1, 0), (-1, 1, 0), (0, -1, 0)]
    lower: list[Plane] = [(1, -1, 0), (-1, -1, 0), (0, 1, -1)]
    assert_exact(groups(upper, lower))


def test_the_triple_points_of_three_groups_in_one_place() -> None:
    rows = normal(9, 2, seed=3)
    model = nn.Sequential(dense(rows), maxout(3, 3))
    part = assert_exact(model)
    assert part.vertices.abs().amax(1).min() == 0
    point = torch.tensor([0.25, -0.5], dtype=torch.float64)
    assert_exact(nn.Sequential(dense(rows, -rows @ point), maxout(3, 3)), regions=len(part))


def test_a_triple_point_on_the_border_of_another_group() -> None:
    triple: list[Plane] = [(1, 1, 0), (-1, 1, 0), (0, -1, 0)]
    assert_exact(groups(triple, [(0, 1, 0), (0, -1, 0), (0, 0, -3)]))
    assert_exact(groups(triple, [(1, 2, 0), (0, 0, 0), (0, 0, -9)]))


@pytest.mark.parametrize("kernel", [2, 3])
def test_overlapping_windows_share_their_pairs(kernel: int) -> None:
    pool = nn.MaxPool1d(kernel, 1)
    model = nn.Sequential(dense(normal(6, 2), normal(6, seed=1)), nn.Unflatten(1, (1, 6)), pool)
    assert_exact(nn.Sequential(*model, nn.Flatten()))
    rows: list[Plane] = [(1, 0, 0), (0, 1, 0), (1, 0, 0), (0, 1, 0)]
    assert_exact(nn.Sequential(planes(*rows), nn.Unflatten(1, (1, 4)), pool), regions=2)


def test_overlapping_windows_with_one_winner() -> None:
    # The third and the fourth are in both windows, and win there.
    rows: list[Plane] = [(0, 0, -9), (0, 1, -9), (1, 0, 0), (-1, 0, 0), (1, 1, -9), (1, 2, -9)]
    pool = nn.MaxPool1d(4, 2)
    assert_exact(nn.Sequential(planes(*rows), nn.Unflatten(1, (1, 6)), pool), regions=2)


@pytest.mark.parametrize("pieces", [3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_groups_with_integer_weights(pieces: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(-2, 3, (4 * pieces, 3), generator=generator).double()
    model = nn.Sequential(dense(rows[:, :2], rows[:, 2]), maxout(4, pieces), dense(normal(3, 4)))
    assert_exact(nn.Sequential(*model, nn.ReLU(), dense([[1.0] * 3])), Domain.box(-3, 3))


# --------------------------------------------------------------------------- after other cuts


def test_a_border_along_an_older_edge() -> None:
    # relu(u) and relu(-u) are equal on u = 0 only, where both have bent already.
    bent = nn.Sequential(planes((1, 0, 0), (-1, 0, 0), (0, 1, -5)), nn.ReLU())
    assert_exact(nn.Sequential(bent, Max(1, keepdim=True)), regions=2)
    tilted = dense([[1.0, -1.0, 0.0], [0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    assert_exact(nn.Sequential(bent, tilted, Max(1, keepdim=True)))


def test_a_border_through_an_older_vertex() -> None:
    bent = nn.Sequential(planes((1, 0, 0), (0, 1, 0)), Abs())
    turned = dense([[1.0, 1.0], [2.0, 0.5], [0.5, 2.0]])
    assert_exact(nn.Sequential(bent, turned, Max(1, keepdim=True)))
    crossing = nn.Sequential(planes((1, 0, 0), (0, 1, 0), (1, 3, 0)), nn.LeakyReLU())
    assert_exact(nn.Sequential(crossing, dense(normal(6, 3)), maxout(2, 3)))


def test_functions_equal_on_whole_regions() -> None:
    # Left of u = 0 all are zero, right of it the last one wins.
    bent = nn.Sequential(planes((1, 0, 0), (2, 0, 0), (3, 0, 0)), nn.ReLU())
    assert_exact(nn.Sequential(bent, Max(1, keepdim=True)), regions=2)
    rows = dense(normal(8, 2), normal(8, seed=1) - 1)
    assert_exact(nn.Sequential(rows, nn.ReLU(), maxout(2, 4)))


def test_functions_equal_only_up_to_rounding() -> None:
    # a + b and (a + b) are one function in exact arithmetic, and nearly so in floats.
    a, b = normal(2, 2)
    sums = dense([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.0]])
    model = nn.Sequential(dense(torch.stack([a, b, a + b]), [5.0, 5.0, 10.0]), sums)
    assert_exact(nn.Sequential(*model, Max(1, keepdim=True)), regions=1)


@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10, 1e-12, 1e-13, 1e-14])
@pytest.mark.parametrize("seed", range(3))
def test_nearly_equal_groups(gap: float, seed: int) -> None:
    sites = normal(5, 2, seed=seed).repeat(2, 1)
    weight = sites + gap * normal(10, 2, seed=9 + seed)
    model = nn.Sequential(dense(weight, -(weight**2).sum(1) / 2), maxout(2, 5))
    part = splinecam.partition(model, BOX, device="cpu", progress=False)
    assert_valid(part)
    if part.unresolved:
        assert gap < 1e-11, "wide enough for float64"
    else:
        assert_same_cells(part, exact_partition(model, BOX), atol=ATOL, resolution=2.0**-48)


def test_padding_never_wins() -> None:
    rows = dense(normal(9, 2), normal(9, seed=1) - 30)
    image = nn.Sequential(rows, nn.Unflatten(1, (1, 3, 3)))
    for pool in (nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 2, ceil_mode=True), nn.MaxPool2d(3, 1, 1)):
        part = assert_exact(nn.Sequential(image, pool, nn.Flatten()))
        assert float(part.values.max()) < -20


def test_a_window_of_one_unit() -> None:
    rows = planes((1, 0, 0), (0, 1, 0), (1, 1, 0))
    assert_exact(nn.Sequential(rows, nn.Unflatten(1, (1, 3)), nn.MaxPool1d(1)), regions=1)
    padded = nn.MaxPool1d(2, 2, 1)  # the first window holds one unit, the second two
    assert_exact(nn.Sequential(rows, nn.Unflatten(1, (1, 3)), padded), regions=2)


@pytest.mark.parametrize("depth", [2, 3])
def test_maxima_of_maxima(depth: int) -> None:
    layers: list[nn.Module] = []
    for i in range(depth):
        inputs = 3 if i else 2
        layers += [dense(normal(12, inputs, seed=i), normal(12, seed=9 + i) / 2), maxout(3, 4)]
    part = assert_exact(nn.Sequential(*layers))
    assert len(part) > 10


# -------------------------------------------------------------------------------- sorted groups


def test_sorted_groups() -> None:
    assert_exact(
        nn.Sequential(planes((1, 0, 0), (0, 1, 0), (-1, -1, 0)), SortedGroups(3)), regions=6
    )
    equal = planes((1, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0))
    assert_exact(nn.Sequential(equal, SortedGroups(4)), regions=2)
    assert_exact(nn.Sequential(equal, SortedGroups(2)), regions=1)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_sorted_groups_in_two_layers(size: int) -> None:
    first, second = (dense(normal(6, n, seed=n), normal(6, seed=9) / 2) for n in (2, 6))
    model = nn.Sequential(first, SortedGroups(size), second, SortedGroups(2), dense(normal(2, 6)))
    assert len(assert_exact(model)) > 10


# ---------------------------------------------------------------------------- size and memory


def mixed(scale: float = 1.0) -> nn.Sequential:
    """Maxout, ReLU, pooling and sorting; the borders grow with the domain."""
    biases = [normal(n, seed=10 + n) / 2 * scale for n in (12, 6, 4)]
    return nn.Sequential(
        dense(normal(12, 2), biases[0]),
        maxout(4, 3),
        dense(normal(6, 4, seed=1), biases[1]),
        nn.ReLU(),
        nn.Unflatten(1, (1, 6)),
        nn.MaxPool1d(3, 1, 1),
        nn.Flatten(),
        dense(normal(4, 6, seed=2), biases[2]),
        SortedGroups(2),
        Maximum(),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6, 1e9])
def test_scaled_domain(scale: float) -> None:
    plain = len(exact_partition(mixed(), BOX))
    assert plain > 20
    assert_exact(mixed(scale), Domain.box(-scale, scale), regions=plain)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scaled_domain_around_fixed_functions(scale: float) -> None:
    # A huge domain sees all triple points 1e-9 diameters apart, a tiny one sees none.
    model = nn.Sequential(dense(normal(9, 2), normal(9, seed=1)), maxout(3, 3))
    assert_exact(model, Domain.box(-scale, scale), atol=1e-12)


def pooled_images(side: int) -> nn.Sequential:
    torch.manual_seed(side)
    return nn.Sequential(
        nn.Linear(2, side * side),
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(3, 2, 2, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ).double()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("model", "memory"), [(mixed(), 40_000), (pooled_images(5), 300_000)], ids=["mixed", "images"]
)
def test_tiles(model: nn.Module, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(mesh: Mesh, faces: Tensor, *, rim: bool) -> MeshTile:
        made.append(faces.shape[0])
        return tile_of(mesh, faces, rim=rim)

    monkeypatch.setattr(splinecam.engine.run, "tile_of", counted)
    part = assert_exact(model, Domain.box(-3, 3), memory=memory)
    assert len(made) > 1
    assert len(part) > 100
