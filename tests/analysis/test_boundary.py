"""Decision boundaries and level sets: on the tie, complete, drawn once, in degenerate cases too."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.errors import SplineCamError
from splinecam.questions.boundary import Boundary, LevelSet
from splinecam.questions.curves import Curves
from splinecam.testing import Abs, Max
from strategies import dense, mlp

F64 = torch.float64


def partition(model: nn.Module, half: float = 1.0) -> sc.Partition:
    return sc.partition(model, sc.Domain.box(-half, half), device="cpu", progress=False)


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = model(x)
    return torch.cat([torch.zeros_like(y), y], 1) if y.shape[1] == 1 else y


def along(curves: Curves, count: int = 10) -> Tensor:
    """Random points of all segments, (S, count, 2)."""
    t = torch.rand(len(curves), count, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    return torch.lerp(curves.ends[:, :1], curves.ends[:, 1:], t)


def assert_sound(curves: Curves) -> None:
    """Every segment once, none of length zero, regions beside it that contain it."""
    assert bool((curves.lengths > 0).all())
    assert len(torch.unique(curves.segments.sort(1).values, dim=0)) == len(curves)
    assert len(torch.unique(curves.points, dim=0)) == len(curves.points)
    assert torch.equal(torch.unique(curves.segments), torch.arange(len(curves.points)))
    part = curves.partition
    d = (curves.ends[:, 1] - curves.ends[:, 0]) / curves.lengths[:, None]
    normal = torch.stack([-d[:, 1], d[:, 0]], 1)
    middle = curves.ends.mean(1)
    for k, sign in ((0, 1), (1, -1)):
        beside = middle + sign * normal * (1e-7 * curves.lengths[:, None])
        found = part.locate(part.domain.embed(beside))
        assert torch.equal(found, curves.regions[:, k])


NETWORKS = {
    "one output": mlp(2, 16, 16, 1),
    "two outputs": mlp(2, 16, 2, seed=1),
    "ten outputs": mlp(2, 16, 16, 10, seed=2),
    "no hidden layer": mlp(2, 5, seed=4),
}


@pytest.fixture(scope="module", params=list(NETWORKS))
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, sc.Partition]:
    model = NETWORKS[request.param]
    with torch.no_grad():  # move the boundary into the domain
        model[-1].bias -= model(torch.zeros(1, 2, dtype=F64))[0]
    return model, partition(model, 4.0)


def test_outputs_tie_on_every_segment(case: tuple[nn.Module, sc.Partition]) -> None:
    model, part = case
    boundary = part.decision_boundary()
    assert len(boundary) > 2
    assert_sound(boundary)
    y = outputs(model, along(boundary).view(-1, 2))
    top = y.topk(2, 1)
    torch.testing.assert_close(top.values[:, 0], top.values[:, 1], rtol=0, atol=1e-13)
    named = boundary.classes.repeat_interleave(10, 0)
    torch.testing.assert_close(y.gather(1, named), top.values, rtol=0, atol=1e-13)
    assert bool((boundary.classes[:, 0] < boundary.classes[:, 1]).all())
    assert torch.equal(boundary.sides.flip(1), boundary.classes)
    assert boundary.unresolved == ()


def test_the_sides_win_beside_the_boundary(case: tuple[nn.Module, sc.Partition]) -> None:
    model, part = case
    boundary = part.decision_boundary()
    d = boundary.ends[:, 1] - boundary.ends[:, 0]
    normal = torch.stack([-d[:, 1], d[:, 0]], 1)
    middle = boundary.ends.mean(1)
    for k, shift in ((0, 1e-6), (1, -1e-6)):
        assert torch.equal(outputs(model, middle + shift * normal).argmax(1), boundary.sides[:, k])


def test_decisions_on_a_grid_follow_the_boundary(case: tuple[nn.Module, sc.Partition]) -> None:
    """Neighbours on a grid decide differently exactly where the boundary passes between them."""
    model, part = case
    boundary = part.decision_boundary()
    axis = torch.linspace(-4, 4, 161, dtype=F64)
    grid = torch.cartesian_prod(axis, axis).view(161, 161, 2)
    decision = outputs(model, grid.view(-1, 2)).argmax(1).view(161, 161)
    a, b = boundary.ends.unbind(1)
    # Which grid rows does each segment cross, and where: parity of crossings to the left.
    for row in range(1, 160, 13):
        v = axis[row] + 1e-9
        hit = (a[:, 1] > v) != (b[:, 1] > v)
        t = (v - a[hit, 1]) / (b[hit, 1] - a[hit, 1])
        u = torch.lerp(a[hit, 0], b[hit, 0], t).sort().values
        between = torch.searchsorted(u, axis).diff()
        changes = decision[:, row].diff() != 0
        assert bool((between[changes] > 0).all())
        single = between == 1
        assert bool(changes[single].all())


def test_classes_and_kinds(case: tuple[nn.Module, sc.Partition]) -> None:
    model, part = case
    boundary = part.decision_boundary()
    lengths = boundary.pairs()
    assert sum(lengths.values()) == pytest.approx(boundary.length)
    for (i, j), length in lengths.items():
        assert part.decision_boundary(classes=(j, i)).length == pytest.approx(length)
    pairwise_ties = part.decision_boundary(kind="pairwise")
    assert_sound(pairwise_ties)
    assert pairwise_ties.length >= boundary.length - 1e-9
    y = outputs(model, along(pairwise_ties).view(-1, 2))
    tied = y.gather(1, pairwise_ties.classes.repeat_interleave(10, 0))
    torch.testing.assert_close(tied[:, 0], tied[:, 1], rtol=0, atol=1e-13)
    if part.values.shape[1] > 1:
        total = 0.0
        for i, j in torch.combinations(torch.arange(y.shape[1])).tolist():
            pair = part.decision_boundary(kind="pairwise", classes=(i, j))
            assert set(pair.pairs()) <= {(i, j)}
            total += pair.length
        assert total == pytest.approx(pairwise_ties.length)


def test_argmin_is_argmax_of_the_negative() -> None:
    model = mlp(2, 12, 4, seed=3)
    negative = nn.Sequential(*model, dense((-torch.eye(4)).tolist(), [0.0] * 4))
    a = partition(model, 3.0).decision_boundary(kind="argmin")
    b = partition(negative, 3.0).decision_boundary()
    assert a.pairs() == pytest.approx(b.pairs())


# -- closed forms ---------------------------------------------------------------------------------


def one_norm() -> nn.Sequential:
    return nn.Sequential(Abs(), dense([[1.0, 1.0]], [0.0]))


def test_level_sets_of_the_one_norm() -> None:
    part = partition(one_norm())
    curves = part.level_set([0.25, 0.5, 1.0, 1.5])
    assert_sound(curves)
    for level, length in ((0.25, 1.0), (0.5, 2.0), (1.0, 4.0), (1.5, 2.0)):
        diamond = curves.at(level)
        assert len(diamond) == 4
        assert diamond.length == pytest.approx(length * math.sqrt(2), rel=1e-12)
        torch.testing.assert_close(
            along(diamond).abs().sum(2), torch.full((4, 10), level, dtype=F64), rtol=0, atol=1e-12
        )
        assert diamond.key(int(diamond.label[0])) == level
    ring = curves.at(0.5).polylines
    assert len(ring) == 1
    assert ring[0].closed
    corners = {tuple(p) for p in ring[0].points.tolist()}
    assert corners == {(0.5, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.0, -0.5)}
    assert len(curves.at(1.5).polylines) == 4
    assert torch.equal(curves.level, torch.tensor(curves.levels, dtype=F64)[curves.label])


def test_the_level_zero_of_the_one_norm_is_a_point() -> None:
    assert len(partition(one_norm()).level_set(0.0)) == 0


def test_larger_values_lie_left() -> None:
    part = partition(mlp(2, 16, 16, 1), 4.0)
    low, high = float(part.values.min()), float(part.values.max())
    curves = part.level_set(torch.linspace(low, high, 7)[1:-1])
    assert len(curves.levels) == 5
    assert_sound(curves)
    d = curves.ends[:, 1] - curves.ends[:, 0]
    left = curves.ends.mean(1) + 1e-6 * torch.stack([-d[:, 1], d[:, 0]], 1)
    y = part.model(left).detach()[:, 0]
    assert bool((y > curves.level).all())


def test_xor() -> None:
    """relu(x) - 2 relu(x + y - 1) ... : x XOR y on [0, 1]^2, above 1/2 between two lines."""
    hidden = dense([[1.0, 1.0], [1.0, 1.0]], [0.0, -1.0])
    model = nn.Sequential(hidden, nn.ReLU(), dense([[1.0, -2.0]], [-0.5]))
    domain = sc.Domain.box(0, 1)
    part = sc.partition(model, domain, device="cpu", progress=False)
    boundary = part.decision_boundary()
    assert len(boundary.polylines) == 2
    sums = sorted(boundary.ends.sum(2).mean(1).tolist())
    assert sums == pytest.approx([0.5, 1.5], abs=1e-12)
    assert boundary.length == pytest.approx(math.sqrt(2), rel=1e-12)
    corners = part.locate(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
    assert bool((corners >= 0).all())
    assert part.class_regions().areas.tolist() == pytest.approx([0.25, 0.75], abs=1e-12)


def test_signed_distance_of_a_polygon() -> None:
    """The zero set of the largest of some planes is the convex polygon that they bound."""
    angles = torch.tensor([0.2, 1.4, 2.3, 3.6, 5.0], dtype=F64)
    normals = torch.stack([angles.cos(), angles.sin()], 1)
    offsets = torch.tensor([0.5, 0.45, 0.6, 0.4, 0.55], dtype=F64)
    model = nn.Sequential(dense(normals.tolist(), (-offsets).tolist()), Max(1, keepdim=True))
    corners = torch.stack(
        [torch.linalg.solve(normals[[k, (k + 1) % 5]], offsets[[k, (k + 1) % 5]]) for k in range(5)]
    )
    ring = partition(model, 2.0).level_set(0.0).polylines
    assert len(ring) == 1
    assert ring[0].closed
    found = ring[0].points
    # Larger values lie left, so the polygon is to the right: clockwise.
    start = int((found - corners[0]).norm(dim=1).argmin())
    torch.testing.assert_close(
        found.roll(-start, 0), corners.flip(0).roll(1, 0), rtol=0, atol=1e-12
    )
    for level in (-0.2, 0.3):  # inside and outside, parallel sides
        shifted = partition(model, 2.0).level_set(level)
        y = along(shifted) @ normals.T - offsets
        torch.testing.assert_close(
            y.amax(2), torch.full(y.shape[:2], level, dtype=F64), rtol=0, atol=1e-12
        )


def test_level() -> None:
    part = partition(dense([[1.0, 0.0]], [0.0]))
    boundary = part.decision_boundary(level=0.25)
    assert boundary.ends.shape == (1, 2, 2)
    assert torch.equal(boundary.ends[0, :, 0], torch.tensor([0.25, 0.25], dtype=F64))
    assert boundary.length == 2.0
    assert boundary.sides.tolist() == [[1, 0]]
    assert len(part.decision_boundary(level=2.0)) == 0


# -- degenerate cases -----------------------------------------------------------------------------


def test_through_two_corners() -> None:
    part = partition(dense([[1.0, 1.0]], [0.0]))
    for curves in (part.decision_boundary(), part.level_set(0.0)):
        assert len(curves) == 1
        assert curves.length == pytest.approx(2 * math.sqrt(2))


@pytest.mark.parametrize(
    ("head", "sides"),
    [
        ([[1.0, -1.0]], [1, 0]),  # x: through zero along the region edge x = 0
        ([[1.0, 1.0]], [1, 1]),  # |x|: touches zero along the edge
        ([[0.0, 1.0]], [1, 0]),  # relu(-x): zero on the right half, whose edge is the boundary
        ([[0.0, -1.0]], [0, 0]),  # -relu(-x)
    ],
)
def test_along_a_region_edge(head: list[list[float]], sides: list[int]) -> None:
    first = dense([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0])
    part = partition(sc.nn.AsWritten(nn.Sequential(first, nn.ReLU(), dense(head, [0.0]))))
    assert len(part) == 2
    boundary = part.decision_boundary()
    for curves in (boundary, part.level_set(0.0)):
        assert torch.equal(curves.ends[:, :, 0], torch.zeros(1, 2, dtype=F64))
        assert curves.length == 2.0
        assert sorted(curves.regions[0].tolist()) == [0, 1]
        assert_sound(curves)
    assert boundary.sides.tolist() == [sides]
    assert boundary.classes.tolist() == [[0, 1]]


def test_along_the_border_of_the_domain() -> None:
    part = partition(dense([[1.0, 0.0]], [1.0]))
    for curves in (part.decision_boundary(), part.level_set(0.0)):
        assert curves.length == 2.0
        assert sorted(curves.regions[0].tolist()) == [-1, 0]
        assert torch.equal(curves.ends[:, :, 0], torch.full((1, 2), -1.0, dtype=F64))
    assert sorted(part.decision_boundary().sides[0].tolist()) == [-1, 1]


def test_constant_outputs() -> None:
    flat = partition(dense([[0.0, 0.0]], [0.0]))
    assert len(flat.decision_boundary()) == 0
    assert len(flat.level_set([0.0, 1.0])) == 0
    assert flat.class_regions().tied_area == pytest.approx(4.0)
    same = partition(dense([[1.0, 2.0], [1.0, 2.0]], [0.0, 0.0]))
    for kind in ("argmax", "argmin", "pairwise"):
        assert len(same.decision_boundary(kind=kind)) == 0


@pytest.mark.parametrize(
    "weight",
    [
        [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]],  # three outputs tie along one line
        [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]],  # two outputs are the same
        [[-1.0, 0.0], [1.0, 0.0], [1.0, 0.0]],
        [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]],
    ],
)
@pytest.mark.parametrize("kind", ["argmax", "argmin", "pairwise"])
def test_each_place_is_drawn_once(weight: list[list[float]], kind: str) -> None:
    boundary = partition(dense(weight, [0.0] * len(weight))).decision_boundary(kind=kind)
    assert len(boundary) == 1
    assert boundary.length == 2.0


def test_the_outline_of_an_area_on_which_outputs_are_equal() -> None:
    """relu(x - 1/2) and relu(-x - 1/2) are both 0 in between."""
    first = dense([[1.0, 0.0], [-1.0, 0.0]], [-0.5, -0.5])
    part = partition(nn.Sequential(first, nn.ReLU()))
    boundary = part.decision_boundary()
    assert sorted(boundary.ends[:, 0, 0].tolist()) == [-0.5, 0.5]
    assert boundary.classes.tolist() == [[0, 1], [0, 1]]
    assert sorted(map(tuple, boundary.sides.tolist())) == [(0, 0), (1, 0)]
    found = part.class_regions()
    assert found.tied_area == pytest.approx(2.0)
    assert found.areas.tolist() == pytest.approx([3.0, 1.0])
    pairs = part.decision_boundary(kind="pairwise")
    assert sorted(pairs.ends[:, 0, 0].tolist()) == [-0.5, 0.5]


def test_three_classes_meet_in_a_point() -> None:
    weight = [[math.cos(a), math.sin(a)] for a in (0.1, 2.3, 4.1)]
    part = partition(dense(weight, [0.0] * 3))
    boundary = part.decision_boundary()
    assert len(boundary) == 3
    assert float(boundary.ends.norm(dim=2).amin(1).max()) < 1e-15
    assert len(boundary.polylines) == 3
    assert sorted(part.class_regions().cell_class.tolist()) == [0, 1, 2]
    # All pairs: each line goes on beyond the point.
    pairs = part.decision_boundary(kind="pairwise")
    assert len(pairs) == 3
    assert len(pairs.polylines) == 3
    assert float(pairs.ends.abs().amax(2).min()) == 1


def test_a_class_that_wins_at_no_corner() -> None:
    weight = [[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0], [0.0, 0.0]]
    part = partition(dense(weight, [0.0, 0.0, 0.0, 0.0, 1.0]))
    boundary = part.decision_boundary()
    # A square of side 1 around the origin, and four diagonals from its corners to the domain's.
    assert boundary.length == pytest.approx(4 + 4 * math.sqrt(0.5))
    assert_sound(boundary)
    assert part.class_regions().areas[4] == pytest.approx(1.0)


def test_no_boundary() -> None:
    part = partition(dense([[1.0, 0.0], [1.0, 0.0]], [5.0, 0.0]))
    boundary = part.decision_boundary()
    assert boundary.ends.shape == (0, 2, 2)
    assert boundary.length == 0.0
    assert boundary.pairs() == {}
    assert len(boundary.polylines) == 0
    found = part.class_regions()
    assert found.cell_class.tolist() == [0]
    assert found.cell_region.tolist() == [0]


# -- samples and distances -------------------------------------------------------------------


def convolutional(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 4)
    )
    return model.to(dtype).eval()


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 1e-5), (F64, 1e-13)])
def test_outputs_tie_at_samples_through_the_real_model(dtype: torch.dtype, rounding: float) -> None:
    model = convolutional(dtype)
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model[-1].bias -= model(images.mean(0, keepdim=True).to(dtype))[0]
    domain = sc.Domain.through(*images, margin=0.5)
    part = sc.partition(model, domain, device="cpu", progress=False)
    boundary = part.decision_boundary()
    assert len(boundary.pairs()) > 1
    for i, j in boundary.pairs():
        x = boundary.between(i, j).sample(200, generator=torch.Generator().manual_seed(2))
        assert x.shape == (200, 1, 8, 8)
        assert (x.dtype, x.device) == (dtype, domain.origin.device)
        with torch.no_grad():
            y = model(x)
        assert float((y[:, i] - y[:, j]).abs().max()) < rounding
        assert float((y.amax(1) - y[:, i]).max()) < rounding
        assert bool((part.locate(x) >= 0).all())


def test_the_decision_holds_up_to_the_distance() -> None:
    model = mlp(2, 24, 24, 4, seed=6)
    with torch.no_grad():
        model[-1].bias -= model(torch.zeros(1, 2, dtype=F64))[0]
    part = partition(model, 4.0)
    x = part.sample(50, generator=torch.Generator().manual_seed(0))
    near = part.decision_boundary().nearest(x)
    assert bool(near.certain.any())
    y = outputs(model, near.x)
    tied = y.gather(1, near.classes)
    torch.testing.assert_close(tied[:, 0], tied[:, 1], rtol=0, atol=1e-13)
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=F64)[:-1]
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    around = x[:, None] + (near.distance * (1 - 1e-9))[:, None, None] * ring
    decision = outputs(model, around.view(-1, 2)).argmax(1).view(50, -1)
    here = outputs(model, x).argmax(1)
    held = (decision == here[:, None]).all(1)
    assert bool(held[near.certain].all())
    # A step beyond the closest point, another class wins.
    beyond = x + (near.uv - x) * (1 + 1e-6)
    assert bool((outputs(model, beyond).argmax(1) != here)[near.certain].all())


# -- options ---------------------------------------------------------------------------------------


def test_options_that_do_not_fit() -> None:
    one, three = partition(dense([[1.0, 0.0]], [0.0])), partition(mlp(2, 3))
    with pytest.raises(SplineCamError, match="level_set"):
        three.decision_boundary(level=0.5)
    with pytest.raises(SplineCamError, match="argmin"):
        one.decision_boundary(kind="argmin")
    with pytest.raises(ValueError, match="pairwise"):
        three.decision_boundary(kind="all")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="3 classes"):
        three.decision_boundary(classes=(0, 3))
    with pytest.raises(ValueError, match="different"):
        three.decision_boundary(classes=(1, 1))
    with pytest.raises(TypeError, match="pair"):
        three.decision_boundary(classes=2)  # type: ignore[arg-type]
    with pytest.raises(SplineCamError, match="which one"):
        three.level_set(0.0)
    with pytest.raises(IndexError):
        three.level_set(0.0, output=3)
    with pytest.raises(ValueError, match="finite"):
        one.level_set(math.nan)
    with pytest.raises(ValueError, match="finite"):
        one.decision_boundary(level=math.inf)
    with pytest.raises(ValueError, match="not among"):
        one.level_set([0.0, 0.5]).at(0.25)
    with pytest.raises(SplineCamError, match="pairwise"):
        three.class_regions(kind="pairwise")
    with pytest.raises(TypeError, match="pair of whole numbers"):
        three.decision_boundary(classes=(0.5, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="level_set"):
        one.decision_boundary(level=[0, 1])  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="output 9 of 3 outputs"):
        three.level_set(0.0, output=9)
    with pytest.raises(TypeError, match="levels must be"):
        one.level_set("high")  # type: ignore[arg-type]


def test_outputs_that_never_tie() -> None:
    part = partition(dense([[1.0, 0.0], [0.0, 1.0]], [100.0, 0.0]))
    for kind in ("argmax", "argmin", "pairwise"):
        assert len(part.decision_boundary(kind=kind)) == 0
    assert len(part.level_set([], output=0)) == 0
    assert len(part.level_set([500.0], output=0).polylines) == 0


def test_levels_may_be_tensors_and_numpy_numbers() -> None:
    part = partition(dense([[1.0, 0.0]], [0.0]))
    for level in (torch.tensor(0.25), np.float32(0.25), 0.25):
        assert part.decision_boundary(level=level).ends[0, :, 0].tolist() == [0.25, 0.25]
        assert part.level_set(level).levels == (0.25,)


def test_results_say_what_they_are() -> None:
    part = partition(mlp(2, 8, 3), 3.0)
    assert isinstance(part.decision_boundary(), Boundary)
    assert isinstance(part.level_set(0.0, output=-1), LevelSet)
    assert part.level_set(0.0, output=-1).output == 2
    assert "ClassRegions(" in repr(part.class_regions())
    boundary = part.decision_boundary()
    assert "argmax" in repr(boundary)
    i, j = next(iter(boundary.pairs()))
    assert f"classes {i} and {j}" in repr(boundary.between(i, j))
    assert "2 levels of output 1" in repr(part.level_set([0.0, 0.1], output=1))
    assert "level 0.1 of output 1" in repr(part.level_set(0.1, output=1))
    assert "(" in repr(boundary.polylines[0])


def test_methods_explain_themselves() -> None:
    for name in ("decision_boundary", "level_set", "class_regions", "neurons", "stats", "table"):
        assert len((getattr(sc.Partition, name).__doc__ or "").splitlines()) > 3
    assert "per_region" in (sc.Partition.sample.__doc__ or "")


def test_paths_close() -> None:
    ring = partition(one_norm()).level_set(0.5).polylines[0]
    assert len(ring.path) == len(ring.points) + 1
    assert torch.equal(ring.path[0], ring.path[-1])


def test_outputs_too_close_to_tell_are_reported() -> None:
    """Apart by more than rounding explains, and by too little to be sure."""
    part = partition(dense([[0.0, 0.0], [0.0, 0.0]], [1.0, 1.0 + 2.0**-48]))
    assert len(part.decision_boundary().unresolved) == 4
    assert "too close" in part.decision_boundary().unresolved[0].reason
    assert len(part.class_regions().unresolved) == 4
    assert len(part.level_set(1 + 2.0**-49, output=0).unresolved) == 4
    # Also where two others tie exactly.
    third = partition(dense([[0.0, 0.0]] * 3, [1.0 + 2.0**-48, 1.0, 1.0 + 2.0**-48]))
    assert len(third.decision_boundary().unresolved) == 4
    clear = partition(dense([[0.0, 0.0], [0.0, 0.0]], [1.0, 1.0 + 2.0**-40]))
    assert clear.decision_boundary().unresolved == ()
    assert clear.class_regions().areas.tolist() == [0.0, 4.0]


def test_doubts_do_not_hide_behind_outputs_that_are_known_better() -> None:
    """Next to the largest is 0, exactly; as close is one that is 3 elsewhere, and known worse."""
    first = nn.Sequential(dense([[-1.0, 1.0]], [1.0]), nn.PReLU()).double()
    last = nn.Sequential(dense([[-1e-13], [0.0], [1.0]], [5e-17, 0.0, 0.0]), nn.ReLU())
    domain = sc.Domain.box((-1, 1), (4, 2))
    part = sc.partition(nn.Sequential(first, last), domain, device="cpu", progress=False)
    assert len(part.class_regions().unresolved) > 0
    assert {place.place for place in part.decision_boundary().unresolved} == {
        (4.0, 1.0),
        (4.0, 2.0),
    }


def test_all_ties_of_many_outputs() -> None:
    model = mlp(2, 16, 40, seed=5)
    part = partition(model, 4.0)
    ties = part.decision_boundary(kind="pairwise")
    assert_sound(ties)
    y = outputs(model, along(ties, 3).view(-1, 2))
    tied = y.gather(1, ties.classes.repeat_interleave(3, 0))
    torch.testing.assert_close(tied[:, 0], tied[:, 1], rtol=0, atol=1e-12)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_gives_the_same_boundary() -> None:
    model = mlp(2, 16, 16, 5, seed=2)
    domain = sc.Domain.box(-4, 4)
    cpu, gpu = (
        sc.partition(model, domain, device=device, progress=False) for device in ("cpu", "cuda")
    )
    for kind in ("argmax", "argmin", "pairwise"):
        one, two = (part.decision_boundary(kind=kind) for part in (cpu, gpu))
        assert two.points.device.type == two.sides.device.type == "cuda"
        assert two.pairs() == pytest.approx(one.pairs(), rel=1e-9)
        assert len(two.polylines) == len(one.polylines)
    one, two = (part.level_set([-0.1, 0.0, 0.1], output=1) for part in (cpu, gpu))
    assert two.length == pytest.approx(one.length, rel=1e-9)
    one, two = (part.class_regions() for part in (cpu, gpu))
    torch.testing.assert_close(two.areas.cpu(), one.areas)
    assert two.boundary_length() == pytest.approx(one.boundary_length(), rel=1e-9)
    boundary = gpu.decision_boundary()
    x = boundary.sample(100, generator=torch.Generator().manual_seed(0))
    assert x.device.type == "cpu"
    near = boundary.nearest(x)
    assert float(near.distance.max()) < 1e-12
