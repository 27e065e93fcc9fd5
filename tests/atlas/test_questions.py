"""Numbers, points and single regions of an atlas: the same as those of the partition in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from atlas_cases import DOMAIN, Both, Lattice, network
from splinecam.tiles.stats import OrderStatistics, quantiles

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module", params=[Lattice, network])
def both(request: pytest.FixtureRequest, computed: Callable[..., Both]) -> Both:
    return computed(request.param)


def test_statistics_are_those_of_the_partition(both: Both) -> None:
    atlas, whole = both
    found, expected = atlas.stats(full=True), whole.stats(full=True)
    assert list(found) == list(expected)
    assert dict(found) == pytest.approx(dict(expected), rel=1e-10, abs=1e-11)


def test_classes_have_the_same_areas(both: Both) -> None:
    atlas, whole = both
    for kind in ("argmax", "argmin"):
        found, expected = atlas.class_regions(kind=kind), whole.class_regions(kind=kind)
        assert torch.allclose(found.areas, expected.areas, rtol=1e-12, atol=1e-11)
        assert found.tied_area == pytest.approx(expected.tied_area, abs=1e-11)
        assert found.boundary_length() == pytest.approx(expected.boundary_length(), abs=1e-10)
        assert repr(found)[10:] == repr(expected)[12:]
        assert found.unresolved == ()
    with pytest.raises(sc.SplineCamError, match="pairwise"):
        atlas.class_regions(kind="pairwise")


def test_inputs_are_located_across_tiles(both: Both) -> None:
    atlas, whole = both
    torch.manual_seed(1)
    x = torch.rand(2000, 2, dtype=torch.float64) * 6.2 - 3.1
    found, expected = atlas.locate(x), whole.locate(x)
    assert torch.equal(found < 0, expected < 0)
    inside = (found >= 0).nonzero()[:, 0]
    assert torch.allclose(atlas.areas[found[inside]], whole.areas[expected[inside]])
    assert torch.equal(atlas.locate(x[:7]), found[:7])
    assert atlas.locate(x[:0]).shape == (0,)


def test_an_input_on_a_seam_is_in_the_deepest_region(both: Both) -> None:
    atlas, whole = both
    places = []
    for number, tile in enumerate(atlas.tiles()):
        edge = tile.vertices[tile.mesh.edges[atlas.shared_edges(number).local]]
        places += [edge[:, 0], edge.mean(1)]
    x = torch.unique(torch.cat(places), dim=0)[::5]
    found, expected = atlas.locate(x), whole.locate(x)
    assert bool((found >= 0).all())
    # Equal depths are decided by the number, which depends on the order of the tiles.
    mine = torch.stack([_depth(atlas[int(k)], point) for k, point in zip(found, x, strict=True)])
    others = [_depth(whole[int(k)], point) for k, point in zip(expected, x, strict=True)]
    assert torch.allclose(mine, torch.stack(others), atol=1e-12)


def _depth(region: sc.results.Region, point: torch.Tensor) -> torch.Tensor:
    corners = region.vertices
    side = corners.roll(-1, 0) - corners
    gap = point - corners
    return ((side[:, 0] * gap[:, 1] - side[:, 1] * gap[:, 0]) / side.norm(dim=1)).min()


def test_samples_are_uniform_by_area(both: Both) -> None:
    atlas, _ = both
    seed = torch.Generator().manual_seed(0)
    x = atlas.sample(20_000, generator=seed, dtype=torch.float64)
    assert x.shape == (20_000, 2)
    assert torch.allclose(x.mean(0), torch.zeros(2).double(), atol=0.05)
    share = torch.bincount(atlas.locate(x), minlength=len(atlas)) / 20_000
    assert float((share - atlas.areas / 36).abs().max()) < 0.01
    some = torch.tensor([len(atlas) - 1, 3, 3, len(atlas) // 2])
    x = atlas.sample(5, regions=some, per_region=True, dtype=torch.float64)
    assert torch.equal(atlas.locate(x), some.repeat_interleave(5))
    x = atlas.sample(50, regions=[0, -1], dtype=torch.float64)
    assert set(atlas.locate(x).tolist()) == {0, len(atlas) - 1}
    with pytest.raises(IndexError, match="regions, numbered from 0"):
        atlas.sample(1, regions=len(atlas))


def test_an_atlas_is_a_sequence_of_regions(both: Both) -> None:
    atlas, _ = both
    areas = atlas.areas
    assert [region.area for region in atlas] == areas.tolist()
    last = atlas[-1]
    assert last.area == float(areas[-1])
    assert atlas.index(last) == len(atlas) - 1
    assert last in atlas
    assert len(atlas[3:6]) == 3
    with pytest.raises(IndexError, match="numbered from 0"):
        atlas[len(atlas)]


@pytest.mark.parametrize("values", ["wide", "narrow", "equal", "signed"])
def test_quantiles_are_exact(values: str) -> None:
    rng = np.random.default_rng(0)
    numbers = {
        "wide": np.exp(8 * rng.standard_normal(5003)),
        "narrow": 1 + 1e-13 * rng.random(5003),
        "equal": np.repeat([3.0, 4.0, np.inf], [2000, 3000, 3]),
        "signed": rng.standard_normal(5003),
    }[values]
    shares = [0, 0.05, 0.25, 0.5, 0.99, 1]
    ranks, weight = quantiles(len(numbers), shares)
    found, blocks = OrderStatistics(ranks), np.array_split(numbers, 7)
    for block in blocks:
        found.count(block)
    if not found.complete:
        for block in blocks:
            found.keep(block)
    assert np.array_equal(found.values(), np.sort(numbers)[ranks])
    if values != "equal":  # of which numpy cannot find the difference between infinite ones
        low, high = found.values().reshape(-1, 2).T
        between = low + weight * (high - low)
        assert between == pytest.approx(np.quantile(numbers, shares), rel=1e-15)


def test_one_output_has_two_classes(tmp_path: Path) -> None:
    atlas = sc.atlas(nn.Linear(2, 1), DOMAIN, tmp_path / "a", progress=False)
    whole = sc.partition(atlas.model, DOMAIN, progress=False)
    assert torch.allclose(
        atlas.class_regions(level=0.25).areas, whole.class_regions(level=0.25).areas
    )
    assert dict(atlas.stats()) == pytest.approx(dict(whole.stats()))
