"""Regions as a VTK file: the polygon formats that ParaView and PyVista read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import IO, Any, BinaryIO
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from splinecam._util.files import opened
from splinecam._util.progress import progress_bar
from splinecam.analysis.partition_data import PartitionData
from splinecam.errors import FileError
from splinecam.io.region_columns import Columns
from splinecam.io.surfaces import Heights, Space, Surface, surface_of

__all__ = ["to_vtk"]

_MOST_BYTES = 1 << 24  # that are written at a time


def to_vtk(
    part: PartitionData,
    path: str | os.PathLike[str] | BinaryIO,
    *,
    output: Heights = None,
    space: Space = "plane",
    columns: Columns | None = None,
    progress: bool = True,
) -> None:
    """Write the regions as polygons in space to a VTK file, which appears when it is complete.

    Points have ``layer`` and the outputs: ``output_0``, ..., or of more than 16 one array
    ``outputs``; cells have ``region`` and the chosen columns.

    path: the file. ``.vtp`` is VTK's XML format for polygons, with binary arrays, which is also
    written to an open file; ``.vtk`` is its older format, for programs that read no other.
    output, space, columns, progress: as for ``to_ply``.

    >>> import io, splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> file = io.BytesIO()
    >>> part.to_vtk(file, output=0, columns=["area", "slope_spectral"])
    >>> b'NumberOfPolys="4"' in file.getvalue()
    True
    """
    suffix = PurePath(path).suffix if isinstance(path, str | os.PathLike) else ".vtp"
    if suffix.lower() not in _FORMATS:
        raise FileError(f"{path} ends in neither .vtp nor .vtk, which VTK reads as polygons.")
    found = surface_of(part, output, space, columns)
    pieces = list(_FORMATS[suffix.lower()](found))
    total = sum(len(each) if isinstance(each, bytes) else each.nbytes for each in pieces)
    with opened(path) as file, progress_bar(total, "B", progress) as bar:
        for each in pieces:
            for size in _written(file, each):
                bar.update(size)


def _written(file: IO[bytes], piece: bytes | NDArray[Any]) -> Iterator[int]:
    """Write text or an array, and yield the number of bytes of each step."""
    flat = piece if isinstance(piece, bytes) else piece.reshape(-1).view(np.uint8).data
    for first in range(0, len(flat), _MOST_BYTES):
        block = flat[first : first + _MOST_BYTES]
        file.write(block)
        yield len(block)


# -- the XML format -------------------------------------------------------------------------------


def _xml(found: Surface) -> Iterator[bytes | NDArray[Any]]:
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


# -- the older format -----------------------------------------------------------------------------


def _legacy(found: Surface) -> Iterator[bytes | NDArray[Any]]:
    """A .vtk file: lines of text, each followed by an array in the order of bytes of a network."""
    faces = len(found.offsets) - 1
    yield b"# vtk DataFile Version 3.0\nregions by SplineCam\nBINARY\nDATASET POLYDATA\n"
    yield f"POINTS {len(found.points)} double\n".encode()
    yield found.points.astype(">f8")
    # Each polygon is the number of its corners, and then the corners.
    cells = np.empty(faces + len(found.corners), ">i4")
    begin = found.offsets[:-1] + np.arange(faces)
    counts = np.diff(found.offsets)
    cells[begin] = counts
    cells[np.arange(len(found.corners)) + np.repeat(np.arange(1, faces + 1), counts)] = (
        found.corners
    )
    yield f"\nPOLYGONS {faces} {len(cells)}\n".encode()
    yield cells
    for title, columns in (("POINT_DATA", found.point_data), ("CELL_DATA", found.cell_data)):
        rows = len(next(iter(columns.values())))
        yield f"\n{title} {rows}\nFIELD FieldData {len(columns)}\n".encode()
        for name, column in columns.items():
            kind, title_of = (">f8", "double") if column.dtype.kind == "f" else (">i4", "int")
            width = column.shape[1] if column.ndim > 1 else 1
            yield f"{name} {width} {rows} {title_of}\n".encode()
            yield column.astype(kind)
            yield b"\n"


_FORMATS = {".vtp": _xml, ".vtk": _legacy}
