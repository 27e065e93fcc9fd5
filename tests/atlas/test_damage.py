"""Atlases that were damaged, or forged with right checksums: a ``FileError``, or the same answers.

Nothing outside of their folders is read, written or removed.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from small_atlases import compute_atlas
from splinecam.errors import FileError
from splinecam.geometry.subdivision import Mesh
from splinecam.stores.untrusted import seal, write_array
from splinecam.tiles import compute as storing
from splinecam.tiles.computation import Sizes

DOMAIN, SMALL = sc.Domain.box(-3, 3), Sizes(regions=12, enough=4)
POINTS = torch.tensor([[0.3, -0.2], [2.9, 2.9], [-1.0, 1.5]])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))


def make(folder: Path) -> sc.results.Atlas:
    return compute_atlas(network(), DOMAIN, folder, sizes=SMALL, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An atlas, whose files tests change and put back."""
    place = tmp_path_factory.mktemp("damaged") / "atlas"
    assert make(place).num_tiles > 2
    return place


def everything(atlas: sc.results.Atlas) -> list[Any]:
    """What one sees of an atlas before it is computed with, and all of its arrays."""
    seen: list[Any] = [len(atlas), atlas.num_vertices, atlas.num_edges, repr(atlas.unresolved)]
    seen += [atlas.domain.corners.tolist(), atlas.boxes.tolist()]
    return seen + [arrays(atlas, number) for number in range(atlas.num_tiles)]


def arrays(atlas: sc.results.Atlas, number: int = 1) -> list[Any]:
    """All arrays of a tile, by default of the one that is damaged."""
    tile = atlas.tile(number)
    seen = [getattr(tile.mesh, name) for name in Mesh.__dataclass_fields__]
    seen += [tile.values, *atlas.shared_vertices(number), *atlas.shared_edges(number)]
    return [tensor.tolist() for tensor in seen]


CALLS: dict[str, Callable[[sc.results.Atlas], Any]] = {
    "everything": everything,
    "stats": lambda atlas: dict(atlas.stats()),
    "boundary": lambda atlas: atlas.decision_boundary().ends.tolist(),
    "window": lambda atlas: atlas.window((-1, -1, 1, 1)).areas.tolist(),
    "locate": lambda atlas: atlas.locate(POINTS).tolist(),
    "classes": lambda atlas: atlas.class_regions().areas.tolist(),
    "attach": lambda atlas: atlas.attach(network()),
}


@pytest.fixture(scope="module")
def answers(folder: Path) -> dict[str, str]:
    return {name: repr(call(sc.load(folder))) for name, call in CALLS.items()}


@contextlib.contextmanager
def changed(path: Path) -> Iterator[bytes]:
    """The content of a file, which is put back."""
    content = path.read_bytes()
    try:
        yield content
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def test_the_answers_are_those_of_the_atlas(folder: Path, answers: dict[str, str]) -> None:
    for name, call in CALLS.items():
        assert repr(call(sc.load(folder, verify=False))) == answers[name], name


# -- the manifest ---------------------------------------------------------------------------------

MISSING = object()
BAD = [MISSING, None, "x", -1, 1 << 60, -0.5, [], {}, math.nan, True, [[1]], "../x", "/x"]


def entries(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all entries of JSON; of a list only of the first two."""
    keys = list(value) if isinstance(value, dict) else range(min(2, len(value)))
    for key in keys:
        yield (*at, key)
        if isinstance(value[key], dict | list):
            yield from entries(value[key], (*at, key))


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    value = copy.deepcopy(value)
    inner = value
    for key in at[:-1]:
        inner = inner[key]
    if new is MISSING:
        del inner[at[-1]]
    else:
        inner[at[-1]] = new
    return value


@pytest.mark.slow
def test_every_entry_of_a_manifest_is_checked(folder: Path) -> None:
    """Also with a right checksum no change of an entry leads to another error."""
    path = folder / "atlas.json"
    with changed(path) as content:
        good = json.loads(content)
        del good["crc32"]
        refused = 0
        for at in entries(good):
            for bad in BAD:
                wrong = replaced(good, at, bad)
                path.write_bytes(seal(wrong))
                try:
                    found = sc.load(folder)
                    if at[0] in ("about", "tiles", "seams"):
                        everything(found)
                except FileError:
                    refused += 1
                    continue
                if wrong == good:
                    continue
                # What the arrays do not tell, and the answers do not depend on.
                assert at[0] in ("identity", "about", "pending", "unresolved", "parts", "tiles")
                harmless = ("box", "unresolved", "strip")
                assert at[0] != "tiles" or len(at) == 2 or at[2] in harmless, (at, bad)
        assert refused > 300


@pytest.mark.parametrize("name", ["/etc", "../tiles", "a/b", "..", ".", "", "C:x", "a\\b", "a\0b"])
def test_tiles_are_in_the_folder(folder: Path, name: str) -> None:
    path = folder / "atlas.json"
    with changed(path) as content:
        good = json.loads(content)
        del good["crc32"]
        path.write_bytes(seal(replaced(good, ("tiles", 1, "folder"), name)))
        with pytest.raises(FileError, match="not the name of a file"):
            sc.load(folder)


def test_a_damaged_manifest_is_told(folder: Path) -> None:
    path = folder / "atlas.json"
    with changed(path) as content:
        for k in range(0, len(content), 17):
            wrong = bytearray(content)
            wrong[k] ^= 1 << k % 8
            path.write_bytes(wrong)
            with pytest.raises(FileError):
                sc.load(folder)
        for wrong in (b"", content[:100], b"[" * 99999, b"[]", b'{"format": 3}', content * 2):
            path.write_bytes(wrong)
            with pytest.raises(FileError):
                sc.load(folder)
        path.write_bytes(seal(json.loads(content) | {"version": 1}))
        with pytest.raises(FileError, match=r"version 1 .* reads version 3.*compute it again"):
            sc.load(folder)


# -- arrays ---------------------------------------------------------------------------------------


def array_files(folder: Path) -> list[Path]:
    found = sorted((folder / "tiles").iterdir())[1]
    return sorted(found.glob("*.npy"))


def expect(folder: Path, answers: dict[str, str], names: list[str], verify: bool = True) -> None:
    """Every call gives a ``FileError``, or its answer."""
    for name in names:
        try:
            assert repr(CALLS[name](sc.load(folder, verify=verify))) == answers[name], name
        except FileError as error:
            assert "damaged" in str(error) or "no file" in str(error)  # noqa: PT017


def test_damage_of_arrays_is_told(folder: Path, answers: dict[str, str]) -> None:
    others = [name for name in CALLS if name != "everything"]
    files = array_files(folder)
    assert len(files) == 10
    for number, path in enumerate(files):
        with changed(path) as content:
            wrong = [content[:-1], content[:-100], b"", content + b"\0", content[:64]]
            for k in (3, 8, 30, 128, len(content) // 2, len(content) - 5, len(content) - 1):
                flipped = bytearray(content)
                flipped[k] ^= 1 << k % 8
                wrong.append(bytes(flipped))
            for k, data in enumerate(wrong):
                path.write_bytes(data)
                with pytest.raises(FileError, match="damaged"):
                    arrays(sc.load(folder))
                if not k % 6:
                    expect(folder, answers, [others[(number + k // 6) % len(others)]])
            path.unlink()
            with pytest.raises(FileError, match="no file"):
                arrays(sc.load(folder))


def forgeries(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays that are not possible in place of another one."""
    yield array[:-1]
    yield np.concatenate([array, array[-1:]])
    yield array.reshape(-1)[:, None, None]
    yield np.array(1.0)
    yield np.zeros((0, 2))
    yield array.astype(np.float32)
    yield array.astype(np.complex128)
    yield array.astype(np.dtype(np.float64 if array.dtype.kind == "f" else np.int64).newbyteorder())
    if array.dtype.kind == "f":
        yield array.astype(np.int64)
        numbers = [math.nan, math.inf, -math.inf]
    else:
        yield array.astype(np.float64)
        yield array.astype(np.uint64)
        numbers = [-2, 1 << 40, -(1 << 62), (1 << 63) - 1]
    for number in numbers:
        for place in (0, -1):
            forged = array.astype(np.int64) if array.dtype.kind == "i" else array.copy()
            forged.flat[place] = number
            yield forged


@pytest.mark.few(1)
@pytest.mark.parametrize("verify", [True, False])
def test_forged_arrays_are_refused(folder: Path, answers: dict[str, str], verify: bool) -> None:
    """With right checksums, and without looking at them."""
    others = [name for name in CALLS if name != "everything"]
    for number, path in enumerate(array_files(folder)):
        with changed(path):
            array = np.load(path)
            for k, forged in enumerate(forgeries(array)):
                if not k and path.stem.startswith("seam"):
                    continue  # that there are fewer is not seen
                path.unlink()
                write_array(path, forged)
                with pytest.raises(FileError, match="damaged"):
                    arrays(sc.load(folder, verify=verify))
                if k % 8 == 7 * verify:
                    expect(folder, answers, [others[(number + k // 8) % len(others)]], verify)


def test_small_changes_of_indices_do_no_harm(folder: Path) -> None:
    """What is in range may give other answers, or an error of the library, and nothing worse."""
    for path in array_files(folder):
        with changed(path):
            array = np.load(path)
            path.unlink()
            write_array(path, np.roll(array, 1, 0))
            for call in (CALLS["boundary"], CALLS["window"]):
                with contextlib.suppress(sc.SplineCamError, RuntimeError, IndexError, ValueError):
                    assert call(sc.load(folder)) != "a crash"


def test_other_files_are_checked(folder: Path, answers: dict[str, str]) -> None:
    for name in ("domain.npz", "errors.npz"):
        path = folder / name
        with changed(path) as content, np.load(path) as found:
            there = {key: found[key] for key in found.files}
            for data in (b"", content[:50], content[:-30], b"x" * 99):
                path.write_bytes(data)
                with pytest.raises(FileError, match="damaged"):
                    everything(sc.load(folder))
            for k in range(40, len(content), 97):
                flipped = bytearray(content)
                flipped[k] ^= 1 << k % 8
                path.write_bytes(flipped)
                expect(folder, answers, ["everything"])
            for key, array in there.items():
                wrong = [None, array[None], np.zeros(3, np.int8), np.array(["x"])]
                wrong += [array * math.nan, array * 1j] if array.dtype.kind == "f" else []
                for bad in wrong:
                    forged = there if bad is None else there | {key: bad}
                    forged = {k: v for k, v in forged.items() if bad is not None or k != key}
                    np.savez(path, **forged)
                    with pytest.raises(FileError):
                        everything(sc.load(folder))
            path.unlink()
            with pytest.raises(FileError, match="no file"):
                everything(sc.load(folder))


# -- links, and what is removed -------------------------------------------------------------------


def listing(place: Path) -> dict[str, Any]:
    """Everything in a folder, with contents and times."""
    found = [place, *place.rglob("*")]
    return {str(p): (p.lstat().st_mtime_ns, p.is_file() and p.read_bytes()) for p in sorted(found)}


@pytest.mark.parametrize(
    "name", ["tiles", "tiles/{}", "tiles/{}/mesh_uv.npy", "atlas.json", "domain.npz", "errors.npz"]
)
def test_links_are_refused(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "atlas")
    path = tmp_path / "atlas" / name.format(sorted((folder / "tiles").iterdir())[1].name)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    for leftover in ("strip", "rim.npz", "border.npz", "errors.npz"):
        if (tmp_path / "elsewhere").is_dir():
            (tmp_path / "elsewhere" / leftover).write_text("of somebody else")
    before = listing(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="link"):
        everything(sc.load(tmp_path / "atlas"))
    if name != "tiles/{}/mesh_uv.npy":  # which is read when it is asked for
        with pytest.raises(FileError, match="link"):
            everything(make(tmp_path / "atlas"))
    assert listing(tmp_path / "elsewhere") == before


class Killed(Exception):
    pass


def kill(*given: object) -> None:
    raise Killed


def interrupted(folder: Path, model: nn.Module, sizes: Sizes, **options: Any) -> None:
    """An atlas of which all units are done, and nothing is joined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storing, "complete", kill)
        with pytest.raises(Killed):
            compute_atlas(model, DOMAIN, folder, sizes=sizes, progress=False, **options)


@pytest.mark.parametrize(
    "name",
    [
        "tiles",
        "tiles/{}",
        "tiles/{}/rim.npz",
        "coarse",
        "coarse/0.npy",
        ".claims",
        ".key",
        ".coarse.part",
    ],
)
def test_an_atlas_with_links_is_not_continued(tmp_path: Path, name: str) -> None:
    place, elsewhere = tmp_path / "atlas", tmp_path / "elsewhere"
    interrupted(place, network(), SMALL)
    path = place / name.format(min((place / "tiles").iterdir()).name)
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.mkdir()
        (elsewhere / "thesis").write_text("of somebody else")
    path.symlink_to(elsewhere)
    before = listing(elsewhere)
    with pytest.raises(FileError, match="link"):
        make(place)
    assert listing(elsewhere) == before
    path.unlink()


def test_a_link_that_leads_nowhere_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "atlas").mkdir()
    for name in (".claims", "atlas.json", "domain.npz"):
        link = tmp_path / "atlas" / name
        link.symlink_to(tmp_path / "new")
        with pytest.raises(FileError, match="link"):
            make(tmp_path / "atlas")
        link.unlink()
        assert not (tmp_path / "new").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("strips", [False, True])
def test_damage_of_an_unfinished_atlas_is_told(tmp_path: Path, strips: bool) -> None:
    """Every file that is read to complete it, with a flipped bit or truncated."""
    model: nn.Module = network()
    sizes, options = SMALL, {}
    if strips:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 150), nn.ReLU(), nn.Linear(150, 1)).double()
        sizes, options = Sizes(regions=4000, enough=3), {"memory": 1_600_000}
    place = tmp_path / "atlas"
    interrupted(place, model, sizes, **options)
    tile = min((place / "tiles").iterdir())
    assert (tile / "strip").is_dir() == strips
    files = [*(place / "coarse").iterdir(), *tile.glob("*.npz"), *tile.glob("strip/*")]
    for k, path in enumerate(sorted(files)):
        with changed(path) as content:
            flipped = bytearray(content)
            flipped[content.find(b"NUMPY") + 60 if path.suffix != ".json" else -9] ^= 4
            path.write_bytes(flipped if k % 2 else content[:-3])
            with pytest.raises(FileError):
                compute_atlas(model, DOMAIN, place, sizes=sizes, progress=False, **options)
    assert len(compute_atlas(model, DOMAIN, place, sizes=sizes, **options))


# -- opening without writing ----------------------------------------------------------------------


def test_a_complete_atlas_is_opened_without_writing(folder: Path, answers: dict[str, str]) -> None:
    (folder / ".claims").unlink(missing_ok=True)
    before = listing(folder)
    again = make(folder)
    assert repr(everything(again)) == answers["everything"]
    assert "without" not in repr(again)
    assert listing(folder) == before, "a read-only disk will do"


def test_leftovers_of_a_killed_end_are_removed(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "atlas")
    tile = min((tmp_path / "atlas" / "tiles").iterdir())
    shutil.copy(folder / "errors.npz", tile)
    (tmp_path / "atlas" / "coarse").mkdir()
    make(tmp_path / "atlas")
    assert not (tile / "errors.npz").exists()
    assert not (tmp_path / "atlas" / "coarse").exists()


def test_other_names_are_written(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "atlas")
    given = network(), DOMAIN, tmp_path / "atlas"
    sc.atlas(*given, names=["a", "b"], progress=False)
    assert sc.atlas(*given, progress=False).names == ("a", "b")
    assert sc.load(tmp_path / "atlas").names == ("a", "b")


def test_a_pipe_in_place_of_a_file_does_not_block(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "atlas")
    for name in ("errors.npz", "atlas.json"):
        (tmp_path / "atlas" / name).unlink()
        os.mkfifo(tmp_path / "atlas" / name)
        with pytest.raises(FileError, match="not a file"):
            everything(sc.load(tmp_path / "atlas"))
