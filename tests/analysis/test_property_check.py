"""Verdicts on properties: against the exact areas and the models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.errors import DomainError, SplineCamError
from splinecam.questions import constraints

F64 = torch.float64


def property_of(boxes: list[Any], *conditions: sc.OutputCondition) -> sc.Property:
    """A property with boxes ``(lo, hi)`` of one condition, or of one each."""
    bounds = [[torch.tensor(side, dtype=F64) for side in box] for box in boxes]
    each = conditions * len(boxes) if len(conditions) == 1 else conditions
    cases = tuple(
        sc.results.PropertyCase(lo, hi, condition)
        for (lo, hi), condition in zip(bounds, each, strict=True)
    )
    n = int(conditions[0].A.shape[1])
    return sc.Property(cases, tuple(bounds[0][0].shape), (n,), "2.0", "test")


def above(level: float, n: int = 2, output: int = 0) -> sc.OutputCondition:
    """An output is at least a level."""
    row = torch.zeros(1, n, dtype=F64)
    row[0, output] = -1
    return sc.OutputCondition.of([(row, [-level])])


@pytest.fixture(scope="module")
def part() -> sc.Partition:
    return sc.partition(nn.ReLU(), sc.Domain.box(-1, 1), device="cpu", progress=False)


WHOLE = ([-1.0, -1.0], [1.0, 1.0])


def test_holds(part: sc.Partition) -> None:
    found = part.check(property_of([WHOLE], above(1.5)))
    assert (found.status, found.covered, found.area, found.witness) == ("holds", 1.0, 0.0, None)
    assert bool(found)
    assert repr(found) == "PropertyCheck(holds on the domain)"


def test_violated(part: sc.Partition) -> None:
    found = part.check(property_of([WHOLE], above(0.5)))
    assert (found.status, found.area, found.share) == ("violated", 1.0, 0.25)
    assert not found
    assert found.witness is not None
    assert found.witness.confirmed
    assert found.witness.input.dtype == part._dtype
    assert float(found.witness.outputs[0]) >= 0.5
    assert repr(found).startswith("PropertyCheck(violated on 25 % of the domain, area 1, at (0.75")


@pytest.mark.parametrize("level", [1.0, 0.0])
def test_limits_that_are_met_exactly_are_unresolved(part: sc.Partition, level: float) -> None:
    row = torch.tensor([[-1.0 if level else 1.0, 0.0]], dtype=F64)
    found = part.check(property_of([WHOLE], sc.OutputCondition.of([(row, [-level])])))
    assert found.status == "unresolved"
    with pytest.raises(SplineCamError, match="truth value"):
        bool(found)
    assert found.witness is not None
    assert "unresolved" in repr(found)


def test_a_domain_that_is_partly_in_the_box(part: sc.Partition) -> None:
    found = part.check(property_of([([0.0, -3.0], [9.0, 0.5])], above(0.5)))
    assert found.covered == pytest.approx(0.375)
    assert found.area == pytest.approx(0.5 * 1.5)
    assert "37.5 % of which are in its box" in repr(found)
    found = part.check(property_of([([0.0, -3.0], [0.25, 0.5])], above(0.5)))
    assert found.status == "holds"
    assert "9.38 %" in repr(found)


def test_a_domain_outside_of_all_boxes(part: sc.Partition) -> None:
    for box in (([2.0, 0.0], [3.0, 1.0]), ([1.0, 0.0], [3.0, 1.0])):
        with pytest.raises(DomainError, match=r"outside|without a common area"):
            part.check(property_of([box], above(0.5)))


def test_several_boxes(part: sc.Partition) -> None:
    left, right = ([-1.0, -1.0], [0.0, 1.0]), ([0.5, -1.0], [1.0, 1.0])
    found = part.check(property_of([left, right], above(0.75)))
    assert (found.covered, found.area) == (0.75, 0.5)
    own = property_of([left, right], above(0.75), above(0.75, output=1))
    found = part.check(own)
    assert found.area == pytest.approx(0.5 * 0.25)
    assert found.witness is not None
    assert own.violated(found.witness.input[None], found.witness.outputs[None]).tolist() == [True]
    overlapping = property_of([left, ([-0.5, -1.0], [1.0, 0.0])], above(0.5))
    assert part.check(overlapping).covered == pytest.approx(0.75)
    assert part.check(overlapping).area == pytest.approx(0.5)


def test_conditions_alone_cases_and_files(part: sc.Partition, tmp_path: Path) -> None:
    prop = property_of([WHOLE], above(0.5))
    path = tmp_path / "p.vnnlib"
    path.write_text(
        "(declare-const X_0 Real)(declare-const X_1 Real)"
        "(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (and (>= X_0 -1) (<= X_0 1) (>= X_1 -1) (<= X_1 1)))(assert (>= Y_0 0.5))"
    )
    for spec in (prop.condition, prop.cases[0], path, str(path), [([[-1, 0]], [-0.5])]):
        assert part.check(spec).area == 1.0
    with pytest.raises(SplineCamError, match="3 outputs"):
        part.check(property_of([WHOLE], above(0.5, n=3)))
    with pytest.raises(SplineCamError, match="3 inputs"):
        part.check(property_of([([0.0] * 3, [1.0] * 3)], above(0.5)))


def test_slices_of_random_networks_against_random_points() -> None:
    generator = torch.Generator().manual_seed(0)
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
        )
        lo = -torch.rand(5, generator=generator, dtype=F64)
        hi = lo + 0.1 + torch.rand(5, generator=generator, dtype=F64)
        lo[4] = hi[4]
        part = sc.partition(model, sc.Domain.slice((lo, hi), (0, 2)), progress=False)
        limit = float(part.values[:, 1].quantile(0.7))
        found = part.check(property_of([(lo.tolist(), hi.tolist())], above(limit, 3, 1)))
        assert (found.status, found.covered) == ("violated", 1.0)
        x = part.sample(20_000, dtype=F64)
        with torch.no_grad():
            share = float((copy.deepcopy(model).double()(x)[:, 1] >= limit).double().mean())
        assert found.share == pytest.approx(share, abs=0.02)
        for witness in found.witnesses(5):
            inside = (witness.input.double() >= lo) & (witness.input.double() <= hi)
            assert bool(inside[:4].all())  # the last bounds may be no numbers of float32


def test_pictures(part: sc.Partition) -> None:
    for level, unsafe, options in ((0.5, True, {}), (1.5, False, {"fill": "white"})):
        ax = part.check(property_of([WHOLE], above(level))).plot(**options)
        shown = [text.get_text() for text in ax.figure.findobj(lambda x: hasattr(x, "get_text"))]
        assert any("unsafe" in text for text in shown) == unsafe


def test_a_verdict_at_a_vertex_needs_no_cells(
    part: sc.Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    strip = [([[-1.0, 0.0], [1.0, 0.0]], [-0.5, 0.75])]  # without a vertex
    assert part.check(strip).status == "violated"

    def never(*given: Any) -> None:
        raise AssertionError("cells are computed")

    monkeypatch.setattr(constraints, "overlay", never)
    assert part.check(property_of([WHOLE], above(0.5))).status == "violated"
    with pytest.raises(AssertionError, match="cells are computed"):
        _ = part.check(strip).status
