"""Agreed region counts and real trained networks; skipped where their folder is not there."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.nn import PeriodicEncoding
from splinecam.partitions.partition import Partition

SHARED = Path(os.environ.get("SPLINECAM_SHARED", Path(__file__).parents[3] / "shared"))
# Numbers of all units at all points together; a million points, but for the widest networks.
WORK = int(float(os.environ.get("SPLINECAM_TEST_WORK", 5e7)))
POINTS = 1_000_000

pytestmark = pytest.mark.skipif(not (SHARED / "zoo").is_dir(), reason="no shared folder")

COUNTS = {
    "line100_d2": 1_868,
    "line300_d2": 15_533,
    "line1000_d2": 176_967,
    "line1000_d8002": 138_624,
    "mlp32x3": 1_180,
    "mlp64x3": 12_042,
    "mlp128x4": 61_014,
    "mlp256x6": 386_316,
    "mlp784_50x3": 5_097,
}

# name: (domain, shrink it by this factor). The networks of 256 units a layer have a million regions
# on their whole domain, and the plane of cnn5_cats has far more than memory for them.
ZOO = {
    "mlp_fashion": (None, 1.0),
    "conv1_fashion": (None, 0.5),
    "cnn5_cats": (None, 0.006),
    "acasxu_1_1": (None, 1.0),
    "acasxu_2_9": (None, 1.0),
    "edgesub_bunny2d_2x100": (None, 1.0),
    "edgesub_bunny3d_8x32": ("x=0", 1.0),
    "inr10x5_camera": (None, 1.0),
    "inr10x5_pe_camera": (None, 1.0),
    "inr256x6_camera": (None, 0.1),
    "resbn_fashion": (None, 0.002),
    "sdf2d_easy_metfaces": (None, 0.1),
    "sdf2d_hard_metfaces": (None, 0.1),
    "sdf3d_bunny": ("z=0", 0.1),
    "vnn_tll_8_0_0": (None, 1.0),
    "vnn_verivital_maxpool": (None, 0.03),
}


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    paths = [str(SHARED), str(SHARED / "zoo")]
    sys.path[:0] = paths
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    yield {name: importlib.import_module(name) for name in ("workloads", "zoo")}
    sys.dont_write_bytecode = written
    for path in paths:
        sys.path.remove(path)


@pytest.mark.parametrize("name", COUNTS)
def test_workloads_have_the_agreed_number_of_regions(modules: dict[str, ModuleType], name: str):
    model, corners = modules["workloads"].get(name)
    part = sc.partition(model, sc.Domain.polygon(corners), progress=False)
    assert len(part) == COUNTS[name]
    assert part.validate(samples=500).ok
    assert not part.unresolved


@pytest.mark.parametrize("name", ZOO)
def test_no_region_of_a_trained_network_is_lost(modules: dict[str, ModuleType], name: str):
    item = modules["zoo"].load(name)
    which, factor = ZOO[name]
    corners = item.domain if which is None else item.domains[which]
    middle = corners.mean(0)
    domain = sc.Domain.polygon(middle + factor * (corners - middle))
    part = sc.partition(in_our_words(item.model, domain), domain, progress=False)
    assert part.validate(samples=500).ok
    assert abs(float(part.areas.sum()) / part.domain.area - 1) < 1e-9
    known = fingerprints(part, part.mesh.means())
    points = random_points(part, min(POINTS, WORK // sum(units(part))))
    seen = fingerprints(part, points)
    lost = ~torch.isin(seen, known)
    assert int(lost.sum()) == 0
    located = part.locate(part.domain.embed(part._frame.to_plane(points[:2000])))
    assert torch.equal(known[located], seen[:2000])


# The eight slices of ACAS Xu network 1_1 for which SyReNN (float32) publishes its method: headings
# and speeds as in the zoo, distances up to the far corner of its region of interest.
ACAS_COUNTS = (33_200, 30_769, 37_251, 33_931, 36_743, 38_965, 36_037, 33_208)
ACAS_RHO = (math.hypot(10_000, 6_000) - 19_791.091) / 60_261


@pytest.mark.parametrize("index", range(8))
def test_slices_of_acas_xu_have_the_published_number_of_regions(
    modules: dict[str, ModuleType], index: int
):
    item = modules["zoo"].load("acasxu_1_1")
    corners = list(item.domains.values())[index].clone()
    corners[1:3, 0] = ACAS_RHO
    part = sc.partition(item.model, sc.Domain.polygon(corners), progress=False)
    assert len(part) == ACAS_COUNTS[index]
    assert_decisions_follow(part, "argmin")


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("mlp_fashion", 1.0),
        ("conv1_fashion", 0.5),
        ("resbn_fashion", 0.002),
        ("cnn5_cats", 0.02),
        ("acasxu_2_9", 1.0),
        ("vnn_verivital_maxpool", 0.02),
    ],
)
def test_decisions_of_a_trained_network_follow_its_boundary(
    modules: dict[str, ModuleType], name: str, factor: float
):
    item = modules["zoo"].load(name)
    middle = item.domain.mean(0) if factor == 1 else undecided(item.model, item.domain)
    domain = sc.Domain.polygon(middle + factor * (item.domain - item.domain.mean(0)))
    part = sc.partition(item.model, domain, progress=False)
    assert_decisions_follow(part, "argmax", rows=20, columns=200)
    found, boundary = part.class_regions(), part.decision_boundary()
    assert float(found.areas.sum()) == pytest.approx(domain.area, rel=1e-9)
    assert boundary.length > 0
    assert found.boundary_length() == pytest.approx(boundary.length, rel=1e-9)


def undecided(model: nn.Module, corners: Tensor) -> Tensor:
    """A point of the domain at which the decision changes, by bisection between two of its points.

    Of one output the sign is the decision.
    """

    def decide(x: Tensor) -> int:
        y = model(x[None])[0]
        return int(y > 0) if y.numel() == 1 else int(y.argmax())

    weights = torch.rand(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = (weights / weights.sum(1, keepdim=True)) @ corners
    a = points[0]
    b = next(x for x in points if decide(x) != decide(a))
    for _ in range(50):
        middle = (a + b) / 2
        a, b = (middle, b) if decide(middle) == decide(a) else (a, middle)
    return a


def assert_decisions_follow(part: Partition, kind: Any, rows: int = 60, columns: int = 400) -> None:
    """The real model's decisions along lines through the domain change just at the boundary."""
    boundary = part.decision_boundary(kind=kind)
    a, b, _, d = part.domain.corners
    across, up = b - a, d - a
    # In coordinates (s, t) of the parallelogram the lines are t = constant.
    ends = torch.linalg.solve(torch.stack([across, up], 1), (boundary.ends - a).view(-1, 2).T)
    (s0, t0), (s1, t1) = ends.T.view(-1, 2, 2).permute(1, 2, 0)
    s = (torch.arange(columns, dtype=torch.float64) + 0.5) / columns
    wrong = 0
    for t in (torch.arange(rows, dtype=torch.float64) + 0.5) / rows:
        hit = (t0 > t) != (t1 > t)
        place = torch.lerp(s0[hit], s1[hit], (t - t0[hit]) / (t1[hit] - t0[hit]))
        # A segment that goes up has its left side towards smaller s.
        upward = (t1[hit] > t0[hit]).long()[:, None]
        before, after = boundary.sides[hit].gather(1, torch.cat([1 - upward, upward], 1)).T
        place, order = place.sort()
        before, after = before[order], after[order]
        assert torch.equal(after[:-1], before[1:])
        points = part.domain.embed(a + s[:, None] * across + t * up)
        with torch.no_grad():
            y = part.model(points)
        y = torch.cat([torch.zeros_like(y), y], 1) if y.shape[1] == 1 else y
        seen = y.argmin(1) if kind == "argmin" else y.argmax(1)
        if not len(place):
            assert len(seen.unique()) == 1
            continue
        expected = torch.cat([before[:1], after])[torch.searchsorted(place, s)]
        wrong += int((expected != seen).sum())
    assert wrong == 0


def in_our_words(model: nn.Sequential, domain: sc.Domain) -> nn.Sequential:
    """The model with a table that is looked up by index written as our encoding."""
    if type(model[0]).__name__ != "PWLPosEnc":
        return model
    encoding = PeriodicEncoding(model[0].L, pieces=model[0].pieces, dtype=torch.float64)
    same = nn.Sequential(encoding, *model[1:]).eval()
    x = domain.embed(domain.corners.mean(0) + torch.randn(1000, 2, dtype=torch.float64))
    assert torch.allclose(same(x), model(x), rtol=0, atol=1e-12)
    return same


def units(part: Partition) -> list[int]:
    """How many units each layer has."""
    return [pieces.shape[1] for pieces in part.patterns([0]).values()]


def random_points(part: Partition, count: int) -> Tensor:
    """Uniform in the domain (a parallelogram), in the engine's coordinates."""
    a, b, _, d = part._frame.to_local(part.domain.corners)
    s, t = torch.rand(2, count, 1, dtype=torch.float64)
    return a + s * (b - a) + t * (d - a)


def fingerprints(part: Partition, local: Tensor) -> Tensor:
    """One number per point that tells its activation pattern: a random sum of its pieces."""
    generator = torch.Generator().manual_seed(7)
    sizes = units(part)
    # Whole numbers small enough that their sums are exact in float64.
    weights = torch.randint(2**36, (sum(sizes),), generator=generator).double().split(sizes)
    sums = []
    for block in local.split(max(1, (1 << 23) // sum(sizes))):
        patterns = part._patterns_at(block).values()
        pairs = zip(patterns, weights, strict=True)
        sums.append(sum(pieces.double() @ weight.to(block) for pieces, weight in pairs))
    return torch.cat(sums)
