"""Shapely's polygons and lines have the coordinates of the partition, and cover the domain."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from export_cases import CASES, found, mlp, partition_of
from handmade import curves_of

shapely = pytest.importorskip("shapely")

CROWDED = ("crowded",)  # corners as close together as the rounding of their coordinates


@pytest.fixture(params=CASES)
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return partition_of(request.param)


def test_coordinates_come_over_bit_for_bit(part: sc.Partition) -> None:
    polygons = part.to_shapely()
    assert polygons.shape == (len(part),)
    assert set(shapely.get_type_id(polygons)) == {shapely.GeometryType.POLYGON}
    points, owner = shapely.get_coordinates(polygons, return_index=True)
    ends = np.flatnonzero(np.diff(owner, append=len(part)))  # rings are closed
    starts = np.concatenate([[0], ends[:-1] + 1])
    assert np.array_equal(points[starts], points[ends])
    open_ = np.delete(points, ends, axis=0)
    assert np.array_equal(open_, part.vertices[part._face_vertices].numpy())
    assert np.array_equal(np.delete(owner, ends), part.mesh.owners().numpy())


def test_areas_add_up_and_polygons_are_valid(
    part: sc.Partition, request: pytest.FixtureRequest
) -> None:
    polygons = part.to_shapely()
    whole = part.domain.area
    assert shapely.area(polygons).sum() == pytest.approx(whole, rel=1e-6)
    if request.node.callspec.params["part"] not in CROWDED:
        assert shapely.is_valid(polygons).all()
        assert shapely.is_ccw(shapely.get_exterior_ring(polygons)).all()


@pytest.mark.parametrize("name", [name for name in CASES if name not in CROWDED])
def test_their_union_is_the_domain(name: str) -> None:
    part = partition_of(name)
    polygons = part.to_shapely()
    assert shapely.is_valid(polygons).all()
    whole = shapely.Polygon(part.domain.corners.tolist())
    union = shapely.union_all(polygons)
    assert union.symmetric_difference(whole).area <= 1e-9 * whole.area
    assert union.hausdorff_distance(whole) <= 1e-9 * part.domain.corners.abs().max()


@pytest.mark.parametrize("name", [name for name in CASES if name not in CROWDED])
def test_neighbours_share_their_corners_exactly(name: str) -> None:
    if shapely.geos_version < (3, 12, 0) or not hasattr(shapely, "coverage_is_valid"):
        pytest.skip("an earlier shapely or GEOS")
    assert shapely.coverage_is_valid(partition_of(name).to_shapely())


def test_what_is_not_valid_can_be_mended() -> None:
    part = partition_of("crowded")
    assert part.unresolved
    polygons = part.to_shapely()
    assert not shapely.is_valid(polygons).all()
    mended = shapely.make_valid(polygons)
    assert shapely.is_valid(mended).all()
    assert shapely.area(mended) == pytest.approx(part.areas.numpy(), abs=1e-12)
    assert shapely.union_all(mended).area == pytest.approx(4.0, rel=1e-9)


def test_some_regions_only() -> None:
    part = partition_of("classifier")
    polygons = part.to_shapely()
    for chosen in ([3, 1, 3], 2, torch.tensor([-1]), part.areas > part.areas.median(), []):
        index = part._indices(chosen).numpy()
        assert shapely.equals_exact(part.to_shapely(chosen), polygons[index], 0).all()
    with pytest.raises(IndexError):
        part.to_shapely([len(part)])


def test_regions_with_equal_maps_are_united_by_their_pieces() -> None:
    model = mlp(2, 12, 1)
    with torch.no_grad():
        model[2].weight[:, :6] = 0.0  # half of the units draw edges, and change nothing
    part = found(model)
    merged, polygons = part.merged(), part.to_shapely()
    assert len(merged) < len(part)
    for k in range(len(merged)):
        piece = shapely.union_all(polygons[merged.labels.numpy() == k])
        assert piece.geom_type == "Polygon"
        assert piece.area == pytest.approx(float(merged.areas[k]))


# -- curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classifier", "one output", "one region", "tiles"])
def test_boundaries_are_lines(name: str) -> None:
    part = partition_of(name)
    boundary = part.decision_boundary()
    lines = boundary.to_shapely()
    assert len(lines) == len(boundary.polylines)
    assert shapely.length(lines).sum() == pytest.approx(boundary.length)
    for line, polyline in zip(lines, boundary.polylines, strict=True):
        assert np.array_equal(shapely.get_coordinates(line), polyline.path.numpy())
        assert line.is_closed == polyline.closed


def test_closed_level_sets_end_where_they_begin() -> None:
    part = found(Diamond())
    levels = part.level_set([0.25, 0.5])
    lines = levels.to_shapely()
    assert [line.is_ring for line in lines] == [True, True]
    assert shapely.area(shapely.polygonize(lines)).item() == pytest.approx(0.5)
    assert [line.length for line in lines] == pytest.approx([2**0.5, 8**0.5])


class Diamond(nn.Module):
    """The sum of absolute values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs().sum(1, keepdim=True)


def test_curves_without_segments() -> None:
    assert curves_of([[0.0, 0.0]], []).to_shapely().shape == (0,)


# -- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classifier", "one output", "one region", "tiles"])
def test_classes_are_polygons_with_holes(name: str) -> None:
    classes = partition_of(name).class_regions()
    polygons = classes.to_shapely()
    assert polygons.shape == (classes.n_classes,)
    assert shapely.is_valid(polygons).all()
    assert shapely.area(polygons) == pytest.approx(classes.areas.numpy())
    for k, each in enumerate(polygons):
        pieces = classes.polygons(k)
        assert each.geom_type == "MultiPolygon"
        assert len(each.geoms) >= len(pieces)
    assert shapely.intersection_all(polygons).area < 1e-12


def test_a_class_with_a_hole_and_one_that_occurs_nowhere() -> None:
    class Ring(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = x.abs().sum(1, keepdim=True)
            return torch.cat([0.25 - (size - 0.5).abs(), 0 * size, 0 * size - 1], 1)

    polygons = found(Ring()).class_regions().to_shapely()
    ring, rest, nothing = polygons
    assert len(ring.geoms) == 1
    assert len(ring.geoms[0].interiors) == 1
    assert len(rest.geoms) == 2
    assert nothing.is_empty
    assert shapely.is_valid(polygons).all()


def test_a_piece_that_touches_itself_is_divided() -> None:
    class Quadrants(nn.Module):
        """Positive in two opposite quadrants, which touch at the origin."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = x[:, :1], x[:, 1:]
            return torch.minimum(a.relu(), b.relu()) + torch.minimum((-a).relu(), (-b).relu())

    part = found(Quadrants())
    polygons = part.class_regions().to_shapely()
    assert shapely.is_valid(polygons).all()
    assert shapely.area(polygons) == pytest.approx([2.0, 2.0])


def test_without_shapely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    part = partition_of("classifier")
    for ask in (part.to_shapely, part.decision_boundary().to_shapely):
        with pytest.raises(sc.SplineCamError, match=r"pip install 'splinecam\[shapely\]'"):
            ask()


def test_the_default_type_of_models_is_float32() -> None:
    assert next(mlp(2, 4, 1).parameters()).dtype == torch.float32
    assert shapely.get_coordinates(partition_of("classifier").to_shapely()).dtype == np.float64
