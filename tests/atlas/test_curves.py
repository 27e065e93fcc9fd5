"""Curves across the tiles of an atlas: the same as those of the partition in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from atlas_cases import Both, Ring, network
from splinecam.questions.curves import Curves
from splinecam.tiles.extracting import extract

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module", params=[Ring, network])
def both(request: pytest.FixtureRequest, computed: Callable[..., Both]) -> Both:
    return computed(request.param)


def compare(mine: Curves, whole: Curves) -> None:
    """Both have the same number of segments and of open and closed lines, and lengths."""
    assert len(mine) == len(whole)
    assert mine.length == pytest.approx(whole.length, rel=1e-12)
    assert len(mine.polylines) == len(whole.polylines)
    assert int(mine.polylines.closed.sum()) == int(whole.polylines.closed.sum())
    longest = [torch.sort(curves.polylines.lengths).values for curves in (mine, whole)]
    assert torch.allclose(*longest, rtol=1e-11)


def test_all_regions_together_are_the_partition(both: Both) -> None:
    atlas, whole = both
    part, numbers = extract(atlas, lambda tile: torch.arange(len(tile)))
    assert part.mesh.num_edges == whole.mesh.num_edges
    assert part.validate().ok
    assert torch.equal(numbers, torch.arange(len(whole)))


QUESTIONS: dict[int, list[dict[str, Any]]] = {
    1: [{}, {"level": 0.5}],
    3: [{}, {"kind": "argmin"}, {"kind": "pairwise"}, {"classes": (0, 1)}],
}


def test_the_boundary_runs_across_tiles(both: Both) -> None:
    atlas, whole = both
    for options in QUESTIONS[whole.values.shape[1]]:
        found = atlas.decision_boundary(**options)
        compare(found, whole.decision_boundary(**options))
        tile, own = atlas.find(int(found.regions[0, 0]))
        corners, middle = atlas.tile(tile)[own].vertices, found.ends[0].mean(0)
        assert bool((corners.amin(0) - 1e-9 <= middle).all())
        assert bool((middle <= corners.amax(0) + 1e-9).all())


def test_level_sets_run_across_tiles(both: Both) -> None:
    atlas, whole = both
    some = torch.quantile(whole.values[:, 0], torch.tensor([0.2, 0.5, 0.8]).double()).tolist()
    compare(atlas.level_set(some, output=0), whole.level_set(some, output=0))


def test_a_closed_boundary_is_one_curve(computed: Callable[..., Both]) -> None:
    atlas = computed(Ring).atlas
    lines = atlas.decision_boundary().polylines
    assert len(lines) == 1
    assert lines[0].closed
    assert (
        len(torch.unique(torch.tensor([atlas.find(int(r))[0] for r in lines.curves.regions[:, 0]])))
        > 3
    )


def test_a_boundary_that_is_nowhere_is_empty(both: Both) -> None:
    atlas, _ = both
    assert len(atlas.level_set(1e6, output=0)) == 0
