"""Outlines of labelled faces: connected pieces, the rings that bound them, and their holes.

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

from splinecam._util.arrays import counts_of, offsets_of, owners_of, places_of, take, take_rows
from splinecam._util.graphs import components, long_cycles
from splinecam.geometry.subdivision import Mesh


@dataclass(frozen=True)
class Outlines:
    """P connected pieces of faces with one label each, and the R rings that bound them."""

    piece: Tensor  # (F,) the piece of each face, numbered by lowest face
    piece_label: Tensor  # (P,)
    offsets: Tensor  # (R + 1,) where the half-edges of each ring begin
    halves: Tensor  # half-edges in order, the piece on their left; around holes they run clockwise
    ring_piece: Tensor  # (R,) ascending, a piece's outer ring first
    ring_area: Tensor  # (R,) signed; a piece's rings add up to its area

    def __len__(self) -> int:
        return int(self.piece_label.shape[0])


def outlines(mesh: Mesh, label: Tensor) -> Outlines:
    """The connected pieces of faces with equal labels (F,), joined across edges, and their rings.

    >>> from splinecam.geometry.subdivision import polygon_mesh
    >>> square = polygon_mesh(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    >>> found = outlines(square, torch.zeros(1, dtype=torch.int64))
    >>> found.halves, found.ring_area
    (tensor([0, 2, 4, 6]), tensor([1.]))
    """
    face = mesh.halfedge_face()
    left, right = face.view(-1, 2).unbind(1)
    inner = (left >= 0) & (right >= 0)
    inner &= take(label, left.clamp(min=0)) == take(label, right.clamp(min=0))
    piece = components(mesh.num_faces, left[inner], right[inner])
    beside = torch.where(face >= 0, take(piece, face.clamp(min=0)), -1)
    ring, following = _borders(mesh, beside)
    offsets, members = long_cycles(following)
    offsets, halves, area = _outer_first(mesh, beside, offsets, take(ring, members))
    piece_label = label.new_empty(int(piece.max()) + 1 if piece.shape[0] else 0)
    piece_label[piece] = label
    return Outlines(piece, piece_label, offsets, halves, beside[halves[offsets[:-1]]], area)


def _borders(mesh: Mesh, beside: Tensor) -> tuple[Tensor, Tensor]:
    """The half-edges on the boundaries of pieces, (N,), and which follows each, (N,)."""
    apart = beside != beside.view(-1, 2).flip(1).reshape(-1)
    ring = (apart & (beside >= 0)).nonzero()[:, 0]
    after = torch.full_like(beside, -1)
    after[mesh.corners] = take(mesh.corners, mesh.next_corner())
    outgoing = take(after, ring)
    # At the end of a half-edge the search turns through the faces of the piece until it meets the
    # next boundary. So it does not join parts of a piece that only touch in a vertex.
    turning = (~take(apart, outgoing)).nonzero()[:, 0]
    while turning.shape[0]:  # at most as often as the largest degree of a vertex
        further = take(after, take(outgoing, turning) ^ 1)
        outgoing[turning] = further
        turning = turning[~take(apart, further)]
    place = torch.empty_like(beside)
    place[ring] = torch.arange(ring.shape[0], device=ring.device)
    return ring, take(place, outgoing)


def _outer_first(
    mesh: Mesh, beside: Tensor, offsets: Tensor, halves: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets, half-edges and areas of the rings, ordered by piece, the outer ring first."""
    ring = owners_of(offsets.diff(), halves.shape[0])
    ends = mesh.edges.view(-1)
    origin = take(mesh.uv, take(ends, halves[offsets[:-1]]))  # small areas keep their digits
    p, q = (take(mesh.uv, take(ends, h)) - take(origin, ring) for h in (halves, halves ^ 1))
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    area = cross.new_zeros(offsets.shape[0] - 1).index_add_(0, ring, cross) / 2
    piece = beside[halves[offsets[:-1]]]
    largest = area.new_full((area.shape[0],), -torch.inf).scatter_reduce(0, piece, area, "amax")
    order = torch.sort(2 * piece + (area < take(largest, piece)), stable=True).indices
    entries, counts = take_rows(offsets, order)
    return offsets_of(counts), take(halves, entries), take(area, order)


def closed_lines(offsets: Tensor, closed: Tensor | int = 1) -> tuple[Tensor, Tensor]:
    """Lists whose closed ones end with their first entry again: offsets, and places of entries."""
    counts = offsets.diff()
    longer = offsets_of(counts + closed)
    line = owners_of(longer.diff(), int(longer[-1]))
    return longer, offsets[line] + places_of(longer.diff(), line, longer) % counts[line]


@dataclass(frozen=True)
class FacePieces:
    """P connected pieces of faces with one label each."""

    piece: Tensor  # (F,) the piece of each face, numbered by lowest face
    label: Tensor  # (P,) of each piece
    holes: Tensor  # (P,) how many bounded pieces of the plane each one surrounds

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
    a, b = beside[(beside >= 0).all(1)].unbind(1)
    same = take(label, a) == take(label, b)
    a, b = a[same], b[same]
    if closed:
        # Pairs of faces that join all faces of one label around each vertex.
        owner = mesh.owners()
        key, order = torch.sort(take(label, owner) * mesh.num_vertices + mesh.corner_vertices())
        follows = (key[1:] == key[:-1]).nonzero()[:, 0]
        face = take(owner, order)
        a, b = torch.cat([a, take(face, follows)]), torch.cat([b, take(face, follows + 1)])
    piece = components(mesh.num_faces, a, b)
    count = int(piece.max()) + 1
    euler = _closed_euler(mesh, piece, count) if closed else _open_euler(mesh, piece, count)
    of_piece = label.new_empty(count)
    of_piece[piece] = label
    return FacePieces(piece, of_piece, 1 - euler)


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
