"""``splinecam export`` writes the files of the methods of a partition, by their endings."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import splinecam as sc
from export_cases import partition_of
from splinecam.cli import main
from splinecam.partitions.exports import to_geojson, to_ply, to_vtk


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a saved partition of three outputs."""
    monkeypatch.chdir(tmp_path)
    partition_of("classifier").save("saved.npz")
    return tmp_path


def content(write: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    write(file, **options)
    return file.getvalue()


def test_every_kind_of_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a.geojson", "a.json", "a.ply", "new/a.vtp", "a.VTK", "a.parquet"]
    assert main(["export", "saved.npz", *names, "--output", "1"]) == 0
    out, err = capsys.readouterr()
    part = sc.load("saved.npz")
    assert len(out.splitlines()) == len(names)
    assert out.startswith(f"{len(part):,} regions in a.geojson, ")
    assert err == ""
    polygons = (folder / "a.geojson").read_bytes()
    assert polygons == (folder / "a.json").read_bytes() == content(partial(to_geojson, part))
    assert (folder / "a.ply").read_bytes() == content(partial(to_ply, part), output=1)
    assert (folder / "new/a.vtp").read_bytes() == content(partial(to_vtk, part), output=1)
    to_vtk(part, "b.vtk", output=1)
    assert (folder / "a.VTK").read_bytes() == (folder / "b.vtk").read_bytes()
    table = pytest.importorskip("pyarrow.parquet").read_table("a.parquet")
    assert table["area"].to_pylist() == part.areas.tolist()


def test_columns_and_space(folder: Path) -> None:
    words = ["saved.npz", "a.geojson", "a.ply", "--columns", "output_2", "area", "--space", "input"]
    assert main(["export", *words, "--quiet"]) == 0
    (first, *_) = json.loads((folder / "a.geojson").read_text())["features"]
    assert [*first["properties"]] == ["region", "output_2", "area"]
    part = sc.load("saved.npz")
    expected = content(partial(to_ply, part), space="input", columns=["output_2", "area"])
    assert (folder / "a.ply").read_bytes() == expected


def test_what_is_wrong_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "saved.npz", "a.ply", "--columns", "colour"]) == 1
    assert "there is no column 'colour'; the columns are class, area" in capsys.readouterr().err
    assert main(["export", "saved.npz", "a.ply", "--output", "9"]) == 1
    assert "output 9 of 3 outputs" in capsys.readouterr().err
    (folder / "a.ply").touch()
    assert main(["export", "saved.npz", "b.ply", "a.ply"]) == 1
    assert "a.ply exists already. Say --force" in capsys.readouterr().err
    assert not (folder / "b.ply").exists()
    assert main(["export", "saved.npz", "a.ply", "--force", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_table_in_parquet(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(["stats", "saved.npz", "--table", "rows.parquet"]) == 0
    table = parquet.read_table("rows.parquet")
    assert table["region"].to_pylist() == list(range(len(sc.load("saved.npz"))))
    assert {"slope_spectral", "centroid_u", "output_2"} <= {*table.column_names}
