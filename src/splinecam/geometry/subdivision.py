"""The planar subdivision: convex faces with shared vertices and edges, as flat arrays.

half-edge 2e runs edges[e, 0] -> edges[e, 1], its twin 2e + 1 runs back;
a face is a counter-clockwise cycle of half-edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.csr import following, offsets_of, owners_of, take, take_rows

__all__ = ["Mesh", "kept", "polygon_mesh"]

_BLOCK = 1 << 20  # corners looked at in one go
_MAX_SLACK = 1.25  # times what is needed is not too much memory to be kept

BORDER = -1  # the "op" that made the domain's border and corners


@dataclass(frozen=True)
class Mesh:
    """A subdivision of a convex polygon into V vertices, E edges and F convex faces.

    uv: (V, 2); edges: (E, 2); offsets: (F + 1,) and corners: (H,) half-edges, face by face;
    edge_layer, edge_unit: (E,) the cut and unit that drew the edge (-1: the domain's border);
    vertex_layer: (V,) the cut that made the vertex (-1: a corner of the domain).
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

    def counts(self) -> Tensor:
        """Number of corners of each face, (F,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def owners(self) -> Tensor:
        """Face of each corner, (H,)."""
        return owners_of(self.counts(), self.corners.shape[0])

    def corner_vertices(self) -> Tensor:
        """Vertex at which each corner's half-edge starts, (H,)."""
        return take(self.edges.view(-1), self.corners)

    def next_corner(self) -> Tensor:
        """Index of the corner that follows each corner around its face, (H,)."""
        return following(self.offsets, self.corners.shape[0])

    def previous_corner(self) -> Tensor:
        """Index of the corner before each corner around its face, (H,)."""
        before = torch.arange(-1, self.corners.shape[0] - 1, device=self.corners.device)
        before[self.offsets[:-1]] = self.offsets[1:] - 1
        return before

    def halfedge_face(self) -> Tensor:
        """Face to the left of each half-edge, -1 outside the domain, (2E,)."""
        face = self.corners.new_full((2 * self.num_edges,), -1)
        face[self.corners] = self.owners()
        return face

    def sums(self, corner_values: Tensor) -> Tensor:
        """Sum over each face's corners: (H, ...) -> (F, ...)."""
        out = corner_values.new_zeros((self.num_faces, *corner_values.shape[1:]))
        return out.index_add_(0, self.owners(), corner_values)

    def means(self) -> Tensor:
        """Mean of each face's vertices, (F, 2): an interior point, and the fan's local origin."""
        return self.sums(self.uv[self.corner_vertices()]) / self.counts()[:, None]

    def by_size(self, corners: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Faces with k corners each, (B,), and their vertices, (B, k), for every k there is.

        At most so many corners come at a time, and one face at least.
        """
        counts, vertex = self.counts(), self.corner_vertices()
        for k in torch.bincount(counts).nonzero()[:, 0].tolist():
            places = torch.arange(k, device=vertex.device)
            for faces in torch.split((counts == k).nonzero()[:, 0], max(1, corners // k)):
                yield faces, vertex[take(self.offsets, faces)[:, None] + places]

    def areas_and_centroids(self) -> tuple[Tensor, Tensor]:
        """Signed area (F,) and centroid (F, 2) of each face, from coordinates local to the face."""
        area, centroid = self.uv.new_empty(self.num_faces), self.uv.new_empty((self.num_faces, 2))
        axes = self.uv.T.contiguous()
        for face, vertex in self.by_size(_BLOCK):
            # A row for each corner: sums along columns are several times faster than along rows.
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
        """Divide edges at new vertices: (C,) edges ascending, (C, 2) points in order along each.

        Point g becomes vertex V + g and begins edge E + g; the faces still name whole edges.
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
        """The edges (C, 2) that begin at the vertices V, V + 1, ... by which edges are divided."""
        first, count = self.num_vertices, edge.shape[0]
        vertex = torch.arange(first, first + count, device=edge.device)
        end = take(self.edges[:, 1], edge)
        torch.where(edge[1:] == edge[:-1], vertex[1:], end[:-1], out=end[:-1])
        return torch.stack([vertex, end], 1)

    def shorten(self, edges: Tensor, edge: Tensor) -> None:
        """End divided edges at the first of their new vertices; edges: all, and then the pieces."""
        vertex = torch.arange(edge.shape[0], device=edge.device)
        ended = edge.clone()  # or the piece before
        torch.where(edge[1:] == edge[:-1], vertex[:-1] + self.num_edges, edge[1:], out=ended[1:])
        edges[:, 1].scatter_(0, ended, vertex + self.num_vertices)

    def select(self, faces: Tensor) -> tuple[Mesh, Tensor, Tensor]:
        """The sub-mesh of some faces, with the old indices of its vertices and edges."""
        entries, counts = take_rows(self.offsets, faces)
        halves = self.corners[entries]
        edge_ids, new_edge = torch.unique(halves >> 1, return_inverse=True)
        edges = self.edges[edge_ids]
        vertex_ids, new_vertex = torch.unique(edges, return_inverse=True)
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
        """The same mesh after inference mode, in tensors that may take part in everything."""
        return Mesh(*(kept(getattr(self, field.name)) for field in fields(self)))

    def to(self, device: torch.device) -> Mesh:
        """The same mesh on another device."""
        return Mesh(*(getattr(self, field.name).to(device) for field in fields(self)))


def kept(value: Tensor) -> Tensor:
    """The same tensor after inference mode, as one that may take part in everything.

    On a CPU it has the same memory, unless there is much more behind it.
    """
    slack = value.untyped_storage().nbytes() > _MAX_SLACK * value.nbytes
    if slack or not backend_of(value.device).numpy_memory:
        return value.clone()
    return torch.from_numpy(value.numpy())


def polygon_mesh(uv: Tensor, counts: Tensor | None = None) -> Mesh:
    """The mesh of one convex polygon, given counter-clockwise: (k, 2).

    counts: (P,) of how many corners each of P polygons has, if they are several that do not touch.
    """
    k = uv.shape[0]
    index = torch.arange(k, device=uv.device)
    offsets = torch.tensor([0, k], device=uv.device) if counts is None else offsets_of(counts)
    border = torch.full((k,), BORDER, device=uv.device)
    return Mesh(
        uv=uv,
        edges=torch.stack([index, following(offsets, k)], 1),
        offsets=offsets,
        corners=2 * index,
        edge_layer=border,
        edge_unit=border.clone(),
        vertex_layer=border.clone(),
    )
