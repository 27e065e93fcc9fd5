"""Degenerate inputs are ordinary inputs: each gives the exact oracle's cells.

Near-degenerate ones give them too, or the partition says what it could not resolve, and where.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam
from splinecam.geometry.domain import Domain
from splinecam.testing import Abs, assert_same_cells, assert_valid, exact_partition
from strategies import ACTIVATIONS, dense

ATOL = 1e-9
BOX = Domain.box(-1, 1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float32 numbers in float64: small multiples and differences of them are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).double()


def f64(numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def net(*layers: tuple[Any, Any], act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Hidden layers (weight, bias), each with an activation, and the sum of the last one."""
    modules: list[nn.Module] = []
    for weight, bias in layers:
        modules += [dense(weight, bias), act()]
    return nn.Sequential(*modules, dense([[1.0] * len(layers[-1][0])])).eval()


def fast(model: nn.Module, domain: Domain = BOX) -> Any:
    return splinecam.partition(model, domain, device="cpu", progress=False)


def assert_exact(
    model: nn.Module, domain: Domain = BOX, *, regions: int | None = None, atol: float = ATOL
) -> Any:
    """The partition, after seeing that it is valid, complete and the oracle's."""
    exact = exact_partition(model, domain)
    if regions is not None:
        assert len(exact) == regions
    part = fast(model, domain)
    assert not part.unresolved
    assert_same_cells(part, exact, atol=atol)
    assert_valid(part)
    return part


# -------------------------------------------------------------------------------- concurrences


@pytest.mark.parametrize("units", [3, 8, 16])
def test_bias_free_layer_with_the_origin_inside(units: int) -> None:
    assert_exact(net((normal(units, 2, seed=units), None)), regions=2 * units)


@pytest.mark.parametrize(
    "domain",
    [Domain.box((-1, 0), (1, 1)), Domain.box(0, 1), Domain.box(1, 2), Domain.box((0, -3), (1, 1))],
    ids=["on an edge", "on a corner", "outside", "on an edge, not in the middle"],
)
@pytest.mark.parametrize("units", [3, 8, 16])
def test_bias_free_layer_with_the_origin_elsewhere(units: int, domain: Domain) -> None:
    assert_exact(net((normal(units, 2, seed=units), None)), domain)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("corner", [-1.0, 0.0], ids=["inside", "on a corner"])
def test_deep_bias_free_network_is_a_fan(depth: int, corner: float) -> None:
    layers = [(normal(5, 2 if i == 0 else 5, seed=i), None) for i in range(depth)]
    part = assert_exact(net(*layers), Domain.box(corner, 1))
    assert part.vertices.abs().amin(0).max() == 0, "the origin is a vertex"


def test_polygon_with_the_origin_on_a_slanted_edge() -> None:
    corners = f64([[-3.0, -1.0], [3.0, 1.0], [-1.0, 4.0]])
    assert_exact(net((normal(8, 2), None)), Domain.polygon(corners))


@pytest.mark.parametrize("lines", [3, 7, 50])
def test_many_lines_through_one_point_that_is_not_the_origin(lines: int) -> None:
    weight = normal(lines, 2)
    point = f64([0.25, -0.5])
    assert_exact(net((weight, -weight @ point)), regions=2 * lines)


def test_integer_grid() -> None:
    levels = [float(x) for x in range(-2, 3)]
    weight = [[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5
    assert_exact(net((weight, levels * 2)), Domain.box(-3, 3), regions=36)


def test_integer_grid_with_diagonals_through_its_nodes() -> None:
    levels = [float(x) for x in range(-2, 3)]
    weight = [[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5 + [[1.0, 1.0]] * 5 + [[1.0, -1.0]] * 5
    assert_exact(net((weight, levels * 4)), Domain.box(-3, 3))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_integer_weights_in_three_layers(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = [(6, 2), (6, 6), (4, 6)]
    layers = [
        (torch.randint(-2, 3, size, generator=generator), torch.randint(-2, 3, size[:1]))
        for size in sizes
    ]
    assert_exact(net(*layers), Domain.box(-3, 3))


# ----------------------------------------------------------------- repeated and useless units


@pytest.mark.parametrize("factor", [1.0, -1.0, 3.0, -0.5])
def test_repeated_units_add_nothing(factor: float) -> None:
    weight, bias = normal(7, 2), normal(7, seed=1) / 2
    alone = assert_exact(net((weight, bias)))
    twice = (torch.cat([weight, factor * weight]), torch.cat([bias, factor * bias]))
    assert len(assert_exact(net(twice))) == len(alone)


def test_one_duplicate_unit() -> None:
    weight, bias = normal(6, 2, seed=2), normal(6, seed=3) / 4
    alone = assert_exact(net((weight, bias)))
    twice = (torch.cat([weight, weight[:1]]), torch.cat([bias, bias[:1]]))
    assert_exact(net(twice), regions=len(alone))


def test_repeated_units_in_the_second_layer() -> None:
    first = (normal(5, 2), normal(5, seed=1) / 2)
    weight, bias = normal(4, 5, seed=2), normal(4, seed=3) / 2
    alone = assert_exact(net(first, (weight, bias)))
    second = (torch.cat([weight, -weight, 3 * weight]), torch.cat([bias, -bias, 3 * bias]))
    assert_exact(net(first, second), regions=len(alone))


def test_zero_units() -> None:
    weight, bias = normal(6, 2), normal(6, seed=1) / 2
    zeros = torch.zeros(3, 2).double()
    constants = f64([0.0, 1.0, -1.0])
    alone = assert_exact(net((weight, bias)))
    assert_exact(
        net((torch.cat([weight, zeros]), torch.cat([bias, constants]))),
        regions=len(alone),
    )


def test_only_zero_units() -> None:
    assert_exact(net(([[0.0, 0.0]] * 3, None), ([[0.0] * 3] * 2, None)), regions=1)


def test_unit_that_is_zero_on_whole_cells() -> None:
    # relu(u) - relu(u) is zero everywhere, relu(u) alone on half of the domain.
    model = net(([[1.0, 0.0], [1.0, 0.0]], None), ([[1.0, -1.0], [1.0, 0.0]], None))
    assert_exact(model, regions=2)


def test_unit_that_vanishes_only_up_to_rounding() -> None:
    # (a + b) - a - b is zero in exact arithmetic, but not in floats; nothing may be cut by it.
    a, b = normal(2, 2)
    model = net((torch.stack([a, b, a + b]), [5.0, 5.0, 10.0]), ([[-1.0, -1.0, 1.0]], None))
    assert_exact(model, regions=1)


def test_unit_that_vanishes_on_a_cell_only_up_to_rounding() -> None:
    # 3(u - 3v + 2) - (3u - 3v + 1) - 3(2 - 2v) + 1 is zero, but rounding gives it random signs.
    first = ([[1.0, -3.0], [3.0, -3.0], [0.0, 2.0]], [2.0, 1.0, -2.0])
    second = ([[3.0, 0.0, 1.0], [3.0, -1.0, -3.0]], [-2.0, 1.0])
    assert_exact(net(first, second, act=Abs), Domain.box((0, 0), (1, 2)))


def test_network_constant_on_the_domain() -> None:
    assert_exact(net((normal(8, 2), [100.0] * 8), (normal(4, 8), [1000.0] * 4)), regions=1)
    assert_exact(net((normal(8, 2), [-100.0] * 8)), regions=1)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_dead_layer(dead: int) -> None:
    layers = [(normal(5, 2), normal(5, seed=1) / 2)]
    layers += [(normal(5, 5, seed=i), normal(5, seed=9 + i) / 2) for i in (2, 3)]
    layers[dead] = (layers[dead][0], torch.full((5,), -1000.0).double())
    assert_exact(net(*layers))


def test_layers_of_one_unit() -> None:
    first = ([[1.0, 0.5]], [0.25])
    assert_exact(net(first), regions=2)
    assert_exact(net(first, ([[1.0]], [-0.25])), regions=3)
    assert_exact(net(first, ([[1.0]], [-0.25]), ([[-1.0]], [0.125])), regions=4)


def test_taxicab_norm() -> None:
    assert_exact(net(([[1.0, 0.0], [0.0, 1.0]], None), act=Abs), regions=4)


def test_two_linear_layers_before_one_relu_are_one() -> None:
    # The product of the two has as many lines as the second layer has units, not more.
    units = 12
    first, second = dense(normal(20, 2), normal(20, seed=1)), dense(normal(units, 20, seed=2))
    model = nn.Sequential(first, second, nn.ReLU(), dense([[1.0] * units])).eval()
    part = assert_exact(model)
    assert len(part) <= 1 + units + math.comb(units, 2)


# ------------------------------------------------------------------------ domains and their edges


def test_line_along_a_domain_edge() -> None:
    # u = -1 and v = 1 are edges, u = 0 is a cut.
    assert_exact(net(([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [1.0, -1.0, 0.0])), regions=2)


def test_lines_through_corners() -> None:
    weight = [[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [2.0, 1.0], [1.0, 3.0]]
    assert_exact(net((weight, [0.0, 0.0, -2.0, -1.0, 2.0])))


def test_bent_line_along_a_domain_edge() -> None:
    # The second layer vanishes on relu(u) = 1/2: inside for u > 0; and on the edge v = 1.
    first = ([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0])
    assert_exact(net(first, ([[1.0, 0.0], [0.0, 1.0]], [-0.5, -2.0])), regions=3)


def test_unclosed_and_closed_polygons_are_the_same() -> None:
    corners = f64([[-1.0, -1.0], [1.0, -1.0], [1.5, 0.5], [-0.5, 1.0]])
    model = net((normal(9, 2), normal(9, seed=1) / 2))
    opened = assert_exact(model, Domain.polygon(corners))
    closed = assert_exact(model, Domain.polygon(torch.cat([corners, corners[:1]])))
    assert len(opened) == len(closed)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e6, 1e9])
@pytest.mark.parametrize("bias", [0.0, 0.5], ids=["bias-free", "biased"])
def test_scaled_domain(scale: float, bias: float) -> None:
    # The lines shrink or grow with the domain.
    first = (normal(6, 2), normal(6, seed=1) * bias * scale)
    second = (normal(6, 6, seed=2), normal(6, seed=3) * bias * scale)
    part = assert_exact(net(first, second), Domain.box(-scale, scale))
    unscaled = ((first[0], first[1] / scale), (second[0], second[1] / scale))
    assert len(part) == len(assert_exact(net(*unscaled)))


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_scaled_domain_around_fixed_lines(scale: float) -> None:
    # A huge domain sees all crossings 1e-9 diameters apart, a tiny one sees none.
    domain = Domain.box(-scale, scale)
    assert_exact(net((normal(6, 2), normal(6, seed=1))), domain, atol=1e-13)


def test_tiny_domain_far_from_the_origin() -> None:
    weight = normal(6, 2)
    point = f64([3.0, -2.0])
    bias = -weight @ point
    domain = Domain.box((3 - 2**-20, -2 - 2**-20), (3 + 2**-20, -2 + 2**-20))
    assert_exact(net((weight, bias)), domain, regions=12)


@pytest.mark.parametrize("aspect", [1e3, 1e6])
def test_sliver_domain(aspect: float) -> None:
    first = (normal(8, 2), normal(8, seed=1) / 2)
    assert_exact(
        net(first, (normal(6, 8, seed=2), normal(6, seed=3))), Domain.box((-1, 0), (1, 2 / aspect))
    )


def test_sliver_domain_along_a_line() -> None:
    assert_exact(
        net(([[0.0, 1.0], [1e-6, 1.0]], [-1e-6, -1e-6])), Domain.box((-1, 0), (1, 2e-6)), regions=4
    )


def test_sliver_triangle() -> None:
    corners = f64([[-1.0, 0.0], [1.0, 0.0], [0.3, 1e-6]])
    assert_exact(net((normal(8, 2), normal(8, seed=1) / 2)), Domain.polygon(corners))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_thin_cells_have_exact_slopes(act: str) -> None:
    # Values at the corners say nothing about slopes across a cell 1e-10 wide.
    first = nn.Sequential(dense([[1.0, 0.5]] * 2, [0.25, 0.25 + 2.0**-33]), ACTIVATIONS[act]())
    model = nn.Sequential(first, dense([[1.0, 2.0], [-1.0, 1.0]])).double().eval()
    assert_exact(model, Domain.box(-4, 4))


# ----------------------------------------------------------------------------- near-degenerate


def assert_right_or_says_where(
    model: nn.Module, off: Callable[[float, float], float], *, atol: float = ATOL
) -> None:
    """The oracle's cells, or entries in ``unresolved`` whose places are near the difficulty.

    ``off(u, v)`` is the distance of a place from it. No area is ever lost.
    """
    part = fast(model)
    exact = exact_partition(model, BOX)
    assert float(part.areas.sum()) == pytest.approx(float(BOX.area), rel=ATOL)
    if part.unresolved:
        for entry in part.unresolved:
            assert entry.reason
            assert abs(off(*entry.place)) < 1e-5, f"{entry} is not where the difficulty is"
    else:
        # Cells thinner than the spacing of floats exist in exact arithmetic only.
        assert_same_cells(part, exact, atol=atol, resolution=2.0**-52)
        assert_valid(part)


GAPS = [1e-6, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_two_parallel_lines(gap: float, slope: float) -> None:
    model = net(([[1.0, slope]] * 2, [0.1, 0.1 + gap]))
    assert len(exact_partition(model, BOX)) == 3
    assert_right_or_says_where(model, lambda u, v: u + slope * v + 0.1)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("seed", range(3))
def test_two_parallel_lines_crossed_by_others(gap: float, seed: int) -> None:
    weight = torch.cat([f64([[1.0, 0.5]] * 2), normal(6, 2, seed=seed)])
    bias = torch.cat([f64([0.1, 0.1 + gap]), normal(6, seed=9 + seed) / 3])
    assert_right_or_says_where(net((weight, bias)), lambda u, v: u + 0.5 * v + 0.1)


@pytest.mark.parametrize("gap", GAPS)
def test_pencil_of_parallel_lines_crossed_by_another(gap: float) -> None:
    weight = torch.cat([f64([[1.0, 0.5]] * 10), normal(4, 2)])
    bias = torch.cat([0.1 + gap * torch.arange(10).double(), normal(4, seed=1) / 3])
    assert_right_or_says_where(net((weight, bias)), lambda u, v: u + 0.5 * v + 0.1)


@pytest.mark.parametrize("angle", GAPS)
@pytest.mark.parametrize("others", [0, 6])
def test_two_lines_crossing_at_a_tiny_angle(angle: float, others: int) -> None:
    weight = torch.cat([f64([[1.0, 0.5], [1.0 + angle, 0.5]]), normal(others, 2)])
    bias = torch.cat([f64([0.1, 0.1]), normal(others, seed=1) / 3])
    # Where so flat a crossing lies is known only up to rounding over angle.
    atol = max(ATOL, 2.0**-50 / angle)
    assert_right_or_says_where(net((weight, bias)), lambda u, v: u + 0.5 * v + 0.1, atol=atol)


@pytest.mark.few(2)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("lines", [3, 10, 50])
def test_lines_near_one_point(gap: float, lines: int) -> None:
    weight = normal(lines, 2, seed=4)
    weight = weight / weight.norm(dim=1, keepdim=True)
    point = f64([0.3, -0.2])
    model = net((weight, gap * normal(lines, seed=5) - weight @ point))
    assert_right_or_says_where(model, lambda u, v: math.dist((u, v), (0.3, -0.2)) - 1e3 * gap)


@pytest.mark.parametrize("gap", GAPS)
def test_lines_near_a_corner_of_the_domain(gap: float) -> None:
    weight = normal(12, 2, seed=6)
    weight = weight / weight.norm(dim=1, keepdim=True)
    model = net((weight, gap * normal(12, seed=7) - weight.sum(1)))
    assert_right_or_says_where(model, lambda u, v: math.dist((u, v), (1.0, 1.0)))


@pytest.mark.parametrize("gap", GAPS)
def test_line_near_a_domain_edge(gap: float) -> None:
    model = net(([[1.0, 0.0], [0.3, 1.0]], [-1.0 + gap, 0.0]))
    assert len(exact_partition(model, BOX)) == 4
    assert_right_or_says_where(model, lambda u, v: u - 1)


@pytest.mark.parametrize("gap", GAPS)
def test_second_layer_near_the_first(gap: float) -> None:
    # relu(u) - gap changes sign at u = gap, next to the first layer's line u = 0.
    model = net(([[1.0, 0.0], [0.4, 1.0]], None), ([[1.0, 0.0], [1.0, 1.0]], [-gap, -0.3]))
    assert_right_or_says_where(model, lambda u, v: u)


@pytest.mark.parametrize("gap", GAPS)
def test_unit_that_nearly_cancels(gap: float) -> None:
    # (v + 4 + gap u) - (v + 4) is tiny everywhere, and changes sign at u = 0.
    model = net(([[0.0, 1.0], [gap, 1.0]], [4.0, 4.0]), ([[-1.0, 1.0]], None))
    part = fast(model)
    exact = exact_partition(model, BOX)
    assert len(exact) == 2
    # Rounding of 4 + v moves the line where the two cancel by so much.
    assert part.unresolved or len(part) == 2
    if not part.unresolved:
        assert_same_cells(part, exact, atol=max(ATOL, 2.0**-48 / gap))


@pytest.mark.parametrize("angle", GAPS)
def test_line_that_grazes_a_domain_edge(angle: float) -> None:
    # It leaves the edge u = 1 at v = 0.4 and meets v = 0.5 only 0.1 angle away from that edge.
    model = net(([[-1.0, -angle], [0.0, -1.0]], [1.0 + 0.4 * angle, 0.5]))
    assert len(exact_partition(model, BOX)) == 4
    assert_right_or_says_where(model, lambda u, v: u - 1)


@pytest.mark.parametrize("angle", GAPS)
def test_second_layer_that_grazes_the_first(angle: float) -> None:
    # On u > 0 the second layer's line is u = angle (v - 0.4); v = 0.5 cuts it just beside u = 0.
    first = ([[1.0, 0.0], [0.0, 1.0]], [0.0, 2.0])
    model = net(first, ([[1.0, -angle], [0.0, 1.0]], [2.4 * angle, -2.5]))
    assert_right_or_says_where(model, lambda u, v: u)


def test_splitter_that_grazes_a_corner_is_led_through_it() -> None:
    weight = [[0.3233489692211151, -1.0], [1.0, -2.1990842306862657e-12], [1.0, 0.0], [0.0, -1.0]]
    bias = [-0.228084996342659, -5.014759224195031e-13, 0.0, -0.22807076573371887]
    part = fast(net((weight, bias), act=nn.LeakyReLU))
    assert_valid(part)
    assert float(part.areas.min()) >= 0


def test_doubtful_cuts_excuse_the_regions_they_blur() -> None:
    weight = [
        [0.7573915719985962, -1.0],
        [-1.0, -0.7e-13],
        [0.0, -1.0],
        [0.77106112241745, -1.0],
        [0.0, -1.0],
        [0.0, -1.0],
    ]
    bias = [
        -0.8433166742324829,
        1.0,
        -0.073944091796875,
        -0.8570978045463562,
        0.29191458225250244,
        -0.3093908429145813,
    ]
    part = fast(net((weight, bias)))
    assert part.unresolved
    assert_valid(part)
    assert part.validate().excused > 0
