"""Verdicts by ``sc.check``, which needs no whole partition, against those of whole ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import BOX, QUADRANGLE, eagerly, questions, random_network
from splinecam.errors import DomainError, SplineCamError
from splinecam.jobs import answering
from splinecam.questions.counterexamples import counterexamples
from splinecam.questions.preimage import unsafe_inputs

QUIET: Any = {"progress": False}
WIDE = sc.Domain.box(-2, 2)


def network(width: int = 24, outputs: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    first, second, last = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


def at_least(level: float, outputs: int = 3) -> sc.OutputCondition:
    """The first output is at least a level."""
    return sc.OutputCondition.of([(-torch.eye(1, outputs), [-level])])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for counterexamples in small networks, too."""
    monkeypatch.setattr(answering, "_WEIGHTS", 0)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(20))
def test_verdicts_are_those_of_whole_partitions(seed: int, always: None) -> None:
    _, model, n = random_network(seed)
    domain = BOX if seed % 2 else QUADRANGLE
    part = sc.partition(model, domain, **QUIET)
    conditions = [x for x in questions(model, domain, n, seed) if isinstance(x, sc.OutputCondition)]
    assert conditions
    for condition in (*conditions, at_least(float(part.values[:, 0].max()) - 0.01, n)):
        right = part.check(condition)
        with eagerly():
            found = sc.check(model, domain, condition, **QUIET)
            quick = sc.check(model, domain, condition, verdict_only=True, **QUIET)
        assert (found.status, quick.status) == (right.status, right.status)
        assert found.area == pytest.approx(right.area, rel=1e-9, abs=1e-12)
        for each in (found, quick):
            assert (each.witness is None) == (right.witness is None)
        if quick.status == "violated":
            assert quick.witness is not None
            assert quick.witness.confirmed
            assert bool(condition(model(quick.witness.input[None].double())).all())


def test_only_the_verdict(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any, **options: Any) -> None:
        raise AssertionError("regions are computed")

    model = network()
    highest = float(sc.partition(model, WIDE, **QUIET).values[:, 0].max())
    monkeypatch.setattr(answering, "partition", never)
    found = sc.check(model, WIDE, at_least(highest - 0.01), verdict_only=True, **QUIET)
    assert found.status == "violated"
    assert not found
    assert (found.covered, found.boxes) == (1.0, ())
    assert found.witnesses(1)[0] is found.witness
    assert repr(found).startswith("PropertyCheck(violated, at (")
    assert repr(found).endswith("confirmed by the model)")
    for ask in (lambda: found.area, lambda: found.preimage, lambda: found.share, found.plot):
        with pytest.raises(SplineCamError, match=r"Only the verdict.*leave out verdict_only="):
            ask()


def test_what_holds_is_known_in_full(always: None) -> None:
    found = sc.check(network(), WIDE, at_least(100.0), verdict_only=True, **QUIET)
    assert (found.status, found.area, found.witness) == ("holds", 0.0, None)


def test_a_counterexample_is_confirmed_by_the_model(
    always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unconfirmed(*given: Any) -> list[Any]:
        return [replace(each, confirmed=False) for each in unsafe_inputs(*given)]

    monkeypatch.setattr(answering, "unsafe_inputs", unconfirmed)
    found = sc.check(nn.ReLU(), WIDE, at_least(0.5, 2), verdict_only=True, **QUIET)
    assert (found.status, found.area) == ("violated", 6.0)


def test_points_inside_by_rounding_alone_are_no_counterexamples() -> None:
    from splinecam.network.capture import capture

    program = capture(nn.ReLU(), (2,))
    for level, count in ((0.5, True), (2.0, False)):
        places = counterexamples(program, WIDE, at_least(level, 2))
        assert bool(len(places)) == count
        assert bool((places[:, 0] > level).all())
    assert not len(counterexamples(program, sc.Domain.box(-2, -1), at_least(0.0, 2)))


def test_a_small_unsafe_part_is_found_by_its_neighbours() -> None:
    from splinecam.network.capture import capture

    class Cone(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0.02 - (x - 0.3).abs().sum(1, keepdim=True)

    places = counterexamples(capture(Cone(), (2,)), WIDE, at_least(0.0, 1))
    assert len(places)
    assert float(Cone()(places).amin()) > 0


def test_inputs_count_where_the_domain_is_larger_than_the_box(always: None) -> None:
    lo, hi = torch.tensor([[0.5, -1.0], [1.0, 1.0]], dtype=torch.float64)
    case = sc.results.PropertyCase(lo, hi, at_least(0.75, 2))
    prop = sc.Property((case,), (2,), (2,), "2.0", "test")
    right = sc.partition(nn.ReLU(), WIDE, **QUIET).check(prop)
    for verdict_only in (False, True):
        found = sc.check(nn.ReLU(), WIDE, prop, verdict_only=verdict_only, **QUIET)
        assert (found.status, found.covered) == (right.status, right.covered)
        assert found.witness is not None
        assert bool(prop.violated(found.witness.input[None], found.witness.outputs[None]).all())


def test_a_box_in_which_two_inputs_vary() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    lo, hi = [0.0, -1.0, 0.5], [1.0, 1.0, 0.5]
    right = sc.partition(model, sc.Domain.slice((lo, hi), (0, 1)), **QUIET)
    unsafe = at_least(float(right.values[:, 0].median()), 2)
    found = sc.check(model, (lo, hi), unsafe, **QUIET)
    assert found.area == pytest.approx(right.check(unsafe).area)
    with pytest.raises(DomainError, match=r"3 inputs vary.*sc\.Domain\.slice\(prop\.box"):
        sc.check(model, (lo, [1.0, 1.0, 1.0]), unsafe)
    with pytest.raises(TypeError, match="domain must be a"):
        sc.check(model, "box", unsafe)
    with pytest.raises(SplineCamError, match="about 3 outputs; the network has 2"):
        sc.check(model, (lo, hi), at_least(0.0, 3))
    with pytest.raises(TypeError, match=r"refine= is for partition, .*, not for check"):
        sc.check(model, (lo, hi), unsafe, refine="boundary")
