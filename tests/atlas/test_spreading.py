"""Atlases by workers: the same regions, in tiles that do not depend on which worker is first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import splinecam as sc
from atlas_cases import DOMAIN, SMALL, network
from small_atlases import compute_atlas
from splinecam.tiles import compute as spreading
from splinecam.tiles import tile_files as writing
from splinecam.tiles.computation import Sizes
from splinecam.tiles.manifest import Manifest

joblib = pytest.importorskip("joblib")

WIDE: dict[str, Any] = {"sizes": Sizes(regions=300, enough=3), "memory": 1_600_000}


def wide() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 120), nn.ReLU(), nn.Linear(120, 1)).double()


class _Stopped(Exception):
    pass


@pytest.fixture
def _threads() -> Iterator[None]:
    """Workers that are threads, which need not be started."""
    with joblib.parallel_config(backend="threading", n_jobs=2):
        yield


def same_regions(atlas: sc.results.Atlas, whole: sc.Partition) -> None:
    assert (len(atlas), atlas.num_edges) == (len(whole), whole.mesh.num_edges)
    assert atlas.num_vertices == whole.mesh.num_vertices
    areas = torch.sort(atlas.areas).values
    assert torch.allclose(areas, torch.sort(whole.areas).values, rtol=0, atol=1e-11)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(("make", "options"), [(network, {"sizes": SMALL}), (wide, WIDE)])
def test_workers_give_the_same_regions_and_the_same_bytes_again(
    make: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    model = make()
    atlas = compute_atlas(model, DOMAIN, tmp_path / "a", **options)
    assert atlas.num_tiles > 8
    same_regions(atlas, sc.partition(model, DOMAIN, n_jobs=1))
    assert atlas.validate(samples=50).ok
    with pytest.MonkeyPatch.context() as patch:  # workers that see another file system
        patch.setattr(spreading._Shared, "in_sight", lambda shared: False)
        compute_atlas(model, DOMAIN, tmp_path / "b", **options)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.few(1)
@pytest.mark.parametrize("first", [1, 2])
def test_what_was_done_with_other_workers_is_kept(
    first: int, whole: sc.Partition, tmp_path: Path
) -> None:
    write, count = writing.write_tile, 0

    def failing(*given: Any) -> None:
        nonlocal count
        count += 1
        if count == 6:
            raise _Stopped
        write(*given)

    options = {"backend": "threading"}
    with pytest.MonkeyPatch.context() as patch, joblib.parallel_config(**options):
        patch.setattr(writing, "write_tile", failing)
        with pytest.raises(_Stopped):
            compute_atlas(whole.model, DOMAIN, tmp_path, sizes=SMALL, n_jobs=first)
    done = {tile.folder for tile in Manifest.read(tmp_path).tiles}
    assert done
    with joblib.parallel_config(**options):
        atlas = compute_atlas(whole.model, DOMAIN, tmp_path, sizes=SMALL, n_jobs=3 - first)
    assert done <= {tile.folder for tile in atlas.manifest.tiles}
    same_regions(atlas, whole)


@pytest.mark.usefixtures("_threads")
def test_the_limit_of_regions_holds_for_all_workers_together(
    whole: sc.Partition, tmp_path: Path
) -> None:
    count = len(whole)
    with pytest.raises(sc.LimitError, match=f"The atlas exceeds max_regions={count - 1:,}"):
        compute_atlas(whole.model, DOMAIN, tmp_path / "a", sizes=SMALL, max_regions=count - 1)
    assert len(compute_atlas(whole.model, DOMAIN, tmp_path / "b", sizes=SMALL, max_regions=count))


@pytest.mark.slow
def test_processes_compute_an_atlas(tmp_path: Path) -> None:
    model = wide()
    given: dict[str, Any] = {"folder": tmp_path / "a", "n_jobs": 2, "progress": False}
    atlas = sc.atlas(model, DOMAIN, memory=WIDE["memory"], device="cpu", **given)
    assert atlas.num_tiles > 8
    assert atlas.model is model
    same_regions(atlas, sc.partition(model, DOMAIN))
    assert len(sc.atlas(model, DOMAIN, **given)) == len(atlas)  # which is there already
