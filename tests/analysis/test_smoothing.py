"""What is certain of a model that is known to lie within bounds of the maps of regions."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import splinecam as sc
from bounded import bounded
from splinecam._util.arrays import owners_of
from splinecam.partitions.exports import to_geojson, to_parquet
from splinecam.partitions.partition import Partition
from splinecam.questions.certainty import Band


def places(part: Partition, count: int = 20_000) -> tuple[Tensor, Tensor, Tensor]:
    """Random points of the domain with their outputs and bounds."""
    low, high = part.domain.corners.amin(0), part.domain.corners.amax(0)
    uv = low + torch.rand(count, 2, dtype=torch.float64) * (high - low)
    region = part.locate(part._inputs(uv, dtype=torch.float64))
    z = (part.weight[region] @ uv[:, :, None])[:, :, 0] + part.bias[region]
    return uv, z, part.region_bounds[region]


def scores(z: Tensor, bounds: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Numbers of which the largest decides, and how far they may be off."""
    if z.shape[1] > 1:
        return z, bounds
    none = torch.zeros_like(z)
    return torch.cat([none, z - level], 1), torch.cat([none, bounds], 1)


def leads(z: Tensor, bounds: Tensor, sign: int) -> Tensor:
    """By how much each class leads all others more than the bounds explain, or less: (N, n)."""
    gap = z[:, :, None] - z[:, None] - sign * (bounds[:, :, None] + bounds[:, None])
    n = z.shape[1]
    return gap.masked_fill(torch.eye(n, dtype=torch.bool), torch.inf).amin(2)


def inside(band: Band) -> tuple[Tensor, Tensor]:
    """Points well inside the polygons of a band, and the polygons that they are in."""
    owner = owners_of(band.offsets.diff())
    total = torch.zeros(len(band), 2, dtype=torch.float64).index_add_(0, owner, band.vertices)
    middle = total / band.offsets.diff()[:, None]
    return torch.cat([middle, middle[owner] + 0.99 * (band.vertices - middle[owner])]), torch.cat(
        [torch.arange(len(band)), owner]
    )


CASES = [(0, 1, 0.05), (1, 2, 0.02), (2, 3, 0.05), (3, 7, 0.1), (4, 4, 5.0)]


@pytest.mark.parametrize(("seed", "outputs", "largest"), CASES)
def test_class_areas_are_bounded_from_both_sides(seed: int, outputs: int, largest: float) -> None:
    part = bounded(seed, outputs, largest)
    level = 0.01 if outputs == 1 else 0.0
    found = part.class_regions(level=level)
    low, high = found.areas_at_least, found.areas_at_most
    assert (low <= found.areas + 1e-12).all()
    assert (found.areas <= high + 1e-12).all()
    assert abs(float(low.sum()) + found.undecided - part.domain.area) < 1e-12
    if max(2, outputs) == 2:
        torch.testing.assert_close(high, low + found.undecided, rtol=0, atol=1e-12)
    # The shares of random points agree with the areas.
    z, bounds = scores(*places(part)[1:], level)
    for sign, areas in ((1, low), (-1, high)):
        share = (leads(z, bounds, sign) > 0).double().mean(0)
        assert (share - areas / part.domain.area).abs().max() < 4 * 0.5 / len(z) ** 0.5


@pytest.mark.parametrize(("seed", "outputs", "largest"), CASES)
def test_the_band_is_where_no_class_is_certain(seed: int, outputs: int, largest: float) -> None:
    part = bounded(seed, outputs, largest)
    level = 0.01 if outputs == 1 else 0.0
    band = part.decision_boundary(level=level).band
    assert abs(band.area - part.class_regions(level=level).undecided) < 1e-14
    uv, polygon = inside(band)
    region = band.regions[polygon]
    z = (part.weight[region] @ uv[:, :, None])[:, :, 0] + part.bias[region]
    z, bounds = scores(z, part.region_bounds[region], level)
    assert leads(z, bounds, 1).amax(1).max() < 1e-9


def test_a_model_within_the_bounds_has_the_class_that_is_certain() -> None:
    part = bounded(5, 3, 0.05)
    uv, z, bounds = places(part)
    certain = leads(z, bounds, 1) > 0
    assert (certain.sum(1) <= 1).all()
    near = z + bounds * torch.sign(torch.randn_like(z))
    assert certain.any(1).sum() > 1000
    some = certain.any(1)
    assert torch.equal(near[some].argmax(1), certain[some].int().argmax(1))
    assert (leads(z, bounds, -1).gather(1, near.argmax(1)[:, None]) >= 0).all()
    assert part.class_regions().areas_at_least.sum() < part.domain.area
    assert uv.shape == (len(z), 2)


def test_the_band_between_two_classes_is_where_both_are_possible() -> None:
    part = bounded(3, 7, 0.1)
    band = part.decision_boundary()
    pairs = sorted(band.pairs(), key=band.pairs().get)[-2:]
    _, z, bounds = places(part)
    possible = leads(z, bounds, -1) > 0
    for i, j in pairs:
        found = band.between(i, j).band
        share = (possible[:, i] & possible[:, j]).double().mean()
        assert abs(share - found.share) < 4 * 0.5 / len(z) ** 0.5
        assert 0 < found.area < band.band.area


def test_strips_around_levels_and_pairs_have_the_width_of_the_bounds() -> None:
    part = bounded(2, 3, 0.05)
    _, z, bounds = places(part)
    levels = part.level_set([-0.1, 0.2], output=1)
    near = [((z[:, 1] - x).abs() <= bounds[:, 1]).double().mean() for x in levels.levels]
    total = part.domain.area
    for k, share in enumerate(near):
        area = float(levels.band.areas[levels.band.label == k].sum())
        assert abs(area / total - share) < 4 * 0.5 / len(z) ** 0.5
        assert abs(levels.at(levels.levels[k]).band.area - area) < 1e-14
    pair = part.decision_boundary(kind="pairwise", classes=(0, 2)).band
    share = ((z[:, 0] - z[:, 2]).abs() <= bounds[:, 0] + bounds[:, 2]).double().mean()
    assert abs(pair.share - share) < 4 * 0.5 / len(z) ** 0.5
    every = part.decision_boundary(kind="pairwise").band
    assert set(every.label.tolist()) <= {1, 2, 5}


def test_the_smallest_output_decides_with_the_same_bounds() -> None:
    part = bounded(2, 3, 0.05)
    _, z, bounds = places(part)
    found = part.class_regions(kind="argmin")
    share = (leads(-z, bounds, 1) > 0).double().mean(0)
    error = (share - found.areas_at_least / part.domain.area).abs().max()
    assert error < 4 * 0.5 / len(z) ** 0.5


def test_exact_partitions_leave_nothing_undecided() -> None:
    part = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    found = part.class_regions()
    assert found.areas_at_least is found.areas
    assert found.areas_at_most is found.areas
    assert found.undecided == 0
    for band in (part.decision_boundary().band, part.level_set(0.0, output=0).band):
        assert len(band) == 0
        assert repr(band) == "Band(empty)"


def test_a_partition_says_what_was_replaced_and_how_near_it_is() -> None:
    part = bounded()
    assert part.smoothing is not None
    assert torch.equal(part.region_bounds, part.smoothing.region_bounds)
    assert torch.equal(part._bound, part.region_bounds.amax(0))
    assert part.smoothing.layers[0].pieces_per_unit == 2
    assert "2 layers replaced: relu, 2 pieces per unit on average" in repr(part.smoothing)


def test_an_exact_partition_is_at_no_distance_from_its_model() -> None:
    part = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), progress=False)
    assert part.smoothing is None
    assert part.region_bounds.shape == (1, 3)
    assert not part.region_bounds.any()
    assert not part._bound.any()


# -- conditions on outputs ------------------------------------------------------------------------


def broken_by(A: Tensor, b: Tensor, z: Tensor, bounds: Tensor, sign: int) -> Tensor:
    """Whether each row of A y <= b may be broken (1), or is certainly broken (-1), (N, m)."""
    return z @ A.T - b + sign * (bounds @ A.abs().T) > 0


def test_areas_of_a_preimage_are_certain_or_undecided() -> None:
    part = bounded(2, 3, 0.05)
    A = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    b = torch.tensor([0.02, 0.1], dtype=torch.float64)
    found = part.preimage(A, b)
    total = found.certain_area + found.undecided_area + found.outside_area
    assert abs(total - part.domain.area) < 1e-12
    assert found.certain_area - 1e-12 <= found.area <= total - found.outside_area + 1e-12
    assert abs(found.band.area - found.undecided_area) < 1e-12
    _, z, bounds = places(part)
    inside = (~broken_by(A, b, z, bounds, 1)).all(1).double().mean()
    outside = broken_by(A, b, z, bounds, -1).any(1).double().mean()
    error = 4 * 0.5 / len(z) ** 0.5
    assert abs(inside - found.certain_area / part.domain.area) < error
    assert abs(outside - found.outside_area / part.domain.area) < error
    assert min(float(inside), float(outside), found.undecided_area) > 0.01
    assert "certain" in repr(found)
    assert all(witness.confirmed for witness in found.witnesses(20))


def test_one_of_several_conditions_is_certain_where_it_is_met() -> None:
    part = bounded(1, 2, 0.02)
    pairs = [([[1.0, 0.0]], [-0.05]), ([[0.0, -1.0]], [-0.05])]
    found = part.preimage(pairs)
    _, z, bounds = places(part)
    sure = (z[:, 0] + bounds[:, 0] < -0.05) | (z[:, 1] - bounds[:, 1] > 0.05)
    never = (z[:, 0] - bounds[:, 0] > -0.05) & (z[:, 1] + bounds[:, 1] < 0.05)
    error = 4 * 0.5 / len(z) ** 0.5
    assert abs(sure.double().mean() - found.certain_area / part.domain.area) < error
    assert abs(never.double().mean() - found.outside_area / part.domain.area) < error


def test_a_check_is_unresolved_where_the_bounds_leave_it_open() -> None:
    part = bounded(0, 1, 0.05)
    top = float(part.values.max())

    def above(limit: float) -> sc.results.PropertyCheck:
        return part.check([([[-1.0]], [-limit])])

    assert above(top + 0.06).status == "holds"
    assert bool(above(top + 0.06))
    violated = above(top - 0.1)
    assert violated.status == "violated"
    assert violated.witness is not None
    assert violated.witness.confirmed
    assert violated.area + violated.undecided_area < part.domain.area
    at = part.values[:, 0].argmax()  # the bound of a region there decides how far one can tell
    around = (part._face_vertices == at).nonzero()[:, 0]
    owner = torch.repeat_interleave(torch.arange(len(part)), part.mesh.counts())[around]
    limit = top + float(part.region_bounds[owner].amin()) / 2
    open_ = above(limit)
    assert open_.status == "unresolved"
    assert open_.area == 0
    assert 0 < open_.undecided_area < part.domain.area
    assert "undecided" in repr(open_)
    with pytest.raises(sc.SplineCamError, match="unresolved"):
        bool(open_)


# -- the rest of a partition ----------------------------------------------------------------------


def test_the_record_travels_with_the_partition(tmp_path: Path) -> None:
    part = bounded(2, 3, 0.05)
    part.save(tmp_path / "part.npz")
    again = sc.load(tmp_path / "part.npz")
    assert torch.equal(again.region_bounds, part.region_bounds)
    assert torch.equal(again.smoothing.tolerance, part.smoothing.tolerance)
    assert again.smoothing.layers == part.smoothing.layers
    assert repr(again.smoothing) == repr(part.smoothing)
    assert again.class_regions().undecided == part.class_regions().undecided
    other = pickle.loads(pickle.dumps(part))
    assert torch.equal(other.region_bounds, part.region_bounds)


def test_damaged_bounds_are_not_loaded(tmp_path: Path) -> None:
    part = bounded(2, 3, 0.05)
    part.smoothing = replace(part.smoothing, region_bounds=part.region_bounds[1:])
    part.save(tmp_path / "part.npz")
    with pytest.raises(sc.FileError, match="smooth_bounds has shape"):
        sc.load(tmp_path / "part.npz")


def test_statistics_tables_and_words_name_the_bounds() -> None:
    part = bounded(2, 3, 0.05)
    found = part.stats()
    assert found["bound"] == tuple(part._bound.tolist())
    assert found["undecided_area"] == part.class_regions().undecided
    assert "undecided area" in repr(found)
    assert "bound" not in sc.partition(part.model, part.domain, progress=False).stats()
    rows = part.table()
    assert (rows["bound_1"] == part.region_bounds[:, 1].numpy()).all()
    assert part.smoothing.within in repr(part)
    assert part.smoothing.within in part._repr_html_()
    assert "within a band of area" in repr(part.decision_boundary())
    assert "undecided" in repr(part.class_regions())
    assert "undecided" in part.class_regions()._repr_html_()


def test_maps_are_valid_within_their_bounds_only() -> None:
    part = bounded(2, 3, 0.05)
    assert any("beyond its bound" in check.name for check in part.validate().checks)
    with torch.no_grad():
        part.model[-1].bias += 0.02
    with pytest.raises(sc.ValidationError, match="beyond its bound"):
        part.validate()
    bounds = part.region_bounds + 0.02
    part.smoothing = replace(part.smoothing, region_bounds=bounds)
    assert part.validate().ok


def test_the_band_is_drawn_unless_it_is_switched_off() -> None:
    part = bounded(2, 3, 0.05)
    drawn, plain = (part.plot(band=band) for band in (True, False))
    assert len(drawn.patches) == len(plain.patches) + 1
    assert part.preimage([[1.0, 0.0, 0.0]], [0.0]).plot() is not None


def test_everything_else_is_that_of_the_piecewise_linear_network(tmp_path: Path) -> None:
    part = bounded(2, 3, 0.05)
    exact = sc.partition(part.model, part.domain, progress=False)
    assert len(part.merged()) == len(exact.merged())
    assert part.counts() == exact.counts()
    to_parquet(part, tmp_path / "part.parquet")
    to_geojson(part, tmp_path / "part.geojson", columns="all")
    part.to_html(tmp_path / "part.html")
    assert part.plot.layers() is not None
    assert torch.equal(part.patterns()["1"], exact.patterns()["1"])
    with pytest.raises(sc.SplineCamError, match="not about its layers"):
        part.at_layer(1)
