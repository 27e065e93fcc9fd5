"""Where functions change sign along the edges of a mesh, and the new vertices there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from splinecam._util.csr import counts_of, lengths, offsets_of, sort_rows, take, take_each
from splinecam._util.tolerances import UV_ERROR, cluster, touching
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh

__all__ = [
    "TWICE",
    "UNCLEAR",
    "Ambiguities",
    "Columns",
    "EdgeCrossings",
    "EdgePoints",
    "find_edge_crossings",
]

UNCLEAR = "a unit switches too close to a vertex to tell its side"
TWICE = "a unit crosses a region's border more than twice"


@dataclass(frozen=True)
class Ambiguities:
    """Places (N, 2) that rounding leaves undecided, and the reason."""

    uv: Tensor
    reason: str


class Columns(Protocol):
    """Functions that are affine on every face, one per column."""

    @property
    def m(self) -> int: ...
    @property
    def error(self) -> Tensor: ...
    def at(self, vertex: Tensor, column: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class EdgePoints:
    """New vertices on edges, (C,) each, ordered by edge and along each edge.

    edge: the divided edge; a, b: its end vertices; t: the fraction of the edge, and error, how far
    rounding may shift it; uv: (C, 2) the place.
    """

    edge: Tensor
    a: Tensor
    b: Tensor
    t: Tensor
    error: Tensor
    uv: Tensor

    def select(self, chosen: Tensor) -> EdgePoints:
        return EdgePoints(*(take(part, chosen) for part in vars(self).values()))

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def interpolated(self) -> InterpolatedVertices:
        return InterpolatedVertices(self.a, self.b, self.t)


@dataclass(frozen=True)
class EdgeCrossings:
    """Places where functions change sign along edges, (N,) each, ordered along each edge.

    edge, column: the edge and the function; falling: whether the function falls from edges[e, 0]
    on; t: the fraction of the edge; change: by how much the function changes along the whole edge;
    position_error: (N, 2) how far rounding may shift the place along the edge. points: the new
    vertices, and point: the one at each crossing, which crossings share that rounding cannot tell
    apart. counts: (E,) how many new vertices each edge has.
    """

    edge: Tensor
    column: Tensor
    falling: Tensor
    t: Tensor
    change: Tensor
    position_error: Tensor
    point: Tensor
    points: EdgePoints
    counts: Tensor
    ambiguities: list[Ambiguities]

    @property
    def distinct(self) -> bool:
        """Whether every crossing has a vertex of its own."""
        return self.points.edge.shape == self.edge.shape

    @cached_property
    def first(self) -> Tensor:
        """Where the new vertices of each edge begin, (E + 1,)."""
        return offsets_of(self.counts)

    def divide(self, mesh: Mesh, layer: int) -> Mesh:
        """The mesh with its edges divided; its faces still name whole edges."""
        made_by = mesh.vertex_layer.new_full(self.points.t.shape, layer)
        return mesh.divide(self.points.edge, self.points.uv, made_by)


def find_edge_crossings(
    mesh: Mesh, functions: Columns, edge: Tensor, column: Tensor
) -> EdgeCrossings:
    """The crossings of edges (N,), ascending, by functions (N,) that change sign along them."""
    a, b = take_each(mesh.edges.T, edge)
    value = functions.at(a, column)
    change = value - functions.at(b, column)
    order, _, t = sort_rows(edge, value / change, mesh.num_edges)
    column, change = take(column, order), take(change, order)
    falling, change = change > 0, change.abs()

    start, end = take(mesh.uv, a), take(mesh.uv, b)
    length = lengths(end - start)
    shift = take(functions.error, column) / change
    uv = torch.lerp(start, end, t[:, None])
    points = EdgePoints(edge, a, b, t, shift + UV_ERROR / length, uv)
    at_end = torch.minimum(t, 1 - t) * length <= UV_ERROR
    point, points, ambiguities = _united(points, at_end)
    return EdgeCrossings(
        edge=edge,
        column=column,
        falling=falling,
        t=t,
        change=change,
        position_error=(end - start) * shift[:, None],
        point=point,
        points=points,
        counts=counts_of(points.edge, mesh.num_edges),
        ambiguities=ambiguities,
    )


def _united(points: EdgePoints, at_end: Tensor) -> tuple[Tensor, EdgePoints, list[Ambiguities]]:
    """Unite points that rounding cannot tell apart: the new number of each point, and the points.

    at_end: (C,) whether a point has the coordinates of an end of its edge, up to rounding.
    """
    point, ambiguities = torch.arange(points.count, device=points.edge.device), []
    touch = touching(points.edge, points.t, points.error)
    close, ended = torch.stack([touch.any(), at_end.any()]).tolist()  # one transfer from a GPU
    if close:
        point, best, doubtful = cluster(points.edge, points.t, points.error)
        if bool(doubtful.any()):
            chosen = torch.cat([doubtful.nonzero()[:, 0], best[point[doubtful]]])
            reason = "crossings of an edge too close to tell apart"
            ambiguities.append(Ambiguities(points.uv[chosen], reason))
        points, at_end = points.select(best), take(at_end, best)
    if ended and bool(at_end.any()):
        ambiguities.append(Ambiguities(points.uv[at_end], "a crossing too close to an edge's end"))
    return point, points, ambiguities
