"""The exact oracle on cases known by hand, and the comparison with a fast partition."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from operator import mul
from types import SimpleNamespace
from typing import Any

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
    Residual,
    assert_same_cells,
    assert_valid,
    exact_partition,
    polygons,
)
from strategies import dense

ATOL = 1e-12


def random_net(*widths: int, seed: int = 0, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def crossings_inside(weight: Tensor, bias: Tensor, half: float) -> tuple[int, int]:
    """How many lines cut the box, and in how many points they cross in it: by plain algebra."""
    rows = torch.cat([weight, bias[:, None]], dim=1).tolist()
    lines = [tuple(map(Fraction, row)) for row in rows]
    size = Fraction(half)
    cut = sum(abs(c) < size * (abs(a) + abs(b)) for a, b, c in lines)
    crossing = 0
    for i, (a, b, c) in enumerate(lines):
        for p, q, r in lines[:i]:
            det = a * q - b * p
            crossing += abs(b * r - c * q) < size * abs(det) > abs(c * p - a * r)
    return cut, crossing


# ----------------------------------------------------------------------- cases known by hand


@pytest.mark.parametrize("seed", range(4))
def test_lines_cut_a_box_into_one_plus_lines_plus_crossings(seed: int) -> None:
    model = random_net(2, 12, 1, seed=seed).double()
    exact = exact_partition(model, Domain.box(-2, 2))
    cut, crossing = crossings_inside(model[0].weight, model[0].bias, 2.0)
    assert len(exact) == 1 + cut + crossing
    assert exact.area == 16


def test_taxicab_norm_has_four_cells() -> None:
    model = nn.Sequential(dense([[1, 0], [0, 1]]), Abs(), dense([[1, 1]]))
    exact = exact_partition(model, Domain.box(-1, 1))
    assert {cell.pattern: cell.weight for cell in exact.cells} == {
        (0, 0): ((-1, -1),),
        (0, 1): ((-1, 1),),
        (1, 0): ((1, -1),),
        (1, 1): ((1, 1),),
    }
    assert all(cell.area == 1 and cell.bias == (0,) for cell in exact.cells)


@pytest.mark.parametrize("units", [3, 8, 16])
def test_bias_free_layer_has_twice_as_many_cells_as_units(units: int) -> None:
    torch.manual_seed(units)
    model = nn.Sequential(nn.Linear(2, units, bias=False), nn.ReLU(), nn.Linear(units, 1))
    assert len(exact_partition(model, Domain.box(-1, 1))) == 2 * units


def test_two_linear_layers_before_one_relu_are_one() -> None:
    torch.manual_seed(0)
    first, second, last = (nn.Linear(a, b).double() for a, b in ((2, 4), (4, 5), (5, 1)))
    with torch.no_grad():
        for layer in (first, second):  # eighths, so that the product is exact in float64
            layer.weight.copy_((layer.weight * 8).round() / 8)
            layer.bias.copy_((layer.bias * 8).round() / 8)
        product = dense(second.weight @ first.weight, second.weight @ first.bias + second.bias)
    domain = Domain.box(-3, 3)
    two = exact_partition(nn.Sequential(first, second, nn.ReLU(), last), domain)
    one = exact_partition(nn.Sequential(product, nn.ReLU(), last), domain)
    assert set(two.cells) == set(one.cells)
    assert len(two) > 1


def test_integer_lines_make_a_grid_and_lines_on_the_border_do_not_cut() -> None:
    levels = [0, 1, 2, 3]  # 0 and 3 lie on the border
    weight = [[1, 0]] * 4 + [[0, 1]] * 4
    model = nn.Sequential(dense(weight, [-x for x in levels * 2]), nn.ReLU(), dense([[1] * 8]))
    exact = exact_partition(model, Domain.box(0, 3))
    assert len(exact) == 9
    assert all(cell.area == 1 and len(cell.vertices) == 4 for cell in exact.cells)


def test_three_lines_through_a_point_and_one_that_touches_a_corner() -> None:
    weight, bias = [[1, 0], [0, 1], [1, -1], [1, 1]], [0, 0, 0, -2]
    model = nn.Sequential(dense(weight, bias), nn.ReLU(), dense([[1, 1, 1, 1]]))
    exact = exact_partition(model, Domain.box(-1, 1))
    assert len(exact) == 6
    assert sorted(cell.area for cell in exact.cells) == [Fraction(1, 2)] * 4 + [1, 1]


def test_second_layer_bends_at_the_first() -> None:
    # relu(1/2 - |x|): the second layer's line u = +-1/2 is one curve, bent where x changes sign.
    model = nn.Sequential(dense([[1, 0]]), Abs(), dense([[-1]], [0.5]), nn.ReLU())
    exact = exact_partition(model, Domain.box(-1, 1))
    assert sorted((cell.pattern, cell.weight[0][0]) for cell in exact.cells) == [
        ((0, 0), 0),
        ((0, 1), 1),
        ((1, 0), 0),
        ((1, 1), -1),
    ]


def test_a_cell_has_no_collinear_corner() -> None:
    exact = exact_partition(random_net(2, 5, 5, 2), Domain.box(-1, 1))
    for cell in exact.cells:
        points = [*cell.vertices, *cell.vertices[:2]]
        for p, q, r in zip(points, points[1:], points[2:], strict=False):
            assert (q[0] - p[0]) * (r[1] - q[1]) > (q[1] - p[1]) * (r[0] - q[0])


def test_constant_and_dead_networks_have_one_cell() -> None:
    zero = nn.Sequential(dense([[0, 0]], [0]), nn.ReLU(), dense([[3]], [1]))
    dead = nn.Sequential(dense([[1, 1]], [-5]), nn.ReLU(), dense([[3]], [1]), nn.ReLU())
    for model in (zero, dead):
        exact = exact_partition(model, Domain.box(-1, 1))
        assert len(exact) == 1
        assert exact.cells[0].bias == (1,)


# ------------------------------------------------------------------- the maps are the model


def forward(layers: nn.Sequential, x: list[Fraction]) -> list[Fraction]:
    """The model in exact arithmetic, at one point."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            pairs = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
            x = [sum(map(mul, map(Fraction, row), x)) + Fraction(b) for row, b in pairs]
        elif isinstance(layer, Residual):
            x = [a + b for a, b in zip(x, forward(layer.body, x), strict=True)]
        elif isinstance(layer, nn.Hardtanh):
            x = [min(max(z, Fraction(layer.min_val)), Fraction(layer.max_val)) for z in x]
        elif isinstance(layer, nn.LeakyReLU):
            x = [z if z > 0 else z * Fraction(layer.negative_slope) for z in x]
        elif isinstance(layer, nn.Softshrink):
            knot = Fraction(layer.lambd)
            x = [z - min(max(z, -knot), knot) for z in x]
        elif isinstance(layer, Abs):
            x = [abs(z) for z in x]
        else:
            assert isinstance(layer, nn.ReLU)
            x = [max(z, Fraction(0)) for z in x]
    return x


ACTIVATIONS = [nn.ReLU, nn.LeakyReLU, Abs, nn.ReLU6, nn.Hardtanh, nn.Softshrink]


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_maps_equal_the_model_in_exact_arithmetic(act: type[nn.Module]) -> None:
    model = random_net(2, 5, 4, 2, seed=1, act=act)
    exact = exact_partition(model, Domain.box(-3, 3))
    assert exact.area == 36
    assert len(exact) > 3
    for cell in exact.cells:
        for point in (cell.center, *cell.vertices):
            assert cell.value(point) == forward(model, list(point))


def test_maps_equal_a_residual_model_in_exact_arithmetic() -> None:
    torch.manual_seed(0)
    blocks = [Residual(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))) for _ in "ab"]
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), *blocks, nn.Linear(3, 1))
    exact = exact_partition(model, Domain.box(-2, 2))
    assert exact.area == 16
    assert len(exact) > 3
    for cell in exact.cells:
        assert cell.value(cell.center) == forward(model, list(cell.center))


def value_off(model: nn.Module, exact: ExactPartition) -> float:
    """The largest difference to the model in float64, at the cells' centres."""
    centers = torch.tensor(np.array([cell.center for cell in exact.cells], dtype=float))
    with torch.no_grad():
        outputs = model.double()(exact.domain.embed(centers)).flatten(1)
    wanted = np.array([cell.value(cell.center) for cell in exact.cells], dtype=float)
    return float(np.abs(outputs.numpy() - wanted).max())


def test_convolutions_prelu_and_a_plane_in_input_space() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1),
        nn.PReLU(2, init=0.25),
        nn.Flatten(),
        nn.Unflatten(1, (2, 2, 2)),
        nn.ConvTranspose2d(2, 2, 2, groups=2),
        nn.Hardsigmoid(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(18, 3),
    ).eval()
    domain = Domain.around(torch.randn(1, 4, 4), side=6.0, seed=0)
    exact = exact_partition(model, domain)
    assert float(exact.area) == pytest.approx(36)
    assert len(exact) > 20
    assert value_off(model, exact) < ATOL


def test_the_model_stays_as_it_was() -> None:
    model = random_net(2, 3, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    exact_partition(model, Domain.box(-1, 1))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("layer", [nn.GELU(), nn.Conv1d(2, 2, 1, padding_mode="circular")])
def test_unknown_layers_are_refused(layer: nn.Module) -> None:
    with pytest.raises(CaptureError, match="exact oracle"):
        exact_partition(nn.Sequential(layer), Domain.box(-1, 1))


def test_reprs_are_short_and_say_where() -> None:
    exact = exact_partition(random_net(2, 3, 1), Domain.box(-1, 1))
    assert repr(exact).startswith(f"ExactPartition({len(exact)} cells, area 4")
    assert "corners around (" in repr(exact.cells[0])


# ------------------------------------------------------------ the comparison sees every error


def as_partition(exact: ExactPartition, cells: list[ExactCell] | None = None) -> Any:
    """What a fast partition with these cells looks like, with no vertex shared."""
    cells = list(exact.cells) if cells is None else cells
    corners = [np.array(cell.vertices, dtype=float) for cell in cells]
    count = sum(map(len, corners))
    return SimpleNamespace(
        domain=exact.domain,
        vertices=torch.tensor(np.concatenate(corners)),
        mesh=SimpleNamespace(offsets=torch.tensor(np.cumsum([0, *map(len, corners)]))),
        _face_vertices=torch.arange(count),
        weight=torch.tensor(np.array([cell.weight for cell in cells], dtype=float)),
        bias=torch.tensor(np.array([cell.bias for cell in cells], dtype=float)),
        areas=torch.tensor(np.array([cell.area for cell in cells], dtype=float)),
    )


@pytest.fixture
def exact() -> ExactPartition:
    return exact_partition(random_net(2, 6, 4, 2, seed=3), Domain.box(-2, 2))


def test_comparison_accepts_the_same_cells_in_another_order(exact: ExactPartition) -> None:
    part = as_partition(exact, list(reversed(exact.cells)))
    assert_same_cells(part, exact, atol=ATOL)
    assert len(polygons(part)) == len(exact) > 5


def test_comparison_ignores_corners_on_straight_sides(exact: ExactPartition) -> None:
    part = as_partition(exact)
    middle = part.vertices[:2].mean(0, keepdim=True)
    part.vertices = torch.cat([part.vertices, middle])
    order = part._face_vertices
    part._face_vertices = torch.cat([order[:1], torch.tensor([len(order)]), order[1:]])
    part.mesh.offsets[1:] += 1
    assert_same_cells(part, exact, atol=ATOL)


def test_comparison_sees_a_lost_cut(exact: ExactPartition) -> None:
    other = exact_partition(
        nn.Sequential(dense([[0, 0]], [1]), nn.ReLU(), dense([[1], [1]])), exact.domain
    )
    with pytest.raises(AssertionError, match="share one region"):
        assert_same_cells(as_partition(other), exact, atol=ATOL)


def test_comparison_sees_an_invented_cut(exact: ExactPartition) -> None:
    one = exact_partition(nn.Sequential(dense([[0, 1], [1, 0]])), exact.domain)
    with pytest.raises(AssertionError, match="is no exact cell"):
        assert_same_cells(as_partition(exact), one, atol=ATOL)


def test_comparison_sees_a_lost_cell(exact: ExactPartition) -> None:
    for lost in range(len(exact)):
        cells = [cell for i, cell in enumerate(exact.cells) if i != lost]
        with pytest.raises(AssertionError, match="share one region"):
            assert_same_cells(as_partition(exact, cells), exact, atol=ATOL)


def test_comparison_sees_a_moved_corner(exact: ExactPartition) -> None:
    for corner in range(0, len(as_partition(exact).vertices), 7):
        part = as_partition(exact)
        part.vertices[corner] += 1e-9
        with pytest.raises(AssertionError, match="no corner at"):
            assert_same_cells(part, exact, atol=ATOL)
        assert_same_cells(part, exact, atol=1e-8)


@pytest.mark.parametrize("name", ["weight", "bias", "areas"])
def test_comparison_sees_wrong_numbers(exact: ExactPartition, name: str) -> None:
    part = as_partition(exact)
    getattr(part, name)[3] += 1e-6
    word = {"weight": "weight", "bias": "output", "areas": "area"}[name]
    with pytest.raises(AssertionError, match=word):
        assert_same_cells(part, exact, atol=ATOL)


def test_comparison_forgives_cells_below_the_resolution() -> None:
    gap = 1e-7
    wide = nn.Sequential(dense([[1, 0], [1, 0]], [0, 0]), nn.ReLU(), dense([[1, 1]]))
    narrow = nn.Sequential(dense([[1, 0], [1, 0]], [0, gap]), nn.ReLU(), dense([[1, 1]]))
    two, three = (exact_partition(model, Domain.box(-1, 1)) for model in (wide, narrow))
    assert (len(two), len(three)) == (2, 3)
    assert_same_cells(as_partition(two), three, atol=1e-6, resolution=1e-6)
    assert_same_cells(as_partition(three), two, atol=1e-6, resolution=1e-6)
    for part, exact in ((two, three), (three, two)):
        with pytest.raises(AssertionError):
            assert_same_cells(as_partition(part), exact, atol=1e-6)


def test_assert_valid_asks_the_partition() -> None:
    asked = []
    assert_valid(SimpleNamespace(validate=lambda: asked.append(True)))  # type: ignore[arg-type]
    assert asked
