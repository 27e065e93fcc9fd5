"""PLY and VTK files read back with the same numbers, by plyfile and by VTK's own readers."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import splinecam as sc
from export_cases import CASES, partition_of
from splinecam.files import polygons as ply
from splinecam.files import polygons as vtk
from splinecam.partitions.exports import surface_of, to_ply, to_vtk

FORMATS = ("vtp", "vtk")


@pytest.fixture(params=CASES)
def part(request: pytest.FixtureRequest) -> sc.Partition:
    return partition_of(request.param)


def offsets_of(lists: list[NDArray[Any]]) -> list[int]:
    return np.cumsum([0, *map(len, lists)]).tolist()


# -- PLY ------------------------------------------------------------------------------------------


def ply_of(part: sc.Partition, **options: Any) -> Any:
    plyfile = pytest.importorskip("plyfile")
    file = io.BytesIO()
    to_ply(part, file, **options)
    file.seek(0)
    content = plyfile.PlyData.read(file)
    assert file.read() == b"", "nothing is left behind the last record"
    return content


def test_plyfile_reads_all_back(part: sc.Partition) -> None:
    content = ply_of(part, columns="all")
    assert content.byte_order == "<"
    vertex, face = content["vertex"].data, content["face"].data
    points = np.stack([vertex["x"], vertex["y"], vertex["z"]], 1)
    assert np.array_equal(points[:, :2], part.vertices.numpy())
    assert not points[:, 2].any()
    assert np.array_equal(vertex["layer"], part.mesh.vertex_layer.numpy())
    if part.values.shape[1] <= 16:
        for k in range(part.values.shape[1]):
            assert np.array_equal(vertex[f"output_{k}"], part.values[:, k].numpy())
    lists = face["vertex_indices"]
    assert offsets_of(list(lists)) == part.mesh.offsets.tolist()
    assert np.array_equal(np.concatenate(list(lists)), part._face_vertices.numpy())
    assert np.array_equal(face["region"], np.arange(len(part)))
    rows = part.table()
    for name in rows:
        assert np.array_equal(face[name], np.asarray(rows[name])), name
    assert np.array_equal(face["piece"], part.merged().labels.numpy())


@pytest.mark.slow
def test_vtk_reads_ply_too(tmp_path: Path) -> None:
    readers = pytest.importorskip("vtkmodules.vtkIOPLY")
    part = partition_of("classifier")
    to_ply(part, tmp_path / "regions.ply", output=0)
    reader = readers.vtkPLYReader()
    reader.SetFileName(str(tmp_path / "regions.ply"))
    reader.Update()
    assert reader.GetOutput().GetNumberOfPolys() == len(part)
    assert reader.GetOutput().GetNumberOfPoints() == len(part.vertices)


def test_regions_with_more_corners_than_a_byte_counts() -> None:
    content = ply_of(partition_of("many corners"))
    assert content["face"].properties[0].len_dtype == "i4"
    assert max(map(len, content["face"].data["vertex_indices"])) > 255
    small = ply_of(partition_of("classifier"))
    assert small["face"].properties[0].len_dtype == "u1"


def test_blocks_of_ply_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    part = partition_of("classifier")
    whole, blocks = io.BytesIO(), io.BytesIO()
    to_ply(part, whole, columns="all")
    monkeypatch.setattr(ply, "_RECORDS", 7)
    to_ply(part, blocks, columns="all")
    assert blocks.getvalue() == whole.getvalue()


def test_whole_numbers_beyond_32_bits_become_fractions() -> None:
    wide = np.array([0, 2**31])
    assert [kind for kind, _ in ply._fields({"a": wide, "b": wide // 2}).values()] == ["f8", "i4"]


# -- VTK ------------------------------------------------------------------------------------------


def vtk_of(part: sc.Partition, path: Path, **options: Any) -> Any:
    """What VTK's own reader makes of a file."""
    if path.suffix == ".vtp":
        reader = pytest.importorskip("vtkmodules.vtkIOXML").vtkXMLPolyDataReader()
    else:
        reader = pytest.importorskip("vtkmodules.vtkIOLegacy").vtkPolyDataReader()
        reader.ReadAllFieldsOn()
    to_vtk(part, path, **options)
    reader.SetFileName(str(path))
    reader.Update()
    assert reader.GetErrorCode() == 0
    return reader.GetOutput()


def vtk_to_numpy(array: Any) -> NDArray[Any]:
    return pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy(array)


def arrays_of(data: Any) -> dict[str, NDArray[Any]]:
    found = [data.GetAbstractArray(k) for k in range(data.GetNumberOfArrays())]
    return {array.GetName(): vtk_to_numpy(array) for array in found}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_vtk_reads_all_back(part: sc.Partition, suffix: str, tmp_path: Path) -> None:
    found = vtk_of(part, tmp_path / f"regions.{suffix}", columns="all")
    points = vtk_to_numpy(found.GetPoints().GetData())
    assert points.dtype == np.float64
    assert np.array_equal(points[:, :2], part.vertices.numpy())
    assert not points[:, 2].any()
    polygons = found.GetPolys()
    assert vtk_to_numpy(polygons.GetOffsetsArray()).tolist() == part.mesh.offsets.tolist()
    corners = vtk_to_numpy(polygons.GetConnectivityArray())
    assert np.array_equal(corners, part._face_vertices.numpy())
    at_points, on_cells = arrays_of(found.GetPointData()), arrays_of(found.GetCellData())
    assert np.array_equal(at_points["layer"], part.mesh.vertex_layer.numpy())
    values = part.values.numpy()
    if values.shape[1] > 16:
        assert np.array_equal(at_points["outputs"], values)
    else:
        columns = [at_points[f"output_{k}"] for k in range(values.shape[1])]
        assert np.array_equal(np.stack(columns, 1), values)
    assert np.array_equal(on_cells["region"], np.arange(len(part)))
    rows = part.table()
    for name in rows:
        assert np.array_equal(on_cells[name], np.asarray(rows[name])), name


def test_points_and_polygons_in_files_for_vtk(tmp_path: Path) -> None:
    """As the tests with VTK's own readers, where VTK is not installed."""
    part = partition_of("classifier")
    corners, offsets = part._face_vertices.numpy(), part.mesh.offsets.numpy()
    flat = np.pad(part.vertices.numpy(), ((0, 0), (0, 1)))
    part.export(tmp_path / "a.vtk")
    content = (tmp_path / "a.vtk").read_bytes()
    head = f"DATASET POLYDATA\nPOINTS {len(flat)} double\n".encode()
    place = content.index(head) + len(head)
    assert np.array_equal(np.frombuffer(content, ">f8", flat.size, place).reshape(-1, 3), flat)
    place += 8 * flat.size
    head = f"\nPOLYGONS {len(part)} {len(part) + len(corners)}\n".encode()
    assert content[place : place + len(head)] == head
    cells = np.frombuffer(content, ">i4", len(part) + len(corners), place + len(head))
    rows = np.split(corners, offsets[1:-1])
    assert cells.tolist() == [n for row in rows for n in (len(row), *row)]

    part.export(tmp_path / "a.vtp")
    content = (tmp_path / "a.vtp").read_bytes()
    start = content.index(b'<AppendedData encoding="raw">\n_') + 31
    arrays = {}
    for kind, name, place in re.findall(
        rb'type="(\w+)" Name="(\w+)".* offset="(\d+)"/>', content[:start]
    ):
        size = int(np.frombuffer(content, "<u8", 1, start + int(place))[0])
        title = {b"Float64": "<f8", b"Int64": "<i8"}[kind]
        arrays[name.decode()] = np.frombuffer(content, title, size // 8, start + int(place) + 8)
    assert np.array_equal(arrays["Points"].reshape(-1, 3), flat)
    assert np.array_equal(arrays["connectivity"], corners)
    assert np.array_equal(arrays["offsets"], offsets[1:])
    assert np.array_equal(arrays["region"], np.arange(len(part)))


@pytest.mark.slow
def test_vtk_measures_the_same_area(tmp_path: Path) -> None:
    filters = pytest.importorskip("vtkmodules.vtkFiltersVerdict")
    core = pytest.importorskip("vtkmodules.vtkFiltersCore")
    part = partition_of("classifier")
    cut = core.vtkTriangleFilter()
    cut.SetInputData(vtk_of(part, tmp_path / "regions.vtp"))
    sizes = filters.vtkCellSizeFilter()
    sizes.SetInputConnection(cut.GetOutputPort())
    sizes.Update()
    found = arrays_of(sizes.GetOutput().GetCellData())
    areas = np.bincount(found["region"].astype(int), found["Area"], len(part))
    assert areas == pytest.approx(part.areas.numpy())


@pytest.mark.parametrize("suffix", FORMATS)
def test_large_arrays_are_written_in_steps(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = partition_of("classifier")
    to_vtk(part, tmp_path / f"a.{suffix}")
    monkeypatch.setattr(vtk, "_MOST_BYTES", 100)
    to_vtk(part, tmp_path / f"b.{suffix}")
    a, b = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
    assert a == b


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sc.FileError, match=r"ends in neither \.vtp nor \.vtk"):
        to_vtk(partition_of("classifier"), tmp_path / "regions.vtu")
    to_vtk(partition_of("classifier"), tmp_path / "REGIONS.VTP")
    assert [path.name for path in tmp_path.iterdir()] == ["REGIONS.VTP"]


# -- where the points are -------------------------------------------------------------------------


def test_the_height_is_an_output() -> None:
    part = partition_of("classifier")
    for output in (0, 2, np.int64(1), -1):
        vertex = ply_of(part, output=output)["vertex"].data
        assert np.array_equal(vertex["z"], part.values[:, int(output)].numpy())
        assert np.array_equal(vertex["x"], part.vertices[:, 0].numpy())


@pytest.mark.slow
def test_vtk_sees_the_height(tmp_path: Path) -> None:
    part = partition_of("classifier")
    found = vtk_of(part, tmp_path / "a.vtp", output=1)
    assert found.GetBounds()[4:] == (float(part.values[:, 1].min()), float(part.values[:, 1].max()))


def test_three_outputs_are_coordinates() -> None:
    part = partition_of("classifier")
    points = surface_of(part, (2, 0, 1), "plane", None).points
    assert np.array_equal(points, part.values[:, [2, 0, 1]].numpy())


def test_three_inputs_are_coordinates() -> None:
    part = partition_of("three inputs")
    points = surface_of(part, None, "input", None).points
    assert np.array_equal(points, part.domain.embed(part.vertices).numpy())
    assert len(np.unique(points[:, 2].round(3))) > 3
    with pytest.raises(sc.SplineCamError, match="no room for a height"):
        surface_of(part, 0, "input", None)
    flat = partition_of("one output")
    points = surface_of(flat, 0, "input", None).points
    assert np.allclose(points[:, :2], flat._inputs(flat.vertices).numpy())
    assert np.array_equal(points[:, 2], flat.values[:, 0].numpy())


def test_what_cannot_be_a_point_is_an_error() -> None:
    part = partition_of("classifier")
    with pytest.raises(sc.SplineCamError, match="16 inputs"):
        surface_of(partition_of("images"), None, "input", None)
    with pytest.raises(ValueError, match="space is 'world'"):
        surface_of(part, None, "world", None)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="output 3 of 3"):
        surface_of(part, 3, "plane", None)
    with pytest.raises(ValueError, match="one output or three, not 2"):
        surface_of(part, (0, 1), "plane", None)
    for wrong in (0.5, "first", [0.0, 1.0, 2.0]):
        with pytest.raises(TypeError, match="output must be a"):
            surface_of(part, wrong, "plane", None)  # type: ignore[arg-type]


def test_facets_are_flat() -> None:
    """The output is affine on a region, so that its corners in space lie in one plane."""
    part = partition_of("one output")
    found = surface_of(part, 0, "plane", None)
    for k in range(len(part)):
        corners = found.points[found.corners[found.offsets[k] : found.offsets[k + 1]]]
        height = corners[:, :2] @ part.weight[k, 0].numpy() + part.bias[k, 0].item()
        assert np.allclose(corners[:, 2], height, atol=1e-9)


@pytest.mark.parametrize("name", ["a.ply", "a.vtp", "a.vtk"])
def test_an_error_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    part = partition_of("classifier")
    monkeypatch.setattr(ply, "_records", stop)
    monkeypatch.setattr(vtk, "_written", stop)
    with pytest.raises(KeyboardInterrupt):
        (partial(to_ply, part) if name.endswith("ply") else partial(to_vtk, part))(tmp_path / name)
    assert not [*tmp_path.iterdir()]
