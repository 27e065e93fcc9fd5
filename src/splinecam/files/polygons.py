"""Polygons in space in files for other programs: PLY, VTK, OBJ, STL and GLB."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, BinaryIO
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from splinecam._util.files import opened
from splinecam._util.progress import progress_bar


@dataclass(frozen=True)
class Polygons:
    """V points in space and F polygons between them.

    points: (V, 3) float64; offsets: (F + 1,) where each polygon begins in ``corners``; corners:
    (H,) indices of points, counter-clockwise seen from above; point_data: columns with V rows;
    cell_data: columns with F rows; triangles: (T, 3) that fill the polygons, for formats that have
    triangles only.
    """

    points: NDArray[np.float64]
    offsets: NDArray[np.int64]
    corners: NDArray[np.int64]
    point_data: dict[str, NDArray[Any]]
    cell_data: dict[str, NDArray[Any]]
    triangles: NDArray[np.int64] | None = None

    def sized_corners(self) -> NDArray[np.int64]:
        """The number of corners of each polygon, and then its corners, one after the other."""
        faces = len(self.offsets) - 1
        counts = np.diff(self.offsets)
        cells = np.empty(faces + len(self.corners), np.int64)
        cells[self.offsets[:-1] + np.arange(faces)] = counts
        after = np.arange(len(self.corners)) + np.repeat(np.arange(1, faces + 1), counts)
        cells[after] = self.corners
        return cells


Piece = bytes | NDArray[Any]


def write(
    found: Polygons, path: str | os.PathLike[str] | BinaryIO, suffix: str, progress: bool
) -> None:
    """Write polygons in the format of a suffix; the file appears when it is complete."""
    with opened(path) as file, progress_bar(None, "B", progress) as bar:
        for piece in WRITERS[suffix](found):
            for count in _written(file, piece):
                bar.update(count)


_MOST_BYTES = 1 << 24  # that are written at a time
_RECORDS = 1 << 17  # regions or vertices that are written at a time
_MOST = 255  # corners of a polygon whose number fits into a byte

# The names of types in a PLY file, by their names in numpy.
_TYPES = {"f8": "double", "i4": "int", "u1": "uchar"}


def _ply(found: Polygons) -> Iterator[Piece]:
    """A binary .ply file: a header, and a record for each vertex and each polygon."""
    # A property of a vertex is one number: an array of more than 16 outputs is left out.
    point_data = {name: x for name, x in found.point_data.items() if x.ndim == 1}
    vertices = _fields(dict(zip("xyz", found.points.T, strict=True)) | point_data)
    faces = _fields(found.cell_data)
    count_type = "u1" if int(np.diff(found.offsets).max(initial=0)) <= _MOST else "i4"
    header = [
        "ply",
        "format binary_little_endian 1.0",
        f"element vertex {len(found.points)}",
        *(f"property {_TYPES[kind]} {name}" for name, (kind, _) in vertices.items()),
        f"element face {len(found.offsets) - 1}",
        f"property list {_TYPES[count_type]} int vertex_indices",
        *(f"property {_TYPES[kind]} {name}" for name, (kind, _) in faces.items()),
        "end_header",
    ]
    yield "\n".join([*header, ""]).encode()
    for _, content in chain(_vertex_blocks(vertices), _face_blocks(found, faces, count_type)):
        yield content


Fields = dict[str, tuple[str, NDArray[Any]]]


def _fields(columns: dict[str, NDArray[Any]]) -> Fields:
    """The type of each column in the file, and its numbers; a PLY file has no int64."""
    fields: Fields = {}
    for name, x in columns.items():
        wide = x.dtype.kind == "f" or x.min(initial=0) < -(2**31) or x.max(initial=0) >= 2**31
        fields[name] = "f8" if wide else "i4", x
    return fields


def _vertex_blocks(fields: Fields) -> Iterator[tuple[int, bytes]]:
    """The number of vertices and the bytes of each block."""
    kind = np.dtype([(name, f"<{kind}") for name, (kind, _) in fields.items()])
    total = len(next(iter(fields.values()))[1])
    for first in range(0, total, _RECORDS):
        records = np.empty(min(_RECORDS, total - first), kind)
        for name, (_, column) in fields.items():
            records[name] = column[first : first + _RECORDS]
        yield len(records), records.tobytes()


def _face_blocks(found: Polygons, fields: Fields, count_type: str) -> Iterator[tuple[int, bytes]]:
    """The number of polygons and the bytes of each block."""
    for first in range(0, len(found.offsets) - 1, _RECORDS):
        offsets = found.offsets[first : first + _RECORDS + 1]
        block = {name: (kind, x[first : first + _RECORDS]) for name, (kind, x) in fields.items()}
        yield len(offsets) - 1, _records(offsets, found.corners, block, count_type)


def _records(
    offsets: NDArray[Any], corners: NDArray[Any], fields: Fields, count_type: str
) -> bytes:
    """The records of polygons, which have different lengths.

    All polygons with the same number of corners are an array of records of one length. Its bytes
    are then put in the places of these polygons.
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
        rows = records.view(np.uint8).reshape(len(chosen), -1)
        content[begin[:, None] + np.arange(kind.itemsize)] = rows
    return content.tobytes()


def _written(file: IO[bytes], piece: Piece) -> Iterator[int]:
    """Write text or an array, and yield the number of bytes of each step."""
    flat = piece if isinstance(piece, bytes) else piece.reshape(-1).view(np.uint8).data
    for first in range(0, len(flat), _MOST_BYTES):
        block = flat[first : first + _MOST_BYTES]
        file.write(block)
        yield len(block)


def _xml(found: Polygons) -> Iterator[Piece]:
    """A .vtp file: a description in XML, and then the arrays, each after its number of bytes."""
    arrays: list[NDArray[Any]] = []
    place = 0

    def described(columns: Mapping[str, NDArray[Any]]) -> str:
        nonlocal place
        lines = []
        for name, column in columns.items():
            kind, title = ("Float64", "<f8") if column.dtype.kind == "f" else ("Int64", "<i8")
            width = f' NumberOfComponents="{column.shape[1]}"' if column.ndim > 1 else ""
            lines.append(
                f'<DataArray type="{kind}" Name={quoteattr(name)}{width} format="appended" '
                f'offset="{place}"/>'
            )
            arrays.append(np.ascontiguousarray(column, title))
            place += 8 + arrays[-1].nbytes
        return "\n".join(lines)

    sections = [
        ("PointData", found.point_data),
        ("CellData", found.cell_data),
        ("Points", {"Points": found.points}),
        ("Polys", {"connectivity": found.corners, "offsets": found.offsets[1:]}),
    ]
    body = "\n".join(f"<{name}>\n{described(columns)}\n</{name}>" for name, columns in sections)
    yield (
        '<?xml version="1.0"?>\n<VTKFile type="PolyData" version="1.0" byte_order="LittleEndian" '
        f'header_type="UInt64">\n<PolyData>\n<Piece NumberOfPoints="{len(found.points)}" '
        f'NumberOfVerts="0" NumberOfLines="0" NumberOfStrips="0" '
        f'NumberOfPolys="{len(found.offsets) - 1}">\n{body}\n</Piece>\n</PolyData>\n'
        '<AppendedData encoding="raw">\n_'
    ).encode()
    for array in arrays:
        yield np.array([array.nbytes], "<u8")
        yield array
    yield b"\n</AppendedData>\n</VTKFile>\n"


def _legacy(found: Polygons) -> Iterator[Piece]:
    """A .vtk file: lines of text, each followed by an array in the order of bytes of a network."""
    faces = len(found.offsets) - 1
    yield b"# vtk DataFile Version 3.0\nregions by SplineCam\nBINARY\nDATASET POLYDATA\n"
    yield f"POINTS {len(found.points)} double\n".encode()
    yield found.points.astype(">f8")
    cells = found.sized_corners().astype(">i4")
    yield f"\nPOLYGONS {faces} {len(cells)}\n".encode()
    yield cells
    for title, columns in (("POINT_DATA", found.point_data), ("CELL_DATA", found.cell_data)):
        if not columns:
            continue
        rows = len(next(iter(columns.values())))
        yield f"\n{title} {rows}\nFIELD FieldData {len(columns)}\n".encode()
        for name, column in columns.items():
            kind, title_of = (">f8", "double") if column.dtype.kind == "f" else (">i4", "int")
            width = column.shape[1] if column.ndim > 1 else 1
            yield f"{name} {width} {rows} {title_of}\n".encode()
            yield column.astype(kind)
            yield b"\n"


def _obj(found: Polygons) -> Iterator[Piece]:
    """An .obj file: lines of text, with all digits of the coordinates."""
    for first in range(0, len(found.points), _RECORDS):
        rows = found.points[first : first + _RECORDS].tolist()
        yield "".join(f"v {x!r} {y!r} {z!r}\n" for x, y, z in rows).encode()
    for first in range(0, len(found.offsets) - 1, _RECORDS):
        offsets = found.offsets[first : first + _RECORDS + 1]
        words = np.char.mod(" %d", found.corners[offsets[0] : offsets[-1]] + 1).astype(object)
        words[offsets[:-1] - offsets[0]] = "\nf" + words[offsets[:-1] - offsets[0]]
        yield "".join(words.tolist()).encode()
    yield b"\n"


def _stl(found: Polygons) -> Iterator[Piece]:
    """A binary .stl file: triangles with normals, in single precision."""
    corners = found.points[_triangles(found)]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    size = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = np.divide(normal, size, out=np.zeros_like(normal), where=size > 0)
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("more", "<u2")])
    records = np.zeros(len(corners), kind)
    records["normal"], records["corners"] = normal, corners
    yield b"surface by SplineCam".ljust(80) + struct.pack("<I", len(corners))
    yield records


def _glb(found: Polygons) -> Iterator[Piece]:
    """A .glb file: triangles with shared vertices, in single precision."""
    points, corners = found.points.astype("<f4"), _triangles(found).astype("<u4")
    bounds = {"min": points.min(0).tolist(), "max": points.max(0).tolist()} if len(points) else {}
    about = {
        "asset": {"version": "2.0", "generator": "SplineCam"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": len(points), "type": "VEC3"} | bounds,
            {"bufferView": 1, "componentType": 5125, "count": corners.size, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": points.nbytes, "target": 34962},
            {"buffer": 0, "byteOffset": points.nbytes, "byteLength": corners.nbytes}
            | {"target": 34963},
        ],
        "buffers": [{"byteLength": points.nbytes + corners.nbytes}],
    }
    text = json.dumps(about, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    content = points.nbytes + corners.nbytes
    yield struct.pack("<4sII", b"glTF", 2, 28 + len(text) + content)
    yield struct.pack("<I4s", len(text), b"JSON") + text
    yield struct.pack("<I4s", content, b"BIN\0")
    yield points
    yield corners


def _triangles(found: Polygons) -> NDArray[np.int64]:
    assert found.triangles is not None, "the format has triangles only"
    return found.triangles


WRITERS: dict[str, Callable[[Polygons], Iterator[Piece]]] = {
    ".ply": _ply,
    ".vtp": _xml,
    ".vtk": _legacy,
    ".obj": _obj,
    ".stl": _stl,
    ".glb": _glb,
}
