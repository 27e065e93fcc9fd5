"""The maximum of planes that touch a paraboloid is a Voronoi diagram, which others compute too."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition
from splinecam.testing import Max, assert_same_cells, assert_valid, exact_partition
from strategies import dense

pytestmark = pytest.mark.few(2)

BOX = Domain.box(-1, 1)
ATOL = 1e-9


def tangent_planes(sites: Tensor) -> nn.Sequential:
    """The largest of 2 p.x - |p|², (k, 2) sites p: the nearest site wins."""
    return nn.Sequential(dense(2 * sites, -(sites**2).sum(1)), Max(1, keepdim=True))


def random_sites(count: int) -> Tensor:
    """In the box, and so coarse that their squares are exact in float64."""
    generator = torch.Generator().manual_seed(count)
    return torch.randint(-(2**20), 2**20, (count, 2), generator=generator).double() / 2**20


def diagram(model: nn.Module) -> tuple[Partition, Tensor]:
    """The partition, and the site of each of its regions."""
    part = splinecam.partition(model, BOX, device="cpu", progress=False)
    assert not part.unresolved
    assert_valid(part)
    return part, part.patterns()[part.layers[0]][:, 0].long()


def areas_and_borders(sites: Tensor) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """By scipy: the areas of the sites' cells in the box, and the pairs that share a border.

    The mirror images of the sites in the sides of the box make the box's sides borders.
    """
    spatial = pytest.importorskip("scipy.spatial")
    points = sites.numpy()
    mirrored = [
        np.where(np.arange(2) == axis, 2 * side - points, points)
        for axis in (0, 1)
        for side in (-1.0, 1.0)
    ]
    found = spatial.Voronoi(np.concatenate([points, *mirrored]))
    count = len(points)
    areas = [
        spatial.ConvexHull(found.vertices[found.regions[found.point_region[site]]]).volume
        for site in range(count)
    ]
    borders = set()
    for (i, j), ends in zip(found.ridge_points.tolist(), found.ridge_vertices, strict=True):
        # Where four cells meet in a point, two of them share a border without length.
        if max(i, j) < count and math.dist(*found.vertices[ends]) > ATOL:
            borders.add((min(i, j), max(i, j)))
    return np.array(areas), borders


def shared_borders(part: Partition, site: Tensor) -> dict[tuple[int, int], int]:
    """How many edges lie between the regions of every two sites."""
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for first, second in part._edge_faces.tolist():
        if min(first, second) >= 0:
            i, j = int(site[first]), int(site[second])
            counts[min(i, j), max(i, j)] += 1
    return counts


def assert_voronoi(sites: Tensor) -> Partition:
    part, site = diagram(tangent_planes(sites))
    assert sorted(site.tolist()) == list(range(len(sites)))
    areas, borders = areas_and_borders(sites)
    assert np.abs(part.areas.numpy() - areas[site]).max() < ATOL
    assert shared_borders(part, site) == dict.fromkeys(borders, 1)
    return part


@pytest.mark.parametrize("count", [10, 50, 200, 500])
def test_random_sites(count: int) -> None:
    part = assert_voronoi(random_sites(count))
    assert len(part) == count
    assert len(part.mesh.edges) < 3 * count + 8


@pytest.mark.parametrize("count", [10, 50])
def test_random_sites_have_the_cells_of_the_oracle(count: int) -> None:
    model = tangent_planes(random_sites(count))
    part, _ = diagram(model)
    assert_same_cells(part, exact_partition(model, BOX), atol=ATOL)


@pytest.mark.parametrize("side", [4, 12])
def test_sites_on_a_grid(side: int) -> None:
    line = (torch.arange(side).double() * 2 + 1) / 16 - 0.75
    part = assert_voronoi(torch.cartesian_prod(line, line))
    # Every inner vertex is the corner of four squares.
    assert len(part.vertices) == (side + 1) ** 2
    assert len(part.mesh.edges) == 2 * side * (side + 1)


def whole_points(radius: int) -> Tensor:
    """All points with integer coordinates on a circle around the origin."""
    axis = torch.arange(-radius, radius + 1)
    points = torch.cartesian_prod(axis, axis)
    return points[(points**2).sum(1) == radius**2].double()


@pytest.mark.parametrize(("radius", "count"), [(5, 12), (65, 36), (1105, 108)])
def test_sites_on_a_circle_meet_in_its_centre(radius: int, count: int) -> None:
    sites = whole_points(radius) / 2 ** math.ceil(math.log2(radius) + 0.1)
    assert len(sites) == count
    part, site = diagram(tangent_planes(sites))
    assert sorted(site.tolist()) == list(range(count))
    inside = (part.vertices.abs() < 1 - ATOL).all(1)
    assert part.vertices[inside].abs().max() < ATOL
    assert int(inside.sum()) == 1
    assert sum(shared_borders(part, site).values()) == count
    if count < 100:
        exact = exact_partition(tangent_planes(sites), BOX)
        assert_same_cells(part, exact, atol=ATOL)


def test_sites_on_a_circle_up_to_rounding() -> None:
    angles = torch.arange(100).double() * (2 * math.pi / 100)
    sites = torch.stack([angles.cos(), angles.sin()], 1) / 2
    part = splinecam.partition(tangent_planes(sites), BOX, device="cpu", progress=False)
    assert_valid(part)
    wide = part.areas > ATOL
    assert int(wide.sum()) == 100
    assert float(part.areas.sum()) == pytest.approx(4, abs=ATOL)


def test_sites_that_occur_more_than_once() -> None:
    sites = random_sites(30)
    part, site = diagram(tangent_planes(torch.cat([sites, sites, sites[:5]])))
    assert sorted(site.tolist()) == list(range(30))
    assert len(part) == 30
