"""Properties of the networks ACAS Xu on slices, against published verdicts and counterexamples.

The properties are those of G. Katz et al., Reluplex: An Efficient SMT Solver for Verifying Deep
Neural Networks, CAV 2017, with the bounds of inputs in the units of the networks. The verdicts and
counterexamples are those of the verifiers of VNN-COMP 2022 (M. N. Müller et al., The Third
International Verification of Neural Networks Competition, arXiv:2212.10376), as listed in
github.com/ChristopherBrix/vnncomp2022_results. The tests need a folder of trained networks, and are
skipped where it is not there.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import splinecam as sc

F64 = torch.float64
SHARED = Path(os.environ.get("SPLINECAM_SHARED", Path(__file__).parents[3] / "shared"))
ZOO = SHARED / "zoo" / "zoo.py"

pytestmark = pytest.mark.skipif(not ZOO.exists(), reason="no folder of trained networks")

FAR = ([0.6, -0.5, -0.5, 0.45, -0.5], [0.679857769, 0.5, 0.5, 0.5, -0.45])
BOXES = {
    1: [FAR],
    2: [FAR],
    3: [
        (
            [-0.303531156, -0.009549297, 0.493380324, 0.3, 0.3],
            [-0.298552812, 0.009549297, 0.5, 0.5, 0.5],
        )
    ],
    4: [
        (
            [-0.303531156, -0.009549297, 0.0, 0.318181818, 0.083333333],
            [-0.298552812, 0.009549297, 0.0, 0.5, 0.166666667],
        )
    ],
    5: [
        (
            [-0.324274257, 0.031830989, -0.499999896, -0.5, -0.5],
            [-0.321785085, 0.063661977, -0.499204121, -0.227272727, -0.166666667],
        )
    ],
    6: [
        (
            [-0.129289109, 0.11140846, -0.499999896, -0.5, -0.5],
            [0.700434925, 0.499999896, -0.499204121, 0.5, 0.5],
        ),
        (
            [-0.129289109, -0.499999896, -0.499999896, -0.5, -0.5],
            [0.700434925, -0.11140846, -0.499204121, 0.5, 0.5],
        ),
    ],
    8: [
        (
            [-0.328422877, -0.499999896, -0.015915494, -0.045454545, 0.0],
            [0.679857769, -0.374999922, 0.015915494, 0.5, 0.5],
        )
    ],
}
# Outputs are scores, of which the smallest decides: 0 is clear of conflict, then weak left, weak
# right, strong left, strong right. Unsafe is that in one of the lists every pair (i, j) has
# y_i <= y_j; property 1 limits a single output.
UNSAFE = {
    2: [[(k, 0) for k in range(1, 5)]],
    3: [[(0, k) for k in range(1, 5)]],
    4: [[(0, k) for k in range(1, 5)]],
    5: [[(k, 4)] for k in range(4)],
    6: [[(k, 0)] for k in range(1, 5)],
    8: [[(k, 0), (k, 1)] for k in range(2, 5)],
}
# "unsat" there, by alpha-beta-CROWN and nnenum.
HOLDS = [(f"acasxu_{name}", number) for name in ("1_1", "2_9") for number in (1, 3, 4)]
HOLDS += [("acasxu_1_1", number) for number in (2, 5, 6)]
# "sat" there, by nnenum and MN-BaB; the inputs and outputs are those of MN-BaB.
COUNTEREXAMPLES = {
    ("acasxu_2_9", 2): (
        [0.64070540, -0.00182790, -0.37544667, 0.46779277, -0.46320395],
        [0.02036610, -0.02081193, 0.01972120, -0.01631991, 0.02017615],
    ),
    ("acasxu_2_9", 8): (
        [-0.15469624, -0.49612488, -0.00295265, 0.31872760, 0.32239433],
        [0.05201744, -0.02093739, 0.02413013, -0.02145775, 0.02889530],
    ),
}


def acas_property(number: int) -> sc.Property:
    """A property by its number in the paper."""
    eye = torch.eye(5, dtype=F64)
    if number == 1:
        condition = sc.OutputCondition.of([(-eye[:1], [-3.991125645861615])])
    else:
        rows = [torch.stack([eye[i] - eye[j] for i, j in each]) for each in UNSAFE[number]]
        condition = sc.OutputCondition.of([(each, [0.0] * len(each)) for each in rows])
    cases = tuple(
        sc.results.PropertyCase(torch.tensor(lo, dtype=F64), torch.tensor(hi, dtype=F64), condition)
        for lo, hi in BOXES[number]
    )
    return sc.Property(cases, (5,), (5,), "2.0", f"property {number}")


@pytest.fixture(scope="module")
def zoo() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("acas_zoo", ZOO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["acas_zoo"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["acas_zoo"]


def slices(model: Any, case: sc.results.PropertyCase, at: Any) -> list[sc.Partition]:
    """The partitions of all slices of a box along two axes and through a point."""
    wide = (case.hi > case.lo).nonzero()[:, 0].tolist()
    return [
        sc.partition(model, sc.Domain.slice((case.lo, case.hi), axes, at=at), progress=False)
        for axes in combinations(wide, 2)
    ]


@pytest.mark.parametrize(("name", "number"), [*HOLDS, *COUNTEREXAMPLES])
def test_shares_of_slices_agree_with_the_model(zoo: ModuleType, name: str, number: int) -> None:
    """What is unsafe on slices through the centre, against random points of them."""
    model, prop = zoo.load(name).model, acas_property(number)
    for case in prop.cases:
        parts = slices(model, case, None)
        for part in (*parts[::4], parts[-1]):
            found = part.check(prop)
            x = part.sample(10_000, dtype=F64, generator=torch.Generator().manual_seed(0))
            with torch.no_grad():
                bad = prop.condition(model(x))
            deviation = (found.share * (1 - found.share) / 10_000) ** 0.5
            assert float(bad.double().mean()) == pytest.approx(found.share, abs=3 * deviation)


@pytest.mark.parametrize(("name", "number"), HOLDS)
def test_what_holds_everywhere_holds_on_every_slice(
    zoo: ModuleType, name: str, number: int
) -> None:
    model, prop = zoo.load(name).model, acas_property(number)
    generator = torch.Generator().manual_seed(number)
    for case in prop.cases:
        share = torch.rand(5, generator=generator, dtype=F64)
        for at in (None, case.lo + share * (case.hi - case.lo)):
            assert {part.check(prop).status for part in slices(model, case, at)} == {"holds"}


@pytest.mark.parametrize(("name", "number"), COUNTEREXAMPLES)
def test_slices_through_a_published_counterexample(zoo: ModuleType, name: str, number: int) -> None:
    """All are violated, at the counterexample, and have further ones that the model confirms."""
    model, prop = zoo.load(name).model, acas_property(number)
    x, y = (torch.tensor(each, dtype=F64) for each in COUNTEREXAMPLES[name, number])
    assert torch.allclose(model(x[None])[0], y, atol=1e-6)
    parts = slices(model, prop.cases[0], x)
    assert len(parts) == 10
    for part in parts:
        found = part.check(prop)
        assert found.status == "violated"
        assert surrounds(*found.preimage.rings(), part.domain.project(x[None])[0][0])
        assert found.witness is not None
        assert found.witness.confirmed
        shown = prop.violated(found.witness.input[None], found.witness.outputs[None])
        assert bool(shown.all())


def surrounds(offsets: Tensor, points: Tensor, place: Tensor) -> bool:
    """Whether a point lies inside an odd number of closed rings."""
    start = torch.ones(len(points), dtype=torch.bool)
    start[offsets[1:] - 1] = False  # the last point of a ring begins no edge
    (a, b), (u, v) = (points[:-1][start[:-1]], points[1:][start[:-1]]), place
    over = (a[:, 1] > v) != (b[:, 1] > v)
    at = a[:, 0] + (v - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0])
    return int((over & (at > u)).sum()) % 2 == 1
