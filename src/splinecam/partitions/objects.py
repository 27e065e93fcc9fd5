"""Regions as objects of other libraries: a networkx graph, shapely polygons."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from splinecam._util.arrays import lengths, offsets_of, polygons, take, take_rows
from splinecam._util.options import limit_of
from splinecam._util.progress import progress_bar
from splinecam._util.text import optional
from splinecam.errors import LimitError
from splinecam.partitions.exports import class_names, region_columns, to_numpy
from splinecam.questions.partition_data import PartitionData

_log = logging.getLogger("splinecam")

_BLOCK = 1 << 14  # nodes or edges between two updates of the bar

# Bytes and seconds of each region with its edges, measured with networkx 3.6 and Python 3.11.
_PLAIN = 1700, 12e-6
_MAPS = 250, 2e-6
_ENDS = 1000, 4e-6


def to_networkx(
    part: PartitionData,
    *,
    maps: bool = True,
    ends: bool = True,
    max_regions: float | None = 100_000,
    progress: bool = True,
) -> Any:
    """The graph of regions that share an edge, as a ``networkx.Graph``.

    Nodes are the numbers of the regions. A node has ``class``, ``area``, ``layer`` (the last layer
    that bounds the region, -1 for none), ``vertices``, ``centroid_u`` and ``centroid_v``; with
    names of classes also ``class_name``. An edge of the graph has the ``length`` of what the two
    regions share, the number ``edge`` of the edge between them in the partition, the ``layer`` and
    ``unit`` that drew it, and ``layer_name``. If two regions share several edges, which are then
    on one line, ``edge``, ``layer`` and ``unit`` belong to the first.

    A graph of Python objects takes about twenty times the memory of the partition: above
    ``max_regions`` a ``LimitError`` says beforehand how much memory and time it takes.

    maps: give nodes ``weight`` (n_out, 2) and ``bias`` (n_out,), arrays of numpy. ends: give edges
    ``ends``, the two end points of the shared segment, ``((u, v), (u, v))``. Without both, all
    attributes are plain numbers and text, which files in GraphML, GEXF and GML can hold.
    max_regions: the most regions, or None for any number. progress: show a progress bar in
    interactive use.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> graph = part.to_networkx()
    >>> graph
    <networkx.classes.graph.Graph object at ...>
    >>> graph.number_of_nodes(), graph.number_of_edges(), graph.nodes[0]["area"]
    (4, 4, 1.0)
    """
    networkx = optional("networkx", "to_networkx")
    _tell_cost(part, maps, ends, limit_of("max_regions", max_regions))
    graph = networkx.Graph()
    with torch.no_grad():
        shared = _shared_edges(part)
        nodes, edges = _nodes(part, maps), _edges(part, shared, ends)
        total = len(part) + len(shared["edge"])
        with progress_bar(total, " nodes and edges", progress) as bar, _without_collection():
            for add, entries in ((graph.add_nodes_from, nodes), (graph.add_edges_from, edges)):
                while block := list(islice(entries, _BLOCK)):
                    add(block)
                    bar.update(len(block))
    return graph


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend the search for unreachable objects, which takes most of the time for millions."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _tell_cost(part: PartitionData, maps: bool, ends: bool, most: int | None) -> None:
    """Log the cost of a graph, or raise an error if there are too many regions."""
    numbers = 3 * part._n_out * 8 if maps else 0  # the weight and bias of a region
    parts = [_PLAIN, *([_MAPS] * maps), *([_ENDS] * ends)]
    memory = len(part) * (numbers + sum(each for each, _ in parts))
    seconds = len(part) * sum(each for _, each in parts)
    amount = f"{memory / 1e9:.1f} GB" if memory >= 1e9 else f"{max(1, round(memory / 1e6))} MB"
    cost = f"about {amount} of memory and {max(1, round(seconds)):,} s"
    if most is not None and len(part) > most:
        leaner = (
            "" if not (maps or ends) else " maps=False and ends=False leave out large attributes."
        )
        raise LimitError(
            f"A graph of {len(part):,} regions takes {cost}, and max_regions is {most:,}. "
            f"Say max_regions=None to make it anyway.{leaner}"
        )
    _log.info("networkx: a graph of %s regions takes %s", f"{len(part):,}", cost)


def _nodes(part: PartitionData, maps: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the attributes of each region."""
    usual = ["class", "area", "layer", "vertices", "centroid_u", "centroid_v"]
    columns: dict[str, Any] = {}
    names = class_names(part)
    for name, column in region_columns(part, usual).items():
        columns[name] = column.tolist()
        if name == "class" and names is not None:
            columns["class_name"] = [names[k] for k in columns[name]]
    if maps:  # views of two arrays
        columns |= {"weight": to_numpy(part.weight), "bias": to_numpy(part.bias)}
    rows = zip(*columns.values(), strict=True)
    return ((k, dict(zip(columns, row, strict=True))) for k, row in enumerate(rows))


def _shared_edges(part: PartitionData) -> dict[str, Tensor]:
    """The pairs of regions that share an edge, and what they share, (N, ...) each.

    pair: (N, 2) the two regions, the lower one first, ascending; edge: (N,) the first edge that
    they share; length: (N,) of all shared edges; ends: (N, 2, 2) their outer ends.
    """
    inner = (part._edge_faces >= 0).all(1).nonzero()[:, 0]
    pair = part._edge_faces[inner].sort(1).values
    key, order = torch.sort(pair[:, 0] * len(part) + pair[:, 1], stable=True)
    inner, pair = inner[order], pair[order]
    fresh = torch.ones_like(key, dtype=torch.bool)
    fresh[1:] = key[1:] != key[:-1]
    first = fresh.nonzero()[:, 0]
    group = torch.cumsum(fresh, 0) - 1
    ends = part.vertices[part.mesh.edges[inner]]
    local = part.mesh.uv[part.mesh.edges[inner]]  # short edges lose no digits there
    each = lengths(local[:, 1] - local[:, 0]) * part._frame.scale
    total = each.new_zeros(first.shape[0]).index_add_(0, group, each)
    found = {"pair": pair[first], "edge": inner[first], "length": total, "ends": ends[first]}
    if first.shape[0] < key.shape[0]:
        found["ends"] = _outer_ends(ends, group, first)
    return found


def _outer_ends(ends: Tensor, group: Tensor, first: Tensor) -> Tensor:
    """The two farthest ends of segments (S, 2, 2) on one line, by ascending groups (S,)."""
    start = ends[first, 0]
    along = (ends[first, 1] - start)[group, None]
    place = ((ends - start[group, None]) * along).sum(2)  # (S, 2) along the line
    outer = []
    for sign in (-1.0, 1.0):
        points, key = ends.flatten(0, 1), (sign * place).flatten()
        order = torch.sort(key, stable=True).indices
        farthest = start.clone()
        farthest[group.repeat_interleave(2)[order]] = points[order]  # the last one stays
        outer.append(farthest)
    return torch.stack(outer, 1)


def _edges(
    part: PartitionData, shared: dict[str, Tensor], ends: bool
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The two regions and the attributes of each edge of the graph."""
    edge = shared["edge"]
    layer = to_numpy(part.mesh.edge_layer[edge])
    titles: NDArray[Any] = np.array([*part.layers, ""], dtype=object)  # the last for -1
    columns: dict[str, Any] = {
        "length": shared["length"].tolist(),
        "edge": edge.tolist(),
        "layer": layer.tolist(),
        "unit": part.mesh.edge_unit[edge].tolist(),
        "layer_name": titles[layer].tolist(),
    }
    if ends:
        u0, v0, u1, v1 = shared["ends"].flatten(1).T.tolist()
        columns["ends"] = zip(zip(u0, v0, strict=True), zip(u1, v1, strict=True), strict=True)
    a, b = shared["pair"].T.tolist()
    rows = zip(*columns.values(), strict=True)
    attributes = map(dict, map(zip, repeat([*columns]), rows))
    return zip(a, b, attributes, strict=True)


def to_shapely(
    part: PartitionData, regions: Tensor | Sequence[int] | int | None = None
) -> NDArray[Any]:
    """The regions as an array of shapely polygons, (N,), in plane coordinates.

    Corners have the bits of ``part.vertices``, so that neighbours share theirs exactly. Where
    corners are as close together as the rounding of their coordinates, which is rare and mostly at
    ``part.unresolved`` places, a polygon may not be valid in shapely's sense: ``shapely.is_valid``
    finds such polygons, and ``shapely.make_valid`` repairs them.

    Curves (``decision_boundary``, ``level_set``, ``neurons``) and ``class_regions`` have a method
    of the same name.

    regions: numbers of regions, or a mask (F,), by default all.

    >>> import splinecam as sc, torch
    >>> part = sc.partition(torch.nn.ReLU(), sc.Domain.box(-1, 1), progress=False)
    >>> [polygon.area for polygon in part.to_shapely()]
    [1.0, 1.0, 1.0, 1.0]
    """
    vertex, offsets = part._face_vertices, part.mesh.offsets
    if regions is not None:
        entries, counts = take_rows(offsets, part._indices(regions))
        vertex, offsets = take(vertex, entries), offsets_of(counts)
    return polygons(offsets, take(part.vertices, vertex))
