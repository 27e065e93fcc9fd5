"""Curves across the tiles of an atlas: the same as those of the partition in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from splinecam.analysis.curves import Curves
from splinecam.atlas.extracting import extract
from splinecam.atlas.making import Sizes
from splinecam.atlas.storing import compute_atlas

DOMAIN = sc.Domain.box(-3, 3)
SMALL = Sizes(regions=150, enough=60)


class Ring(nn.Module):
    """A network whose decision changes on a closed curve through many tiles."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.noise = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.head = nn.Linear(24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 - x.abs().sum(-1, keepdim=True) + 0.02 * self.head(self.noise(x))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3)
    )


@pytest.fixture(scope="module", params=[Ring, network])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[sc.Atlas, sc.Partition]:
    model = request.param()
    atlas = compute_atlas(model, DOMAIN, tmp_path_factory.mktemp("atlas"), sizes=SMALL)
    assert atlas.num_tiles > 4
    return atlas, sc.partition(model, DOMAIN, progress=False)


def compare(mine: Curves, whole: Curves) -> None:
    """Both have the same number of segments and of open and closed lines, and lengths."""
    assert len(mine) == len(whole)
    assert mine.length == pytest.approx(whole.length, rel=1e-12)
    assert len(mine.polylines) == len(whole.polylines)
    assert int(mine.polylines.closed.sum()) == int(whole.polylines.closed.sum())
    longest = [torch.sort(curves.polylines.lengths).values for curves in (mine, whole)]
    assert torch.allclose(*longest, rtol=1e-11)


def test_all_regions_together_are_the_partition(both: tuple[sc.Atlas, sc.Partition]) -> None:
    atlas, whole = both
    found = extract(atlas, lambda tile: torch.arange(len(tile)))
    assert found.part.mesh.num_edges == whole.mesh.num_edges
    assert found.part.validate().ok
    assert torch.equal(found.numbers, torch.arange(len(whole)))


QUESTIONS: dict[int, list[dict[str, Any]]] = {
    1: [{}, {"level": 0.5}],
    3: [{}, {"kind": "argmin"}, {"kind": "pairwise"}, {"classes": (0, 1)}],
}


def test_the_boundary_runs_across_tiles(both: tuple[sc.Atlas, sc.Partition]) -> None:
    atlas, whole = both
    for options in QUESTIONS[whole.values.shape[1]]:
        found = atlas.decision_boundary(**options)
        compare(found, whole.decision_boundary(**options))
        tile, own = atlas.find(int(found.regions[0, 0]))
        corners, middle = atlas.tile(tile)[own].vertices, found.ends[0].mean(0)
        assert bool((corners.amin(0) - 1e-9 <= middle).all())
        assert bool((middle <= corners.amax(0) + 1e-9).all())


def test_level_sets_run_across_tiles(both: tuple[sc.Atlas, sc.Partition]) -> None:
    atlas, whole = both
    some = torch.quantile(whole.values[:, 0], torch.tensor([0.2, 0.5, 0.8]).double()).tolist()
    compare(atlas.level_set(some, output=0), whole.level_set(some, output=0))


def test_a_closed_boundary_is_one_curve(tmp_path: Path) -> None:
    atlas = compute_atlas(Ring(), DOMAIN, tmp_path, sizes=SMALL)
    lines = atlas.decision_boundary().polylines
    assert len(lines) == 1
    assert lines[0].closed
    assert (
        len(torch.unique(torch.tensor([atlas.find(int(r))[0] for r in lines.curves.regions[:, 0]])))
        > 3
    )


def test_a_boundary_that_is_nowhere_is_empty(both: tuple[sc.Atlas, sc.Partition]) -> None:
    atlas, _ = both
    assert len(atlas.level_set(1e6, output=0)) == 0
