"""Regions in files for other programs: GeoJSON, PLY, VTK and Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from splinecam._util.files import opened
from splinecam._util.progress import progress_bar
from splinecam._util.text import optional
from splinecam.errors import FileError, SplineCamError
from splinecam.files.polygons import Polygons, write
from splinecam.questions.boundary import output_of
from splinecam.questions.measures import (
    MOST_OUTPUTS,
    centroid_values,
    last_layers,
    measures,
    region_classes,
)
from splinecam.questions.partition_data import PartitionData

Columns = Sequence[str] | Literal["all"]

_USUAL = ("class", "area", "layer")
_MEASURES = ("perimeter", "diameter", "eccentricity", "slope_spectral", "slope_frobenius")


def region_columns(part: PartitionData, columns: Columns | None) -> dict[str, NDArray[Any]]:
    """The chosen columns by name, (F,) each; only what they need is computed.

    columns: names of columns of ``part.table()``, and ``"layer"``, the last layer that bounds a
    region, and ``"piece"``, its piece of ``part.merged()``. By default ``class``, ``area`` and
    ``layer``; ``"all"`` for all of them.

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> region_columns(part, ["vertices", "layer"])
    {'vertices': array([4, 4, 4, 4]), 'layer': array([0, 0, 0, 0])}
    """
    known = column_names(part)
    names = _USUAL if columns is None else known if columns == "all" else columns
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f'columns must be a list of names, or "all", not {columns!r}')
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise ValueError(f"there is no column {wrong!r}; the columns are {', '.join(known)}")
    with torch.no_grad():
        return {name: to_numpy(column) for name, column in _columns(part, names)}


def column_names(part: PartitionData) -> tuple[str, ...]:
    """The names of all columns."""
    count = part._n_out
    kinds = ("output",) if part.smoothing is None else ("output", "bound")
    shown = range(count if count <= MOST_OUTPUTS else 0)
    outputs = (f"{kind}_{k}" for kind in kinds for k in shown)
    return (*_USUAL, "vertices", *_MEASURES, "centroid_u", "centroid_v", "piece", *outputs)


_COLUMNS: dict[str, Callable[[PartitionData], Tensor]] = {
    "area": lambda part: part.areas,
    "layer": last_layers,
    "vertices": lambda part: part.mesh.counts(),
    "centroid_u": lambda part: part.centroids[:, 0],
    "centroid_v": lambda part: part.centroids[:, 1],
    "piece": lambda part: part.merged().labels,
}


def _columns(part: PartitionData, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield columns (F,) with their names; what several of them need is computed once."""
    values, measured = cache(partial(centroid_values, part)), cache(partial(measures, part))
    for name in names:
        kind, _, number = name.partition("_")
        if kind == "output":
            yield name, values()[:, int(number)]
        elif kind == "bound":
            yield name, part.region_bounds[:, int(number)]
        elif kind == "class":
            yield name, region_classes(part)
        else:
            yield name, _COLUMNS[name](part) if name in _COLUMNS else measured()[name]


def class_names(part: PartitionData) -> list[str] | None:
    """The names of the classes as a list, if there are any."""
    return None if part.names is None else list(part.names)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A tensor of any device as a contiguous array."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


Heights = int | Sequence[int] | None
Space = Literal["plane", "input"]


def surface_of(
    part: PartitionData, output: Heights, space: Space, columns: Columns | None
) -> Polygons:
    """The surface of a partition.

    output: the output that is the height, None for a flat surface, or three outputs as
    coordinates. space: the coordinates below the heights. columns: of the regions.
    """
    values = to_numpy(part.values)
    outputs = {f"output_{k}": values[:, k] for k in range(values.shape[1])}
    if len(outputs) > MOST_OUTPUTS:
        outputs = {"outputs": values}
    return Polygons(
        points=_points(part, output, space),
        offsets=to_numpy(part.mesh.offsets),
        corners=to_numpy(part._face_vertices),
        point_data={"layer": to_numpy(part.mesh.vertex_layer), **outputs},
        cell_data={"region": np.arange(len(part)), **region_columns(part, columns)},
    )


def _points(part: PartitionData, output: Heights, space: Space) -> NDArray[np.float64]:
    """The points of the vertices in space, (V, 3)."""
    if space not in ("plane", "input"):
        raise ValueError(f"space is {space!r}; choose 'plane' or 'input'")
    if output is not None and not isinstance(output, int | np.integer):
        try:
            which = [output_of(part, k) for k in output]
        except TypeError:
            what = "output must be a number, three of them or None"
            raise TypeError(f"{what}, not {output!r}") from None
        if len(which) != 3:
            raise ValueError(f"output must be one output or three, not {len(which)} of them")
        return to_numpy(part.values[:, which])
    points = np.zeros((part.mesh.num_vertices, 3))
    if space == "plane":
        points[:, :2] = to_numpy(part.vertices)
    else:
        dim = part.domain.dim
        if dim > 3:
            raise SplineCamError(
                f"The model has {dim} inputs, and points of a file have three coordinates. Leave "
                "space='input' out, for plane coordinates."
            )
        if dim == 3 and output is not None:
            raise SplineCamError(
                "The points of a network with 3 inputs have no room for a height: leave output= or "
                "space='input' out."
            )
        points[:, :dim] = to_numpy(part.domain.embed(part.vertices).reshape(-1, dim))
    if output is not None:
        points[:, 2] = to_numpy(part.values[:, output_of(part, int(output))])
    return points


_BLOCK = 1 << 15  # regions that are written at a time


def to_geojson(
    part: PartitionData,
    path: str | os.PathLike[str] | BinaryIO,
    *,
    columns: Columns | None = None,
    progress: bool = True,
) -> None:
    """Write the regions as polygons to a GeoJSON file, which appears when it is complete.

    Each region is a feature: its number is ``id`` and the property ``region``, its outline is
    closed and counter-clockwise. Coordinates are plane coordinates of the domain, not longitude and
    latitude, which programs for maps expect: tell them that there is no coordinate system. All
    numbers read back as the same float64. A number that is not finite becomes ``null``. The member
    ``splinecam`` of the collection has the names of the layers and of the classes.

    path: the file, conventionally ``.geojson``. columns: the properties, by default ``class``,
    ``area`` and ``layer`` (the last layer that bounds the region, as an index); names of columns of
    ``part.table()``, ``layer``, ``piece`` (of ``part.merged()``), or ``"all"``. If the classes have
    names, ``class_name`` goes with ``class``. progress: show a progress bar in interactive use.

    >>> import io, splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(0, 1), progress=False)
    >>> file = io.BytesIO()
    >>> to_geojson(part, file, columns=["area"])
    >>> collection = json.loads(file.getvalue())
    >>> collection["features"][0]["properties"]
    {'region': 0, 'area': 1.0}
    >>> collection["features"][0]["geometry"]["coordinates"]
    [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]
    """
    names = class_names(part)
    found: dict[str, NDArray[Any]] = {}
    for name, column in region_columns(part, columns).items():
        found[name] = column
        if name == "class" and names:
            found["class_name"] = np.array([*map(json.dumps, names)], dtype=object)[column]
    about = {"coordinates": "plane", "layers": part.layers, "names": names}
    vertex, offsets = to_numpy(part._face_vertices), to_numpy(part.mesh.offsets)
    properties = ",".join(f"{json.dumps(name)}:%s" for name in ("region", *found))
    template = (
        f',\n{{"type":"Feature","id":%s,"properties":{{{properties}}},'
        '"geometry":{"type":"Polygon","coordinates":[['
    )
    total = part.mesh.num_vertices + len(part)
    with opened(path) as file, progress_bar(total, " rows", progress) as bar:
        head = f'{{"type":"FeatureCollection","splinecam":{json.dumps(about)},"features":['
        file.write(head.encode())
        texts = _vertex_texts(to_numpy(part.vertices), bar)
        for first in range(0, len(part), _BLOCK):
            last = min(first + _BLOCK, len(part))
            numbers = range(first, last)
            cells = (_json_numbers(column[first:last]) for column in found.values())
            heads = [*map(template.__mod__, zip(numbers, numbers, *cells, strict=True))]
            text = _features(heads, texts, vertex, offsets[first : last + 1])
            file.write(text.encode() if first else text[1:].encode())  # no comma before the first
            bar.update(last - first)
        file.write(b"\n]}\n")


def _vertex_texts(uv: NDArray[Any], bar: tqdm[Any]) -> NDArray[Any]:
    """The coordinates of each vertex as text with a comma, (V,); each one is written only once."""
    texts = np.empty(len(uv), dtype=object)
    for first in range(0, len(uv), _BLOCK):
        u, v = uv[first : first + _BLOCK].T.tolist()
        texts[first : first + _BLOCK] = [*map("[%r,%r],".__mod__, zip(u, v, strict=True))]
        bar.update(len(u))
    return texts


def _json_numbers(column: NDArray[Any]) -> list[Any]:
    """The entries of a column, ``null`` where they are not finite; %s writes floats exactly."""
    if column.dtype.kind != "f" or np.isfinite(column).all():
        return column.tolist()  # type: ignore[no-any-return]
    return np.where(np.isfinite(column), column.astype(object), "null").tolist()  # type: ignore[no-any-return]


def _features(
    heads: list[str], texts: NDArray[Any], vertex: NDArray[Any], offsets: NDArray[Any]
) -> str:
    """The features of a block of regions.

    heads: the text before the coordinates of each region; texts: of all vertices; vertex: the
    vertices of all regions; offsets: where the vertices of each region of the block begin.

    A region is a row of texts: its head, its vertices, the first vertex again without a comma, and
    the end of the feature. All rows are put together by index, and joined at once.
    """
    counts, start = np.diff(offsets), offsets[:-1] - offsets[0]
    corners = texts[vertex[offsets[0] : offsets[-1]]]
    ends = np.cumsum(counts + 3)
    row = np.full(ends[-1], "]]}}", dtype=object)
    row[ends - 3 - counts] = heads
    row[np.arange(len(corners)) + np.repeat(3 * np.arange(len(counts)) + 1, counts)] = corners
    row[ends - 2] = [*map(itemgetter(slice(-1)), corners[start].tolist())]
    return "".join(row.tolist())


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
    >>> to_ply(part, file, output=0)
    >>> file.getvalue().splitlines()[2]
    b'element vertex 9'
    """
    write(surface_of(part, output, space, columns), path, ".ply", progress)


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
    >>> to_vtk(part, file, output=0, columns=["area", "slope_spectral"])
    >>> b'NumberOfPolys="4"' in file.getvalue()
    True
    """
    named = PurePath(path).suffix if isinstance(path, str | os.PathLike) else ".vtp"
    if named.lower() not in (".vtp", ".vtk"):
        raise FileError(f"{path} ends in neither .vtp nor .vtk, which VTK reads as polygons.")
    write(surface_of(part, output, space, columns), path, named.lower(), progress)


def to_parquet(
    part: PartitionData, path: str | os.PathLike[str] | BinaryIO, *, columns: Columns = "all"
) -> None:
    """Write one row per region to a Parquet file, which appears when it is complete.

    The number of the region is the column ``region``, for programs that know no index. If the
    classes have names, ``class_name`` is a categorical column.

    path: the file, conventionally ``.parquet``. columns: as for ``to_geojson``, by default all.

    >>> import io, pandas, splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> file = io.BytesIO()
    >>> to_parquet(part, file, columns=["area", "layer"])
    >>> pandas.read_parquet(file).columns.tolist()
    ['region', 'area', 'layer']
    """
    pyarrow = optional("pyarrow", "A Parquet file", "parquet")
    parquet = optional("pyarrow.parquet", "A Parquet file", "parquet")
    rows = {"region": np.arange(len(part)), **region_columns(part, columns)}
    table = pyarrow.table(rows)
    names = class_names(part)
    if names is not None and "class" in rows:
        number = rows["class"].astype(np.int32)
        named = pyarrow.DictionaryArray.from_arrays(number, pyarrow.array(names))
        table = table.add_column(table.column_names.index("class") + 1, "class_name", named)
    with opened(path) as file:
        parquet.write_table(table, file)


_WRITERS: dict[str, Callable[..., None]] = {
    ".geojson": to_geojson,
    ".json": to_geojson,
    ".parquet": to_parquet,
    ".ply": to_ply,
    ".vtk": to_vtk,
    ".vtp": to_vtk,
}


def export(part: PartitionData, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the regions to a file for other programs, in the format that its suffix names.

    ``.geojson`` and ``.json`` have polygons with properties, for geopandas, QGIS or a browser.
    ``.ply`` has a surface, for MeshLab, Blender, Open3D and trimesh. ``.vtp`` and ``.vtk`` have a
    surface, for ParaView and PyVista. ``.parquet`` has a row per region, for pandas or DuckDB.

    path: the file, which appears when it is complete. options: columns, the names of the numbers
    of each region, or ``"all"``; progress; for surfaces also output, the output that is the height,
    and space, the coordinates: ``"plane"``, or ``"input"`` for models of three inputs.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _WRITERS:
        raise ValueError(f"{Path(path).name!r} has none of the suffixes {', '.join(_WRITERS)}")
    _WRITERS[suffix](part, path, **options)
