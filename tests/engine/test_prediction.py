"""Estimates of partitions that were not computed, against the partitions themselves."""

from __future__ import annotations

import logging
from itertools import count, pairwise
from math import sqrt

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.engine import prediction
from splinecam.engine.plan import Plan
from splinecam.engine.run import start
from splinecam.engine.step import Computation
from splinecam.jobs import estimating
from splinecam.network.capture import capture
from splinecam.results import Estimate


def net(
    *widths: int, seed: int = 0, act: type[nn.Module] = nn.ReLU, bias: bool = True
) -> nn.Module:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b, bias=bias), act()]
    return nn.Sequential(*layers[:-1]).double()


def images(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)).double()


IMAGE = torch.linspace(-1, 1, 144, dtype=torch.float64).sin().view(1, 12, 12)
BOX = sc.Domain.box(-2, 2)
STRIP = sc.Domain.box((-2, -0.02), (2, 0.02))
FAR = sc.Domain.box(-50, 50)  # nearly all regions lie in its middle
ODD = sc.Domain.polygon([[0.2, 0.1], [4.0, 0.5], [2.0, 3.0], [0.5, 2.0], [0.1, 1.0]])
CASES = {
    **{f"random {seed}": (net(2, 40, 40, 40, 1, seed=seed), BOX) for seed in range(4)},
    "one layer": (net(2, 150, 1), BOX),
    "wide": (net(2, 200, 60, 1), BOX),
    "deep and narrow": (net(2, *[12] * 12, 1, seed=3), sc.Domain.box(-30, 30)),
    "strip": (net(2, 300, 100, 1), STRIP),
    "far": (net(2, 50, 50, 1), FAR),
    "polygon": (net(2, 100, 60, 1), ODD),
    "disc": (net(2, 60, 60, 1), sc.Domain.disc([0.0, 0.0], 2.0)),
    "lines through a point": (net(2, 64, 64, 1, bias=False), BOX),
    "two knots": (net(2, 50, 50, 1, act=nn.Hardtanh), sc.Domain.box(-3, 3)),
    "images": (images(), sc.Domain.around(IMAGE, side=5.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_regions_is_right_within_a_factor_of_two(name: str) -> None:
    model, domain = CASES[name]
    found, true = sc.estimate(model, domain), len(sc.partition(model, domain, progress=False))
    assert true / 2 < found.regions < 2 * true
    low, high = found.between
    assert low <= found.regions <= high
    assert low / 1.3 < true < 1.3 * high


@pytest.mark.parametrize("name", ["random 0", "wide", "images"])
def test_the_memory_is_that_of_the_computation(name: str) -> None:
    model, domain = CASES[name]
    plan = Plan.of(capture(model, domain.input_shape))
    work = Computation(plan)
    with torch.inference_mode():
        work.carry(start(plan, domain))
    assert work.worst / 2 < sc.estimate(model, domain).memory < 2 * work.worst


def test_large_networks_need_three_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = CASES["images"][0], sc.Domain.around(IMAGE, side=3.0)
    passes: list[int] = []
    lines = prediction._Predicting._lines

    def counted(self: object, cells: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        passes.append(3 * len(at))
        return lines(self, cells, at)  # type: ignore[arg-type]

    monkeypatch.setattr(prediction._Predicting, "_lines", counted)
    monkeypatch.setattr(prediction, "_HUGE", 0.0)
    found, true = sc.estimate(model, domain), len(sc.partition(model, domain, progress=False))
    assert passes == [3]
    assert true / 3 < found.regions < 3 * true
    assert found.seconds > 0
    assert found.memory > 0


@pytest.mark.parametrize(
    "model", [nn.Linear(2, 3), net(2, 4, 1), net(2, 16, 16, 1, seed=1)], ids=["affine", "4", "16"]
)
def test_few_regions_are_counted(model: nn.Module) -> None:
    found = sc.estimate(model, BOX)
    regions = len(sc.partition(model, BOX, progress=False))
    assert (found.regions, found.between) == (regions, (regions, regions))


def test_a_network_that_is_constant_on_the_domain_has_one_region() -> None:
    domain = sc.Domain.box(1000, 1001)
    found = sc.estimate(net(2, 8, 8, 1), domain)
    assert found.regions == 1
    assert str(found).startswith("1 region, ")
    assert found.side(regions=10) == float("inf")


def test_triangles_that_are_too_large_are_not_partitioned(monkeypatch: pytest.MonkeyPatch) -> None:
    model, domain = CASES["random 0"]
    true = len(sc.partition(model, domain, progress=False))
    monkeypatch.setattr(prediction, "_MANY", 500)
    found = sc.estimate(model, domain)
    assert found.prediction.factor == 3.0
    assert true / 3 < found.regions < 3 * true


def test_the_same_call_gives_the_same_number() -> None:
    model, domain = CASES["random 1"]
    state = torch.random.get_rng_state()
    assert sc.estimate(model, domain).regions == sc.estimate(model, domain).regions
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("side", [2.0, 20.0])
def test_the_side_that_is_proposed_has_as_many_regions(side: float) -> None:
    model, domain = net(2, 100, 100, 1), sc.Domain.around([0.0, 0.0], side=side)
    found = sc.estimate(model, domain)
    assert found.side(regions=found.regions) == pytest.approx(sqrt(domain.area), rel=0.01)
    zoomed = domain.zoom(sqrt(domain.area) / found.side(regions=1000))
    assert 500 < len(sc.partition(model, zoomed, progress=False)) < 2000
    assert found.side(seconds=found.seconds) == pytest.approx(sqrt(domain.area), rel=0.01)


def test_what_has_no_estimate_is_said() -> None:
    with pytest.raises(TypeError, match="paths and segments are for"):
        sc.estimate(net(2, 4, 1), sc.Domain.segment([0.0, 0.0], [1.0, 0.0]))  # type: ignore[arg-type]
    with pytest.raises(sc.UnsupportedOpError, match="no estimate is made"):
        sc.estimate(net(2, 4, 1, act=nn.GELU), BOX)
    with pytest.raises(ValueError, match="regions"):
        sc.estimate(net(2, 4, 1), BOX).side(regions=0)


def test_texts() -> None:
    long = prediction.Prediction(0.0, 9999.0, 1.5, 1e6, each=0.06)
    assert str(Estimate(BOX, long)) == (
        "about 10,000 regions (6,700 to 15,000), 10 min, 10 GB; "
        "a minute for a side of 1.3 in place of 4"
    )
    few = prediction.Prediction(0.0, 6.0, 1.0, 10.0, each=1e-6)
    assert repr(Estimate(BOX, few)) == "Estimate(7 regions, 1 ms, 1 kB)"


# -- errors and long runs -------------------------------------------------------------------------


def test_an_error_proposes_a_side() -> None:
    model, domain = CASES["random 0"]
    with pytest.raises(sc.LimitError, match=r"expected: a side of .* in place of 4 has"):
        sc.partition(model, domain, max_regions=500)
    with pytest.raises(sc.LimitError, match="exceeds memory=1,000 bytes"):
        sc.partition(model, domain, memory=1000)
    smooth = net(2, 6, 1, act=nn.Tanh)
    with pytest.raises(sc.LimitError, match=r"makes fewer regions\.$"):
        sc.partition(smooth, domain, smooth=1e-3, max_regions=5)


def test_a_long_run_shows_an_estimate_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, domain = CASES["random 0"]
    before = sc.partition(model, domain, progress=False)
    seconds = count(0.0, 0.7 * estimating._LONG)
    monkeypatch.setattr(estimating, "perf_counter", lambda: next(seconds))
    with caplog.at_level(logging.INFO, logger="splinecam"):
        part = sc.partition(model, domain, progress=False)
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told] == ["1", "3", "expected", "5"]
    assert told[2].startswith("expected: about ")
    assert torch.equal(part.vertices, before.vertices)
    assert torch.equal(part.values, before.values)


def test_a_short_run_shows_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(estimating, "perf_counter", lambda: 0.0)
    with caplog.at_level(logging.INFO, logger="splinecam"):
        sc.partition(*CASES["random 0"], progress=False)
    assert not any("expected" in record.getMessage() for record in caplog.records)


def test_a_run_that_nobody_watches_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(0.0, 10.0)
    monkeypatch.setattr(estimating, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(estimating, "predict", None)
    assert len(sc.partition(*CASES["random 0"], progress=False)) > 1


def test_costs_can_be_solved_for_regions_and_sides() -> None:
    found = prediction.Prediction(30.0, 500.0, 1.2, 0.0, fixed=0.5, root=0.1, each=0.02)
    assert found.regions_in(found.seconds) == pytest.approx(found.regions)
    assert found.size(found.regions) == pytest.approx(1.0, rel=1e-3)
    dense = found._replace(inner=((0.5, 400.0), (0.25, 100.0)))
    assert [dense.regions_at(2.0**-j) for j in (-1, 0, 1, 2, 3)] == [2061, 531, 416, 108.5, 29.75]
    assert dense.size(108.5) == pytest.approx(0.25, rel=1e-3)
    assert found.regions_in(0.1) == 0
    free = prediction.Prediction(0.0, 0.0, 1.0, 0.0)
    assert free.regions_in(1.0) == free.size(2.0) == float("inf")
