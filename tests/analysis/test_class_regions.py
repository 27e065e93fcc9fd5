"""Class regions: areas that add up, polygons with holes, the same length as the boundary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.class_regions import ClassPolygon
from splinecam.testing import Abs, Max
from strategies import dense

F64 = torch.float64


def partition(model: nn.Module, half: float = 1.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-half, half), device="cpu", progress=False)


def classifier(outputs: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, outputs)
    ).double()
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2, dtype=F64))[0]
    return model


def signed_area(line: Tensor) -> float:
    x, y = (line - line.mean(0)).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum()) / 2


def inside(polygon: ClassPolygon, points: Tensor) -> Tensor:
    """Even-odd rule over the outline and the holes."""
    odd = torch.zeros(len(points), dtype=torch.bool)
    for line in (polygon.outline, *polygon.holes):
        a, b = line, line.roll(-1, 0)
        u, v = points[:, :1], points[:, 1:]
        crosses = (a[:, 1] > v) != (b[:, 1] > v)
        t = (v - a[:, 1]) / (b[:, 1] - a[:, 1])
        odd ^= (crosses & (u < a[:, 0] + t * (b[:, 0] - a[:, 0]))).sum(1) % 2 == 1
    return odd


@pytest.mark.parametrize("outputs", [1, 2, 3, 7])
def test_areas_and_lengths_agree(outputs: int) -> None:
    part = partition(classifier(outputs), 3.0)
    found, boundary = part.class_regions(), part.decision_boundary()
    assert float(found.areas.sum()) == pytest.approx(36.0, rel=1e-12)
    assert len(found.areas) == max(outputs, 2)
    assert found.tied_area == 0.0
    total = torch.zeros_like(found.areas).index_add_(0, found.cell_class, found.cell_areas)
    torch.testing.assert_close(found.areas, total, rtol=1e-12, atol=1e-12)
    assert found.boundary_length() == pytest.approx(boundary.length, rel=1e-12)
    for k, area in enumerate(found.areas.tolist()):
        pieces = found.polygons(k)
        assert sum(piece.area for piece in pieces) == pytest.approx(area, abs=1e-12)
        assert [piece.area for piece in pieces] == sorted((p.area for p in pieces), reverse=True)
        for piece in pieces:
            rings = [signed_area(piece.outline), *map(signed_area, piece.holes)]
            assert rings[0] > 0
            assert all(area < 0 for area in rings[1:])
            assert sum(rings) == pytest.approx(piece.area, rel=1e-9, abs=1e-12)


def test_polygons_hold_the_points_of_their_class() -> None:
    model = classifier(4, seed=1)
    part = partition(model, 3.0)
    points = 6 * torch.rand(500, 2, dtype=F64, generator=torch.Generator().manual_seed(0)) - 3
    decision = model(points).argmax(1)
    found = part.class_regions()
    for k in range(4):
        within = torch.zeros(len(points), dtype=torch.long)
        for piece in found.polygons(k):
            within += inside(piece, points).long()
        assert torch.equal(within == 1, decision == k)
        assert int(within.max()) <= 1


def test_a_square_ring() -> None:
    """0.25 - | max(|x|, |y|) - 0.5 | is positive on a ring with a hole."""
    model = nn.Sequential(
        Abs(), Max(1, keepdim=True), dense([[1.0]], [-0.5]), Abs(), dense([[-1.0]], [0.25])
    )
    found = partition(model).class_regions()
    assert found.areas.tolist() == pytest.approx([4 - 2.0, 2.0], abs=1e-12)
    (ring,) = found.polygons(1)
    assert len(ring.holes) == 1
    assert signed_area(ring.outline) == pytest.approx(2.25)
    assert signed_area(ring.holes[0]) == pytest.approx(-0.25)
    outside, core = found.polygons(0)
    assert (len(outside.holes), len(core.holes)) == (1, 0)
    assert core.area == pytest.approx(0.25)
    assert found.boundary_length() == pytest.approx(8.0)
    assert repr(ring) == f"ClassPolygon({len(ring.outline)} vertices, 1 hole, area 2)"


def test_cells_belong_to_their_regions() -> None:
    part = partition(classifier(3), 3.0)
    found = part.class_regions()
    total = torch.zeros(len(part), dtype=F64).index_add_(0, found.cell_region, found.cell_areas)
    torch.testing.assert_close(total, part.areas, rtol=1e-9, atol=1e-14)
    counts = found.cell_offsets.diff()
    row = torch.repeat_interleave(counts)
    mean = torch.zeros(len(counts), 2, dtype=F64).index_add_(0, row, found.cell_corners)
    y = part.model(mean / counts[:, None]).detach()
    assert torch.equal(y.argmax(1), found.cell_class)
    top = y.topk(2, 1).values
    torch.testing.assert_close(found.cell_leads, top[:, 0] - top[:, 1], rtol=1e-9, atol=1e-12)


def test_argmin_and_level() -> None:
    model = classifier(3)
    part = partition(model, 3.0)
    points = 6 * torch.rand(20000, 2, dtype=F64, generator=torch.Generator().manual_seed(0)) - 3
    share = torch.bincount(model(points).argmin(1), minlength=3) / len(points)
    areas = part.class_regions(kind="argmin").areas / 36
    assert float((areas - share).abs().max()) < 0.02
    slope = partition(dense([[1.0, 0.0]]))
    assert slope.class_regions(level=0.5).areas.tolist() == [3.0, 1.0]
    assert slope.class_regions(level=2.0).areas.tolist() == [4.0, 0.0]


def test_classes_are_numbered_from_zero() -> None:
    found = partition(classifier(3)).class_regions()
    with pytest.raises(IndexError, match="class 3 of 3 classes"):
        found.polygons(3)
    assert len(found.polygons(-1)) == len(found.polygons(2))


def test_autograd_may_use_what_is_found() -> None:
    part = partition(classifier(3))
    found, boundary = part.class_regions(), part.decision_boundary()
    weight = torch.ones((), dtype=F64, requires_grad=True)
    for tensor in (found.cell_areas, found.cell_leads, found.winners.overlay.z, boundary.points):
        (weight * tensor).sum().backward()
    assert float(weight.grad) != 0
    assert not any(
        x.is_inference() for x in (found.cell_class, found.cell_region, part._face_vertices)
    )
