"""Refinement along the boundary, judged by sums of sines, whose second derivatives are known."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.engine.affine_maps import fit_maps
from splinecam.errors import LimitError
from splinecam.geometry.checks import check_mesh
from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.smooth.boundary_refinement import Bounded, Goal, band_shares, refined
from splinecam.smooth.refinement import bisected, closed, squared_radii, stitched, triangulated
from splinecam.smooth.region_bounds import _lattice

HALF = 0.7  # of the side of the domain, with which local coordinates are plane coordinates
LAYER = 7


class Everywhere:
    """The same bounds on the second derivatives in every triangle."""

    def __init__(self, curvature: Tensor, branch: float = 0.0):
        self.curvature, self.branch = curvature, branch

    def __call__(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        curved = squared_radii(corners)[:, None] / 2 * self.curvature
        return curved.expand(2, -1, -1), torch.full_like(curved, self.branch)


def sines(outputs: int, units: int = 6, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A network with one layer of sines, and bounds on the second derivatives of its outputs."""
    torch.manual_seed(seed)
    first, last = nn.Linear(2, units).double(), nn.Linear(units, outputs).double()
    first.weight.data = 3 * torch.randn(units, 2, dtype=torch.float64)
    last.weight.data = torch.randn(outputs, units, dtype=torch.float64) / units
    last.bias.data.zero_()

    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    curvature = last.weight.abs() @ first.weight.square().sum(1)
    return nn.Sequential(first, Sine(), last), curvature.detach()


def replaced(model: nn.Module, curvature: Tensor, knots: int = 60) -> Bounded:
    """The partition of the network with a table in place of the sine, and proved bounds."""
    places = torch.linspace(-15, 15, knots, dtype=torch.float64)
    table = sc.nn.PiecewiseLinear(places, torch.sin(places))
    net = nn.Sequential(model[0], table, model[2])
    part = sc.partition(net, sc.Domain.box(-HALF, HALF), device="cpu", progress=False)
    assert part._frame.scale == 1
    return bounded(part.mesh, part.values, model, curvature)


def bounded(
    mesh: Mesh, values: Tensor, real: Callable[[Tensor], Tensor], curvature: Tensor
) -> Bounded:
    with torch.no_grad():
        errors = (real(mesh.uv) - values).abs()
    box = mesh.boxes()
    square = (box[:, 2:] - box[:, :2]).square().sum(1) / 4
    rows = mesh.owners()[:, None].expand(-1, values.shape[1])
    corners = torch.zeros(mesh.num_faces, values.shape[1], dtype=torch.float64)
    corners = corners.scatter_reduce(0, rows, errors[mesh.corner_vertices()], "amax")
    return Bounded(mesh, values, corners + square[:, None] / 2 * curvature)


def tolerance(outputs: int, value: float = 1e-3) -> Tensor:
    return torch.full((outputs,), value, dtype=torch.float64)


def refine(start: Bounded, model: Callable[[Tensor], Tensor], curvature: Tensor, goal: Goal):
    with torch.no_grad():
        return refined(start, model, Everywhere(curvature), goal, LAYER)


def assert_fits(found: Bounded, area: float = 4 * HALF * HALF) -> None:
    """Raise unless the mesh is valid and the values of each face lie on one plane."""
    failed = [str(check) for check in check_mesh(found.mesh, area) if not check.ok]
    assert not failed
    fit = fit_maps(found.mesh, found.values)
    assert fit.off < 1e-12
    assert found.bounds.shape == (found.mesh.num_faces, found.values.shape[1])


def anywhere(count: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1) * HALF


@pytest.mark.few(1)
@pytest.mark.parametrize("outputs", [1, 3])
def test_bounds_hold_and_little_is_left_undecided(outputs: int) -> None:
    model, curvature = sines(outputs)
    start = replaced(model, curvature)
    goal = Goal(tolerance(outputs), share=1e-3, level=0.05)
    found = refine(start, model, curvature, goal)
    assert_fits(found)
    assert found.undecided <= goal.share
    assert found.mesh.num_faces < 30_000
    # The map of each face, at random points, against the network.
    uv = anywhere(100_000)
    face = Locator(found.mesh)(uv)
    fit = fit_maps(found.mesh, found.values)
    step = (uv - fit.anchor[face])[:, :, None]
    said = fit.value[face] + (fit.weight[face] @ step)[:, :, 0]
    with torch.no_grad():
        truth = model(uv)
    bound = found.bounds[face]
    assert bool(((said - truth).abs() <= bound + 1e-12).all())
    # Where the class is certain by map and bound it is that of the network.
    if outputs == 1:
        doubt = (said - goal.level).abs() <= bound
        certain = (said > goal.level) == (truth > goal.level)
        doubt, certain = doubt[:, 0], certain[:, 0]
    else:
        best = said.argmax(1, keepdim=True)
        lead = said.gather(1, best) - said - bound - bound.gather(1, best)
        doubt = (lead.scatter(1, best, torch.inf) <= 0).any(1)
        certain = best[:, 0] == truth.argmax(1)
    assert bool((certain | doubt).all())
    assert float(doubt.double().mean()) <= goal.share + 4 * (goal.share / 1e5) ** 0.5
    assert bool((bound[doubt] <= goal.tolerance).all())


def test_faces_that_stay_keep_their_maps_and_edges_say_where_they_come_from() -> None:
    model, curvature = sines(1)
    start = replaced(model, curvature)
    found = refine(start, model, curvature, Goal(tolerance(1), share=1e-3))
    old, new = fit_maps(start.mesh, start.values), fit_maps(found.mesh, found.values)
    stays = found.mesh.num_faces - int((found.mesh.counts() == 3).sum())
    assert 0 < stays < start.mesh.num_faces
    face = Locator(start.mesh)(found.mesh.means())
    many = found.mesh.counts() > 3
    assert torch.allclose(new.weight[many], old.weight[face[many]], atol=1e-9)
    assert bool((found.bounds[many] == start.bounds[face[many]]).all())
    first = start.mesh.num_vertices
    assert torch.equal(found.mesh.uv[:first], start.mesh.uv)
    assert torch.equal(found.mesh.vertex_layer[:first], start.mesh.vertex_layer)
    assert bool((found.mesh.vertex_layer[first:] == LAYER).all())
    inner = found.mesh.edge_layer == LAYER
    assert bool(inner.any())
    assert bool((found.mesh.edge_unit[inner] == 0).all())
    # Parts of earlier edges keep the layer that drew them, and together their length.
    for layer in torch.unique(start.mesh.edge_layer).tolist():
        before, after = (
            (mesh.uv[mesh.edges[:, 1]] - mesh.uv[mesh.edges[:, 0]])
            .norm(dim=1)[mesh.edge_layer == layer]
            .sum()
            for mesh in (start.mesh, found.mesh)
        )
        assert torch.isclose(before, after)


def test_a_smaller_share_takes_more_regions() -> None:
    model, curvature = sines(1)
    start = replaced(model, curvature)
    goals = [Goal(tolerance(1, 1e-2), share) for share in (1e-2, 1e-3, 1e-4)]
    found = [refine(start, model, curvature, goal) for goal in goals]
    assert [each.undecided <= goal.share for each, goal in zip(found, goals, strict=True)]
    sizes = [each.mesh.num_faces for each in found]
    assert sizes == sorted(set(sizes))
    assert_fits(found[-1])


def test_without_a_boundary_nothing_is_refined() -> None:
    model, curvature = sines(1)
    start = replaced(model, curvature)
    found = refine(start, model, curvature, Goal(tolerance(1), share=1e-3, level=9.0))
    assert found.mesh is start.mesh
    assert found.values is start.values
    assert found.undecided == 0


def square() -> Mesh:
    corners = [[-HALF, -HALF], [HALF, -HALF], [HALF, HALF], [-HALF, HALF]]
    return polygon_mesh(torch.tensor(corners, dtype=torch.float64))


def test_an_output_that_is_zero_everywhere_is_left_undecided() -> None:
    curvature = torch.ones(1, dtype=torch.float64)
    start = Bounded(square(), torch.zeros(4, 1, dtype=torch.float64), tolerance(1, 1.0)[None])
    goal = Goal(tolerance(1, 0.01), share=1e-3)

    def zero(uv: Tensor) -> Tensor:
        return torch.zeros_like(uv[:, :1])

    found = refine(start, zero, curvature, goal)
    assert_fits(found)
    assert found.undecided == pytest.approx(1)
    assert float(found.bounds.max()) <= 0.01  # as far as smaller triangles help
    with pytest.raises(LimitError, match="uncertain on 1 of the domain"):
        refine(start, zero, curvature, Goal(goal.tolerance, 1e-3, max_regions=100))
    with pytest.raises(LimitError, match="memory=100,000 bytes"):
        refine(start, zero, curvature, Goal(goal.tolerance, 1e-3, memory=100_000))
    # Smaller triangles do not help at all if the bound comes from elsewhere.
    found = refined(start, zero, Everywhere(0 * curvature, branch=1.0), goal, LAYER)
    assert found.mesh.num_faces == 2
    assert found.undecided == pytest.approx(1)


@pytest.mark.parametrize("level", [-HALF, 0.0, HALF])
def test_a_boundary_along_the_border_or_through_vertices(level: float) -> None:
    mesh = square()
    curvature = torch.full((1,), 0.5, dtype=torch.float64)  # more than there is
    start = bounded(mesh, mesh.uv[:, :1].clone(), lambda uv: uv[:, :1], curvature)
    goal = Goal(tolerance(1), share=1e-2, level=level)
    found = refine(start, lambda uv: uv[:, :1], curvature, goal)
    assert_fits(found)
    assert 0 < found.undecided <= goal.share
    assert torch.allclose(found.values, found.mesh.uv[:, :1])


def test_slivers_are_left_alone() -> None:
    """Rounding leaves no room inside a face that is thinner than this one."""
    width = 1e-13
    uv = [[-HALF, -HALF], [0, -HALF], [width, -HALF], [HALF, -HALF]]
    uv += [[HALF, HALF], [width, HALF], [0, HALF], [-HALF, HALF]]
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [7, 0], [1, 6], [2, 5]]
    layer = torch.tensor([-1] * 8 + [0, 0])
    corners = [0, 16, 12, 14, 2, 18, 10, 17, 4, 6, 8, 19]
    mesh = Mesh(
        torch.tensor(uv, dtype=torch.float64),
        torch.tensor(edges),
        torch.tensor([0, 4, 8, 12]),
        torch.tensor(corners),
        layer,
        layer,
        torch.tensor([-1, 0, 0, -1, -1, 0, 0, -1]),
    )
    curvature = torch.full((1,), 2.0, dtype=torch.float64)

    def real(uv: Tensor) -> Tensor:
        return uv[:, :1] + uv[:, 1:].square() - 0.1

    start = bounded(mesh, mesh.uv[:, :1] + 0.1, real, curvature)
    found = refine(start, real, curvature, Goal(tolerance(1), share=1e-3))
    assert_fits(found)
    areas = found.mesh.areas_and_centroids()[0]
    assert int((areas < 1e-12).sum()) == 1  # the sliver is undivided
    assert 1e-3 < found.undecided < 0.5  # values that it holds keep its neighbours undecided


def test_faces_are_divided_from_a_corner_unless_triangles_become_flat() -> None:
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    quarter = torch.tensor([[-0.5, -0.5], [0.0, -0.5]], dtype=torch.float64)
    sides = torch.cat([quarter @ torch.linalg.matrix_power(turn, k) for k in range(4)])
    for corners, triangles in (([0, 2, 4, 6], 2), ([0, 1, 2, 4, 6], 3), (list(range(8)), 8)):
        mesh = polygon_mesh(sides[corners])
        shape = triangulated(mesh, torch.ones(1, dtype=torch.bool))
        made = stitched(mesh, shape, LAYER)
        assert all(check.ok for check in check_mesh(made, 1.0))
        assert made.num_faces == triangles
        assert float(made.areas_and_centroids()[0].min()) > 0.1


def test_triangles_keep_their_angles() -> None:
    model, curvature = sines(1)
    start = replaced(model, curvature)
    shape = triangulated(start.mesh, torch.ones(start.mesh.num_faces, dtype=torch.bool))
    smallest = [_smallest_angle(shape)]
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        place = shape.longest(shape.squared_lengths())
        longest = shape.sides.gather(1, place[:, None])[:, 0] >> 1
        marked = torch.rand(len(shape.edges), generator=generator) < 0.05
        marked = closed(shape, marked, longest)
        assert not bool((marked[shape.sides >> 1].any(1) & ~marked[longest]).any())
        shape, source = bisected(shape, marked, place)
        assert source.shape[0] == shape.sides.shape[0]
        smallest.append(_smallest_angle(shape))
    assert min(smallest) >= smallest[0] / 2 - 1e-12
    mesh = stitched(start.mesh, shape, LAYER)
    assert all(check.ok for check in check_mesh(mesh, 4 * HALF * HALF))


def _smallest_angle(shape) -> float:
    uv = shape.uv[shape.corners()]
    side, back = uv.roll(-1, 1) - uv, uv.roll(1, 1) - uv
    cross = side[..., 0] * back[..., 1] - side[..., 1] * back[..., 0]
    return float(torch.atan2(cross, (side * back).sum(2)).min())


@pytest.mark.parametrize("outputs", [1, 2, 3, 6])
def test_the_undecided_part_of_triangles(outputs: int) -> None:
    """Against sampling: equal up to two possible classes, and never less."""
    generator = torch.Generator().manual_seed(outputs)
    values = torch.randn(200, 3, outputs, generator=generator, dtype=torch.float64)
    values[0] = 0
    values[1, 1:] = values[1, :1]
    bounds = 0.4 * torch.rand(200, outputs, generator=generator, dtype=torch.float64)
    weight = torch.rand(5_000, 2, generator=generator, dtype=torch.float64).sort(1).values
    ends = torch.tensor([[0.0, 1.0]], dtype=torch.float64).expand(len(weight), 2)
    weight = torch.cat([ends[:, :1], weight, ends[:, 1:]], 1).diff(dim=1)
    z = weight @ values  # (200, samples, outputs)
    if outputs == 1:
        doubt = (z[..., 0] - 0.1).abs() <= bounds
    else:
        best = z.argmax(2, keepdim=True)
        wide = bounds[:, None].expand_as(z)
        lead = z.gather(2, best) - z - wide - wide.gather(2, best)
        doubt = (lead.scatter(2, best, torch.inf) <= 0).any(2)
    found, sampled = band_shares(values, bounds, 0.1), doubt.double().mean(1)
    assert bool((found >= sampled - 0.02).all())
    if outputs < 3:
        assert torch.allclose(found, sampled, atol=0.02)


def test_questions_about_a_refined_partition() -> None:
    """Edges of the refinement belong to no unit, and files keep where they come from."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[0].weight.data *= 4
    part = sc.partition(
        model,
        sc.Domain.box(-1, 1),
        smooth=sc.Smooth(1e-3, refine="boundary"),
        device="cpu",
        progress=False,
    )
    assert part.layers == ("1", "refinement")
    added = part.mesh.edge_layer == 1
    assert part.neurons(layer="refinement").segments.shape[0] == int(added.sum()) > 0
    units = part.neurons()
    assert torch.unique(units.units[:, 0]).tolist() == [0]
    assert [*part.counts().cells_by_layer.values()][-1] == len(part)
    assert part.stats()["edges_by_layer"]["refinement"] == int(added.sum())
    assert list(part.patterns([0])) == ["1"]
    file = BytesIO()
    part.save(file)
    again = sc.load(BytesIO(file.getvalue()))
    assert again.layers == part.layers
    assert torch.equal(again.mesh.edge_layer, part.mesh.edge_layer)
    assert torch.equal(again.region_bounds, part.region_bounds)
    assert part.validate(progress=False).ok


@pytest.mark.parametrize("count", [2, 4, 5])
def test_parts_of_a_triangle_fill_it_and_have_its_directions(count: int) -> None:
    corners = torch.tensor([[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]], dtype=torch.float64)
    shares, parts = _lattice(count)
    points = torch.cat([corners, corners.new_tensor(shares) @ corners])
    sides = points[torch.tensor(parts)].roll(-1, 1) - points[torch.tensor(parts)]
    assert len(parts) == count * count
    torch.testing.assert_close(
        sides.abs() * count, (corners.roll(-1, 0) - corners).abs().expand_as(sides)
    )
    doubled = sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0]
    assert bool((doubled > 0).all())
    assert float(doubled.sum()) == pytest.approx(11.0)
