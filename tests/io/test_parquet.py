"""Parquet files hold the table of regions, and pandas and pyarrow read it back."""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import splinecam as sc
from export_cases import CASES, partition_of
from splinecam.partitions.exports import to_geojson, to_parquet, to_ply

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")


@pytest.fixture(params=CASES)
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return partition_of(request.param)


def test_pyarrow_reads_the_table(part: sc.Partition, tmp_path: Path) -> None:
    to_parquet(part, tmp_path / "regions.parquet")
    found = parquet.read_table(tmp_path / "regions.parquet")
    rows = part.table()
    assert {*found.column_names} - {"region", "layer", "piece", "class_name"} == {*rows}
    assert found["region"].to_numpy().tolist() == list(range(len(part)))
    for name in rows:
        column = found[name].to_numpy()
        assert column.dtype == rows[name].dtype
        assert np.array_equal(column, rows[name]), name
    assert found["area"].to_numpy().sum() == pytest.approx(part.domain.area)


def test_pandas_reads_names_as_categories() -> None:
    part = partition_of("classifier")
    file = io.BytesIO()
    to_parquet(part, file, columns=["area", "class"])
    found = pandas.read_parquet(file)
    assert found.columns.tolist() == ["region", "area", "class", "class_name"]
    assert found["class_name"].dtype == "category"
    assert part.names is not None
    assert found["class_name"].tolist() == [part.names[k] for k in found["class"]]


def test_the_table_itself_goes_there_and_back(part: sc.Partition, tmp_path: Path) -> None:
    rows = part.table()
    rows.to_parquet(tmp_path / "table.parquet")
    again = pandas.read_parquet(tmp_path / "table.parquet")
    pandas.testing.assert_frame_equal(rows, again)
    assert again.index.name == "region"


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(sc.SplineCamError, match=r"pip install 'splinecam\[parquet\]'"):
        to_parquet(partition_of("one region"), tmp_path / "a.parquet")
    assert not [*tmp_path.iterdir()]


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    file = io.BytesIO()
    to_parquet(partition_of("one region"), file)
    assert parquet.read_table(file).num_rows == 1


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("a system without /dev/full")
    part = partition_of("classifier")
    for write in (partial(to_parquet, part), partial(to_geojson, part), partial(to_ply, part)):
        with pytest.raises(sc.FileError, match="the disk is full"):
            write(full)
