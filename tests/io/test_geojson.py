"""GeoJSON files read back with the same numbers, by json and by shapely."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import splinecam as sc
from export_cases import CASES, found, mlp, partition_of
from splinecam.partitions import exports as geojson
from splinecam.partitions.exports import to_geojson


@pytest.fixture(params=CASES)
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return partition_of(request.param)


def written(part: sc.Partition, **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    to_geojson(part, file, **options)
    content: dict[str, Any] = json.loads(file.getvalue(), parse_constant=pytest.fail)
    return content


def test_coordinates_come_back_bit_for_bit(part: sc.Partition) -> None:
    content = written(part)
    assert content["type"] == "FeatureCollection"
    assert len(content["features"]) == len(part)
    vertices, offsets = part.vertices[part._face_vertices], part.mesh.offsets.tolist()
    for k, feature in enumerate(content["features"]):
        assert (feature["type"], feature["id"]) == ("Feature", k)
        assert feature["geometry"]["type"] == "Polygon"
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        assert ring[:-1] == vertices[offsets[k] : offsets[k + 1]].tolist()


def test_properties_are_the_columns(part: sc.Partition) -> None:
    features = written(part)["features"]
    rows = [feature["properties"] for feature in features]
    assert [row["region"] for row in rows] == list(range(len(part)))
    assert [row["area"] for row in rows] == part.areas.tolist()
    assert [row["class"] for row in rows] == part.table()["class"].tolist()
    assert {type(row["class"]) for row in rows} == {int}
    assert sum(row["area"] for row in rows) == pytest.approx(part.domain.area)


def test_shapely_reads_the_same_polygons(part: sc.Partition) -> None:
    shapely = pytest.importorskip("shapely")
    file = io.BytesIO()
    to_geojson(part, file)
    collection = shapely.from_geojson(file.getvalue())
    assert shapely.equals_exact(shapely.get_parts(collection), part.to_shapely(), 0).all()


def test_all_columns_are_those_of_the_table_and_two_more() -> None:
    part = partition_of("classifier")
    rows = [feature["properties"] for feature in written(part, columns="all")["features"]]
    table = part.table()
    assert {*rows[0]} == {"region", "class_name", "layer", "piece", *table}
    for name in table:
        assert [row[name] for row in rows] == table[name].tolist(), name
    assert [row["piece"] for row in rows] == part.merged().labels.tolist()
    assert part.names is not None
    assert [row["class_name"] for row in rows] == [part.names[row["class"]] for row in rows]


def test_the_layer_is_the_last_that_bounds_the_region() -> None:
    part = partition_of("classifier")
    rows = [feature["properties"] for feature in written(part)["features"]]
    for region in range(len(part)):
        halves = part.mesh.corners[part.mesh.offsets[region] : part.mesh.offsets[region + 1]]
        assert rows[region]["layer"] == int(part.mesh.edge_layer[halves // 2].max())
    (only,) = written(partition_of("one region"))["features"]
    assert only["properties"]["layer"] == -1


def test_what_the_numbers_mean_is_in_the_file() -> None:
    part = partition_of("classifier")
    about = written(part)["splinecam"]
    assert about == {"coordinates": "plane", "layers": ["1", "3"], "names": ["ash", "oak", 'e"lm']}
    assert written(partition_of("one output"))["splinecam"]["names"] is None


def test_chosen_columns_in_their_order() -> None:
    part = partition_of("one output")
    (first, *_) = written(part, columns=["output_0", "vertices"])["features"]
    assert [*first["properties"]] == ["region", "output_0", "vertices"]
    assert [*written(part, columns=[])["features"][0]["properties"]] == ["region"]
    with pytest.raises(ValueError, match="no column 'colour'; the columns are class, area, layer"):
        to_geojson(part, io.BytesIO(), columns=["colour"])
    with pytest.raises(ValueError, match="no column 'output_1'"):
        to_geojson(part, io.BytesIO(), columns=["output_1"])
    for wrong in ("area", [3]):
        with pytest.raises(TypeError, match="columns must be a list of names"):
            to_geojson(part, io.BytesIO(), columns=wrong)  # type: ignore[arg-type]


def test_numbers_that_are_not_finite_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    part = found(mlp(2, 4, 1))
    part.areas[0], part.areas[1] = torch.inf, torch.nan
    areas = [feature["properties"]["area"] for feature in written(part)["features"]]
    assert areas[:2] == [None, None]
    assert areas[2:] == part.areas[2:].tolist()


def test_extreme_numbers_come_back() -> None:
    part = found(mlp(2, 4, 1))
    extreme = [5e-324, -0.0, 1.7976931348623157e308, 0.1 + 0.2, 1e22, 1e-7]
    part.vertices[:3] = torch.tensor(extreme, dtype=torch.float64).view(3, 2)
    seen = {
        x.hex()
        for feature in written(part)["features"]
        for point in feature["geometry"]["coordinates"][0]
        for x in point
    }
    assert {x.hex() for x in extreme} <= seen


def test_blocks_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    part = partition_of("classifier")
    whole = io.BytesIO()
    to_geojson(part, whole, columns="all")
    monkeypatch.setattr(geojson, "_BLOCK", 7)
    blocks = io.BytesIO()
    to_geojson(part, blocks, columns="all")
    assert blocks.getvalue() == whole.getvalue()


def test_the_file_appears_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, path = partition_of("classifier"), tmp_path / "regions.geojson"
    to_geojson(part, path)
    before = path.read_bytes()

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(geojson, "_features", stop)
    with pytest.raises(KeyboardInterrupt):
        to_geojson(part, path, columns=[])
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["regions.geojson"]
    with pytest.raises(sc.FileError, match="There is no folder"):
        to_geojson(part, tmp_path / "nowhere" / "a.geojson")


def test_progress_counts_vertices_and_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []

    class Bar:
        def __init__(self, total: int) -> None:
            self.total = total

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *args: object) -> None:
            pass

        def update(self, count: int) -> None:
            steps.append((count, self.total))

    monkeypatch.setattr(geojson, "progress_bar", lambda total, unit, wanted: Bar(total))
    monkeypatch.setattr(geojson, "_BLOCK", 10)
    part = partition_of("one output")
    to_geojson(part, io.BytesIO())
    assert sum(count for count, _ in steps) == len(part) + len(part.vertices) == steps[0][1]


def test_a_network_whose_classes_have_odd_names() -> None:
    part = found(nn.Linear(2, 2), names=["100 %", 'a "b" \\ é'])
    (feature, *_) = written(part)["features"]
    assert feature["properties"]["class_name"] in part.names  # type: ignore[operator]
    assert np.isfinite(feature["properties"]["area"])
