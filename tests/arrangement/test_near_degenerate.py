"""Networks with lines that nearly meet in a point, are nearly parallel or nearly equal.

Their regions have sides about as short as rounding. Whatever looks for regions at given places is
compared with rational arithmetic: a point has a region whose polygon holds it within rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import splinecam as sc
from rational import Point, distance, exact, outputs, root, square_from_segment, winding
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR
from splinecam.geometry.point_location import Locator
from splinecam.geometry.subdivision import Mesh, polygon_mesh
from splinecam.plot.rasters import Cells, PointGrid
from splinecam.questions.curves import Curves
from strategies import Net, dense, domains, examples, nets

F64 = torch.float64
BOX = sc.Domain.box(-1, 1)
POLYGON = sc.Domain.polygon([[-1.0, -0.75], [0.5, -1.0], [1.25, 0.25], [0.0, 1.0], [-1.0, 0.5]])
ROUNDING = SAFETY * UV_ERROR


@dataclass(frozen=True)
class Near:
    """A network by its numbers: first layer nearly degenerate, by ``10 ** -digits``.

    kind: "point" (lines nearly through one point), "bundle" (lines that are nearly one line, which
    is that of the grid's middle row or column, or any), "pairs" (each line twice, nearly), or
    "both" (a bundle, and lines nearly through a point of it).
    """

    kind: str
    digits: float
    width: int
    second: int
    twins: bool
    seed: int

    def module(self) -> nn.Sequential:
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=F64)

        offset = 10.0**-self.digits
        weight, point = normal(self.width, 2), normal(2) / 4
        if self.seed % 3 == 0:
            point = torch.zeros(2, dtype=F64)
        if self.kind == "pairs":
            half = self.width // 2
            weight[half : 2 * half] = weight[:half] + offset * normal(half, 2)
        bundle = {"bundle": self.width, "both": self.width // 2}.get(self.kind, 0)
        axis = [normal(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])][self.seed % 3]
        weight[:bundle] = (1 + normal(bundle, 1).abs()) * axis + offset * normal(bundle, 2)
        bias = -weight @ point + offset * normal(self.width)
        layers: list[nn.Module] = [dense(weight, bias), nn.ReLU()]
        size = self.width
        if self.second:
            rows, own = normal(self.second, size), normal(self.second) / 4
            if self.twins:
                half = self.second // 2
                rows[half : 2 * half] = rows[:half] + offset * normal(half, size)
                own[half : 2 * half] = own[:half]
            layers += [dense(rows, own), nn.ReLU()]
            size = self.second
        last = normal(3, size)
        body = nn.Sequential(*layers)
        level = last @ body(point[None])[0].detach()
        return nn.Sequential(*layers, dense(last, -level + 0.1 * normal(3))).double().eval()


def near_nets() -> st.SearchStrategy[Near]:
    return st.builds(
        Near,
        kind=st.sampled_from(["point", "point", "bundle", "pairs", "both"]),
        digits=st.floats(6, 15),
        width=st.integers(3, 10),
        second=st.sampled_from([0, 2, 4, 4]),
        twins=st.booleans(),
        seed=st.integers(0, 2**20),
    )


def partition(net: Near, domain: sc.Domain = BOX) -> sc.Partition:
    return sc.partition(net.module(), domain, device="cpu", progress=False)


def polygons(part: sc.Partition) -> list[list[Point]]:
    """The corners of the regions, in the engine's coordinates."""
    corners = torch.split(part.mesh.uv[part._face_vertices], part.mesh.counts().tolist())
    return [exact(corner) for corner in corners]


def points_of(part: sc.Partition, seed: int, count: int) -> Tensor:
    """Points of the domain: anywhere, near the degenerate place, on edges and vertices, inside."""
    generator = torch.Generator().manual_seed(seed)
    inside = part.domain.corners.mean(0)
    share = torch.rand(count, len(part.domain.corners), generator=generator, dtype=F64) ** 4
    anywhere = (share / share.sum(1, keepdim=True)) @ part.domain.corners
    a, b = part.vertices[part.mesh.edges].unbind(1)
    short = (a - b).square().sum(1).argsort()[:count]
    some = torch.randperm(len(a), generator=generator)[:count]
    on = torch.lerp(a, b, torch.rand(len(a), 1, generator=generator, dtype=F64))[some]
    reach = 10.0 ** (-16 * torch.rand(len(short), 1, generator=generator, dtype=F64))
    beside = a[short] + reach * torch.randn(len(short), 2, generator=generator, dtype=F64)
    corner = part.vertices[torch.randperm(len(part.vertices), generator=generator)[:count]]
    thin = part.centroids[part.areas.argsort()[:count]]
    found = torch.cat([anywhere, on, beside, corner, thin])
    # Around the degenerate place some lie outside of the domain; these move in.
    while bool((out := outside(part.domain, found)).any()):
        found[out] = inside + 0.5 * (found[out] - inside)
    return found


def outside(domain: sc.Domain, uv: Tensor) -> Tensor:
    p, q = domain.corners, domain.corners.roll(-1, 0)
    d, gap = (q - p)[None], uv[:, None] - p[None]
    return ((d[..., 0] * gap[..., 1] - d[..., 1] * gap[..., 0]) < 0).any(1)


# -- the checks -----------------------------------------------------------------------------------


def check_locate(part: sc.Partition, uv: Tensor) -> None:
    """Each point has a region that holds it within rounding."""
    found, rings = part.locate(part.domain.embed(uv)), polygons(part)
    assert int(found.min()) >= 0, uv[found < 0]
    local = exact(part._frame.to_local(uv))
    off = [distance(p, rings[k]) for p, k in zip(local, found.tolist(), strict=True)]
    assert max(off) <= ROUNDING, (max(off), uv[int(np.argmax(off))])


def check_outside(part: sc.Partition) -> None:
    """Points beside the border are outside, however close they are, beyond rounding."""
    corners = part.domain.corners
    border = (corners + corners.roll(-1, 0)) / 2
    for away in (1e-13, 1e-6, 1.0, 1e6):
        beyond = torch.cat([corners, border])
        beyond = beyond + away * (beyond - corners.mean(0))
        assert part.locate(part.domain.embed(beyond)).tolist() == [-1] * len(beyond)


def check_nearest(part: sc.Partition, uv: Tensor) -> None:
    """The distance from the borders of the regions, and whether it is certain."""
    inner = (part.mesh.edge_layer >= 0).nonzero()[:, 0]
    curves = Curves(
        part,
        part.vertices,
        part.mesh.edges,
        part._edge_faces,
        torch.zeros_like(part.mesh.edge_layer),
    ).select(inner)
    found = curves.nearest(part.domain.embed(uv))
    ends = [exact(pair) for pair in curves.local_ends]
    ring = exact(part._frame.to_local(part.domain.corners))
    places = exact(part._frame.to_local(found.uv))
    for k, p in enumerate(exact(part._frame.to_local(uv))):
        least = root(min(square_from_segment(p, *pair) for pair in ends)) if ends else math.inf
        reach = float(found.distance[k]) / part._frame.scale
        assert reach == pytest.approx(least, abs=ROUNDING, rel=ROUNDING)
        on = root(square_from_segment(places[k], *ends[int(found.segment[k])]))
        assert on <= ROUNDING
        assert root(square_from_segment(p, places[k], places[k])) <= least + ROUNDING
        depth = -distance(p, ring)
        if abs(least - depth) > ROUNDING:
            assert bool(found.certain[k]) == (least < depth)


def check_density(part: sc.Partition, uv: Tensor, radius: float) -> None:
    """The number of regions within a radius, up to those at just that distance."""
    rings, local = polygons(part), exact(part._frame.to_local(uv))
    found = part.density(part.domain.embed(uv), radius).count.tolist()
    radius /= part._frame.scale
    for p, count in zip(local, found, strict=True):
        away = [distance(p, ring) for ring in rings]
        least, most = (sum(d <= radius + slack for d in away) for slack in (-ROUNDING, ROUNDING))
        assert least <= count <= most


def check_raster(part: sc.Partition, grid: PointGrid) -> None:
    """Each point of a grid has a cell that holds it within rounding, or is outside."""
    owner = np.concatenate([rows for _, _, rows in Cells.of(part.mesh).bands(grid)]).ravel()
    x, y = (axis.ravel() for axis in np.meshgrid(grid.x(), grid.y(0, grid.rows)))
    rings, ring = polygons(part), exact(part._frame.to_local(part.domain.corners))
    for p, k in zip(exact(torch.from_numpy(np.stack([x, y], 1))), owner.tolist(), strict=True):
        if k < 0:
            assert distance(p, ring) >= -ROUNDING
        else:
            assert distance(p, rings[k]) <= ROUNDING


def check_classes(part: sc.Partition, uv: Tensor) -> None:
    """The classes' polygons share the domain, and each has the points at which its output wins."""
    found = part.class_regions()
    assert float(found.areas.sum()) == pytest.approx(part.domain.area, rel=1e-12)
    pieces = [list(found.polygons(k)) for k in range(found.n_classes)]
    rings = [[exact(r) for piece in own for r in (piece.outline, *piece.holes)] for own in pieces]
    scale = max(map(abs, (float(part.values.max()), float(part.values.min()))))
    noise = float(part._value_error.max())
    steep = float(part.weight.abs().max()) * part._frame.scale
    border = exact(part.domain.corners)
    for p in exact(uv):
        if distance(p, border) >= -ROUNDING * part._frame.scale:
            continue  # beside rounded vertices of the domain's border
        turns = [winding(p, own) for own in rings]
        assert sum(turns) == 1
        z = outputs(part.model, p)
        behind = float(max(z) - z[max(range(len(turns)), key=turns.__getitem__)])
        assert behind <= SAFETY * (noise + EPS * scale) + 2 * steep * ROUNDING
    for k, own in enumerate(pieces):
        assert sum(piece.area for piece in own) == pytest.approx(float(found.areas[k]), abs=1e-12)


def check_all(part: sc.Partition, seed: int) -> None:
    uv = points_of(part, seed, 20)
    check_locate(part, uv)
    check_outside(part)
    few = uv[:: max(1, len(uv) // 6)]
    check_nearest(part, few)
    check_density(part, few, 10.0 ** -(seed % 5))
    low, high = part.mesh.uv.amin(0).tolist(), part.mesh.uv.amax(0).tolist()
    step = [(b - a) / 12 for a, b in zip(low, high, strict=True)]
    check_raster(part, PointGrid(*low, *step, 13, 13))
    crowd = part.mesh.uv.median(0).values.tolist()
    check_raster(part, PointGrid(crowd[0] - 6e-7, crowd[1] - 6e-7, 1e-7, 1e-7, 13, 13))
    check_classes(part, few)


# -- the tests ------------------------------------------------------------------------------------


@examples(20)
@given(near_nets(), st.sampled_from([BOX, POLYGON]))
def test_near_degenerate_networks(net: Near, domain: sc.Domain) -> None:
    part = partition(net, domain)
    check_all(part, net.seed)
    part.validate()


@examples(15)
@given(nets(), domains(), st.integers(0, 2**20))
def test_ordinary_networks(net: Net, domain: sc.Domain, seed: int) -> None:
    part = sc.partition(net.module(), domain, device="cpu", progress=False)
    check_locate(part, points_of(part, seed, 20))


def ten_lines(seed: int) -> nn.Sequential:
    """Ten lines nearly through one point, and a second layer of four units."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(10, 2), (10,), (4, 10), (4,), (2, 4), (2,)]
    numbers = [torch.randn(size, generator=generator, dtype=F64) for size in sizes]
    bias = 1e-14 * torch.randn(10, generator=generator, dtype=F64)
    return nn.Sequential(
        dense(numbers[0], bias),
        nn.ReLU(),
        dense(numbers[2]),
        nn.ReLU(),
        dense(numbers[4], numbers[5]),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [25, 88])
def test_ten_lines_nearly_through_one_point(seed: int) -> None:
    """Points far from the place where the lines meet had no region: 590 of these with seed 88."""
    part = sc.partition(ten_lines(seed), BOX, device="cpu", progress=False)
    assert part.unresolved, "the place is as degenerate as it is meant to be"
    generator = torch.Generator().manual_seed(0)
    uv = torch.rand(200000, 2, generator=generator, dtype=F64) * 2 - 1
    found = part.locate(uv)
    assert int(found.min()) >= 0
    # Left of all sides that are long enough to have a direction.
    corners = part.vertices[part._face_vertices]
    for k, ring in enumerate(torch.split(corners, part.mesh.counts().tolist())):
        side, gap = ring.roll(-1, 0) - ring, uv[found == k][:, None] - ring
        long = side.norm(dim=1) > 1e-6
        cross = side[:, 0] * gap[..., 1] - side[:, 1] * gap[..., 0]
        assert bool(((cross / side.norm(dim=1))[:, long] >= -1e-8).all())
    check_locate(part, points_of(part, seed, 40))
    assert int(part.density(uv[:20000], 1e-6).count.min()) >= 1
    part.validate()


def test_a_short_side_that_points_the_wrong_way() -> None:
    """The line through the side in the corner at (1, 0.3) passes (-0.5, 0.7) on the wrong side."""
    short = 2.0**-50
    corners = [[-1, -1], [1, -1], [1, 0.3], [1 - short, 0.3 + 0.18 * short], [-1, 1]]
    locator = Locator(polygon_mesh(torch.tensor(corners, dtype=F64)))
    inside = [[-0.5, 0.7], [0.5, 0.43], [0.0, 0.0], [1.0, 0.3], [-1.0, 1.0]]
    assert locator(torch.tensor(inside, dtype=F64)).tolist() == [0] * 5
    outside = [[-0.5, 0.83], [1.0 + 1e-14, 0.3], [-1.0, 1.0 + 1e-14]]
    assert locator(torch.tensor(outside, dtype=F64)).tolist() == [-1] * 3


def thin_fan(width: float) -> Mesh:
    """Triangles around one corner, in any order: 16 are thinner than rounding there, 40 are not."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.linspace(0.01, 0.3, 20, dtype=F64)
    slope = 0.8 + torch.cat([-wide.flip(0), width * torch.arange(-8, 9, dtype=F64), wide])
    n = len(slope) - 1
    far = 0.7 + 0.3 * torch.rand(n + 1, 1, generator=generator, dtype=F64)
    tip = torch.tensor([[0.1, 0.7]], dtype=F64)
    uv = torch.cat([tip + far * torch.stack([slope, -torch.ones_like(slope)], 1), tip])
    index, order = torch.arange(n + 1), torch.randperm(n, generator=generator)
    outer = torch.stack([index[:-1], index[1:]], 1)
    edges = torch.cat([outer, torch.stack([index, torch.full_like(index, n + 1)], 1)])
    corners = torch.stack([2 * order, 2 * (n + order + 1), 2 * (n + order) + 1], 1).view(-1)
    zeros = torch.zeros_like(edges[:, 0])
    return Mesh(uv, edges, 3 * index, corners, zeros, zeros, torch.zeros_like(uv[:, 0]).long())


def test_the_raster_where_cells_are_thinner_than_rounding() -> None:
    """Rounded crossings change places there, and the sum was the number of a cell far away."""
    mesh = thin_fan(1e-14)
    rings = [exact(mesh.uv[triangle]) for triangle in mesh.corner_vertices().view(-1, 3)]
    for height in (1e-3 * 1.17**i for i in range(30)):
        grid = PointGrid(0.1 + 0.8 * height - 10 * 2.0**-54, 0.7 - height, 2.0**-54, 1.0, 20, 1)
        (_, _, owner) = next(iter(Cells.of(mesh).bands(grid)))
        y = np.full(20, grid.low)
        points = exact(torch.from_numpy(np.stack([grid.x(), y], 1)))
        off = [distance(p, rings[k]) for p, k in zip(points, owner[0].tolist(), strict=True)]
        assert owner.min() >= 0
        assert max(off) <= ROUNDING
