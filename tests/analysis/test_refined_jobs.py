"""Sweeps, atlases and workers divide regions for one question, too, and answer it as the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from refinement_cases import BOX, Asked, disagreement, eagerly, random_network
from small_atlases import compute_atlas
from splinecam._util.backend import using
from splinecam.engine import open_part
from splinecam.engine.plan import Plan
from splinecam.engine.step import silent
from splinecam.network.capture import capture
from splinecam.tiles.computation import Sizes

joblib = pytest.importorskip("joblib")

CONDITION = sc.OutputCondition.of([([[1.0, -1.0, 0.0]], [0.0])])
QUESTIONS: list[Any] = ["boundary", {"level": 0.22, "output": 1}, CONDITION]
SMALL = Sizes(regions=150, enough=60)  # many tiles
NEAR = sc.Domain.box(-1.5, -0.5)
FAR = sc.Domain.box(4, 4.001)


@pytest.fixture(autouse=True)
def _eagerly() -> Iterator[None]:
    with eagerly(), joblib.parallel_config("threading"):
        yield


def network(seed: int = 0, width: int = 24) -> nn.Module:
    torch.manual_seed(seed)
    first, second, last = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def whole(model: nn.Module) -> list[sc.Partition]:
    return sc.sweep(model, [BOX, NEAR, FAR], progress=False)


@pytest.mark.few(1)
@pytest.mark.parametrize("refine", QUESTIONS)
def test_sweeps(refine: Any, model: nn.Module, whole: list[sc.Partition], tmp_path: Path) -> None:
    domains = [part.domain for part in whole]
    given: dict[str, Any] = {"refine": refine, "progress": False}
    ways = [
        sc.sweep(model, domains, **given),
        sc.sweep(model, domains, n_jobs=2, **given),
        sc.sweep(model, domains, store=tmp_path / "store", **given),
        sc.sweep(model, domains, store=tmp_path / "store", **given),  # from the files
    ]
    for parts in ways:
        assert not all(bool(part.complete.all()) for part in parts)
        for part, right in zip(parts, whole, strict=True):
            alone = sc.partition(model, part.domain, **given)
            assert len(part) == len(alone)
            assert torch.equal(part.complete, alone.complete)
            assert part.validate(progress=False).ok
            assert disagreement(part, right, refine) == ""


def test_a_store_is_of_one_question(model: nn.Module, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store": tmp_path / "store", "progress": False}
    sc.sweep(model, [BOX], refine="boundary", **given)
    sc.sweep(model, [BOX], refine={"kind": "argmax"}, **given)  # the same one
    for other in (None, {"level": 0.5, "output": 0}, {"level": 0.4, "output": 0}, (0, 1)):
        with pytest.raises(sc.FileError, match=r"for another question \(refine=\)"):
            sc.sweep(model, [BOX], refine=other, **given)


def test_small_domains_are_not_bounded_one_by_one() -> None:
    wide = network(0, 400)
    place = Plan.of(capture(wide, (2,))).first
    far = [sc.Domain.box(-2 + k / 10, -1.999 + k / 10) for k in range(3)]
    with using(squares_from=1e5):
        assert open_part.may_pay(place, [*far, sc.Domain.box(-3, 3)]) == [False] * 3 + [True]
        for domain in far:
            assert open_part.open_part(place, domain, open_part.Question(), silent) is None


def test_a_gpu_begins_with_squares_later() -> None:
    place = Plan.of(capture(network(0, 400), (2,))).first
    with using(squares_from=6e5):
        assert open_part.may_pay(place, [sc.Domain.box(-3, 3)]) == [True]
    then = replace(place, then=torch.device("cuda"))
    assert open_part.may_pay(then, [sc.Domain.box(-3, 3)]) == [False]


def test_reduced_sweeps(model: nn.Module, whole: list[sc.Partition]) -> None:
    domains = [part.domain for part in whole]

    def length(part: sc.Partition) -> float:
        return part.decision_boundary().length

    for n_jobs in (1, 2):
        found = sc.sweep(
            model, domains, refine="boundary", reduce=length, n_jobs=n_jobs, progress=False
        )
        assert found == pytest.approx([length(part) for part in whole], abs=1e-9)


def test_the_limit_of_a_sweep_names_the_domain(model: nn.Module) -> None:
    with pytest.raises(sc.LimitError, match=r"domains\[1\]: The partition exceeds"):
        sc.sweep(model, [FAR, BOX], refine="boundary", max_regions=20, progress=False)


@pytest.mark.parametrize("refine", QUESTIONS)
def test_workers_on_one_domain(refine: Any, model: nn.Module, whole: list[sc.Partition]) -> None:
    part = sc.partition(model, BOX, refine=refine, n_jobs=2, progress=False)
    assert not bool(part.complete.all())
    assert part.validate(progress=False).ok
    assert disagreement(part, whole[0], refine) == ""


@pytest.mark.parametrize("seed", [22, 34])
def test_parts_between_artificial_lines_are_complete(seed: int) -> None:
    # Settled faces cannot be united across such lines, which little memory makes.
    model = network(seed, 64)
    wide = sc.Domain.box(-2, 2)
    part = sc.partition(model, wide, refine="boundary", memory=1_200_000, progress=False)
    assert part.validate(progress=False).ok
    assert disagreement(part, sc.partition(model, wide, progress=False), "boundary") == ""


@pytest.mark.few(2)
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("refine", QUESTIONS[:2])
def test_atlases(
    refine: Any, n_jobs: int, model: nn.Module, whole: list[sc.Partition], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"refine": refine, "n_jobs": n_jobs, "sizes": SMALL, "progress": False}
    atlas = compute_atlas(model, BOX, tmp_path, **given)
    assert atlas.num_tiles > 2
    assert 0 < int(atlas.complete.sum()) < len(atlas) < len(whole[0])
    assert atlas.validate(progress=False).ok
    for part in (atlas, sc.load(tmp_path)):
        _compare(part, whole[0], refine)
    everything = atlas.window((-1.0, -1.0, 1.0, 1.0))
    assert torch.equal(everything.complete, atlas.complete)
    assert disagreement(everything, whole[0], refine) == ""


def _compare(atlas: Any, whole: sc.Partition, refine: Any) -> None:
    if refine == "boundary":
        assert torch.allclose(atlas.class_regions().areas, whole.class_regions().areas, atol=1e-12)
        mine, right = atlas.decision_boundary(), whole.decision_boundary()
    else:
        mine, right = (part.level_set(0.22, output=1) for part in (atlas, whole))
    assert len(mine) == len(right) > 0
    assert mine.length == pytest.approx(right.length, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [3, 5, 6, 8, 10, 11])
def test_tiles_of_other_networks_fit_together(seed: int, tmp_path: Path) -> None:
    _, model, outputs = random_network(seed)
    asked = Asked(model, sc.Domain.box(-0.3, 0.3), outputs)
    given: dict[str, Any] = {"refine": "boundary", "sizes": SMALL, "progress": False}
    atlas = compute_atlas(model, asked.domain, tmp_path, **given)
    assert atlas.validate(progress=False).ok
    mine, right = atlas.decision_boundary(), asked.whole.decision_boundary()
    assert len(mine) == len(right)
    assert mine.length == pytest.approx(right.length, abs=1e-9)


@pytest.mark.slow
def test_tiles_that_divide_an_edge_differently_are_not_confused(tmp_path: Path) -> None:
    # On one edge both tiles have a single vertex, but not the same one.
    _, model, _ = random_network(54)
    given: dict[str, Any] = {"refine": {"kind": "pairwise"}, "sizes": SMALL, "progress": False}
    atlas = compute_atlas(model, BOX, tmp_path, **given)
    assert atlas.validate(progress=False).ok


def test_an_atlas_says_what_it_is_for(model: nn.Module, tmp_path: Path) -> None:
    given: dict[str, Any] = {"sizes": SMALL, "progress": False}
    atlas = compute_atlas(model, BOX, tmp_path, refine="boundary", **given)
    count = f"{int((~atlas.complete).sum()):,} of its {len(atlas):,} regions"
    asks: list[Any] = [
        atlas.stats,
        lambda: next(atlas.tables()),
        lambda: atlas.level_set(0.5, output=1),
        lambda: atlas.decision_boundary(kind="argmin"),
        lambda: atlas.class_regions(kind="argmin"),
    ]
    for ask in asks:
        with pytest.raises(sc.SplineCamError, match=f"for the decision boundary alone.*{count}"):
            ask()
    assert len(atlas.decision_boundary(classes=(0, 1))) <= len(atlas.decision_boundary())
    assert atlas.plot(few=1).figure is not None
    for other in (None, {"level": 0.5, "output": 1}):
        with pytest.raises(sc.FileError, match=r"an atlas for another question \(refine=\)"):
            compute_atlas(model, BOX, tmp_path, refine=other, **given)


def test_an_atlas_goes_on_where_it_stopped(
    model: nn.Module, whole: list[sc.Partition], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"refine": "boundary", "sizes": SMALL, "progress": False}
    with pytest.raises(sc.LimitError, match="exceeds max_regions"):
        compute_atlas(model, BOX, tmp_path, max_regions=100, **given)
    with pytest.raises(sc.FileError, match="for another question"):
        compute_atlas(model, BOX, tmp_path, sizes=SMALL, progress=False)
    atlas = compute_atlas(model, BOX, tmp_path, **given)
    assert atlas.validate(progress=False).ok
    _compare(atlas, whole[0], "boundary")


def test_a_damaged_question_is_refused(model: nn.Module, tmp_path: Path) -> None:
    given: dict[str, Any] = {"refine": "boundary", "sizes": SMALL, "progress": False}
    atlas = compute_atlas(model, BOX, tmp_path, **given)
    file = atlas._tile_folder(1) / "settled.npy"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(sc.FileError, match="is damaged"):
        sc.load(tmp_path).decision_boundary()
    file.unlink()
    with pytest.raises(sc.FileError):
        sc.load(tmp_path).class_regions()


def test_grids_need_all_regions(model: nn.Module) -> None:
    with pytest.raises(sc.SplineCamError, match="this needs all linear regions"):
        sc.sweep(model, [BOX], refine="boundary", reduce=lambda part: part.stats(), progress=False)
