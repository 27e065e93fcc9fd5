"""Where functions change sign along the edges of a mesh: its new vertices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from splinecam._util.csr import lengths, offsets_of, sort_rows, take, take_each
from splinecam._util.tolerances import UV_ERROR, cluster, touching
from splinecam.geometry.interpolation import InterpolatedVertices
from splinecam.geometry.subdivision import Mesh

__all__ = ["TWICE", "UNCLEAR", "Ambiguities", "Columns", "EdgeCrossings", "cut_edges"]

UNCLEAR = "a unit switches too close to a vertex to tell its side"
TWICE = "a unit crosses a region's border more than twice"


@dataclass(frozen=True)
class Ambiguities:
    """Places (N, 2) that rounding could not settle, and why."""

    uv: Tensor
    reason: str


class Columns(Protocol):
    """Functions that are affine on every face."""

    @property
    def m(self) -> int: ...
    @property
    def error(self) -> Tensor: ...
    def at(self, vertex: Tensor, column: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class EdgeCrossings:
    """Where functions change sign along edges, ordered along each edge.

    Hits, (N,): which of the given ones it is, edge, column, whether the function falls from
    edges[e, 0] on, its fraction at of the edge, how much the function changes along the whole edge,
    group (the new vertex), and blur (N, 2), how far rounding may shift it along the edge. Groups,
    (C,): edge, end vertices a, b, fraction t, its error shift and the place uv (C, 2). Edges, (E,):
    extra, the number of groups.
    """

    given: Tensor
    edge: Tensor
    column: Tensor
    falling: Tensor
    at: Tensor
    change: Tensor
    group: Tensor
    position_error: Tensor
    group_edge: Tensor
    a: Tensor
    b: Tensor
    t: Tensor
    shift: Tensor
    uv: Tensor
    extra: Tensor
    ambiguities: list[Ambiguities]

    @property
    def distinct(self) -> bool:
        """Whether every hit has a vertex of its own."""
        return self.group_edge.shape == self.edge.shape

    @cached_property
    def first(self) -> Tensor:
        """The groups of each edge, (E + 1,)."""
        return offsets_of(self.extra)

    def interpolated(self) -> InterpolatedVertices:
        """The new vertices."""
        return InterpolatedVertices(self.a, self.b, self.t)

    def divide(self, mesh: Mesh, op: int) -> Mesh:
        """The mesh with its edges divided; its faces still name whole edges."""
        return mesh.divide(self.group_edge, self.uv, mesh.vertex_layer.new_full(self.t.shape, op))


def cut_edges(mesh: Mesh, functions: Columns, edge: Tensor, column: Tensor) -> EdgeCrossings:
    """Find the new vertices where functions change sign along edges: edge (ascending), column."""
    a, b = take_each(mesh.edges.T, edge)
    za = functions.at(a, column)
    change = za - functions.at(b, column)
    order, _, t = sort_rows(edge, za / change, mesh.num_edges)
    column, change = take(column, order), take(change, order)
    falling, change = change > 0, change.abs()
    start, end = take(mesh.uv, a), take(mesh.uv, b)
    side = end - start
    length = lengths(side)
    shift = take(functions.error, column) / change
    error = shift + UV_ERROR / length
    group = torch.arange(edge.shape[0], device=edge.device)
    ambiguities, group_edge, at = [], edge, t
    position_error = side * shift[:, None]
    at_end = torch.minimum(t, 1 - t) * length <= UV_ERROR
    flags = torch.stack([touching(edge, t, error).any(), at_end.any()])
    close, ended = flags.tolist()  # both in one go: a GPU has to wait for it
    if close:
        group, best, doubtful = cluster(edge, t, error)
        if bool(doubtful.any()):
            chosen = torch.cat([doubtful.nonzero()[:, 0], best[group[doubtful]]])
            place = torch.lerp(start[chosen], end[chosen], at[chosen][:, None])
            ambiguities.append(Ambiguities(place, "cuts of an edge too close to tell apart"))
        group_edge, a, b, t, error = (take(x, best) for x in (edge, a, b, t, error))
        start, end, at_end = (take(x, best) for x in (start, end, at_end))
    uv = torch.lerp(start, end, t[:, None])
    if ended and bool(at_end.any()):
        ambiguities.append(Ambiguities(uv[at_end], "a cut of an edge too close to its end"))
    extra = mesh.corners.new_zeros(mesh.num_edges)
    extra.scatter_add_(0, group_edge, torch.ones_like(group_edge))
    return EdgeCrossings(
        given=order,
        edge=edge,
        column=column,
        falling=falling,
        at=at,
        change=change,
        group=group,
        position_error=position_error,
        group_edge=group_edge,
        a=a,
        b=b,
        t=t,
        shift=error,
        uv=uv,
        extra=extra,
        ambiguities=ambiguities,
    )
