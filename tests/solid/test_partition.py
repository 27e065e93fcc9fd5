"""The whole partition of a body of three dimensions, as ``sc.partition`` gives it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from exact_solids import Maxout, cells
from splinecam._util.tolerances import SAFETY
from splinecam.solid.complex import Complex
from splinecam.solid.fits import affine_fits
from splinecam.solid.partition import SolidPartition

CUBE = sc.Domain.cube(-1, 1)


def network(*sizes: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double()


def partition(model: nn.Module, body: Any = CUBE, **options: Any) -> SolidPartition:
    return sc.partition(model, body, progress=False, **options)


def test_planes_in_general_position_give_the_number_of_cells_that_is_known() -> None:
    model = network(3, 7, 1)
    with torch.no_grad():
        model[0].bias *= 0.1
    part = partition(model, sc.Domain.cube(-100, 100))
    part.validate()
    assert len(part) == 1 + 7 + 21 + 35
    assert part.cells_by_layer == {"1": 64}
    assert part.volumes.sum().item() == pytest.approx(200**3)
    assert part.faces_by_layer[""] > 6
    assert part.report()["regions"] == 64


def test_layers_with_a_maximum_and_degenerate_units_are_those_of_rational_arithmetic() -> None:
    first, last = network(3, 6, seed=4), network(2, 4, 1, seed=5)
    with torch.no_grad():
        first[0].weight[1], first[0].bias[1] = -first[0].weight[0], -first[0].bias[0]  # one plane
        first[0].weight[2], first[0].bias[2] = 0.0, -1.0  # dead
        last[0].weight[1], last[0].bias[1] = 0.0, 0.0  # zero everywhere
    flat = nn.Sequential(*first, nn.ReLU(), Maxout(3), *last)
    part, oracle = partition(flat), cells(flat, CUBE)
    part.validate()
    assert len(part) == len(oracle)
    assert part.complex.num_cells > len(part)  # a maximum of three divides regions
    expected = sorted(float(cell.volume) for cell in oracle)
    assert part.volumes.sort().values.tolist() == pytest.approx(expected, abs=1e-12)
    counts = [len(cells(flat[: k + 1], CUBE)) for k in (1, 2, 4)]
    assert list(part.cells_by_layer.values()) == counts


def test_maps_are_those_of_the_model_in_every_region() -> None:
    part = partition(model := network(3, 8, 8, 2, seed=1))
    x = torch.rand((300, 3)).double() * 2 - 1
    y, patterns = model(x).detach(), [model[:2](x) > 0, model[:4](x) > 0]
    maps = (part.gradients @ x.T).permute(2, 0, 1) + part.bias  # (300, R, 2)
    nearest = (maps - y[:, None]).abs().amax(2).min(1)
    assert float(nearest.values.max()) < 1e-12
    alike = torch.cat(patterns, 1).unique(dim=0)
    assert len(alike) <= len(nearest.indices.unique()) + 3


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_size_and_the_place_of_the_body_change_nothing(scale: float) -> None:
    model, wide = network(3, 6, 6, 1), network(3, 6, 6, 1)
    with torch.no_grad():
        wide[0].weight /= scale
        wide[0].bias -= wide[0].weight.sum(1) * 5 * scale
    part = partition(model)
    moved = partition(wide, sc.Domain.cube(4 * scale, 6 * scale))
    moved.validate()
    assert moved.cells_by_layer == part.cells_by_layer
    assert torch.allclose(moved.volumes / scale**3, part.volumes, atol=1e-9)
    assert torch.equal(moved.neighbours, part.neighbours)


def test_a_body_in_a_larger_space_has_regions() -> None:
    model = nn.Sequential(nn.Flatten(), network(6, 8, 2), nn.Softmax(1))
    corners = torch.randn((4, 2, 3), generator=torch.Generator().manual_seed(0)).double()
    part = partition(model, sc.Domain.tetrahedron(*corners))
    part.validate()
    assert part.inputs().shape == (len(part.vertices), 2, 3)
    assert part.volume == pytest.approx(part.box.volume)


def test_regions_are_neighbours_where_a_unit_switches() -> None:
    part = partition(network(3, 5, 1))
    assert len(part.neighbours) == int((part.face_regions >= 0).all(1).sum())
    assert int(part.face_units[part.face_layers == 0].max()) == 4
    assert repr(part).startswith(f"SolidPartition({len(part)} regions, ")


def test_an_affine_network_has_one_region() -> None:
    part = partition(nn.Linear(3, 2).double())
    part.validate()
    assert len(part) == 1
    assert part.neighbours.shape == (0, 2)


def test_limits_say_what_to_do() -> None:
    with pytest.raises(sc.LimitError, match="Raise max_regions"):
        partition(network(3, 12, 1), max_regions=50)
    with pytest.raises(sc.LimitError, match="The partition needs more"):
        partition(network(3, 12, 1), memory="10KB")
    for option in ({"smooth": 1e-3}, {"refine": "boundary"}, {"n_jobs": 2}, {"names": ["a"]}):
        with pytest.raises(TypeError, match="two dimensions"):
            partition(network(3, 4, 1), **option)
    with pytest.raises(sc.CaptureError, match="two dimensions"):
        partition(nn.Sequential(nn.Linear(3, 2), nn.GELU()))


def damaged(part: SolidPartition, what: str) -> SolidPartition:
    whole, arrays = part.complex, part.complex.arrays
    if what == "vertex":
        moved = whole.uvw.clone()
        moved[-1] += 1e-3
        return replace(part, complex=replace(whole, uvw=moved))
    if what == "map":
        return replace(part, bias=part.bias + 1e-4)
    if what == "slope":
        return replace(part, gradients=part.gradients * (1 + 1e-3), bias=part.bias)
    if what == "volume":
        return replace(part, cell_volumes=part.cell_volumes * (1 + 1e-6))
    if what == "side":
        sides = arrays.sides.clone()
        sides[0] ^= 1
        return replace(part, complex=replace(whole, arrays=arrays._replace(sides=sides)))
    same = torch.zeros_like(part.widest)
    return replace(part, widest=same)


@pytest.mark.parametrize("what", ["vertex", "map", "slope", "volume", "side", "region"])
def test_a_damaged_partition_is_not_valid(what: str) -> None:
    part = partition(network(3, 5, 4, 1, seed=2))
    assert part.validate().ok
    with pytest.raises(sc.ValidationError):
        damaged(part, what).validate()


def test_regions_that_rounding_may_have_made_are_reported() -> None:
    torch.manual_seed(359)  # three planes in a line, which cross in three lines up to rounding
    model = nn.Sequential(nn.Linear(5, 6, bias=False), Maxout(3)).double()
    points = torch.randn(8, 3, dtype=torch.float64) @ torch.randn(3, 5).double()
    part = partition(model, sc.Domain.polytope(points))
    assert int(part.thin.sum()) == len(part.unresolved) == 2
    assert float(part.volumes[part.thin].max()) < 1e-40
    assert part.validate().ok


def test_a_network_that_is_zero_up_to_rounding_is_valid() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        row = torch.tensor([0.1, 0.7, -0.3], dtype=torch.float64)
        model[0].weight.copy_(torch.stack([row, 3 * row]))
        model[0].bias.copy_(torch.tensor([0.4, 3 * 0.4], dtype=torch.float64))
        model[2].weight.copy_(torch.tensor([[3.0, -1.0]]))
        model[2].bias.zero_()
    part = partition(model, sc.Domain.cube(-1, 1))
    assert float(part.values.abs().max()) < 1e-14
    assert part.validate().ok
    with pytest.raises(sc.ValidationError, match="outputs at"):
        replace(part, bias=part.bias + 1e-12).validate()


def test_volumes_of_needles_are_as_precise_as_they_say() -> None:
    """The cross product of two long sides would be off by 1e10 times as much."""
    points = [
        [-9.270563849461504e-18, -6.406757240189194e-18, -1.5049988901709543e-17],
        [-9.999999974752427e-07, -6.882444260655647e-07, -1.6172152362896482e-06],
        [-8.470329472543003e-22, -2.873536516612002e-22, -8.519553727846995e-22],
        [6.776263578034403e-21, 8.796411226203787e-21, -6.7030290196328765e-21],
    ]
    whole = Complex.of(sc.Domain.tetrahedron([0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]))
    for corners in ([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], points):
        first, *others = [[Fraction(x) for x in point] for point in corners]
        a, b, c = ([x - y for x, y in zip(p, first, strict=True)] for p in others)
        normal = [b[k - 2] * c[k - 1] - b[k - 1] * c[k - 2] for k in range(3)]
        exact = abs(sum(x * y for x, y in zip(a, normal, strict=True))) / 6
        volume, _, error = replace(whole, uvw=torch.tensor(corners, dtype=torch.float64)).sizes()
        assert abs(abs(float(volume)) - float(exact)) <= SAFETY * float(error) < 1e-14


def test_a_polytope_is_the_hull_of_its_points() -> None:
    cube = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 3)
    inside = torch.stack([cube[:2].mean(0), cube[:4].mean(0), cube.mean(0), cube[3]])
    generator = torch.Generator().manual_seed(1)
    edges = torch.randn((3, 5), generator=generator).double()
    for points in (torch.cat([cube, inside]), torch.cat([inside, cube]) @ edges + 7):
        body = sc.Domain.polytope(points)
        assert len(body.corners) == 8
        assert sorted(map(len, body.sides)) == [4] * 6
        normals, offsets = body.planes
        assert bool((body.corners @ normals.T <= offsets + 1e-12).all())
        back = body.to_input(body.corners)
        assert float(torch.cdist(back, points).amin(1).max()) < 1e-12
        assert body.volume > 0
    assert sc.Domain.polytope(cube).volume == pytest.approx(1)
    ball = torch.randn((40, 3), generator=generator).double()
    ball /= ball.norm(dim=1, keepdim=True)
    body = sc.Domain.polytope(ball)
    assert (len(body.corners), len(body.sides)) == (40, 76)  # Euler: triangles alone


@pytest.mark.parametrize("inputs", [3, 6])
def test_a_polytope_has_regions_and_a_surface(inputs: int) -> None:
    generator = torch.Generator().manual_seed(inputs)
    points = torch.randn((9, 3), generator=generator).double()
    body = sc.Domain.polytope(points @ torch.randn((3, inputs), generator=generator).double())
    model = network(inputs, 5, 1, seed=1)
    part = partition(model, body)
    part.validate()
    oracle = sorted(float(cell.volume) for cell in cells(model, body))
    assert part.volumes.sort().values.tolist() == pytest.approx(oracle, abs=1e-12)
    level = float(model(body.to_input(body.middle[None])).detach())
    found = sc.surface(model, body, level=level, progress=False)
    found.validate(segments=50)
    assert len(found) > 1
    assert found.capped().closed


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (torch.rand(3, 3), "give 4 to"),
        (torch.eye(5)[:, :4], "more than three"),
        (torch.rand(5, 2), "one plane"),
        (torch.ones(5, 3), "one plane"),
    ],
)
def test_points_that_make_no_body_are_refused(points: Any, message: str) -> None:
    with pytest.raises(sc.DomainError, match=message):
        sc.Domain.polytope(points)


def test_maps_of_long_cells_are_precise() -> None:
    """The squares of a length of 1e6 lose those of a width of 1."""
    ends, way = torch.tensor([-3e5, 3e5], dtype=torch.float64), torch.tensor([0.1, -0.8, 0.6])
    way = (way / way.norm()).double()
    sides = torch.linalg.svd(way[None]).Vh[1:]
    across = torch.tensor([[0.0, 0.0], [1, 0], [0, 1]]).double() @ sides
    points = (ends[:, None, None] * way + across).reshape(-1, 3)
    gradient = torch.tensor([0.2, -0.04, 0.02], dtype=torch.float64)
    values, cell = (points @ gradient)[:, None], torch.tensor([0, 6])
    found, _, width = affine_fits(points, values, cell, torch.arange(6))
    assert float(width) == pytest.approx(0.7, abs=0.3)
    assert torch.allclose(found[0, 0], gradient, rtol=0, atol=1e-9)
