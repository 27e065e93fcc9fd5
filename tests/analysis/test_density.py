from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from torch import Tensor, nn

import splinecam as sc
from splinecam.questions.sampling import Density, _disk_in_polygon
from strategies import Net, domains, examples, nets

F64 = torch.float64


def counted(part: sc.Partition, x: Tensor, radius: float) -> list[int]:
    """Regions that meet the disks, by looking at every region's distance from every point."""
    counts = torch.zeros(len(x), dtype=torch.int64)
    for region in part:
        p = region.vertices
        q = p.roll(-1, 0)
        d, gap = (q - p)[None], x[:, None] - p[None]
        t = ((gap * d).sum(2) / d.square().sum(2)).clamp(0, 1)
        away = (gap - t[..., None] * d).norm(dim=2).amin(1)
        inside = (d[..., 0] * gap[..., 1] - d[..., 1] * gap[..., 0] >= 0).all(1)
        counts += (inside | (away <= radius)).long()
    return counts.tolist()


@examples(60)
@given(nets(), domains(), st.floats(0.01, 4.0), st.integers(0, 2**20))
def test_regions_are_counted_exactly(net: Net, domain: sc.Domain, radius: float, seed: int):
    part = sc.partition(net.module(), domain, progress=False)
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(20, 2, generator=random, dtype=F64) * 2 - 0.5
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    x = low + x * (high - low)
    found = part.density(x, radius)
    assert found.count.tolist() == counted(part, x, radius)
    assert torch.equal(found.density.isnan(), found.count == 0)
    assert float(found.area.max()) <= min(domain.area, math.pi * radius**2) * (1 + 1e-12)


def test_many_regions_and_points():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 60), nn.ReLU(), nn.Linear(60, 1))
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    x = torch.rand(300, 2, dtype=F64) * 2.4 - 1.2
    for radius in (1e-3, 0.1, 0.7, 5.0):
        assert part.density(x, radius).count.tolist() == counted(part, x, radius)
    assert set(part.density(x, 5.0).count.tolist()) == {len(part)}


def halves() -> sc.Partition:
    """The square from -1 to 1 with a border along u = 0."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
        model[0].bias.zero_()
    return sc.partition(model, sc.Domain.box(-1, 1), progress=False)


def test_the_disk_is_closed():
    part = halves()
    x = [[0.5, 0.0], [0.5 + 2**-40, 0.0], [1.5, 0.0], [1.5, 0.25], [1.5 + 2**-40, 0.0]]
    assert part.density(x, 0.5).count.tolist() == [2, 1, 1, 1, 0]


def test_disks_at_the_border():
    part, r = halves(), 0.5
    x = [[0.25, 0.0], [0.5, 1.0], [-1.0, -1.0], [3.0, 0.0], [1.0, 0.0]]
    found = part.density(x, r)
    whole = math.pi * r * r
    assert found.area.tolist() == pytest.approx([whole, whole / 2, whole / 4, 0, whole / 2])
    assert found.count.tolist() == [2, 2, 1, 0, 1]
    assert found.density[:3].tolist() == pytest.approx([2 / whole, 4 / whole, 4 / whole])
    assert found.density[3].isnan()
    assert repr(found) == "Density(5 inputs, 0 to 2 regions within 0.5)"
    assert repr(part.density(torch.zeros(0, 2), 1)) == "Density(0 inputs, no regions within 1)"


def test_off_the_plane_and_not_finite():
    domain = sc.Domain.through([0.0, 0, 0], [1, 0, 0], [0, 1, 0])
    part = sc.partition(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), domain, progress=False)
    found = part.density(
        [[0.2, 0.3, 5.0], [0.2, 0.3, 0.0], [math.nan, 0, 0], [math.inf, 0, 0]], 0.1
    )
    assert found.count[0] == found.count[1] > 0
    assert found.count[2:].tolist() == [0, 0]
    assert found.density[2:].isnan().all()


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf])
def test_a_radius_is_positive_and_finite(radius: float):
    with pytest.raises(ValueError, match="positive finite"):
        halves().density(torch.zeros(1, 2), radius)


@pytest.mark.parametrize("radius", ["1", None, True, [1.0]])
def test_a_radius_is_a_number(radius: object):
    with pytest.raises(TypeError, match="radius must be a number"):
        halves().density(torch.zeros(1, 2), radius)


def test_a_huge_radius_meets_everything():
    found = halves().density([[0.0, 0.0], [1e3, 0.0]], 1e200)
    assert found.count.tolist() == [2, 2]
    assert found.area.tolist() == [4, 4]


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_scale_changes_nothing(scale: float):
    model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 1)).double()
    x = torch.rand(100, 2, dtype=F64) * 2 - 1
    one = sc.partition(model, sc.Domain.box(-1, 1), progress=False).density(x, 0.2)
    with torch.no_grad():
        model[0].weight /= scale
    two = sc.partition(model, sc.Domain.box(-scale, scale), progress=False)
    found = two.density(x * scale, 0.2 * scale)
    assert isinstance(found, Density)
    assert torch.equal(found.count, one.count)
    assert torch.allclose(found.area / scale**2, one.area)


# -- areas ----------------------------------------------------------------------------------------


def integrated(centre: Tensor, radius: float, corners: Tensor) -> float:
    """Area of disk and polygon, by integrating the lengths of vertical lines through both."""
    sides = list(zip(corners.tolist(), corners.roll(-1, 0).tolist(), strict=True))
    u, v = centre.tolist()

    def length(s: float) -> float:
        half = math.sqrt(max(0.0, radius**2 - (s - u) ** 2))
        low, high = v - half, v + half
        for (a, b), (c, d) in sides:
            if a != c:
                at = b + (s - a) / (c - a) * (d - b)
                low, high = (max(low, at), high) if c > a else (low, min(high, at))
        return max(0.0, high - low)

    first, last = (float(f(corners[:, 0])) for f in (torch.amin, torch.amax))
    first, last = max(first, u - radius), min(last, u + radius)
    if first >= last:
        return 0.0
    knots = sorted({first, last, *(c[0] for c, _ in sides if first < c[0] < last)})
    pieces = [s + (e - s) * k / 8 for s, e in pairwise(knots) for k in range(8)]
    ends = [*pieces[1:], last]
    return sum(
        integrate.quad(length, s, e, epsabs=1e-9, limit=200)[0]
        for s, e in zip(pieces, ends, strict=True)
    )


@examples(40)
@given(domains(), st.floats(0.05, 5.0), st.floats(-0.4, 1.4), st.floats(-0.4, 1.4))
def test_areas_against_integrals(domain: sc.Domain, radius: float, s: float, t: float):
    low, high = domain.corners.amin(0), domain.corners.amax(0)
    centre = low + torch.tensor([s, t], dtype=F64) * (high - low)
    area = float(_disk_in_polygon(centre[None], radius, domain.corners)[0])
    assert area == pytest.approx(integrated(centre, radius, domain.corners), abs=1e-6)


@examples(30)
@given(domains(), st.integers(0, 2**20))
def test_disks_through_corners_and_along_sides(domain: sc.Domain, seed: int):
    """The area hardly changes when the disk moves a little, wherever it touches the border."""
    corners = domain.corners
    random = torch.Generator().manual_seed(seed)
    middle = (corners + corners.roll(-1, 0)) / 2
    inner = domain.center + 0.5 * (corners - domain.center)
    centre = torch.cat([corners, middle, inner])
    for radius in (centre[:, None] - corners).norm(dim=2).flatten().unique().tolist():
        if radius > 0:
            moved = centre + 1e-9 * torch.randn(centre.shape, generator=random, dtype=F64)
            one, two = (_disk_in_polygon(c, radius, corners) for c in (centre, moved))
            assert float((one - two).abs().max()) <= 1e-7 * (1 + radius)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_density():
    model = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 1))
    x = torch.rand(500, 2, dtype=F64) * 2.4 - 1.2
    one, two = (
        sc.partition(model, sc.Domain.box(-1, 1), device=device, progress=False).density(x, 0.3)
        for device in ("cpu", "cuda")
    )
    assert torch.equal(one.count, two.count.cpu())
    assert torch.allclose(one.area, two.area.cpu())
