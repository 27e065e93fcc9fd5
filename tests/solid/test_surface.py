"""Surfaces in three dimensions: structure, measures, caps, sections, distances and checks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from exact_solids import Maxout
from solids import Cuboid, cube, made, octahedron, random_network, surface_of, torus
from splinecam.errors import DomainError, SplineCamError, ValidationError
from splinecam.solid.caps import triangulate
from splinecam.solid.surface import Surface

SEEDS = range(8)


def damaged(surface: Surface, **changes: Tensor) -> Surface:
    data = replace(surface.data, **changes)
    return Surface(data, surface.box, surface.network, level=surface.level)


# -- structure and measures -----------------------------------------------------------------------


def test_a_cube_has_the_numbers_of_a_cube() -> None:
    found = cube()
    assert (len(found), found.components, found.euler, found.genus) == (6, 1, 2, 0)
    assert found.closed
    assert found.edges.shape == (12, 2)
    assert found.area == pytest.approx(6)
    assert found.volume == pytest.approx(1)
    assert found.component_volumes.tolist() == pytest.approx([1])
    assert found.component_areas.tolist() == pytest.approx([6])
    assert torch.allclose(found.centroid, torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(found.curvature, torch.full((12,), math.pi / 2, dtype=torch.float64))
    assert found.triangles().shape == (12, 3)


def test_a_face_through_a_line_of_several_equal_losers_is_one() -> None:
    units = [[1, 1, -2], [2, 2, -1], [-2, 2, 2], [0, 2, -2], [0, -1, 0], [1, -2, -1]]
    units += [[1, 0, -2], [0, -2, 0], [2, -2, -1], [0, 0, -2], [1, -1, 2], [1, 0, -2]]
    model = nn.Sequential(nn.Linear(3, 12), Maxout(3), nn.Linear(4, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor(units) / 2)
        model[0].bias.copy_(torch.tensor([0, 2, 1, 2, 1, 0, 1, 0, 1, -1, 1, 1]))
        model[2].weight.copy_(torch.tensor([[0, 0, 2, -1]]))
        model[2].bias.fill_(-2)
    found = sc.surface(model, sc.Domain.box3([-4, -2, -4], [0, 2, 0]), progress=False)
    assert found.validate().ok
    assert len(found) == 17


def test_edges_on_a_side_of_the_box_are_such_though_borders_end_there() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1, 0, 0], [1, 1, 0]]))
        model[0].bias.copy_(torch.tensor([5, -1]))
        model[2].weight.fill_(1)
        model[2].bias.fill_(-5)
    found = sc.surface(model, sc.Domain.cube(-1, 1), progress=False)
    assert found.data.edge_layer.tolist() == [-1] * 4


def test_inside_out_the_volume_is_outside_and_edges_are_concave() -> None:
    found = cube(inside_out=True)
    assert found.volume == pytest.approx(7)
    assert found.component_volumes.tolist() == pytest.approx([-1])
    assert found.curvature.tolist() == pytest.approx([-math.pi / 2] * 12)
    closed = found.capped()
    assert closed.components == 2
    assert closed.volume == pytest.approx(7)
    assert closed.area == pytest.approx(6 + 24)


def test_a_torus_has_a_handle() -> None:
    found = torus()
    assert (found.euler, found.genus, found.components) == (0, 1, 1)
    assert found.volume == pytest.approx(2 * math.pi**2 * 0.6 * 0.25**2, rel=0.1)


def test_two_parts_that_touch_in_an_edge_or_a_vertex_count_for_themselves() -> None:
    single = cube(0.25)
    points, corners = single.vertices, single.face_vertices
    for shift in ((0.5, 0.5, 0.0), (0.5, 0.5, 0.5)):
        every = torch.cat([points, points + torch.tensor(shift)]).round(decimals=6)
        unique, place = torch.unique(every, dim=0, return_inverse=True)
        pair = made(
            unique,
            [4] * 12,
            place[torch.cat([corners, corners + 8])],
            single.gradients.repeat(2, 1),
            single.bias.repeat(2),
            Cuboid(),
            single.network,
        )
        assert pair.closed
        assert (pair.components, pair.euler, pair.genus) == (2, 4, 0)


def test_fans_avoid_flat_triangles() -> None:
    points = [[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [1, 1, 0]]
    flat = made(points, [6], range(6), [[0, 0, 1.0]], [0.0], Cuboid(-3, 3), lambda x: x[:, 2:])
    corners = flat.vertices[flat.triangles()]
    sides = corners[:, 1:] - corners[:, :1]
    assert bool((torch.linalg.cross(sides[:, 0], sides[:, 1])[:, 2] > 0.5).all())
    assert flat.area == pytest.approx(2)


@pytest.mark.parametrize(("radius", "volume"), [(0.8, 4 / 3 * 0.8**3), (1.5, 4.0), (2.5, 47 / 6)])
def test_an_octahedron_that_the_box_cuts(radius: float, volume: float) -> None:
    found = surface_of(octahedron(radius))
    assert len(found) == 8
    assert found.volume == pytest.approx(volume, rel=1e-12)
    assert found.closed == (radius < 1)
    closed = found.capped()
    assert closed.closed
    assert (closed.components, closed.genus, closed.euler) == (1, 0, 2)
    assert closed.volume == pytest.approx(volume, rel=1e-12)
    assert closed.capped() is closed


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_boxes_of_all_sizes(size: float) -> None:
    model = octahedron(1.5 * size)
    found = surface_of(model, Cuboid(-size, size))
    assert found.volume == pytest.approx(4 * size**3, rel=1e-9)
    assert found.capped().volume == pytest.approx(4 * size**3, rel=1e-9)
    found.validate(segments=50)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_surfaces_are_valid_and_have_the_right_volume(seed: int) -> None:
    model = random_network(seed)
    found = surface_of(model)
    found.validate(segments=200)
    x = torch.rand((100_000, 3), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    with torch.no_grad():
        share = float((model(x) < 0).double().mean())
    assert found.volume == pytest.approx(8 * share, abs=0.06)
    closed = found.capped()
    assert closed.closed
    assert closed.volume == pytest.approx(found.volume, rel=1e-9)
    assert bool((closed.areas > 0).all())
    assert closed.report()["genus"] >= 0


def test_an_empty_surface_is_all_or_nothing() -> None:
    none = surface_of(octahedron(9.0))
    assert (len(none), none.area, none.components, none.closed) == (0, 0.0, 0, True)
    assert none.volume == pytest.approx(8)
    assert none.capped().volume == pytest.approx(8)
    assert none.distance(torch.zeros(2, 3)).tolist() == [math.inf, math.inf]
    assert "0 faces" in repr(none)
    none.validate(segments=20)


def test_a_box_in_a_space_of_more_inputs_and_the_difference_of_two_outputs() -> None:
    random = torch.randn((5, 3), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    basis = torch.linalg.qr(random)[0].T.contiguous()
    box = Cuboid(basis=basis, origin=torch.linspace(0, 0.4, 5).double())
    model = random_network(3, inputs=5, outputs=3)
    found = surface_of(model, box, output=(2, 0))
    found.validate(segments=100)
    x = found.inputs()
    y = model(x).detach()
    assert x.shape == (found.vertices.shape[0], 5)
    assert float((y[:, 2] - y[:, 0]).abs().max()) < 1e-12
    assert found.capped().volume == pytest.approx(found.volume)


# -- caps -----------------------------------------------------------------------------------------


def filled(uv: np.ndarray, loops: list[list[int]]) -> float:
    triangles = uv[triangulate(uv, loops)]
    one, other = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    areas = (one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]) / 2
    assert (areas > -1e-12).all()
    return float(areas.sum())


def test_ears_fill_polygons_with_holes() -> None:
    square = np.array([[0.0, 0], [4, 0], [4, 4], [0, 4]])
    holes = [square / 4 + 0.5, square / 4 + 2.5, square / 8 + [2.0, 0.5]]
    inner = square / 16 + 0.75  # an island in the first hole
    uv = np.concatenate([square, *holes, inner])
    loops = [[0, 1, 2, 3], [7, 6, 5, 4], [11, 10, 9, 8], [15, 14, 13, 12], [16, 17, 18, 19]]
    assert filled(uv, loops) == pytest.approx(16 - 1 - 1 - 0.25 + 1 / 16)


def test_ears_fill_a_spiral_and_sides_with_many_corners() -> None:
    t = np.linspace(3, 6 * np.pi, 90)
    way = np.stack([np.cos(t), np.sin(t)], 1)
    uv = np.concatenate([t[:, None] * way, ((t[:, None] - 2) * way)[::-1]])
    x, y = uv.T
    area = float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
    ring = list(range(len(uv)))
    assert filled(uv, [ring if area > 0 else ring[::-1]]) == pytest.approx(abs(area))
    edge = np.linspace(0, 1, 9)[:-1]
    rim = np.concatenate(
        [
            np.stack(pair, 1)
            for pair in (
                (edge, 0 * edge),
                (1 + 0 * edge, edge),
                (1 - edge, 1 + 0 * edge),
                (0 * edge, 1 - edge),
            )
        ]
    )
    assert filled(rim, [list(range(32))]) == pytest.approx(1)


# -- questions ------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_sections_are_the_level_sets_of_their_planes(seed: int) -> None:
    model, generator = random_network(seed), torch.Generator().manual_seed(seed)
    found = surface_of(model)
    corners = torch.rand((3, 3), generator=generator, dtype=torch.float64) - 0.5
    plane = sc.Domain.polygon(corners)
    ours = found.section(plane)
    theirs = sc.level_set(model, plane, 0.0, progress=False)
    assert ours.length == pytest.approx(theirs.length, rel=1e-9, abs=1e-12)
    if len(ours):
        middle = plane.embed(ours.ends.mean(1))
        assert float(theirs.nearest(middle).distance.max()) < 1e-9
        assert len(ours.polylines) == len(theirs.polylines)
        along = ours.ends[:, 1] - ours.ends[:, 0]
        left = torch.stack([-along[:, 1], along[:, 0]], 1)
        with torch.no_grad():
            grown = model(plane.embed(ours.ends.mean(1) + 1e-6 * left))[:, 0]
        assert bool((grown > 0).all())


def test_a_section_through_vertices_and_edges_is_closed() -> None:
    found = surface_of(octahedron(0.8))
    plane = sc.Domain.polygon([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    lines = found.section(plane).polylines
    assert len(lines) == 1
    assert torch.equal(lines[0][0], lines[0][-1])
    assert found.section(plane).length == pytest.approx(4 * 0.8 * math.sqrt(2))
    part = sc.Domain.polygon([[-1.0, 0, 0], [1, 0, 0], [1, 1, 0], [-1, 1, 0]])
    (half,) = found.section(part).polylines
    assert float((half[1:] - half[:-1]).norm(dim=1).sum()) == pytest.approx(1.6 * math.sqrt(2))


def test_a_plane_outside_of_the_box_is_refused() -> None:
    box = Cuboid(basis=torch.eye(5, dtype=torch.float64)[:3], origin=torch.zeros(5).double())
    found = surface_of(random_network(0, inputs=5), box)
    with pytest.raises(DomainError, match="three corners"):
        found.section(sc.Domain.around([0.0] * 5, side=1.0))


def test_distances_are_those_of_the_nearest_face() -> None:
    found = cube()
    points = [
        [0.0, 0, 0],
        [0.9, 0, 0],
        [0.9, 0.9, 0],
        [0.9, 0.9, 0.9],
        [0.5, 0.1, 0.2],
        [0.4, 0, 0],
    ]
    expected = [0.5, 0.4, 0.4 * math.sqrt(2), 0.4 * math.sqrt(3), 0.0, 0.1]
    assert found.distance(points).tolist() == pytest.approx(expected)
    ring = torus()
    x = torch.rand((500, 3), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    assert torch.allclose(ring.distance(x), ring.values(x).abs(), atol=0.05)


def test_samples_lie_on_the_surface_and_are_uniform() -> None:
    found = cube()
    sample = found.sample(6000, generator=torch.Generator().manual_seed(0))
    assert float(found.distance(sample.points).max()) < 1e-12
    assert torch.bincount(sample.faces).tolist() == pytest.approx([1000] * 6, rel=0.15)
    assert sample.inputs.shape == (6000, 3)
    model = octahedron(0.8).float()
    single = surface_of(octahedron(0.8))
    single.network = sc.capture(model, (3,), device="cpu")
    assert single.sample(3).inputs.dtype == torch.float32


def test_the_report_has_sizes_and_the_numbers_of_the_proof() -> None:
    report = cube().report()
    assert (report["faces"], report["edges"], report["cells bounded"]) == (6, 12, 7)
    assert repr(cube()) == "Surface(6 faces, 8 vertices, 1 component, closed, level 0)"
    assert "24 open edges" in repr(surface_of(octahedron(1.5)))


# -- validate -------------------------------------------------------------------------------------


def test_validate_finds_what_is_wrong() -> None:
    good = surface_of(random_network(2))
    report = good.validate()
    assert len(report.checks) == 9
    assert "19 of 19 faces" in repr(report)
    data, kept = good.data, slice(0, int(good.face_offsets[-2]))
    missing = damaged(
        good,
        face_offsets=data.face_offsets[:-1],
        face_vertices=data.face_vertices[kept],
        edge_layer=data.edge_layer[kept],
        gradients=data.gradients[:-1],
        bias=data.bias[:-1],
        face_region=data.face_region[:-1],
    )
    with pytest.raises(ValidationError, match="open edges inside"):
        missing.validate()
    with pytest.raises(SplineCamError, match="open edges lie inside"):
        _ = missing.volume
    assert math.isnan(missing.report()["volume"])
    with pytest.raises(ValidationError, match="face their gradient"):
        damaged(good, gradients=-data.gradients).validate()
    with pytest.raises(ValidationError, match="level at vertices"):
        damaged(good, vertices=data.vertices + 1e-6).validate()
    with pytest.raises(ValidationError, match="gradients against autograd"):
        damaged(good, gradients=1.01 * data.gradients).validate()
    small = surface_of(octahedron(0.8))
    with pytest.raises(ValidationError, match="crossings of the level that the surface lacks"):
        damaged(small, vertices=0.5 * small.vertices).validate()
    with pytest.raises(ValidationError, match="level at"):
        good.validate(random_network(5))
    with pytest.raises(ValueError, match="samples"):
        good.validate(samples=0)


def test_where_the_level_is_only_touched_no_crossing_is_lacking() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0, 0], [-1, 0, 0]]))
        model[2].weight.fill_(-1.0)
        model[0].bias.zero_()
        model[2].bias.zero_()
    found = sc.surface(model, sc.Domain.cube(-1, 1), progress=False)
    assert len(found) == 0
    assert found.validate(segments=50).checks


def layers(*given: tuple[list[list[float]], list[float]], last: nn.Module | None = None) -> Any:
    """A network with ReLU between affine layers of these weights and biases."""
    made = list[nn.Module]()
    for weight, bias in given:
        layer = nn.Linear(len(weight[0]), len(weight)).double()
        layer.weight.data = torch.tensor(weight, dtype=torch.float64)
        layer.bias.data = torch.tensor(bias, dtype=torch.float64)
        made += [layer, nn.ReLU()]
    return nn.Sequential(*made[:-1], *([] if last is None else [last])).eval()


def test_limits_of_validate_follow_from_the_rounding_of_narrow_and_flat_faces() -> None:
    """A steep body far from the origin, and a slope so small that rounding moves the surface."""
    way = torch.tensor([[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]]).double() * 300
    rows = torch.cat([way, -way]).tolist()
    middle = torch.tensor([3e5 / 7, 2e5 / 3, 5e5 / 9], dtype=torch.float64)
    off = [-sum(a * b for a, b in zip(row, middle.tolist(), strict=True)) for row in rows]
    small = layers((rows, off), ([[1.0] * 8], [-1600.0]), last=nn.Hardtanh(-1, 1))
    found = sc.surface(small, sc.Domain.cube(-1e6, 1e6), progress=False)
    assert found.validate(segments=100).excused == len(found) > 0
    row = [0.0031, 0.0017, -0.0023]
    flat = layers(([row, [0, 0, 0]], [1.0, 1 + 1e-9]), ([[1.0, -1]], [0.0]))
    found = sc.surface(flat, sc.Domain.cube(-1e-6, 1e-6), progress=False)
    assert len(found) == 1
    assert found.validate(segments=100).ok
    moved = sc.surface(flat, sc.Domain.cube(-1e-6, 1e-6), level=1e-11, progress=False)
    with pytest.raises(ValidationError, match="level at"):
        damaged(found, vertices=moved.vertices).validate(segments=100)


def test_gradients_are_those_of_a_thin_region_below() -> None:
    kinked = layers(([[1.0, 0, 0], [1, 0, 0]], [0, -1e-10]), ([[-1.0, -1]], [0.0]))
    found = sc.surface(kinked, sc.Domain.cube(-1, 1), progress=False)
    assert found.gradients.tolist() == [[-1, 0, 0]]
    assert found.validate(segments=50).ok
    with pytest.raises(ValidationError, match="gradients against autograd"):
        damaged(found, gradients=1.01 * found.gradients).validate()


def test_sides_of_the_box_that_the_surface_touches_are_unresolved() -> None:
    for bias, places in ((-1.0, [[1, 0, 0]]), (1.0, [[-1, 0, 0]]), (0.0, []), (-1 - 1e-9, [])):
        found = sc.surface(layers(([[1.0, 0, 0]], [bias])), sc.Domain.cube(-1, 1), progress=False)
        near = torch.tensor(found.unresolved).reshape(-1, 3)[:, :1]
        assert near.tolist() == [place[:1] for place in places]


def test_a_face_that_is_divided_is_found_by_its_pattern() -> None:
    flat = surface_of(octahedron(0.8))
    corners, offsets = flat.face_vertices, flat.face_offsets
    a, b, c = corners[:3].tolist()
    points = torch.cat([flat.vertices, flat.vertices[[a, b]].mean(0, keepdim=True)])
    m = points.shape[0] - 1
    # The neighbour across a-b gets the new vertex, too.
    other = next(
        f for f in range(1, 8) if {a, b} <= set(corners[offsets[f] : offsets[f + 1]].tolist())
    )
    ring = corners[offsets[other] : offsets[other + 1]].tolist()
    ring.insert(ring.index(b) + 1, m)
    rings = [[a, m, c], [m, b, c]] + [
        ring if f == other else corners[offsets[f] : offsets[f + 1]].tolist() for f in range(1, 8)
    ]
    faces = torch.tensor([0, 0, *range(1, 8)])
    counts = [len(each) for each in rings]
    cut = made(
        points,
        counts,
        [k for ring in rings for k in ring],
        flat.gradients[faces],
        flat.bias[faces],
        flat.box,
        flat.network,
    )
    assert cut.closed
    with pytest.raises(ValidationError, match="in the region of another face: 1"):
        cut.validate()
