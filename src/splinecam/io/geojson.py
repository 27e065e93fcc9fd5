"""Regions as GeoJSON: a text file of polygons with properties (RFC 7946)."""

from __future__ import annotations

import json
import os
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from splinecam._util.files import opened
from splinecam._util.progress import progress_bar
from splinecam.analysis.partition_data import PartitionData
from splinecam.io.region_columns import Columns, class_names, region_columns, to_numpy

__all__ = ["to_geojson"]

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
    >>> part.to_geojson(file, columns=["area"])
    >>> collection = json.loads(file.getvalue())
    >>> collection["features"][0]["properties"]
    {'region': 0, 'area': 1.0}
    >>> collection["features"][0]["geometry"]["coordinates"]
    [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]
    """
    found = region_columns(part, columns)
    names = class_names(part)
    about = {"coordinates": "plane", "layers": part.layers, "names": names}
    vertex, offsets = to_numpy(part.face_vertices), to_numpy(part.face_offsets)
    template = _template(found, names)
    total = part.mesh.num_vertices + len(part)
    with opened(path) as file, progress_bar(total, " rows", progress) as bar:
        head = f'{{"type":"FeatureCollection","splinecam":{json.dumps(about)},"features":['
        file.write(head.encode())
        texts = _vertex_texts(to_numpy(part.vertices), bar)
        for first in range(0, len(part), _BLOCK):
            last = min(first + _BLOCK, len(part))
            heads = _heads(template, found, names, first, last)
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


def _template(columns: dict[str, NDArray[Any]], names: list[str] | None) -> str:
    """What stands before the coordinates of a region, with places for its numbers."""
    keys = ["region"]
    for name in columns:
        keys += ["class", "class_name"] if name == "class" and names else [name]
    properties = ",".join(f"{json.dumps(key)}:%s" for key in keys)
    return (
        f',\n{{"type":"Feature","id":%s,"properties":{{{properties}}},'
        '"geometry":{"type":"Polygon","coordinates":[['
    )


def _heads(
    template: str,
    columns: dict[str, NDArray[Any]],
    names: list[str] | None,
    first: int,
    last: int,
) -> list[str]:
    """The template with the numbers of the regions first, ..., last - 1."""
    numbers = range(first, last)
    cells: list[Any] = [numbers, numbers]
    for name, column in columns.items():
        block = column[first:last]
        cells.append(_json_numbers(block))
        if name == "class" and names:
            quoted = np.array([json.dumps(each) for each in names], dtype=object)
            cells.append(quoted[block].tolist())
    return list(map(template.__mod__, zip(*cells, strict=True)))


def _json_numbers(column: NDArray[Any]) -> list[Any]:
    """The numbers of a column, ``null`` where they are not finite; %s writes floats exactly."""
    if column.dtype.kind != "f" or np.isfinite(column).all():
        return column.tolist()  # type: ignore[no-any-return]
    return np.where(np.isfinite(column), column.astype(object), "null").tolist()  # type: ignore[no-any-return]


def _features(
    heads: list[str], texts: NDArray[Any], vertex: NDArray[Any], offsets: NDArray[Any]
) -> str:
    """The features of a block of regions.

    heads: the text before the coordinates of each region; texts: of all vertices; vertex: the
    vertices of all regions; offsets: where those of each region of the block begin.

    A region is a row of texts: its head, its vertices, the first vertex again without a comma, and
    what closes the feature. All rows are put together by index, and joined at once.
    """
    counts, start = np.diff(offsets), offsets[:-1] - offsets[0]
    corners = texts[vertex[offsets[0] : offsets[-1]]]
    ends = np.cumsum(counts + 3)
    row = np.full(ends[-1], "]]}}", dtype=object)
    row[ends - 3 - counts] = heads
    row[np.arange(len(corners)) + np.repeat(3 * np.arange(len(counts)) + 1, counts)] = corners
    row[ends - 2] = [*map(itemgetter(slice(-1)), corners[start].tolist())]
    return "".join(row.tolist())
