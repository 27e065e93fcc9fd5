from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import nn

import splinecam as sc
from handmade import curves_of, loose, plane
from splinecam.questions.sampling import choose

F64 = torch.float64


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -- on curves ------------------------------------------------------------------------------------


def test_samples_are_uniform_by_length():
    """Along a straight line cut into very unequal pieces, in any order and direction."""
    knots = torch.cat([torch.zeros(1), torch.rand(300) ** 8, torch.ones(1)]).double().sort().values
    ends = torch.stack([torch.stack([knots[:-1], knots[1:]], 1)] * 2, 2)
    ends = torch.where(torch.rand(301)[:, None, None] < 0.5, ends, ends.flip(1))
    curves = loose(ends[torch.randperm(301)])
    uv = curves.sample_uv(50_000, generator=generator())
    assert float((uv[:, 0] - uv[:, 1]).abs().max()) < 1e-15
    assert stats.kstest(uv[:, 0].numpy(), "uniform").pvalue > 0.01


def test_segments_are_chosen_by_length():
    curves = curves_of([[0, 0], [1, 0], [1, 2], [-3, 2]], [[0, 1], [1, 2], [2, 3], [0, 0]])
    uv = curves.sample_uv(20_000, generator=generator(1))
    on = torch.stack([uv[:, 1] == 0, uv[:, 0] == 1, uv[:, 1] == 2]).sum(1)
    expected = curves.lengths[:3] / curves.length * 20_000
    assert stats.chisquare(on.numpy(), expected.numpy()).pvalue > 0.01


def test_entries_without_weight_are_never_chosen():
    weight = torch.tensor([0.0, 1e-30, 0.0, 3.0, 0.0], dtype=F64)
    chance = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=F64)
    assert choose(weight, chance).tolist() == [1, 3, 3]


def test_samples_are_inputs_of_the_model():
    domain = sc.Domain.around(torch.randn(2, 3), side=2.0)
    part = plane(domain)
    curves = curves_of([[-1, 0], [1, 0.5]], [[0, 1]], part=part)
    x = curves.sample(10, generator=generator())
    assert (x.shape, x.dtype) == ((10, 2, 3), torch.float32)
    assert part.model(x).shape == (10, 1)
    exact = curves.sample(10, generator=generator(), dtype=F64, device="cpu")
    uv, off = domain.project(exact)
    assert torch.allclose(uv, curves.sample_uv(10, generator=generator()))
    assert float(off.max()) < 1e-14
    assert torch.allclose(x.double(), exact, atol=1e-6)


def test_the_generator_decides():
    curves = curves_of([[0, 0], [1, 0]], [[0, 1]])
    a, b, c = (curves.sample(5, generator=generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    torch.manual_seed(5)
    d = curves.sample(5)
    torch.manual_seed(5)
    assert torch.equal(d, curves.sample(5))


def test_samples_are_drawn_in_double_precision():
    uv = curves_of([[0, 0], [1, 0]], [[0, 1]]).sample_uv(1000)[:, 0]
    assert (uv != uv.float().double()).any()


@pytest.mark.parametrize("segments", [[], [[1, 1]]], ids=["none", "of no length"])
def test_nothing_to_sample_from(segments: list[list[int]]):
    curves = curves_of([[0, 0], [1, 0]], segments)
    with pytest.raises(sc.SplineCamError, match="nothing to sample from"):
        curves.sample(3)
    assert curves.sample(0).shape == (0, 2)


def test_the_number_of_samples_is_checked():
    part = plane()
    curves = curves_of([[0, 0], [1, 0]], [[0, 1]], part=part)
    for sample in (curves.sample, part.sample):
        assert sample(0).shape == (0, 2)
        assert sample(torch.tensor(2)).shape == (2, 2)
        with pytest.raises(TypeError, match="whole number"):
            sample(1.5)
        with pytest.raises(ValueError, match="at least 0, not -1"):
            sample(-1)


# -- in regions -----------------------------------------------------------------------------------


@pytest.fixture
def part() -> sc.Partition:
    model = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU()).double()
    return sc.partition(model, sc.Domain.box(-2, 2), progress=False)


def affine(corners: torch.Tensor) -> sc.Partition:
    """A convex polygon (k, 2) that is one region."""
    return sc.partition(nn.Linear(2, 1).double(), sc.Domain.polygon(corners), progress=False)


def regular(k: int) -> torch.Tensor:
    angle = 2 * math.pi * torch.arange(k, dtype=F64) / k
    return torch.stack([angle.cos(), angle.sin()], 1)


def test_regions_are_chosen_by_area(part: sc.Partition):
    x = part.sample(200_000, generator=generator())
    found = part.locate(x)
    assert int(found.min()) >= 0
    large = part.areas > part.areas.sum() / 1000
    counts = torch.bincount(found, minlength=len(part)).double()
    share = part.areas / part.areas.sum() * len(x)
    counts, share = (torch.cat([t[large], t[~large].sum()[None]]) for t in (counts, share))
    assert stats.chisquare(counts.numpy(), share.numpy()).pvalue > 0.01


def test_points_of_a_triangle_are_uniform():
    corners = torch.tensor([[0.0, 0.0], [3.0, 0.0], [1.0, 2.0]], dtype=F64)
    x = affine(corners).sample(20_000, generator=generator(1))
    system = torch.cat([corners.T, torch.ones(1, 3, dtype=F64)])
    barycentric = torch.linalg.solve(system, torch.cat([x.T, torch.ones(1, len(x), dtype=F64)]))
    for share in barycentric:
        assert stats.kstest((1 - (1 - share) ** 2).numpy(), "uniform").pvalue > 0.01


@pytest.mark.parametrize("k", [4, 5, 7, 30])
def test_points_of_a_polygon_are_uniform(k: int):
    """As many in every sector of a regular polygon, and in every ring as it is large."""
    x = affine(regular(k)).sample(20_000, generator=generator(k), per_region=k % 2 == 0)
    turn = torch.atan2(x[:, 1], x[:, 0]) / (2 * math.pi) * k
    sector = turn.floor().long() % k
    assert stats.chisquare(torch.bincount(sector, minlength=k).numpy()).pvalue > 0.01
    middle = (2 * math.pi / k) * (sector + 0.5)
    height = (x[:, 0] * middle.cos() + x[:, 1] * middle.sin()) / math.cos(math.pi / k)
    assert stats.kstest(height.square().numpy(), "uniform").pvalue > 0.01


def test_so_many_points_from_each_region(part: sc.Partition):
    x = part.sample(7, per_region=True, generator=generator())
    assert x.shape == (7 * len(part), 2)
    assert torch.equal(part.locate(x), torch.arange(len(part)).repeat_interleave(7))


def test_points_of_chosen_regions(part: sc.Partition):
    each = part.sample(3, regions=[5, -1, 5], per_region=True)
    assert part.locate(each).tolist() == [5] * 3 + [len(part) - 1] * 3 + [5] * 3
    assert part.sample(0, regions=[1, 2], per_region=True).shape == (0, 2)
    assert part.sample(4, regions=[], per_region=True).shape == (0, 2)
    some = part.locate(part.sample(5000, regions=torch.tensor([2, 9]), generator=generator()))
    assert set(some.tolist()) <= {2, 9}
    share = part.areas[[2, 9]] / part.areas[[2, 9]].sum()
    counts = [int((some == region).sum()) for region in (2, 9)]
    assert stats.chisquare(counts, share.numpy() * 5000).pvalue > 0.01
    assert part.locate(part.sample(2, regions=4)).tolist() == [4, 4]


def test_regions_that_are_not_there(part: sc.Partition):
    with pytest.raises(IndexError, match="numbered from 0"):
        part.sample(2, regions=[len(part)])
    with pytest.raises(sc.SplineCamError, match="nothing to sample from"):
        part.sample(2, regions=[])
    assert part.sample(0, regions=[]).shape == (0, 2)


def test_samples_of_a_plane_in_a_larger_space():
    part = plane(sc.Domain.around(torch.randn(1, 4, 4) + 100, side=3.0, seed=2))
    x = part.sample(50, dtype=F64)
    assert x.shape == (50, 1, 4, 4)
    assert int(part.locate(x).min()) >= 0
    assert part.sample(50).dtype == torch.float32


def test_thin_and_distant_regions_hold_their_samples():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.5], [1.0, 0.5]]))
        model[0].bias.copy_(torch.tensor([-1.0e6, -1.0e6 - 2**-16], dtype=F64))
    part = sc.partition(model, sc.Domain.box((1e6 - 1, -1), (1e6 + 1, 1)), progress=False)
    assert len(part) == 3
    x = part.sample(100, per_region=True)
    assert torch.equal(part.locate(x), torch.arange(3).repeat_interleave(100))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_samples_with_generators_of_both_devices(part: sc.Partition):
    gpu = sc.partition(part.model, part.domain, device="cuda", progress=False)
    for where in ("cpu", "cuda"):
        x = gpu.sample(
            1000, dtype=F64, device="cuda", generator=torch.Generator(where).manual_seed(0)
        )
        assert x.device.type == "cuda"
        assert int(gpu.locate(x).min()) >= 0
    assert gpu.sample(3, generator=generator()).device.type == "cpu"
    x = gpu.sample(4, per_region=True)
    assert torch.equal(gpu.locate(x).cpu(), torch.arange(len(gpu)).repeat_interleave(4))
