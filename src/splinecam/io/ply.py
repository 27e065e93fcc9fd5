"""Regions as a PLY file: the polygon format that MeshLab, Blender and trimesh read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from splinecam._util.files import opened
from splinecam._util.progress import progress_bar
from splinecam.analysis.partition_data import PartitionData
from splinecam.io.region_columns import Columns
from splinecam.io.surfaces import Heights, Space, Surface, surface_of

__all__ = ["to_ply"]

_BLOCK = 1 << 17  # regions or vertices that are written at a time
_MOST = 255  # corners of a polygon whose number fits into a byte

# The types of a PLY file, by those of numpy.
_TYPES = {"f8": "double", "i4": "int", "u1": "uchar"}


def to_ply(
    part: PartitionData,
    path: str | os.PathLike[str] | BinaryIO,
    *,
    output: Heights = None,
    space: Space = "plane",
    columns: Columns | None = None,
    progress: bool = True,
) -> None:
    """Write the regions as polygons in space to a binary PLY file, which appears when complete.

    Coordinates and other fractions are float64. Vertices have ``layer`` and, of up to 16 outputs,
    ``output_0``, ...; faces have ``region`` and the chosen columns.

    path: the file, conventionally ``.ply``. output: the output that is the height z, by default
    none: z = 0; or three outputs that are the coordinates x, y and z. space: ``"plane"`` for the
    plane coordinates of the domain as x and y, or ``"input"`` for the inputs themselves, of a
    network with two or three of them. columns: the numbers of each region, as for ``to_geojson``.
    progress: show a progress bar in interactive use.

    >>> import io, splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> file = io.BytesIO()
    >>> part.to_ply(file, output=0)
    >>> file.getvalue().splitlines()[2]
    b'element vertex 9'
    """
    found = surface_of(part, output, space, columns)
    # A property of a vertex is one number: an array of more than 16 outputs is left out.
    point_data = {name: x for name, x in found.point_data.items() if x.ndim == 1}
    vertices = _fields(dict(zip("xyz", found.points.T, strict=True)) | point_data)
    faces = _fields(found.cell_data)
    count_type = "u1" if int(np.diff(found.offsets).max()) <= _MOST else "i4"
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(found.points)}",
        *(f"property {_TYPES[kind]} {name}" for name, (kind, _) in vertices.items()),
        f"element face {len(part)}",
        f"property list {_TYPES[count_type]} int vertex_indices",
        *(f"property {_TYPES[kind]} {name}" for name, (kind, _) in faces.items()),
        "end_header",
    ]
    total = len(found.points) + len(part)
    with opened(path) as file, progress_bar(total, " rows", progress) as bar:
        file.write("\n".join([*header, ""]).encode())
        for rows, content in _vertex_blocks(vertices):
            file.write(content)
            bar.update(rows)
        for rows, content in _face_blocks(found, faces, count_type):
            file.write(content)
            bar.update(rows)


Fields = dict[str, tuple[str, NDArray[Any]]]


def _fields(columns: dict[str, NDArray[Any]]) -> Fields:
    """The type of each column in the file, and its numbers; a PLY file has no int64."""
    return {
        name: ("f8" if column.dtype.kind == "f" or _is_wide(column) else "i4", column)
        for name, column in columns.items()
    }


def _is_wide(column: NDArray[Any]) -> bool:
    return bool(len(column)) and not -(2**31) <= int(column.min()) <= int(column.max()) < 2**31


def _vertex_blocks(fields: Fields) -> Iterator[tuple[int, bytes]]:
    """The number of vertices and the bytes of each block."""
    kind = np.dtype([(name, f"<{kind}") for name, (kind, _) in fields.items()])
    total = len(next(iter(fields.values()))[1])
    for first in range(0, total, _BLOCK):
        records = np.empty(min(_BLOCK, total - first), kind)
        for name, (_, column) in fields.items():
            records[name] = column[first : first + _BLOCK]
        yield len(records), records.tobytes()


def _face_blocks(found: Surface, fields: Fields, count_type: str) -> Iterator[tuple[int, bytes]]:
    """The number of polygons and the bytes of each block."""
    for first in range(0, len(found.offsets) - 1, _BLOCK):
        offsets = found.offsets[first : first + _BLOCK + 1]
        block = {name: (kind, x[first : first + _BLOCK]) for name, (kind, x) in fields.items()}
        yield len(offsets) - 1, _records(offsets, found.corners, block, count_type)


def _records(
    offsets: NDArray[Any], corners: NDArray[Any], fields: Fields, count_type: str
) -> bytes:
    """The records of polygons, which have different lengths.

    The polygons of each number of corners are an array of records of one length, whose bytes are
    then put in the places of these polygons.
    """
    counts = np.diff(offsets)
    after = [(name, f"<{kind}") for name, (kind, _) in fields.items()]
    kinds = {
        k: np.dtype([("", f"<{count_type}"), ("corners", "<i4", (k,)), *after])
        for k in np.unique(counts).tolist()
    }
    sizes = np.zeros(max(kinds) + 1, np.int64)
    sizes[[*kinds]] = [kind.itemsize for kind in kinds.values()]
    ends = np.cumsum(sizes[counts])
    content = np.empty(ends[-1], np.uint8)
    for k, kind in kinds.items():
        chosen = np.flatnonzero(counts == k)
        records = np.empty(len(chosen), kind)
        records[kind.names[0]] = k  # type: ignore[index]
        records["corners"] = corners[offsets[chosen, None] + np.arange(k)]
        for name, (_, column) in fields.items():
            records[name] = column[chosen]
        begin = ends[chosen] - kind.itemsize
        content[begin[:, None] + np.arange(kind.itemsize)] = records.view(np.uint8).reshape(
            len(chosen), -1
        )
    return content.tobytes()
