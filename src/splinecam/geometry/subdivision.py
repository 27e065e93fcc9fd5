"""The planar subdivision: convex faces, their shared vertices and edges, new vertices on lines.

Half-edge 2e runs edges[e, 0] -> edges[e, 1], its twin 2e + 1 runs back;
a face is a counter-clockwise cycle of half-edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import (
    Columns,
    following,
    offsets_of,
    owners_of,
    places_in,
    take,
    take_rows,
)
from splinecam._util.backend import backend_of


@dataclass(frozen=True)
class InterpolatedVertices(Columns):
    """New vertices between two older ones each: ``lerp(x[p], x[q], t)``, all (N,)."""

    p: Tensor
    q: Tensor
    t: Tensor

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def interpolate(
        self, x: Tensor, out: Tensor | None = None, spare: Tensor | None = None
    ) -> Tensor:
        """The values at the new vertices from x at the older ones; out, spare: memory to use."""
        t = self.t.view(-1, *[1] * (x.dim() - 1))
        p = torch.index_select(x, 0, self.p, out=out)
        return p.lerp_(torch.index_select(x, 0, self.q, out=spare), t)


@dataclass(frozen=True)
class Breakpoints:
    """Where slopes of units' results change on L lines: K breakpoints, in order along each."""

    offsets: Tensor  # (L + 1,) the breakpoints of each line
    t: Tensor  # (K,) the fraction of the line
    unit: Tensor  # (K,)
    slope_change: Tensor  # (K,) of the unit's result, per length of the line
    line: Tensor  # (N,) of each new vertex
    place: Tensor  # (N,) one of the breakpoints at each new vertex

    @classmethod
    def none(cls, interpolated: InterpolatedVertices) -> Breakpoints:
        """No breakpoints: all lines are straight."""
        line = torch.zeros_like(interpolated.p)
        return cls(line.new_zeros(2), interpolated.t[:0], line[:0], interpolated.t[:0], line, line)

    @property
    def count(self) -> int:
        return int(self.t.shape[0])

    def per_vertex(self) -> Tensor:
        """The number of breakpoints on the line of each new vertex, (N,)."""
        begin, end = self.offsets[:-1], self.offsets[1:]
        return end.index_select(0, self.line) - begin.index_select(0, self.line)


_BLOCK = 1 << 20  # corners in a block
_FEW = 16  # indices that are fewer than this part of all are sorted, others are marked
_MAX_SLACK = 1.25  # the largest storage of a tensor that is kept, relative to its size

BORDER = -1  # the layer of the domain's border and corners


@dataclass(frozen=True)
class Mesh:
    """A subdivision of a convex polygon into V vertices, E edges and F convex faces.

    uv: (V, 2); edges: (E, 2); offsets: (F + 1,) and corners: (H,) half-edges, face by face;
    edge_layer, edge_unit: (E,) the layer and unit that drew the edge (-1: the domain's border);
    vertex_layer: (V,) the layer that made the vertex (-1: a corner of the domain).
    """

    uv: Tensor
    edges: Tensor
    offsets: Tensor
    corners: Tensor
    edge_layer: Tensor
    edge_unit: Tensor
    vertex_layer: Tensor

    @property
    def num_vertices(self) -> int:
        return int(self.uv.shape[0])

    @property
    def num_edges(self) -> int:
        return int(self.edges.shape[0])

    @property
    def num_faces(self) -> int:
        return int(self.offsets.shape[0]) - 1

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def counts(self) -> Tensor:
        """The number of corners of each face, (F,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def owners(self) -> Tensor:
        """The face of each corner, (H,)."""
        return owners_of(self.counts(), self.corners.shape[0])

    def corner_vertices(self) -> Tensor:
        """The vertex at which each corner's half-edge starts, (H,)."""
        return take(self.edges.view(-1), self.corners)

    def next_corner(self) -> Tensor:
        """The corner that follows each corner around its face, (H,)."""
        return following(self.offsets, self.corners.shape[0])

    def previous_corner(self) -> Tensor:
        """The corner before each corner around its face, (H,)."""
        before = torch.arange(-1, self.corners.shape[0] - 1, device=self.corners.device)
        before[self.offsets[:-1]] = self.offsets[1:] - 1
        return before

    def halfedge_face(self) -> Tensor:
        """The face to the left of each half-edge, -1 outside the domain, (2E,)."""
        face = self.corners.new_full((2 * self.num_edges,), -1)
        face[self.corners] = self.owners()
        return face

    def sums(self, corner_values: Tensor) -> Tensor:
        """The sum over the corners of each face: (H, ...) -> (F, ...)."""
        out = corner_values.new_zeros((self.num_faces, *corner_values.shape[1:]))
        return out.index_add_(0, self.owners(), corner_values)

    def means(self) -> Tensor:
        """The mean of each face's vertices, an interior point, (F, 2)."""
        return self.sums(self.uv[self.corner_vertices()]) / self.counts()[:, None]

    def ranges(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest and the largest of values (V, n) at the corners of each face, (F, n)."""
        vertex, owner = self.corner_vertices(), self.owners()
        low = values.new_full((values.shape[1], self.num_faces), torch.inf)
        high = -low
        for k, column in enumerate(values.unbind(1)):
            corner = take(column.contiguous(), vertex)
            low[k].scatter_reduce_(0, owner, corner, "amin")
            high[k].scatter_reduce_(0, owner, corner, "amax")
        return low.T.contiguous(), high.T.contiguous()

    def boxes(self) -> Tensor:
        """The smallest u and v and the largest u and v of each face, (F, 4)."""
        return torch.cat(self.ranges(self.uv), 1)

    def by_size(self, corners: int, *, at_least: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield faces with k corners each, (B,), and their vertices, (B, k), block by block.

        at_least: if not 0, k is a power of two and no less than this, and faces with fewer corners
        have their last one repeatedly. Few large blocks are faster than many on a GPU.
        """
        counts, vertex = self.counts(), self.corner_vertices()
        sizes = counts
        if at_least:
            sizes = 1 << torch.frexp(counts.clamp(min=at_least).double() - 1).exponent.long()
        for k, count in enumerate(torch.bincount(sizes).tolist()):
            if not count:
                continue
            places = torch.arange(k, device=vertex.device)
            every = places_in(sizes == k, count)
            for faces in torch.split(every, max(1, corners // k)):
                place = places
                if at_least:
                    place = torch.minimum(places, take(counts, faces)[:, None] - 1)
                yield faces, vertex[take(self.offsets, faces)[:, None] + place]

    def areas_and_centroids(self) -> tuple[Tensor, Tensor]:
        """Signed area (F,) and centroid (F, 2) of each face, from coordinates local to the face."""
        area, centroid = self.uv.new_empty(self.num_faces), self.uv.new_empty((self.num_faces, 2))
        axes = self.uv.T.contiguous()
        for face, vertex in self.by_size(_BLOCK):
            # A row for each corner: sums along columns are several times faster.
            places = vertex.T.reshape(-1)
            corner = torch.stack([take(axis, places) for axis in axes]).view(2, vertex.shape[1], -1)
            middle = corner.mean(1)
            p = corner - middle[:, None]
            q = p.roll(-1, 1)
            cross = p[0] * q[1] - p[1] * q[0]
            doubled = cross.sum(0)
            flat = doubled <= 0
            shift = ((p + q) * cross).sum(1) / (3 * torch.where(flat, 1.0, doubled))
            area[face] = doubled / 2
            centroid[face] = (middle + torch.where(flat, 0.0, shift)).T
        return area, centroid

    def divide(self, edge: Tensor, uv: Tensor, vertex_layer: Tensor) -> Mesh:
        """Divide edges (C,), ascending, at points (C, 2) in order along each edge.

        Point g becomes vertex V + g, where edge E + g begins. The faces still list undivided edges.
        """
        edges = torch.cat([self.edges, self.pieces(edge)])
        self.shorten(edges, edge)
        return Mesh(
            uv=torch.cat([self.uv, uv]),
            edges=edges,
            offsets=self.offsets,
            corners=self.corners,
            edge_layer=torch.cat([self.edge_layer, take(self.edge_layer, edge)]),
            edge_unit=torch.cat([self.edge_unit, take(self.edge_unit, edge)]),
            vertex_layer=torch.cat([self.vertex_layer, vertex_layer]),
        )

    def pieces(self, edge: Tensor) -> Tensor:
        """The edges (C, 2) that begin at the vertices V, V + 1, ... at which edges are divided."""
        first, count = self.num_vertices, edge.shape[0]
        vertex = torch.arange(first, first + count, device=edge.device)
        end = take(self.edges[:, 1], edge)
        torch.where(edge[1:] == edge[:-1], vertex[1:], end[:-1], out=end[:-1])
        return torch.stack([vertex, end], 1)

    def shorten(self, edges: Tensor, edge: Tensor) -> None:
        """End divided edges at their first new vertices; edges: all, followed by the pieces."""
        vertex = torch.arange(edge.shape[0], device=edge.device)
        ended = edge.clone()  # the edge, or the piece of it before
        torch.where(edge[1:] == edge[:-1], vertex[:-1] + self.num_edges, edge[1:], out=ended[1:])
        edges[:, 1].scatter_(0, ended, vertex + self.num_vertices)

    def select(self, faces: Tensor) -> tuple[Mesh, Tensor, Tensor]:
        """The mesh of some faces, with the old indices of its vertices and edges."""
        entries, counts = take_rows(self.offsets, faces)
        halves = take(self.corners, entries)
        edge_ids, new_edge = _renumbered(halves >> 1, self.num_edges)
        edges = take(self.edges, edge_ids)
        vertex_ids, new_vertex = _renumbered(edges.view(-1), self.num_vertices)
        mesh = Mesh(
            uv=self.uv[vertex_ids],
            edges=new_vertex.view(-1, 2),
            offsets=offsets_of(counts),
            corners=2 * new_edge + (halves & 1),
            edge_layer=self.edge_layer[edge_ids],
            edge_unit=self.edge_unit[edge_ids],
            vertex_layer=self.vertex_layer[vertex_ids],
        )
        return mesh, vertex_ids, edge_ids

    def kept(self) -> Mesh:
        """The same mesh in ordinary tensors, which inference mode does not mark."""
        return Mesh(*(kept(getattr(self, field.name)) for field in fields(self)))

    def to(self, device: torch.device) -> Mesh:
        """The same mesh on a device."""
        if self.uv.device == device:
            return self
        return Mesh(*(getattr(self, field.name).to(device) for field in fields(self)))


class LazyMesh(Mesh):
    """A mesh whose arrays are made when they are first used; a changed copy has all of them."""

    _sizes: tuple[int, int, int]
    _load: Callable[[Mesh, str], dict[str, Tensor]]
    source: Any = None  # of a changed copy, too

    @classmethod
    def of(
        cls,
        sizes: tuple[int, int, int],
        load: Callable[[Mesh, str], dict[str, Tensor]],
        source: Any = None,
    ) -> LazyMesh:
        """A mesh of so many vertices, edges and faces.

        load: gives the array of a name, and perhaps others. source: what it makes them of, for
        those who can use that instead.
        """
        mesh = cls.__new__(cls)
        vars(mesh).update(_sizes=sizes, _load=load, source=source)
        return mesh

    @property
    def num_vertices(self) -> int:
        return self._sizes[0] if "_sizes" in vars(self) else super().num_vertices

    @property
    def num_edges(self) -> int:
        return self._sizes[1] if "_sizes" in vars(self) else super().num_edges

    @property
    def num_faces(self) -> int:
        return self._sizes[2] if "_sizes" in vars(self) else super().num_faces

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.__dataclass_fields__:
            raise AttributeError(name)
        vars(self).update(self._load(self, name))
        return vars(self)[name]


def _renumbered(index: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The different ones of indices (N,) below a count, ascending, and the place of each, (N,)."""
    if index.shape[0] < count // _FEW:
        ids, place = torch.unique(index, return_inverse=True)
        return ids, place
    used = torch.zeros(count, dtype=torch.bool, device=index.device).index_fill_(0, index, True)
    return used.nonzero()[:, 0], take(torch.cumsum(used, 0).sub_(1), index)


def kept(value: Tensor) -> Tensor:
    """The same tensor as an ordinary one instead of one of inference mode."""
    if not value.is_inference():
        return value
    # On a CPU it shares its memory, unless the storage is much larger than the tensor.
    slack = value.untyped_storage().nbytes() > _MAX_SLACK * value.nbytes
    if slack or not backend_of(value.device).numpy_memory:
        return value.clone()
    return torch.from_numpy(value.numpy())


def polygon_mesh(uv: Tensor, counts: Tensor | None = None) -> Mesh:
    """The mesh of one convex polygon with counter-clockwise corners (k, 2).

    counts: (P,) the numbers of corners of P polygons that do not touch, if there are several.
    """
    k = uv.shape[0]
    index = torch.arange(k, device=uv.device)
    offsets = torch.tensor([0, k], device=uv.device) if counts is None else offsets_of(counts)
    after = index.roll(-1) if counts is None else following(offsets, k)
    border = torch.full((k,), BORDER, device=uv.device)
    return Mesh(
        uv=uv,
        edges=torch.stack([index, after], 1),
        offsets=offsets,
        corners=2 * index,
        edge_layer=border,
        edge_unit=border.clone(),
        vertex_layer=border.clone(),
    )
