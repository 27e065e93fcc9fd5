"""Local complexity: switches along segments in balls, their bounds, and their intervals."""

from __future__ import annotations

import itertools
import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from fixtures.networks import VGG, ResNet18, UNet, seeded
from splinecam._util.backend import using
from splinecam.engine.along_segments import run_segments
from splinecam.engine.end_signs import EndCounts, _may_pass, _scalars
from splinecam.errors import CaptureError, DomainError
from splinecam.geometry.ball_lines import BallLines, area_by_crossings
from splinecam.jobs.local import Exact, corrected
from splinecam.network.capture import capture
from splinecam.network.nonlinearities import PiecewiseScalar
from splinecam.network.program import FAR
from splinecam.questions.local_complexity import LocalComplexity, Sample, _student

QUIET: Any = {"progress": False, "device": "cpu"}


class CRelu(nn.Module):
    """Two units for each: they switch at the same place."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.relu(x), torch.relu(-x)], 1)


class Absolute(nn.Module):
    """A module whose units are at their level on whole regions, and touch it elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.relu(x)) + torch.relu(-x).abs()


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sort(1).values


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes[:-1]):
        layers += [nn.Linear(a, b), act()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))
    seeded(model)
    return model


def random_network(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A small network of one of several kinds."""
    torch.manual_seed(seed)
    width, kind = int(torch.randint(2, 12, ())), seed % 8
    if kind == 5:
        pool = nn.MaxPool2d(3, 2, 1) if seed % 16 == 5 else nn.MaxPool2d(2)
        body = nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), pool, nn.Flatten(), nn.LazyLinear(2)
        model = nn.Sequential(*body)
        model(torch.zeros(1, 1, 6, 6))
        return model.eval(), (1, 6, 6)
    if kind in (6, 7):
        first = (
            (Absolute(), nn.Linear(width, 4)) if kind == 6 else (CRelu(), nn.Linear(2 * width, 4))
        )
        return nn.Sequential(nn.Linear(3, width), *first, nn.ReLU(), nn.Linear(4, 1)).eval(), (3,)
    act = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh, Sorted)[kind]
    sizes = [3, *[width] * int(torch.randint(1, 4, ())), 2]
    layers = [x for a, b in pairwise(sizes[:-1]) for x in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], 2)).eval(), (3,)


def checked(found: LocalComplexity) -> LocalComplexity:
    """The same, where what the ends prove is no more than what is exact."""
    lower = found.lower.flatten(0, 1)[found.chosen]
    assert bool((lower <= found.switches).all())
    assert bool((found.lower - found.ends <= found.open).all())
    assert bool((found.breakpoints <= found.switches.sum(1)).all())
    assert bool((found.first.isfinite().any(1) == (found.breakpoints > 0)).all())
    return found


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.few(8)
def test_the_ends_never_prove_too_much(seed: int) -> None:
    model, shape = random_network(seed)
    x = torch.randn(4, *shape)
    for dtype in (torch.float32, torch.float64):
        checked(sc.local_complexity(model.to(dtype), x, 1.5, exact=True, seed=seed, **QUIET))


@pytest.mark.parametrize("seed", range(8))
def test_in_tiny_balls_no_unit_switches(seed: int) -> None:
    model, shape = random_network(seed)
    found = checked(sc.local_complexity(model, torch.randn(3, *shape), 1e-9, exact=True, **QUIET))
    assert not bool(found.ends.any() | found.switches.any())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.few(2)
def test_exact_switches_are_those_of_paths(seed: int) -> None:
    model, shape = random_network(seed)
    found = sc.local_complexity(model.double(), torch.randn(3, *shape), 2.0, exact=True, **QUIET)
    assert found.exact_share == 1
    for k, own in enumerate(found.chosen.tolist()):
        first, last = found.lines.ends(torch.tensor([own // 12]))
        line = sc.Domain.segment(*(x[0, own % 12].view(shape) for x in (first, last)))
        path = sc.along(model, line, **QUIET)
        counts = torch.bincount(path.switches.layer, minlength=len(path.layers))
        assert counts.equal(found.switches[k])
        assert len(path.breakpoints) == found.breakpoints[k]
        away = 2.0 * (2 * path.breakpoints - 1)
        for side, sign in enumerate((1, -1)):
            ahead = (sign * away)[sign * away > 0]
            expected = float(ahead.min()) if len(ahead) else math.inf
            assert float(found.first[k, side]) == pytest.approx(expected)


def test_a_unit_that_comes_back_is_seen_by_exact_segments_alone() -> None:
    tent = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU())
    values: list[Any] = [[[1.0], [-1.0]], [0, 0], [[-1, -1]], [0.5]]
    with torch.no_grad():
        for tensor, value in zip(tent.parameters(), values, strict=True):
            tensor.copy_(torch.tensor(value))
    model = sc.nn.AsWritten(tent)
    found = sc.local_complexity(model, [[0.1]], 1.0, directions=1, **QUIET)
    assert found.lower.tolist() == [[[2, 0]]]
    assert found.switches.tolist() == [[2, 2]]
    assert found.breakpoints.tolist() == [3]  # both units of the first layer switch at zero
    assert sorted(found.first[0].tolist()) == pytest.approx([0.1, 0.4])
    assert found.mean() == (4, 4, 4)
    assert found.mean("1").value == 2


def test_a_maximum_counts_where_its_winner_changes_and_not_where_it_is_tied() -> None:
    pool = nn.Sequential(nn.ReLU(), nn.MaxPool1d(3))
    a, b = torch.tensor([[[2.0, -1, -4]], [[-1.0, -4, 2]]]).double()
    program = capture(pool, (1, 3))
    made = run_segments(program, a.view(1, 3), b.view(1, 3), switches=True)
    assert made.switches is not None
    assert made.switches.tolist() == [[2, 1]]
    back = run_segments(program, a.view(1, 3), (b - 9).view(1, 3), switches=True)
    assert back.switches is not None
    assert back.switches.tolist() == [[1, 0]]


def test_a_maximum_whose_winner_cannot_change_switches_nowhere() -> None:
    x = torch.tensor([[[2.0, -1, 0, 7]]])
    found = sc.local_complexity(nn.MaxPool1d(2), x, 0.1, exact=True, **QUIET)
    assert found.ends.sum() == found.open.sum() == found.switches.sum() == 0


def test_counts_do_not_depend_on_blocks_or_on_the_kernel() -> None:
    model, shape = random_network(5)
    program = capture(model, shape)
    a, b = torch.randn(2, 6, 36, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = run_segments(program, a, b, switches=True).switches
    assert expected is not None
    assert int(expected.sum()) > 100
    for sizes in ({"segment_numbers": 1 << 8}, {"function_values": 1 << 10}):
        with using(**sizes):
            for compiled in (True, False):
                made = run_segments(program, a, b, switches=True, compiled=compiled)
                assert made.switches is not None
                assert expected.equal(made.switches)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet", "vgg", "unet"])
def test_convolutional_networks(kind: str) -> None:
    model, shape = {
        "resnet": (seeded(ResNet18(4, stem=True)), (3, 32, 32)),
        "vgg": (seeded(VGG(4)), (3, 32, 32)),
        "unet": (seeded(UNet()), (1, 16, 16)),
    }[kind]
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    found = checked(sc.local_complexity(model, x, 0.05, directions=4, exact=True, **QUIET))
    assert found.mean().value > 0
    cheap = found.ends.double().sum(2).mean()
    assert float(cheap) == pytest.approx(found.mean().value, rel=0.1)


def test_signs_are_those_of_the_model_in_its_own_precision() -> None:
    model, x = mlp(6, 30, 30, 2), torch.randn(5, 6)
    found = sc.local_complexity(model, x, 0.3, directions=3, **QUIET)
    centre = found.lines.centers[:, None]
    ends = torch.cat([centre, *found.lines.ends(torch.arange(5))], 1).float()
    z = ends
    for k, layer in enumerate((model[:1], model[1:3])):
        z = layer(z)
        above = z > 0
        assert (above[:, 1:4] != above[:, 4:]).sum(2).equal(found.ends[..., k].long())
        mixed = above.any(1) & ~above.all(1)
        assert mixed.sum(1).equal(found.points[:, k].long())


def test_signs_within_rounding_are_compared_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    for balls, d, n in itertools.product((1, 3), (1, 4), (1, 5)):
        z = torch.randint(-2, 3, (balls, 2 * d + 1, n), generator=generator).double()
        z *= torch.rand(balls, 1, n, generator=generator) < 0.7
        error = torch.tensor([1.25, 0.5, 0.25]).double()[:balls]
        layer = capture(nn.Sequential(nn.ReLU(), nn.Linear(n, 1)), (n,)).layers[0]
        a, b, slack = z[:, 1 : d + 1], z[:, d + 1 :], error[:, None, None]
        ends = a * b < 0
        near = [(part.abs() <= slack) for part in (a, b)]
        doubt = near[0] & (a != 0) | near[1] & (b != 0)
        mixed = ((z > 0) != (z[:, :1] > 0)).any(1)
        expected = ends & ~near[0] & ~near[1], ends, doubt, mixed
        assert isinstance(layer, PiecewiseScalar)
        way = (FAR * (z[:, 1:] - z[:, :1])).float()
        count, rise = _scalars(layer, z[:, 0], way, error)
        for found, units in zip(count(), expected, strict=True):
            assert torch.equal(found, units.sum(-1).int())
        assert torch.equal(rise.double() / FAR, z[:, 1:].relu() - z[:, :1].relu())


@pytest.mark.parametrize("act", [nn.ReLU, nn.ReLU6])
def test_single_precision_leaves_out_no_unit_that_may_pass_a_knot(act: type[nn.Module]) -> None:
    layer = capture(act(), (4000,)).layers[0]
    assert isinstance(layer, PiecewiseScalar)
    torch.manual_seed(0)
    z = 10 ** (torch.rand(2, 4000).double() * 60 - 55) * torch.randn(2, 4000).double()
    near = 1 + 1e-7 * torch.randn(2, 1, 4000).double()  # ends about as far away as the knot at 0
    way = (FAR * z[:, None] * torch.cat([near, -near], 1)).float()
    error = torch.tensor([0.0, 1e-20]).double()
    reach = way.double().abs().amax(1) / FAR
    gap = (z - layer.levels[:, None]).abs().amin(0)
    passes = (gap <= reach + error[:, None]) & (torch.maximum(gap, reach) > 0)
    found = _may_pass(layer, z, way, error)
    assert 0 < passes.sum() < passes.numel()
    assert bool(found[passes].all())


@pytest.mark.parametrize("act", [nn.ReLU, nn.Hardtanh])
def test_a_larger_input_than_those_measured_has_larger_errors(act: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(2, 1), act())
    assert isinstance(model[0], nn.Linear)
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0]]))
        model[0].bias.fill_(-0.1 if act is nn.ReLU else -1.1)
    x = torch.zeros(100, 2, dtype=torch.float64)
    x[50] = torch.tensor([1e15 + 0.125, 1e15], dtype=torch.float64)  # an eighth is one rounding
    way = torch.tensor([[1.0, 0.0]])
    found = sc.local_complexity(model, x, 0.3, directions=way, exact=True, **QUIET)
    order = found.chosen.argsort()
    assert found.ends[50].item()
    assert found.open[50].item()
    assert (found.lower.flatten(0, 1) <= found.switches[order]).all()


def test_directions_are_orthonormal_and_seeded() -> None:
    x, sizes = torch.randn(3, 5).double(), torch.tensor([1.0, 2.0, 3.0]).double()
    lines = BallLines.random(x, sizes, 7, 0, chords=False)
    first, last = lines.ends(torch.arange(3))
    way = (last - first) / (2 * sizes[:, None, None])
    for part in (way[:, :5], way[:, 5:]):
        assert torch.allclose(part @ part.mT, torch.eye(part.shape[1]).double(), atol=1e-12)
    assert torch.allclose((first + last) / 2, x[:, None].expand_as(first))
    assert lines.ends(torch.tensor([2]))[0].equal(first[2:])
    given = BallLines.random(x, sizes, torch.tensor([[0.0, 2, 0, 0, 0]]).double(), 0, chords=False)
    assert torch.allclose(given.ends(torch.arange(1))[1][0, 0] - x[0], torch.eye(5).double()[1])


@pytest.mark.parametrize("D", [2, 3, 7])
def test_chords_have_the_mean_length_of_random_lines(D: int) -> None:
    sizes = torch.full((1,), 2.0).double()
    lines = BallLines.random(torch.zeros(1, D).double(), sizes, 20_000, 0, chords=True)
    first, last = lines.ends(torch.tensor([0]))
    length = torch.linalg.vector_norm(last - first, dim=2)
    assert float(length.mean()) == pytest.approx(float(lines.lengths()), rel=0.01)
    assert torch.allclose(first.norm(dim=2), sizes)


def test_the_constant_of_crofton() -> None:
    assert area_by_crossings(1) == pytest.approx(1)
    assert area_by_crossings(2) == pytest.approx(math.pi / 2)
    assert area_by_crossings(3) == pytest.approx(2)
    way = torch.randn(100_000, 40, generator=torch.Generator().manual_seed(0))
    cosine = (way[:, 0] / way.norm(dim=1)).abs().mean()
    assert area_by_crossings(40) == pytest.approx(1 / float(cosine), rel=0.02)


@pytest.mark.slow
def test_the_density_of_chords_covers_the_length_of_borders() -> None:
    model, missed = mlp(2, 12, 12, 1), 0
    disc = sc.partition(model, sc.Domain.disc([0.0, 0.0], 1.0, corners=256), progress=False)
    a, b = disc.mesh.uv[disc.mesh.edges].unbind(1)
    inner = (disc.mesh.edge_layer >= 0).cpu()
    length = float(((b - a).norm(dim=1)[inner]).sum()) * disc._frame.scale
    exact = length / disc.domain.area
    for seed in range(4):
        found = sc.local_complexity(
            model, [[0.0, 0.0]], 1.0, directions=150, chords=True, seed=seed, **QUIET
        )
        value, low, high = found.density()
        missed += not low <= exact <= high
        assert high - low < exact
        assert value == pytest.approx(exact, rel=0.3)
    assert missed == 0


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3])
def test_intervals_cover_the_mean(share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    T, missed, trials = 1200, 0, 100
    cheap = torch.poisson(torch.full((T,), 9.0), generator=generator).double()
    pairs = torch.poisson(torch.full((T,), share * 9 / 2), generator=generator).double()
    exact = (cheap + 2 * pairs).long()[:, None]
    column = cheap.view(-1, 12, 1).int()
    ends, none = EndCounts(column, column, 0 * column, column[:, 0]), torch.zeros(0).long()
    for seed in range(trials):
        known, risk = corrected(
            ends,
            lambda chosen: Exact(chosen, exact[chosen], chosen, chosen[:, None].double()),
            Exact(none, none[:, None], none, none[:, None].double()),
            0.05,
            seed,
        )
        sample = Sample(cheap, cheap, known.chosen, known.switches.sum(1).double())
        found = sample.mean(risk)
        assert found.within(0.05)
        missed += not found.low <= float(exact.double().mean()) <= found.high
        assert len(known.chosen) < T / 2
    assert missed <= 0.01 * trials


def test_numbers_of_few_degrees_are_as_far_apart_as_students() -> None:
    known = {1: 63.657, 2: 9.925, 3: 5.841, 7: 3.499, 30: 2.750}
    for degrees, number in known.items():
        assert _student(0.995, degrees) == pytest.approx(number, rel=0.04)


def test_differences_that_grow_with_the_cheap_numbers_widen_the_interval() -> None:
    cheap = torch.poisson(torch.full((400,), 9.0)).double()
    sample = Sample(cheap, cheap, torch.arange(400), 2 * cheap)
    value, low, high = sample.mean(0.01, spread=True)
    error = float(2 * cheap.std()) / math.sqrt(400)
    assert high - value == pytest.approx(_student(0.995, 399) * error)
    assert value - low == pytest.approx(high - value)


def test_unknown_differences_leave_the_interval_open() -> None:
    none = torch.zeros(0)
    few = Sample(torch.ones(9), torch.zeros(9), none.long(), none)
    assert few.mean(0.01) == (1, 0, math.inf)


def test_networks_with_smooth_functions_have_bounds_alone() -> None:
    model = seeded(
        nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 9), nn.GELU(), nn.Linear(9, 1))
    )
    found = sc.local_complexity(model, torch.randn(6, 3), 0.5, **QUIET)
    assert int(found.lower[..., 0].sum()) > 0
    assert int(found.lower[..., 1].sum()) == 0
    assert found.chosen.shape == (0,)
    assert found.mean().high == math.inf


def test_results_are_tables() -> None:
    model, x = mlp(4, 8, 8, 1), torch.randn(5, 4)
    found = checked(sc.local_complexity(model, x, [0.1, 0.2, 0.3, 0.4, 0.5], plane=True, **QUIET))
    rows = found.table()
    assert list(rows["layer"]) == ["1", "3", "all"]
    assert rows["estimate"][2] == pytest.approx(rows["estimate"][0] + rows["estimate"][1])
    tidy = found.table(by="sample")
    assert len(tidy["sample"]) == 10
    assert found.regions is not None
    assert found.regions.shape == (5,)
    about = json.loads(json.dumps(found.to_dict()))
    assert about["total"]["units"] == 16
    assert "switches along diameters" in repr(found)
    assert "Switches by layer" in str(found)
    assert "<table" in found._repr_html_()
    part = found.mean(samples=[0, 1])
    assert part.low <= part.value <= part.high
    assert found.mean(samples=[True, True, False, False, False]) == part
    assert len(found.plot().containers) == 1
    with pytest.raises(ValueError, match="there is no layer '7'"):
        found.mean("7")
    with pytest.raises(ValueError, match='choose "layer" or "sample"'):
        found.table(by="unit")  # type: ignore[arg-type]


def test_the_same_call_gives_the_same_numbers_in_any_blocks() -> None:
    model, x = mlp(4, 20, 20, 1), torch.randn(30, 4)
    whole = sc.local_complexity(model, x, 0.3, **QUIET)
    with using(end_numbers=1000, segment_numbers=1000):
        blocks = sc.local_complexity(model, x, 0.3, **QUIET)
    assert whole.lower.equal(blocks.lower)
    assert whole.switches.equal(blocks.switches)
    assert whole.mean() == blocks.mean()


def test_misuse_is_told() -> None:
    model, x = mlp(4, 8, 1), torch.randn(5, 4)
    with pytest.raises(DomainError, match=r"give samples \(N"):
        sc.local_complexity(model, x[0], 0.1, **QUIET)
    with pytest.raises(DomainError, match="radius must be one number above 0, or 5"):
        sc.local_complexity(model, x, [0.1, 0.2], **QUIET)
    with pytest.raises(DomainError, match="directions has shape"):
        sc.local_complexity(model, x, 0.1, directions=torch.ones(2, 3), **QUIET)
    with pytest.raises(ValueError, match="directions must be at least 1"):
        sc.local_complexity(model, x, 0.1, directions=0, **QUIET)
    with pytest.raises(TypeError, match="smooth units count no switches"):
        sc.local_complexity(model, x, 0.1, smooth=1e-3, **QUIET)
    with pytest.raises(TypeError, match="draws its own directions"):
        sc.local_complexity(model, x, 0.1, directions=torch.eye(4), chords=True, **QUIET)
    with pytest.raises(CaptureError, match=r"a single sample is x\[None\]"):
        sc.local_complexity(nn.Conv2d(1, 2, 3), torch.randn(1, 6, 6), 0.1, **QUIET)
    found = sc.local_complexity(model, x, 0.1, directions=np.int64(2), **QUIET)
    with pytest.raises(ValueError, match="there is no layer 7: choose 0 to 0, or 1"):
        found.mean(7)
    with pytest.raises(ValueError, match="none of the samples"):
        found.mean(samples=[])


def test_a_network_without_units_has_no_switches() -> None:
    found = sc.local_complexity(nn.Linear(4, 2), torch.randn(5, 4), 0.1, **QUIET)
    assert found.mean().value == 0
    assert found.lower.shape == (5, 12, 0)
