from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import splinecam as sc
from handmade import curves_of, loose, plane
from splinecam._util.bvh import BoxTree
from splinecam.geometry.point_location import closest
from splinecam.questions.curves import Curves
from strategies import examples

F64 = torch.float64
PART = plane()


def all_pairs(curves: Curves, x: Tensor) -> Tensor:
    """Squared distance of each point to each segment, (N, S), by trying three places."""
    p, q = curves.ends[None, :, 0], curves.ends[None, :, 1]
    d, gap = q - p, x[:, None] - p
    t = ((gap * d).sum(2) / d.square().sum(2).clamp(min=1e-300)).clamp(0, 1)
    foot = (p + t[..., None] * d - x[:, None]).square().sum(2)
    ends = (gap.square().sum(2)).minimum((x[:, None] - q).square().sum(2))
    return foot.minimum(ends)


def exact(p: tuple[int, int], q: tuple[int, int], x: tuple[int, int]) -> Fraction:
    """Squared distance of a point to a segment, exactly."""
    d, gap = (q[0] - p[0], q[1] - p[1]), (x[0] - p[0], x[1] - p[1])
    square = d[0] ** 2 + d[1] ** 2
    t = Fraction(gap[0] * d[0] + gap[1] * d[1], square) if square else Fraction(0)
    t = min(max(t, Fraction(0)), Fraction(1))
    return (gap[0] - t * d[0]) ** 2 + (gap[1] - t * d[1]) ** 2


places = st.tuples(st.integers(-4, 4), st.integers(-4, 4))


@examples(150)
@given(st.lists(st.tuples(places, places), min_size=1, max_size=40), st.lists(places, min_size=1))
def test_lattice_segments_exactly_and_of_equals_the_lowest(
    segments: list[tuple[tuple[int, int], tuple[int, int]]], points: list[tuple[int, int]]
):
    """With repeated, crossing and zero-length segments, points on them, and ties."""
    found = loose(torch.tensor(segments, dtype=F64), PART).nearest(torch.tensor(points))
    for i, x in enumerate(points):
        squares = [exact(p, q, x) for p, q in segments]
        assert float(found.distance[i]) == pytest.approx(math.sqrt(min(squares)), rel=1e-15)
        assert int(found.segment[i]) == squares.index(min(squares))


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [1e-12, 1e-3, 0.1, 3.0])
def test_random_segments_against_all_pairs(size: float):
    ends = (torch.rand(1500, 1, 2, dtype=F64) - 0.5) * 6
    curves = loose(ends + size * torch.randn(1500, 2, 2, dtype=F64), PART)
    x = torch.randn(700, 2, dtype=F64) * 3
    found = curves.nearest(x)
    squares = all_pairs(curves, x)
    assert torch.allclose(found.distance, squares.amin(1).sqrt(), rtol=1e-12, atol=1e-15)
    chosen = squares.gather(1, found.segment[:, None])[:, 0].sqrt()
    assert torch.allclose(chosen, found.distance, rtol=1e-12, atol=1e-15)
    assert torch.allclose((found.uv - x).norm(dim=1), found.distance, rtol=1e-12, atol=1e-15)


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", ["spiral", "one corner", "grid"])
def test_many_points_and_segments(shape: str):
    """More points than a block, far from curves with many short segments or crowded ones."""
    s = torch.linspace(0, 1, 4001, dtype=F64)
    if shape == "spiral":
        line = 3 * s[:, None] * torch.stack([(20 * s).cos(), (20 * s).sin()], 1)
    elif shape == "one corner":
        line = 3 - torch.stack([s**9, s**12], 1)
    else:
        line = torch.stack([s * 8 % 1, (s * 8).floor() / 8], 1)
    curves = loose(torch.stack([line[:-1], line[1:]], 1), PART)
    x = (torch.rand(40_000, 2, dtype=F64) - 0.5) * 8
    found = curves.nearest(x)
    check = torch.randperm(len(x))[:1000]
    least = all_pairs(curves, x[check]).amin(1).sqrt()
    assert torch.allclose(found.distance[check], least, rtol=1e-12)


def test_the_centre_of_a_circle():
    """All segments are as near, so nothing can be left out."""
    angle = torch.arange(3000, dtype=F64) * 2 * math.pi / 3000
    line = torch.stack([angle.cos(), angle.sin()], 1)
    index = torch.arange(3000)
    curves = curves_of(line, torch.stack([index, (index + 1) % 3000], 1), part=PART)
    found = curves.nearest(torch.zeros(50, 2))
    assert torch.allclose(found.distance, torch.tensor(math.cos(math.pi / 3000), dtype=F64))
    assert found.certain.all()


def test_points_on_the_curves_are_at_distance_zero():
    curves = loose(torch.randn(500, 2, 2, dtype=F64), PART)
    found = curves.nearest(curves.sample(2000, dtype=F64))
    assert float(found.distance.max()) < 1e-14
    again = curves.nearest(curves.points)
    assert float(again.distance.max()) == 0
    assert torch.equal(again.uv, curves.points)


def test_inputs_off_the_plane():
    domain = sc.Domain.through([0.0, 0, 0], [1, 0, 0], [0, 1, 0], margin=1.0)
    curves = curves_of([[-0.5, 0], [0.5, 0]], [[0, 1]], part=plane(domain))
    found = curves.nearest([[0.25, 0.3, 0.4], [0.25, 0.0, 7.0]])
    assert found.distance.tolist() == pytest.approx([0.5, 7.0])
    assert torch.allclose(found.uv, torch.tensor([[0.25, 0.0], [0.25, 0.0]], dtype=F64))
    assert torch.allclose(found.x, torch.tensor([[0.25, 0, 0], [0.25, 0, 0]]))
    assert found.x.dtype == torch.float32
    assert found.x is found.x
    assert found.certain.tolist() == [True, True]


def test_one_input_and_batches_of_any_shape():
    domain = sc.Domain.around(torch.zeros(2, 3), side=2.0)
    curves = curves_of([[-1, 0], [1, 0]], [[0, 1]], part=plane(domain))
    uv = torch.tensor([[0.5, 0.25], [0.0, -0.5]], dtype=F64)
    batch = domain.embed(uv)
    for x in (batch, batch.view(2, 6)):
        found = curves.nearest(x)
        assert found.distance.tolist() == pytest.approx([0.25, 0.5])
        assert found.x.shape == (2, 2, 3)
    assert curves.nearest(batch[0]).distance.tolist() == pytest.approx([0.25])
    assert len(curves.nearest(batch[:0])) == 0
    with pytest.raises(sc.DomainError):
        curves.nearest(torch.zeros(2, 5))


def test_certain_is_what_the_outside_can_not_change():
    curves = curves_of([[1, -4], [1, 4]], [[0, 1]], part=PART)
    x = [[0, 0], [-1, 0], [-1.5, 0], [-1.5001, 0], [1, 4], [1, 4.001], [5, 0], [3, 2], [3, 2.001]]
    found = curves.nearest(x)
    assert found.certain.tolist() == [True, True, True, False, True, False, False, False, False]
    assert curves.nearest([[2.5, 2.5], [2.5, 2.501]]).certain.tolist() == [True, False]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_offsets_and_scales_lose_no_digits(scale: float):
    corner = torch.tensor([2.0**20, -(2.0**20)], dtype=F64) * scale
    part = plane(sc.Domain.box(corner, corner + scale))
    ends = torch.rand(200, 2, 2, dtype=F64).mul(2**20).round() / 2**20
    x = torch.rand(300, 2, dtype=F64).mul(2**20).round() / 2**20
    near = loose(ends, PART).nearest(x)
    if scale != 1.0:  # scaled numbers are rounded where the offset leaves no room for them
        ends, x = (((t * scale + corner) - corner) / scale for t in (ends, x))
        near = loose(ends, PART).nearest(x)
    far = loose(ends * scale + corner, part).nearest(x * scale + corner)
    assert torch.allclose(far.distance / scale, near.distance, rtol=1e-9, atol=1e-13)


def test_empty_curves_have_no_closest_point():
    found = curves_of([], [], part=PART).nearest(torch.zeros(3, 2))
    assert found.distance.tolist() == [math.inf] * 3
    assert found.segment.tolist() == [-1] * 3
    assert found.uv.isnan().all()
    assert found.x.isnan().all()
    assert not found.certain.any()
    assert found.keys == [None] * 3
    assert repr(found) == "Nearest(3 inputs, none found, 0 certain)"


def test_inputs_that_are_not_finite_have_no_closest_point():
    curves = loose(torch.randn(100, 2, 2, dtype=F64), PART)
    found = curves.nearest([[math.nan, 0.0], [math.inf, 0.0], [1e300, 0.0], [0.0, 0.0]])
    assert found.segment[:3].tolist() == [-1] * 3
    assert found.distance[:3].isnan().all()
    assert int(found.segment[3]) >= 0
    assert float(found.distance[3]) < 1


@dataclass(frozen=True, eq=False, repr=False)
class Classed(Curves):
    classes: Tensor


def test_what_the_closest_segment_belongs_to():
    plain = curves_of([[0, 0], [1, 0], [3, 0], [4, 0]], [[0, 1], [2, 3]], [4, 6], part=PART)
    x = [[3.5, 1.0], [0.5, 1.0], [math.nan, 0.0]]
    found = plain.nearest(x)
    assert found.label.tolist() == [6, 4, -1]
    assert found.keys == [6, 4, None]
    with pytest.raises(AttributeError, match="Curves has no classes"):
        _ = found.classes
    curves = Classed(**vars(plain.select(torch.arange(2))), classes=torch.tensor([[0, 1], [1, 2]]))
    assert curves.nearest(x).classes.tolist() == [[1, 2], [0, 1], [-1, -1]]
    assert repr(plain.nearest(x)) == "Nearest(3 inputs, distances 1 to 1, 1 certain)"


def test_closest_meets_both_ends_exactly():
    ends = torch.randn(200, 2, 2, dtype=F64)
    for side, points in ((0, ends[:, 0]), (1, ends[:, 1])):
        t, square = closest(points, ends)
        assert torch.equal(t, torch.full_like(t, side))
        assert torch.equal(square, torch.zeros_like(square))


# -- the tree -------------------------------------------------------------------------------------


@examples(100)
@given(st.integers(0, 700), st.floats(0.0, 20.0), st.integers(0, 2**20))
def test_a_walk_finds_all_boxes_within_reach(items: int, radius: float, seed: int):
    random = torch.Generator().manual_seed(seed)
    corners = torch.randint(-8, 9, (items, 2, 2), generator=random).double()
    low, high = corners.amin(1), corners.amax(1)
    points = torch.randint(-10, 11, (30, 2), generator=random).double()
    reach = torch.full((30,), radius**2, dtype=F64)
    gap = (low - points[:, None]).maximum(points[:, None] - high)
    near = gap.clamp(min=0).square().sum(2)
    far = (points[:, None] - low).abs().maximum((points[:, None] - high).abs()).square().sum(2)

    tree = BoxTree(low, high)
    pairs = [torch.stack(pair, 1) for pair in tree.walk(points, reach)]
    found = torch.zeros(30, items, dtype=torch.int64)
    for pair in pairs:
        found.index_put_(tuple(pair.unbind(1)), torch.tensor(1), accumulate=True)
    assert torch.equal(found[near <= radius**2], torch.ones_like(found[near <= radius**2]))
    assert not found[near > radius**2 + 1e-9].any()

    whole = torch.zeros(30, dtype=torch.int64)
    rest = torch.zeros(30, dtype=torch.int64)
    for point, item in tree.walk(points, reach, inside=whole):
        rest += torch.bincount(point, minlength=30)
        assert (far[point, item] > radius**2 - 1e-9).all()
    assert torch.equal(whole + rest, found.sum(1))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_closest_points():
    gpu_part = sc.partition(PART.model, PART.domain, device="cuda", progress=False)
    cpu = loose(torch.randn(5000, 2, 2, dtype=F64), PART)
    gpu = Curves(gpu_part, *(t.cuda() for t in (cpu.points, cpu.segments, cpu.regions, cpu.label)))
    x = torch.randn(2000, 2, dtype=F64)
    one, two = cpu.nearest(x), gpu.nearest(x)
    assert two.distance.device.type == "cuda"
    assert torch.allclose(one.distance, two.distance.cpu(), atol=1e-14)
    assert torch.equal(one.segment, two.segment.cpu())
    assert torch.equal(one.certain, two.certain.cpu())
    assert two.x.device.type == "cpu"
