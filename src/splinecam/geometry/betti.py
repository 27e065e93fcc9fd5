"""Betti numbers of labelled faces: how many pieces the faces of a label form, and their holes.

Faces are joined either across edges only, or also at vertices:

    +---+---+
    | a | b |     Across edges, the two faces a are two pieces, as open sets are;
    +---*---+     joined at the vertex * they are one piece, as closed sets are.
    | b | a |
    +---+---+

The holes of a piece follow from Euler's formula. A closed piece has V - E + F = 1 - holes, with all
vertices and edges of its faces. An open piece has the same, with those vertices and edges only that
the piece surrounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.connectivity import components
from splinecam._util.csr import counts_of, take
from splinecam.geometry.subdivision import Mesh

__all__ = ["FacePieces", "face_pieces"]


@dataclass(frozen=True)
class FacePieces:
    """P connected pieces of faces with one label each.

    piece: (F,) the piece of each face, numbered by lowest face; label: (P,) of each piece; holes:
    (P,) the number of bounded pieces of the plane that each piece surrounds.
    """

    piece: Tensor
    label: Tensor
    holes: Tensor

    def __len__(self) -> int:
        return int(self.label.shape[0])


def face_pieces(mesh: Mesh, label: Tensor, *, closed: bool = False) -> FacePieces:
    """The connected pieces of faces with equal labels (F,), and the holes of each.

    closed: join faces also at vertices, not only across edges.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> face_pieces(square, torch.zeros(1, dtype=torch.int64)).holes
    tensor([0])
    """
    beside = mesh.halfedge_face().view(-1, 2)
    inner = (beside >= 0).all(1)
    a, b = beside[inner].unbind(1)
    same = take(label, a) == take(label, b)
    a, b = a[same], b[same]
    if closed:
        first, second = _sharing_vertices(mesh, label)
        a, b = torch.cat([a, first]), torch.cat([b, second])
    piece = components(mesh.num_faces, a, b)
    count = int(piece.max()) + 1
    euler = _closed_euler(mesh, piece, count) if closed else _open_euler(mesh, piece, count)
    of_piece = label.new_empty(count)
    of_piece[piece] = label
    return FacePieces(piece, of_piece, 1 - euler)


def _sharing_vertices(mesh: Mesh, label: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of faces, (N,) each, that join all faces of one label around each vertex."""
    owner = mesh.owners()
    vertex = mesh.corner_vertices()
    key, order = torch.sort(take(label, owner) * mesh.num_vertices + vertex)
    follows = (key[1:] == key[:-1]).nonzero()[:, 0]
    face = take(owner, order)
    return take(face, follows), take(face, follows + 1)


def _closed_euler(mesh: Mesh, piece: Tensor, count: int) -> Tensor:
    """V - E + F of each piece with all its vertices and edges, (P,)."""
    own = take(piece, mesh.owners())
    vertices = _different(own * mesh.num_vertices + mesh.corner_vertices(), mesh.num_vertices)
    edges = _different(own * mesh.num_edges + (mesh.corners >> 1), mesh.num_edges)
    return counts_of(vertices, count) - counts_of(edges, count) + counts_of(piece, count)


def _different(key: Tensor, size: int) -> Tensor:
    """The piece of each different key, which is the piece times the size plus an index."""
    found: Tensor = torch.unique(key)
    return found // size


def _open_euler(mesh: Mesh, piece: Tensor, count: int) -> Tensor:
    """V - E + F of each piece with the vertices and edges that it surrounds, (P,)."""
    face = mesh.halfedge_face()
    beside = torch.where(face < 0, -1, take(piece, face.clamp(min=0))).view(-1, 2)
    inside = (beside[:, 0] == beside[:, 1]) & (beside[:, 0] >= 0)
    # A vertex is surrounded if no edge that ends in it separates the piece from something else.
    surrounded = torch.ones(mesh.num_vertices, dtype=torch.bool, device=face.device)
    surrounded[mesh.edges[~inside].view(-1)] = False
    around = torch.full_like(surrounded, -1, dtype=torch.int64)
    around[mesh.edges[inside].view(-1)] = beside[inside, 0].repeat_interleave(2)
    vertices, edges = around[surrounded & (around >= 0)], beside[inside, 0]
    return counts_of(vertices, count) - counts_of(edges, count) + counts_of(piece, count)
