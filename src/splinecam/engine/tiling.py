"""Divide a mesh into tiles that are refined on their own, and join them again.

Both tiles of a shared edge find the same new vertices on it, up to rounding. In the joined mesh the
edge has one list of vertices, in order. Where one tile has a vertex that the other lacks, which is
possible within rounding only, the other's faces get it as a corner on a straight side, so that the
joined mesh is always watertight. There may be any number of tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of, owners_of, places_of, sort_rows, take
from splinecam._util.backend import release_memory
from splinecam._util.tolerances import EPS, SAFETY, UV_ERROR
from splinecam.geometry.subdivision import Mesh

_CELLS = ("uv", "vertex_layer", "edges", "edge_layer", "edge_unit")  # arrays of vertices and edges
_APART = 2.0**-20  # beyond this, vertices of tiles that divide edges differently are not one
ROOT = -2  # edge_layer of a tile's edge: ROOT - (edge of the whole mesh it is a piece of)


@dataclass(frozen=True)
class MeshTile:
    """A part of a mesh; its first vertices are vertices ``vertex_ids`` of the whole mesh."""

    mesh: Mesh
    vertex_ids: Tensor


def tile_of(mesh: Mesh, faces: Tensor, *, rim: bool = False) -> MeshTile:
    """The tile of some faces, whose edges are marked as pieces of the whole mesh's edges.

    rim: mark only edges that other tiles may have too, and those that were marked before.
    """
    faces = torch.sort(faces).values
    part, vertex_ids, edge_ids = mesh.select(faces)
    layer = ROOT - edge_ids
    if rim:
        inside = torch.bincount(part.corners >> 1, minlength=part.num_edges) == 2
        layer = torch.where(inside & (part.edge_layer > ROOT), part.edge_layer, layer)
    return MeshTile(replace(part, edge_layer=layer), vertex_ids)


def halves(members: range) -> tuple[range, range]:
    """Two halves of a range of faces, as ``sorted_faces`` orders them."""
    middle = len(members) // 2
    return members[:middle], members[middle:]


def sorted_faces(mesh: Mesh, depth: int = 12) -> Tensor:
    """The faces sorted by median cuts, (F,); depth: how often they are halved at most."""
    middle = mesh.means()
    count = mesh.num_faces
    order = torch.arange(count, device=middle.device)
    parts = [range(count)]
    for _ in range(depth):
        sizes = torch.tensor([len(part) for part in parts], device=middle.device)
        part = owners_of(sizes, count)
        points = middle[order]
        low, high = (
            points.new_zeros((len(parts), 2)).scatter_reduce_(
                0, part[:, None].expand(-1, 2), points, kind, include_self=False
            )
            for kind in ("amin", "amax")
        )
        axis = (high - low).argmax(1)[part]
        along = points.gather(1, axis[:, None])[:, 0] - low[part, axis]
        share = along / (high - low).amax(1).clamp(min=EPS)[part]
        order = order[sort_rows(part, share)[0]]
        if len(parts) >= count // 2:
            break
        parts = [half for each in parts for half in halves(each)]
    return order


def join_tiles(
    mesh: Mesh, tiles: list[MeshTile], *, alike: bool = True
) -> tuple[Mesh, list[Tensor]]:
    """The refined mesh of all tiles, and for each tile the new index of its vertices.

    mesh: the mesh before it was divided; tiles: with their refined meshes. The list is emptied,
    so that the memory of a tile is free as soon as it is copied. alike: see ``unite``.
    """
    mesh, tiles[:] = _marked(mesh, tiles)
    seams = _seams(mesh, tiles, alike)
    num_vertices, num_edges = mesh.num_vertices + seams.count, mesh.num_edges + seams.count
    places: list[Tensor] = []
    whole = _divided(mesh, tiles, seams)
    parts = {name: [getattr(whole, name)] for name in _CELLS}
    sizes, corners = [], []
    waiting = tiles[::-1]
    tiles.clear()
    while waiting:
        tile = waiting.pop()
        place = seams.places(len(places), tile, num_vertices)
        drawn = (tile.mesh.edge_layer > ROOT).nonzero()[:, 0]
        fresh = place >= num_vertices
        parts["uv"].append(tile.mesh.uv[fresh])
        parts["vertex_layer"].append(tile.mesh.vertex_layer[fresh])
        parts["edges"].append(place[tile.mesh.edges[drawn]])
        parts["edge_layer"].append(tile.mesh.edge_layer[drawn])
        parts["edge_unit"].append(tile.mesh.edge_unit[drawn])
        size, half = _corners(mesh, tile, seams, place, drawn, num_edges)
        sizes.append(size)
        corners.append(half)
        places.append(place)
        num_vertices += int(fresh.sum())
        num_edges += drawn.shape[0]
        del tile
    cells = {}
    for name in _CELLS:
        release_memory()
        cells[name] = torch.cat(parts.pop(name))
    offsets = offsets_of(torch.cat(sizes))
    return Mesh(offsets=offsets, corners=torch.cat(corners), **cells), places


def _marked(mesh: Mesh, tiles: list[MeshTile]) -> tuple[Mesh, list[MeshTile]]:
    """The whole mesh with only those edges of which tiles have marked pieces, and the tiles."""
    wanted = torch.zeros(mesh.num_edges, dtype=torch.bool, device=mesh.edges.device)
    for tile in tiles:
        layer = tile.mesh.edge_layer
        wanted[ROOT - layer[layer <= ROOT]] = True
    edge = wanted.nonzero()[:, 0]
    if edge.shape[0] == mesh.num_edges:
        return mesh, tiles
    number = torch.cumsum(wanted, 0) - 1
    cells = {name: getattr(mesh, name)[edge] for name in ("edges", "edge_layer", "edge_unit")}
    found = []
    for tile in tiles:
        layer = tile.mesh.edge_layer
        mark = ROOT - number[(ROOT - layer).clamp(min=0)]
        layer = torch.where(layer <= ROOT, mark, layer)
        found.append(replace(tile, mesh=replace(tile.mesh.kept(), edge_layer=layer)))
    return replace(mesh.kept(), **cells), found


@dataclass(frozen=True)
class _Seams:
    """The new vertices on the whole mesh's edges, where those of two tiles are united.

    Per united vertex, (C,) ordered along each edge: ``edge``, and ``sample``, the tile and the
    vertex that it is taken from. first: (E + 1,) the united vertices of each edge. Per tile:
    ``vertex``, its vertices on edges, and ``united``, the united vertex of each. base: the number
    of vertices of the whole mesh.
    """

    edge: Tensor
    sample: Tensor
    first: Tensor
    vertex: list[Tensor]
    united: list[Tensor]
    base: int

    @property
    def count(self) -> int:
        return int(self.edge.shape[0])

    def places(self, number: int, tile: MeshTile, first_new: int) -> Tensor:
        """The index in the joined mesh of every vertex of a tile, (V,)."""
        known = tile.vertex_ids.shape[0]
        place = tile.vertex_ids.new_full((tile.mesh.num_vertices,), -1)
        place[:known] = tile.vertex_ids
        place[self.vertex[number]] = self.base + self.united[number]
        fresh = place < 0
        place[fresh] = first_new + torch.arange(int(fresh.sum()), device=place.device)
        return place


def _seams(mesh: Mesh, tiles: list[MeshTile], alike: bool) -> _Seams:
    """Unite the new vertices on edges."""
    found = [vertices_on_edges(mesh, tile, number) for number, tile in enumerate(tiles)]
    every = OnEdges(*(torch.cat(column) for column in zip(*found, strict=True)))
    order, starts = unite(mesh, every, alike=alike)
    every = OnEdges(*(column[order] for column in every))
    union = torch.cumsum(starts.long(), 0) - 1
    leader = starts.nonzero()[:, 0]
    return _Seams(
        edge=every.edge[leader],
        sample=torch.stack([every.number[leader], every.vertex[leader]], 1),
        first=offsets_of(torch.bincount(every.edge[leader], minlength=mesh.num_edges)),
        vertex=[every.vertex[every.number == i] for i in range(len(tiles))],
        united=[union[every.number == i] for i in range(len(tiles))],
        base=mesh.num_vertices,
    )


class OnEdges(NamedTuple):
    """New vertices of tiles on edges of the whole mesh, (N,) each.

    edge: of the whole mesh; vertex: of the tile; number: of the tile; t: position on the edge.
    """

    edge: Tensor
    vertex: Tensor
    number: Tensor
    t: Tensor


def vertices_on_edges(mesh: Mesh, tile: MeshTile, number: int) -> OnEdges:
    """The new vertices of a tile on edges, at which all pieces of an edge but the first begin."""
    start = tile.mesh.edges[:, 0]
    begins = (tile.mesh.edge_layer <= ROOT) & (start >= tile.vertex_ids.shape[0])
    start = start[begins]
    root = ROOT - tile.mesh.edge_layer[begins]
    a, b = mesh.uv[mesh.edges[root]].unbind(1)
    d = b - a
    t = (((tile.mesh.uv[start] - a) * d).sum(1) / (d * d).sum(1)).clamp(0, 1)
    return OnEdges(root, start, torch.full_like(root, number), t)


def unite(mesh: Mesh, found: OnEdges, *, alike: bool = True) -> tuple[Tensor, Tensor]:
    """The order of vertices along edges, and which ones in this order begin a united vertex.

    A united vertex has one vertex of each of the two tiles beside the edge at most. Neighbours
    along the edge from different tiles are one vertex when both tiles have as many vertices on the
    edge (then the k-th belongs to the k-th), or when they are as close as rounding.

    alike: whether both tiles divide an edge alike. Else vertices that are apart are not one.
    """
    order = sort_rows(found.edge, found.t)[0]
    edge, number, t = found.edge[order], found.number[order], found.t[order]
    if not edge.shape[0]:
        return order, edge.bool()
    length = (mesh.uv[mesh.edges[edge, 1]] - mesh.uv[mesh.edges[edge, 0]]).norm(dim=1)
    lowest = number.new_zeros(mesh.num_edges)
    lowest.scatter_reduce_(0, edge, number, "amin", include_self=False)
    second = number != lowest[edge]
    ones = torch.bincount(edge, second.double(), minlength=mesh.num_edges)
    alls = torch.bincount(edge, minlength=mesh.num_edges)
    even = (2 * ones == alls)[edge]
    fits = torch.zeros_like(edge, dtype=torch.bool)
    gap = (t[1:] - t[:-1]) * length[1:]
    near = (gap <= SAFETY * SAFETY * UV_ERROR) | (even[1:] & (gap <= (inf if alike else _APART)))
    fits[1:] = (edge[1:] == edge[:-1]) & (number[1:] != number[:-1]) & near
    # In a run of fitting neighbours the 2nd joins the 1st, the 4th the 3rd, and so on.
    index = torch.arange(edge.shape[0], device=edge.device)
    run = torch.cummax(torch.where(fits, 0, index), 0).values
    return order, (index - run) % 2 == 0


def _divided(mesh: Mesh, tiles: list[MeshTile], seams: _Seams) -> Mesh:
    """The whole mesh with every edge divided at its united vertices."""
    uv = mesh.uv.new_empty((seams.count, 2))
    made = mesh.vertex_layer.new_empty(seams.count)
    for index, tile in enumerate(tiles):
        mine = seams.sample[:, 0] == index
        uv[mine] = tile.mesh.uv[seams.sample[mine, 1]]
        made[mine] = tile.mesh.vertex_layer[seams.sample[mine, 1]]
    return mesh.divide(seams.edge, uv, made)


def _corners(
    mesh: Mesh, tile: MeshTile, seams: _Seams, place: Tensor, drawn: Tensor, first_edge: int
) -> tuple[Tensor, Tensor]:
    """Sizes and half-edges of a tile's faces in the joined mesh."""
    part = tile.mesh
    new_id = torch.empty_like(part.edge_layer)
    new_id[drawn] = first_edge + torch.arange(drawn.shape[0], device=drawn.device)
    piece = (part.edge_layer <= ROOT).nonzero()[:, 0]
    root = ROOT - part.edge_layer[piece]
    # Pieces of edge e are numbered 0, 1, ...; piece 0 keeps the id e, the others are appended.
    begin, end = (
        torch.where(
            place[vertex] >= mesh.num_vertices,
            place[vertex] - mesh.num_vertices - seams.first[root] + 1,
            torch.where(
                place[vertex] == mesh.edges[root, 0],
                0,
                seams.first[root + 1] - seams.first[root] + 1,
            ),
        )
        for vertex in part.edges[piece].unbind(1)
    )
    divided = mesh.num_edges + seams.first[root] + begin - 1
    new_id[piece] = torch.where(begin == 0, root, divided)
    edge, back = part.corners >> 1, part.corners & 1
    if bool((end - begin == 1).all()):
        return part.counts(), 2 * take(new_id, edge) + back
    # Another tile has vertices on this one's edges that this one lacks: edges are several pieces.
    spans = torch.zeros((3, part.num_edges), dtype=torch.int64, device=edge.device)
    spans[:, piece] = torch.stack([root, begin, end])
    spans[2, drawn] = 1
    root, begin, end = spans
    count = (end - begin)[edge]
    owner = owners_of(count)
    step = places_of(count, owner, offsets_of(count))
    e, backwards = edge[owner], back[owner]
    number = torch.where(backwards == 1, end[e] - 1 - step, begin[e] + step)
    divided = torch.where(number == 0, root[e], mesh.num_edges + seams.first[root[e]] + number - 1)
    half = 2 * torch.where(part.edge_layer[e] <= ROOT, divided, new_id[e]) + backwards
    return part.sums(count), half
