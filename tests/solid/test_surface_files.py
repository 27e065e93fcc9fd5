"""Surfaces in files and objects of other programs: closed, and with the same volume."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solids import cube, octahedron, random_network, surface_of, torus
from splinecam.errors import SplineCamError
from splinecam.solid.surface import Surface

SUFFIXES = (".ply", ".obj", ".stl", ".glb", ".vtp", ".vtk")


def volume_of(points: Any, triangles: Any) -> float:
    """The volume in closed triangles; checks that they are closed."""
    ends = np.concatenate([triangles[:, [k, (k + 1) % 3]] for k in range(3)])
    there = {tuple(pair) for pair in ends.tolist()}
    assert len(there) == len(ends)
    assert all((b, a) in there for a, b in there)
    return float(np.linalg.det(points[triangles]).sum() / 6)


@pytest.fixture(params=["torus", "capped"])
def closed(request: pytest.FixtureRequest) -> Surface:
    return torus() if request.param == "torus" else surface_of(random_network(4)).capped()


def test_plyfile_reads_polygons_in_full_precision(closed: Surface, tmp_path: Path) -> None:
    plyfile = pytest.importorskip("plyfile")
    closed.export(tmp_path / "surface.PLY")
    content = plyfile.PlyData.read(tmp_path / "surface.PLY")
    vertex, face = content["vertex"].data, content["face"].data
    assert np.array_equal(np.stack([vertex[k] for k in "xyz"], 1), closed.vertices.numpy())
    lists = list(face["vertex_indices"])
    assert np.array_equal(np.concatenate(lists), closed.face_vertices.numpy())
    assert [len(each) for each in lists] == closed.face_offsets.diff().tolist()
    assert np.array_equal(face["region"], closed.face_region.numpy())
    assert np.array_equal(face["layer"], closed.face_layers.numpy())
    assert np.array_equal(face["normal_z"], closed.normals[:, 2].numpy())


def test_obj_files_have_all_digits_and_polygons(closed: Surface, tmp_path: Path) -> None:
    closed.export(tmp_path / "surface.obj")
    rows = [line.split() for line in (tmp_path / "surface.obj").read_text().splitlines() if line]
    points = np.array([row[1:] for row in rows if row[0] == "v"], float)
    faces = [[int(k) - 1 for k in row[1:]] for row in rows if row[0] == "f"]
    assert np.array_equal(points, closed.vertices.numpy())
    offsets = closed.face_offsets.tolist()
    assert faces == [closed.face_vertices[a:b].tolist() for a, b in pairwise(offsets)]


def test_stl_files_are_closed_triangles_with_normals(closed: Surface, tmp_path: Path) -> None:
    closed.export(tmp_path / "surface.stl")
    content = (tmp_path / "surface.stl").read_bytes()
    (count,) = struct.unpack_from("<I", content, 80)
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("more", "<u2")])
    assert len(content) == 84 + count * kind.itemsize
    found = np.frombuffer(content, kind, offset=84)
    points, place = np.unique(found["corners"].reshape(-1, 3), axis=0, return_inverse=True)
    volume = volume_of(points.astype(float), place.reshape(-1, 3))
    assert volume == pytest.approx(closed.volume, rel=1e-5)
    assert np.linalg.norm(found["normal"], axis=1) == pytest.approx(1.0, abs=1e-5)


def test_glb_files_have_shared_vertices(closed: Surface, tmp_path: Path) -> None:
    closed.export(tmp_path / "surface.glb")
    content = (tmp_path / "surface.glb").read_bytes()
    magic, version, length, size = struct.unpack_from("<4sIII", content)
    assert (magic, version, length) == (b"glTF", 2, len(content))
    about = json.loads(content[20 : 20 + size])
    first, second = about["bufferViews"]
    start = 28 + size
    points = np.frombuffer(content, "<f4", first["byteLength"] // 4, start).reshape(-1, 3)
    corners = np.frombuffer(content, "<u4", offset=start + second["byteOffset"]).reshape(-1, 3)
    assert volume_of(points.astype(float), corners) == pytest.approx(closed.volume, rel=1e-5)
    assert about["accessors"][0]["max"] == points.max(0).tolist()


def test_other_suffixes_and_missing_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"surface.off.*\.ply, \.vtp"):
        cube().export(tmp_path / "surface.off")
    for name, module in (("to_trimesh", "trimesh"), ("to_pyvista", "pyvista")):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(SplineCamError, match=rf"{module}.*splinecam\[mesh\]"):
            getattr(cube(), name)()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_surface_is_written(suffix: str, tmp_path: Path) -> None:
    surface_of(octahedron(9.0)).export(tmp_path / f"none{suffix}")
    assert (tmp_path / f"none{suffix}").exists()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".ply", ".obj", ".stl", ".glb"])
def test_trimesh_reads_closed_solids(closed: Surface, suffix: str, tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    closed.export(tmp_path / f"surface{suffix}", triangles=suffix == ".ply")
    found = trimesh.load(tmp_path / f"surface{suffix}", force="mesh")
    assert found.is_watertight
    assert found.is_winding_consistent
    assert found.volume == pytest.approx(closed.volume, rel=1e-5)


@pytest.mark.slow
def test_trimesh_objects_are_the_same_solid(closed: Surface) -> None:
    pytest.importorskip("trimesh")
    found = closed.to_trimesh()
    assert found.is_watertight
    assert found.volume == pytest.approx(closed.volume, rel=1e-12)
    assert found.area == pytest.approx(closed.area, rel=1e-12)
    assert found.euler_number == closed.euler


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".vtp", ".vtk", None])
def test_pyvista_has_the_same_solid(closed: Surface, suffix: str | None, tmp_path: Path) -> None:
    pyvista = pytest.importorskip("pyvista")
    if suffix is None:
        found = closed.to_pyvista()
    else:
        closed.export(tmp_path / f"surface{suffix}")
        found = pyvista.read(tmp_path / f"surface{suffix}")
    assert found.n_cells == len(closed)
    assert found.n_open_edges == 0
    assert found.volume == pytest.approx(closed.volume, rel=1e-6)
    assert np.array_equal(found.cell_data["region"], closed.face_region.numpy())
