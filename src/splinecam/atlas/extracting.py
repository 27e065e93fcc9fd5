"""Some regions of an atlas as one partition in memory, with the seams between tiles closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from splinecam._partition import Partition
from splinecam._util.csr import offsets_of
from splinecam.analysis.partition_data import PartitionData
from splinecam.atlas.atlas_data import AtlasData, Shared
from splinecam.geometry.subdivision import Mesh

__all__ = ["Extract", "extract"]


@dataclass(frozen=True)
class Extract:
    """Some regions of an atlas.

    part: them alone, as a partition; numbers: (F,) the number in the atlas of each of its regions,
    ascending.
    """

    part: Partition
    numbers: Tensor

    def in_atlas(self, regions: Tensor) -> Tensor:
        """The numbers in the atlas of regions of the part; -1 stays -1."""
        if not self.numbers.shape[0]:
            return regions
        return torch.where(regions < 0, -1, self.numbers[regions.clamp(min=0)])


@dataclass(frozen=True)
class _Piece:
    """The chosen regions of one tile.

    vertex, edge: which vertex and edge of the atlas each of the mesh's is; those that the tile
    shares come first, in the numbers of ``Atlas.shared_vertices`` and ``shared_edges``.
    """

    mesh: Mesh
    values: Tensor
    numbers: Tensor
    vertex: Tensor
    edge: Tensor


def extract(
    atlas: AtlasData,
    choose: Callable[[PartitionData], Tensor],
    tiles: Sequence[int] | None = None,
) -> Extract:
    """The regions that ``choose`` finds in each tile, as one partition.

    On the outline of the chosen regions, ``edge_faces`` has -1 on the other side.

    choose: called with each tile; returns the numbers of its regions, ascending. tiles: the numbers
    of the tiles to look at, ascending, by default all.
    """
    tiles = range(atlas.num_tiles) if tiles is None else tiles
    first = atlas.tile(0)
    pieces = list(_pieces(atlas, choose, tiles)) or [_nothing(first)]
    mesh, kept = _glued(pieces)
    values = torch.cat([piece.values for piece in pieces])[kept]
    part = replace(first, mesh=mesh, values=values, unresolved=atlas.unresolved)
    part.names = atlas.names
    part._model, part._program = atlas._model, atlas._program
    return Extract(part, torch.cat([piece.numbers for piece in pieces]))


def _nothing(tile: Partition) -> _Piece:
    """No region at all."""
    index = tile.face_offsets[:0]
    pairs, points = index.view(0, 2), tile.mesh.uv[:0]
    mesh = Mesh(points, pairs, index.new_zeros(1), index, index, index, index)
    return _Piece(mesh, tile.values[:0], index, index, index)


def _pieces(
    atlas: AtlasData, choose: Callable[[PartitionData], Tensor], tiles: Sequence[int]
) -> Iterator[_Piece]:
    """Yield the chosen regions of each tile that has any."""
    vertices, edges = atlas.num_shared_vertices, atlas.num_shared_edges
    for number in tiles:
        tile = atlas.tile(number)
        faces = choose(tile)
        if faces.shape[0]:
            mesh, vertex_ids, edge_ids = tile.mesh.select(faces)
            yield _Piece(
                mesh,
                tile.values[vertex_ids],
                faces + int(atlas.first_region[number]),
                _named(vertex_ids, atlas.shared_vertices(number), vertices),
                _named(edge_ids, atlas.shared_edges(number), edges),
            )
            vertices, edges = vertices + mesh.num_vertices, edges + mesh.num_edges


def _named(ids: Tensor, shared: Shared, fresh: int) -> Tensor:
    """The names of some vertices or edges of a tile: shared numbers, or numbers from fresh on."""
    names = fresh + torch.arange(ids.shape[0], device=ids.device)
    local = shared.local.contiguous()
    if local.shape[0]:
        place = torch.searchsorted(local, ids).clamp(max=local.shape[0] - 1)
        names = torch.where(local[place] == ids, shared.shared[place], names)
    return names


def _firsts(names: Tensor) -> tuple[Tensor, Tensor]:
    """The places at which different names occur first, ascending, and the new index of each."""
    if not names.shape[0]:
        return names, names
    _, label = torch.unique(names, return_inverse=True)
    place = torch.arange(names.shape[0], device=names.device)
    first = torch.full_like(place[: int(label.max()) + 1], names.shape[0])
    first.scatter_reduce_(0, label, place, "amin")
    first, order = torch.sort(first)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.shape[0], device=order.device)
    return first, rank[label]


def _glued(pieces: list[_Piece]) -> tuple[Mesh, Tensor]:
    """The meshes of all pieces as one, in which shared vertices and edges occur once.

    The second result tells which of all pieces' vertices it has.
    """
    joined = {
        field.name: torch.cat([getattr(piece.mesh, field.name) for piece in pieces])
        for field in fields(Mesh)
        if field.name not in ("edges", "offsets", "corners")
    }
    kept_vertex, vertex = _firsts(torch.cat([piece.vertex for piece in pieces]))
    kept_edge, edge = _firsts(torch.cat([piece.edge for piece in pieces]))
    edges, corners, at_vertex, at_edge = [], [], 0, 0
    for piece in pieces:
        mesh = piece.mesh
        edges.append(vertex[at_vertex + mesh.edges])
        corners.append(2 * edge[at_edge + (mesh.corners >> 1)] + (mesh.corners & 1))
        at_vertex, at_edge = at_vertex + mesh.num_vertices, at_edge + mesh.num_edges
    mesh = Mesh(
        uv=joined["uv"][kept_vertex],
        edges=torch.cat(edges)[kept_edge],
        offsets=offsets_of(torch.cat([piece.mesh.counts() for piece in pieces])),
        corners=torch.cat(corners),
        edge_layer=joined["edge_layer"][kept_edge],
        edge_unit=joined["edge_unit"][kept_edge],
        vertex_layer=joined["vertex_layer"][kept_vertex],
    )
    return mesh, kept_vertex
