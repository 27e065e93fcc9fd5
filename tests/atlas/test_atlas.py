"""Partitions on disk: the same regions as in memory, in tiles that fit together bit for bit."""

from __future__ import annotations

import errno
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from atlas_cases import DOMAIN, SMALL, network
from small_atlases import compute_atlas
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.errors import FileError, LimitError, SplineCamError
from splinecam.geometry.checks import check_mesh, check_tile
from splinecam.geometry.subdivision import Mesh
from splinecam.tiles import compute as storing
from splinecam.tiles import tile_files as writing
from splinecam.tiles.computation import Sizes
from splinecam.tiles.manifest import Manifest
from splinecam.tiles.part_files import BORDER_FILE as BORDER
from splinecam.tiles.part_files import PartBorder
from splinecam.tiles.seams import Missing, Seams, insert_missing, insert_vertices
from splinecam.tiles.tile_files import read_array, read_mesh

pytestmark = pytest.mark.few(1)


@pytest.fixture(scope="module")
def model(whole: sc.Partition) -> nn.Module:
    return whole.model


def rows(parts: list[sc.Partition]) -> torch.Tensor:
    """Centroids, areas and outputs in an order that does not depend on the numbering."""
    found = torch.cat([torch.cat([p.centroids, p.areas[:, None], p._maps.value], 1) for p in parts])
    return found[torch.argsort(found[:, 0] + 0.3 * found[:, 1])]


def test_an_atlas_has_the_regions_of_the_partition(
    atlas: sc.results.Atlas, whole: sc.Partition
) -> None:
    assert atlas.num_tiles > 4
    assert len(atlas) == len(whole)
    assert atlas.num_vertices == whole.mesh.num_vertices
    assert atlas.num_edges == whole.mesh.num_edges
    assert torch.allclose(rows(list(atlas.tiles())), rows([whole]), atol=1e-11, rtol=0)
    layers = sum(torch.bincount(tile.mesh.edge_layer + 1, minlength=3) for tile in atlas.tiles())
    shared = torch.cat(
        [tile.mesh.edge_layer[atlas.shared_edges(k).local] for k, tile in enumerate(atlas.tiles())]
    )
    layers -= torch.bincount(shared + 1, minlength=3) // 2
    assert torch.equal(layers, torch.bincount(whole.mesh.edge_layer + 1))
    assert float(atlas.areas.sum()) == pytest.approx(36)


def test_seams_are_bit_for_bit_the_same_in_both_tiles(atlas: sc.results.Atlas) -> None:
    vertices, edges = [], []
    for k, tile in enumerate(atlas.tiles()):
        local, shared = atlas.shared_vertices(k)
        number = torch.full((tile.mesh.num_vertices,), -1)
        number[local] = shared
        there = torch.cat([shared[:, None].double(), tile.mesh.uv[local], tile.values[local]], 1)
        vertices.append(there)
        local, shared = atlas.shared_edges(k)
        assert bool((tile._edge_faces[local] < 0).any(1).all())
        edges.append(torch.cat([shared[:, None], number[tile.mesh.edges[local]]], 1))
    distinct = torch.unique(torch.cat(vertices), dim=0)
    assert distinct.shape[0] == atlas.num_shared_vertices
    distinct, count = torch.unique(torch.cat(edges), dim=0, return_counts=True)
    assert distinct.shape[0] == atlas.num_shared_edges
    assert bool((count == 2).all())


def test_an_atlas_is_opened_without_its_model(
    atlas: sc.results.Atlas, model: nn.Module, whole: sc.Partition
) -> None:
    again = sc.load(atlas.folder)
    assert (len(again), again.num_tiles, again.layers) == (
        len(atlas),
        atlas.num_tiles,
        whole.layers,
    )
    assert "without its model" in repr(again)
    with pytest.raises(SplineCamError, match=r"atlas\.attach"):
        _ = again.model
    with pytest.raises(SplineCamError, match="not the one"):
        again.attach(network(1))
    again.attach(model)
    assert again.tile(0).model is model
    assert again.find(len(again) - 1) == (again.num_tiles - 1, len(again.tile(-1)) - 1)


def test_an_atlas_is_validated_tile_by_tile(atlas: sc.results.Atlas, model: nn.Module) -> None:
    report = atlas.validate()
    assert report.ok
    assert report.regions == len(atlas)
    assert {"|V - E + F - 1|", "regions inside which a unit switches"} <= {
        check.name for check in report.checks
    }
    damaged = sc.load(atlas.folder, model=model)
    tile = damaged.tile(1)
    tile.mesh.uv[damaged.shared_vertices(1).local[0]] += 1e-12
    with pytest.raises(sc.ValidationError, match="vertices on seams that differ"):
        damaged.validate()


def test_the_table_of_an_atlas_is_written_tile_by_tile(
    atlas: sc.results.Atlas, whole: sc.Partition, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    atlas.export(tmp_path / "a.parquet")
    rows = pandas.read_parquet(tmp_path / "a.parquet")
    assert rows["region"].tolist() == list(range(len(atlas)))
    assert rows["area"].sum() == pytest.approx(36)
    assert sorted(rows["area"]) == pytest.approx(sorted(whole.table()["area"]), abs=1e-11)
    tables = pandas.concat(atlas.tables())
    assert tables.index.tolist() == list(range(len(atlas)))
    assert tables["class"].tolist() == rows["class"].tolist()
    with pytest.raises(ValueError, match="piece"):
        atlas.export(tmp_path / "b.parquet", columns=["piece"])


def test_a_network_with_few_regions_is_one_tile(tmp_path: Path) -> None:
    atlas = sc.atlas(nn.ReLU(), DOMAIN, tmp_path / "a", names=["x", "y"], progress=False)
    assert (len(atlas), atlas.num_tiles, atlas.num_edges, atlas.names) == (4, 1, 12, ("x", "y"))
    assert atlas.shared_edges(0).local.shape == (0,)
    assert atlas.tile(0).validate().ok
    again = sc.atlas(nn.ReLU(), DOMAIN, tmp_path / "a", progress=False)
    assert again.names == ("x", "y")


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(2, 180, 1), (2, 180, 9, 3), (2, 6, 150, 2)])
def test_faces_that_are_too_large_are_cut_artificially(
    widths: tuple[int, ...], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    layers = [
        layer
        for a, b in pairwise(widths)
        for layer in (nn.Linear(a, b, dtype=torch.float64), nn.ReLU())
    ]
    model, domain = nn.Sequential(*layers[:-1]), sc.Domain.box(-1, 1)
    whole = sc.partition(model, domain, progress=False)
    sizes = Sizes(regions=150 if widths[1] < 10 else 300, enough=3)
    atlas = compute_atlas(model, domain, tmp_path, sizes=sizes, memory=1_600_000, progress=False)
    assert atlas.manifest.parts > 1
    assert (len(atlas), atlas.num_vertices) == (len(whole), whole.mesh.num_vertices)
    assert atlas.num_edges == whole.mesh.num_edges
    assert torch.allclose(rows(list(atlas.tiles())), rows([whole]), atol=1e-12, rtol=0)
    layers_of = [torch.bincount(tile.mesh.edge_layer + 1, minlength=4) for tile in atlas.tiles()]
    shared = [t.mesh.edge_layer[atlas.shared_edges(k).local] for k, t in enumerate(atlas.tiles())]
    once = sum(layers_of) - torch.bincount(torch.cat(shared) + 1, minlength=4) // 2
    assert torch.equal(once, torch.bincount(whole.mesh.edge_layer + 1, minlength=4))
    if len(widths) == 3:
        assert atlas.validate(samples=50).ok


class _Killed(Exception):
    pass


@pytest.mark.parametrize("moment", [1, 3, 7])
def test_a_computation_that_was_stopped_continues(
    moment: int, model: nn.Module, whole: sc.Partition, tmp_path: Path
) -> None:
    count = 0
    write = writing.write_tile

    def failing(*given: object) -> None:
        nonlocal count
        count += 1
        if count == moment:
            raise _Killed
        write(*given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "write_tile", failing)
        with pytest.raises(_Killed):
            compute_atlas(model, DOMAIN, tmp_path, sizes=SMALL)
    with pytest.raises(FileError, match="not complete"):
        sc.load(tmp_path)
    again = compute_atlas(model, DOMAIN, tmp_path, sizes=SMALL)
    assert (len(again), again.num_vertices) == (len(whole), whole.mesh.num_vertices)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".claims",
        "atlas.json",
        "domain.npz",
        "errors.npz",
        "tiles",
    ]


def test_an_atlas_of_something_else_is_refused(atlas: sc.results.Atlas, tmp_path: Path) -> None:
    for other, domain, what in (
        (network(1), DOMAIN, "other weights"),
        (network(), sc.Domain.box(-2, 2), "another domain"),
        (network(0, nn.LeakyReLU()), DOMAIN, "layers|something else"),
    ):
        with pytest.raises(FileError, match=what):
            sc.atlas(other, domain, atlas.folder, progress=False)
    with pytest.raises(FileError, match="no atlas"):
        sc.load(tmp_path)
    with pytest.raises(LimitError, match="max_regions=100"):
        compute_atlas(network(), DOMAIN, tmp_path, sizes=SMALL, max_regions=100)


def test_vertices_are_inserted_on_edges(whole: sc.Partition) -> None:
    mesh = whole.mesh
    edge = torch.tensor([5, 5, 17])
    a, b = mesh.uv[mesh.edges[edge]].unbind(1)
    uv = torch.lerp(a, b, torch.tensor([[0.25], [0.5], [0.5]], dtype=torch.float64))
    made = insert_vertices(mesh, edge, uv, torch.zeros(3, dtype=torch.int64))
    assert made.num_vertices == mesh.num_vertices + 3
    values = torch.cat([whole.values, torch.zeros(3, 3, dtype=torch.float64)])
    checked = sc.Partition(**{**_fields(whole), "mesh": made, "_outputs": values})
    area = float(checked.domain.area) / checked._frame.scale**2
    assert all(check.ok for check in check_mesh(checked.mesh, area))


def _fields(part: sc.Partition) -> dict[str, object]:
    names = (
        "domain",
        "_value_error",
        "_layer_errors",
        "unresolved",
        "layers",
        "stripped",
        "_dtype",
    )
    return {name: getattr(part, name) for name in names}


def test_two_processes_do_not_compute_one_atlas(model: nn.Module, tmp_path: Path) -> None:
    code = (
        "import fcntl, os, sys; "
        "number = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); "
        "fcntl.lockf(number, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".claims")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(FileError, match="Another process writes an atlas"):
            sc.atlas(model, DOMAIN, tmp_path, progress=False)
        other.kill()
    assert len(sc.atlas(model, DOMAIN, tmp_path, progress=False))


def test_a_full_disk_is_named_and_what_is_done_is_kept(
    model: nn.Module, whole: sc.Partition, tmp_path: Path
) -> None:
    save, count = np.save, 0

    def full(path: Path, array: object) -> None:
        nonlocal count
        count += 1
        if count == 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(path, array)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(FileError, match="disk is full"):
            compute_atlas(model, DOMAIN, tmp_path, sizes=SMALL)
    done = Manifest.read(tmp_path).tiles
    assert len(done) > 1
    again = compute_atlas(model, DOMAIN, tmp_path, sizes=SMALL)
    assert len(again) == len(whole)
    assert [tile.folder for tile in again.manifest.tiles[: len(done)]] == [t.folder for t in done]


@pytest.mark.parametrize("in_strip", [False, True])
def test_vertices_that_a_unit_lacks_are_inserted(in_strip: bool, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 180), nn.ReLU(), nn.Linear(180, 1)).double()
    sizes, domain = Sizes(regions=400, enough=10), sc.Domain.box(-1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storing, "complete", _kill)
        with pytest.raises(_Killed):
            compute_atlas(model, domain, tmp_path, sizes=sizes, memory=1_600_000)
    manifest, tiles = Manifest.read(tmp_path), tmp_path / "tiles"
    mesh = Mesh(*(read_array(tmp_path / "coarse", str(k), "fi") for k in range(7)))
    borders = [PartBorder.read(tiles / tile.folder / BORDER, mesh) for tile in manifest.tiles]
    # The first part has a vertex more than the second one, in the middle of a piece.
    piece = (borders[1].in_strip == in_strip).nonzero()[:1, 0]
    if not piece.shape[0]:  # all pieces are artificial
        piece = torch.zeros(1, dtype=torch.int64)
    there = borders[1].ends[piece[0]]
    middle = borders[1].uv[there].mean(0, keepdim=True)
    values = borders[1].values[there].mean(0, keepdim=True)
    zero = torch.zeros(1).long()
    seams = Seams([], zero, middle, values, zero, [])
    strip = borders[1].in_strip[piece]
    missing = Missing(1, borders[1].edge[piece], strip, zero)
    grown = insert_missing(tiles, manifest, borders[1], seams, missing)
    assert torch.equal(grown.uv[-1:], middle)
    pieces = (grown.root == borders[1].root[piece]).sum()
    assert int(pieces) == int((borders[1].root == borders[1].root[piece]).sum()) + 1
    entry = manifest.tiles[1]
    folder = tiles / entry.folder / ("strip" if bool(strip) else "")
    mesh = read_mesh(folder, [180], ARTIFICIAL)
    assert torch.equal(mesh.uv[-1:], middle)
    one_sided = (mesh.halfedge_face().view(-1, 2) < 0).any(1)
    trusted = torch.ones(mesh.num_faces, dtype=torch.bool)
    assert all(check.ok for check in check_tile(mesh, one_sided, trusted)[0])


def _kill(*given: object) -> None:
    raise _Killed
