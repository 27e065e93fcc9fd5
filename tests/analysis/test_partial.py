"""Computations that are ended early return what is settled so far, and say what is not."""

from __future__ import annotations

import io
import logging
import signal
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import eagerly, random_network
from splinecam.plot.colors import certain_colors
from splinecam.questions.measures import region_classes

WIDE = sc.Domain.box(-2, 2)


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    first, second, last = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


def partial(model: nn.Module, refine: Any = "boundary", **options: Any) -> sc.Partition:
    with eagerly():
        return sc.partition(model, WIDE, refine=refine, partial=True, progress=False, **options)


def require_truth(part: sc.Partition, model: nn.Module) -> None:
    """Check the class of regions at random points, and that all regions are accounted for."""
    points = 4 * torch.rand((3000, 2), dtype=torch.float64) - 2
    with torch.no_grad():
        found = model(points).argmax(1)
    region = part.locate(points)
    sure = (~part.undecided & ~part.complete)[region]
    assert torch.equal(region_classes(part)[region][sure], found[sure])
    assert not bool((part.undecided & part.complete).any())
    assert part.validate().ok


@pytest.mark.few(3)
@pytest.mark.parametrize("limit", [1, 100, 600])
@pytest.mark.parametrize("seed", [1, 3, 4])
def test_regions_that_are_decided_have_the_class_that_they_claim(seed: int, limit: int) -> None:
    _, model, outputs = random_network(seed)
    with eagerly():
        whole = sc.partition(model, WIDE, refine="boundary", progress=False)
    part = partial(model, max_regions=limit)
    if outputs > 1:
        require_truth(part, model)
    if not bool(part.undecided.any()):
        assert abs(part.decision_boundary().length - whole.decision_boundary().length) < 1e-9


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", [4000, 6000])
def test_tiles_that_are_done_stay_complete(limit: int) -> None:
    torch.manual_seed(0)
    widths = [2, 64, 64, 64]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(64, 3)).double()
    options: Any = {"memory": 2.5e6, "max_regions": limit, "partial": True}
    part = sc.partition(model, WIDE, refine="boundary", progress=False, **options)
    assert bool(part.complete.any() & part.undecided.any())
    assert torch.equal(part.complete, ~part.undecided)
    require_truth(part, model)


def test_nothing_is_undecided_in_the_end() -> None:
    model = network()
    part = partial(model)
    assert not bool(part.undecided.any())
    assert part.decision_boundary().length > 0


def test_more_regions_leave_less_undecided() -> None:
    model = network()
    shares = [
        float(part.areas[part.undecided].sum() / 16)
        for part in (partial(model, max_regions=limit) for limit in (1, 700, 10_000))
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0
    assert shares[-1] == 0


def test_without_squares_all_is_undecided() -> None:
    part = sc.partition(network(), WIDE, refine="boundary", partial=True, max_regions=10)
    assert bool(part.undecided.all())
    assert part.validate().ok
    assert "1 of 1 regions are undecided, 100.0% of the area" in repr(part)


def test_questions_say_what_is_left() -> None:
    part = partial(network(), max_regions=100)
    for ask in (part.decision_boundary, part.class_regions, part.topology):
        with pytest.raises(sc.SplineCamError, match=r"ended before all was settled: .* undecided"):
            ask()
    with pytest.raises(sc.SplineCamError, match="leave refine= out"):
        part.stats()
    condition = sc.OutputCondition.of([([[1.0, -1.0, 0.0]], [0.0])])
    part = partial(network(), condition, max_regions=100)
    with pytest.raises(sc.SplineCamError, match="undecided"):
        part.check(condition)


def test_files_pictures_and_tables_know_it() -> None:
    model = network()
    part = partial(model, max_regions=100)
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    again = sc.load(file, model=model)
    assert torch.equal(again.undecided, part.undecided)
    assert torch.equal(again.ranges, part.ranges)
    assert torch.equal(region_classes(part) < 0, part.undecided)
    white = torch.from_numpy((certain_colors(part) == 1).all(1))
    assert torch.equal(white, part.undecided)
    assert part.plot().images
    assert "undecided" in part._repr_html_()
    level = partial(model, {"level": 0.0, "output": 1}, max_regions=100)
    assert level.plot().images


def test_a_file_in_which_complete_regions_are_undecided_is_refused() -> None:
    part = partial(network(), max_regions=700, memory=4e5)
    part._undecided = torch.ones_like(part.undecided)
    part._settled = part._settled.clone()
    part._settled[0] = False
    file = io.BytesIO()
    part.save(file)
    file.seek(0)
    with pytest.raises(sc.FileError, match="both complete and undecided"):
        sc.load(file)


class Interrupting(logging.Handler):
    """Presses Ctrl-C when the log has some records, once for each of them."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(logging.INFO)
        self.numbers, self.seen = numbers, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        if self.seen in self.numbers:
            signal.raise_signal(signal.SIGINT)


def interrupted(compute: Callable[[], Any], *numbers: int) -> Any:
    log, handler = logging.getLogger("splinecam"), Interrupting(*numbers)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        return compute()
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_ctrl_c_returns_what_is_settled(number: int) -> None:
    model, before = network(), signal.getsignal(signal.SIGINT)
    part = interrupted(lambda: partial(model), number)
    assert signal.getsignal(signal.SIGINT) is before
    assert bool(part.undecided.any())
    require_truth(part, model)


def test_the_second_ctrl_c_interrupts() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(lambda: partial(network()), 1, 2)
    finally:
        signal.signal(signal.SIGINT, before)


def test_options_that_do_not_go_with_it() -> None:
    model = network()
    for options in ({}, {"refine": "boundary", "smooth": 1e-2}):
        with pytest.raises(TypeError, match=r"partial= is for sc\.partition with refine="):
            sc.partition(model, WIDE, partial=True, **options)
    with pytest.raises(TypeError, match="partial= works in one process"):
        sc.partition(model, WIDE, partial=True, refine="boundary", n_jobs=2)
    with pytest.raises(TypeError, match=r"partial= is for sc\.partition"):
        sc.sweep(model, [WIDE], refine="boundary", partial=True)
