"""Some regions of an atlas, those in a window, or what a picture shows, as one partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of, owners_of, take, take_rows
from splinecam.errors import DomainError
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.partitions.partition import Partition
from splinecam.questions.partition_data import PartitionData
from splinecam.tiles.atlas_data import AtlasData, Shared, Tile


def extract(
    atlas: AtlasData, choose: Callable[[PartitionData], Tensor], tiles: Sequence[int] | None = None
) -> tuple[Partition, Tensor]:
    """The regions that ``choose`` finds in each tile as one partition, and their numbers (F,).

    On the outline of the chosen regions, ``edge_faces`` has -1 on the other side.

    choose: called with each tile; returns the numbers of its regions, ascending. tiles: the numbers
    of the tiles to look at, ascending, by default all.
    """
    first = atlas.tile(0)
    nothing = first.mesh.offsets[:0]
    meshes, values, numbers = [_empty(first.mesh)], [first._outputs[:0]], [nothing]
    # Which vertex and edge of the atlas each of all meshes is: first those on seams.
    vertices, edges = [nothing], [nothing]
    vertex, edge = atlas.num_shared_vertices, atlas.num_shared_edges
    for number in range(atlas.num_tiles) if tiles is None else tiles:
        tile = atlas.tile(number)
        faces = choose(tile)
        if faces.shape[0]:
            mesh, vertex_ids, edge_ids = tile.mesh.select(faces)
            meshes.append(mesh)
            values.append(tile._outputs[vertex_ids])
            numbers.append(faces + int(atlas.first_region[number]))
            vertices.append(_named(vertex_ids, atlas.shared_vertices(number), vertex))
            edges.append(_named(edge_ids, atlas.shared_edges(number), edge))
            vertex, edge = vertex + mesh.num_vertices, edge + mesh.num_edges
    mesh, kept = _glued(meshes, torch.cat(vertices), torch.cat(edges))
    regions, outputs = torch.cat(numbers), torch.cat(values)[kept]
    part = replace(first, mesh=mesh, _outputs=outputs, unresolved=atlas.unresolved)
    part._settled = None if atlas._wanted is None else ~atlas.complete[regions]
    part.names = atlas.names
    part._model, part._program = atlas._model, atlas._program
    return part, regions


def _empty(like: Mesh) -> Mesh:
    """A mesh without any face."""
    index = like.offsets[:0]
    pairs, points = index.view(0, 2), like.uv[:0]
    return Mesh(points, pairs, index.new_zeros(1), index, index, index, index)


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


def _glued(meshes: list[Mesh], vertices: Tensor, edges: Tensor) -> tuple[Mesh, Tensor]:
    """All meshes as one, without vertices and edges of a name twice; also which vertices it has."""
    joined = {
        name: torch.cat([getattr(mesh, name) for mesh in meshes])
        for name in ("uv", "vertex_layer", "edge_layer", "edge_unit")
    }
    kept_vertex, vertex = _firsts(vertices)
    kept_edge, edge = _firsts(edges)
    ends, corners, at_vertex, at_edge = [], [], 0, 0
    for mesh in meshes:
        ends.append(vertex[at_vertex + mesh.edges])
        corners.append(2 * edge[at_edge + (mesh.corners >> 1)] + (mesh.corners & 1))
        at_vertex, at_edge = at_vertex + mesh.num_vertices, at_edge + mesh.num_edges
    mesh = Mesh(
        uv=joined["uv"][kept_vertex],
        edges=torch.cat(ends)[kept_edge],
        offsets=offsets_of(torch.cat([mesh.counts() for mesh in meshes])),
        corners=torch.cat(corners),
        edge_layer=joined["edge_layer"][kept_edge],
        edge_unit=joined["edge_unit"][kept_edge],
        vertex_layer=joined["vertex_layer"][kept_vertex],
    )
    return mesh, kept_vertex


Box = tuple[float, float, float, float]


def window(atlas: AtlasData, box: Sequence[float]) -> Partition:
    """The regions that meet a rectangle, as one partition in memory.

    Its regions cover the rectangle; its ``domain`` is the whole one. On the outline of the
    regions, ``edge_faces`` has -1 on the other side. Tiles beside the rectangle are not read.

    box: the rectangle (u0, v0, u1, v1) in plane coordinates.
    """
    local = local_box(atlas.frame, checked_box(box))
    part, _ = extract(atlas, lambda tile: meeting(tile.mesh, local), tiles_in(atlas, local))
    if not len(part):
        raise DomainError(f"The window {list(box)} is outside of the domain.")
    return part


def checked_box(box: Sequence[float]) -> Box:
    """A rectangle as four numbers; an error if it is none."""
    try:
        u0, v0, u1, v1 = map(float, box)
    except (TypeError, ValueError):
        raise TypeError(f"a window has four numbers, u0, v0, u1 and v1, not {box!r}") from None
    if not (all(map(math.isfinite, (u0, v0, u1, v1))) and u0 < u1 and v0 < v1):
        raise ValueError(f"the window {[u0, v0, u1, v1]} is empty, or not finite")
    return u0, v0, u1, v1


def local_box(frame: Frame, box: Box) -> Box:
    """A rectangle of the plane in local coordinates."""
    u0, v0, u1, v1 = frame.to_local(torch.tensor(box, dtype=torch.float64).view(2, 2)).flatten()
    return float(u0), float(v0), float(u1), float(v1)


def touching(boxes: Tensor, box: Box) -> Tensor:
    """Whether each of some boxes (N, 4) meets a rectangle, (N,)."""
    u0, v0, u1, v1 = box
    left, low, right, high = boxes.unbind(1)
    return (left <= u1) & (right >= u0) & (low <= v1) & (high >= v0)


def tiles_in(atlas: AtlasData, local: Box) -> list[int]:
    """The numbers of the tiles whose boxes meet a local rectangle, ascending."""
    found: list[int] = touching(atlas.boxes, local).nonzero()[:, 0].tolist()
    return found


def selected(tile: Tile, faces: Tensor) -> Tile:
    """Some regions of a tile, as a partition with the tile's model and names."""
    mesh, vertices, _ = tile.mesh.select(faces)
    settled = None if tile._settled is None else tile._settled[faces]
    part = replace(tile, mesh=mesh, _outputs=tile._outputs[vertices], _settled=settled)
    part.names = tile.names
    part._model, part._program = tile._model, tile._program
    return part


def meeting(mesh: Mesh, box: Box) -> Tensor:
    """The faces that meet a rectangle (u0, v0, u1, v1) in the mesh's coordinates, ascending."""
    u0, v0, u1, v1 = box
    left, low, right, high = mesh.boxes().unbind(1)
    faces = touching(mesh.boxes(), box).nonzero()[:, 0]
    if bool(((left >= u0) & (right <= u1) & (low >= v0) & (high <= v1)).all()):
        return faces
    entries, counts = take_rows(mesh.offsets, faces)
    half, ends = take(mesh.corners, entries), mesh.edges.view(-1)
    p = take(mesh.uv, take(ends, half))
    side = take(mesh.uv, take(ends, half ^ 1)) - p
    # The corner of the rectangle that is farthest to the left of a side's line.
    first, last = p.new_tensor([u0, v0]), p.new_tensor([u1, v1])
    x = torch.where(side[:, 1] > 0, first[0], last[0]) - p[:, 0]
    y = torch.where(side[:, 0] > 0, last[1], first[1]) - p[:, 1]
    apart = side[:, 0] * y - side[:, 1] * x < 0
    owner = owners_of(counts, entries.shape[0])
    number = torch.zeros_like(faces).index_add_(0, owner, apart.long())
    return faces[number == 0]


def middle_window(atlas: AtlasData, regions: int) -> Box:
    """The largest window around the middle of the domain that at most so many regions meet."""
    corners = atlas.frame.to_local(atlas.domain.corners)
    low, high = corners.amin(0), corners.amax(0)
    center, half = (low + high) / 2, (high - low) / 2
    boxes = atlas.boxes
    nearest = _reach(boxes, center, half)
    smallest = torch.empty(0, dtype=torch.float64, device=atlas.device)
    for number in torch.argsort(nearest).tolist():
        if smallest.shape[0] > regions and float(nearest[number]) > float(smallest[-1]):
            break
        reach = _reach(atlas.tile(number).mesh.boxes(), center, half)
        smallest = torch.sort(torch.cat([smallest, reach])).values[: regions + 1]
    share = 1.0
    if smallest.shape[0] > regions:  # the window ends before the first region that is too many
        share = min(1.0, math.nextafter(float(smallest[-1]), 0.0))
    share = max(share, 2.0**-40)
    low, high = (atlas.frame.to_plane(center + sign * share * half) for sign in (-1, 1))
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _reach(boxes: Tensor, center: Tensor, half: Tensor) -> Tensor:
    """How much of the way from the middle to the border a window goes to meet boxes (N, 4)."""
    low, high = boxes[:, :2] - center.to(boxes), center.to(boxes) - boxes[:, 2:]
    return (torch.maximum(low, high).clamp(min=0) / half.to(boxes)).amax(1)


@dataclass(frozen=True)
class Shown:
    """What a picture shows of an atlas."""

    atlas: AtlasData
    box: Box | None  # the window, None for the whole
    domain: Domain  # the rectangle, or the whole polygon
    tiles: list[int]  # the numbers of the tiles in the window
    count: int  # the number of regions in it

    @classmethod
    def of(cls, atlas: AtlasData, box: Box | None) -> Shown:
        """What is in a window, or in the whole atlas."""
        if box is None:
            return cls(atlas, None, atlas.domain, list(range(atlas.num_tiles)), len(atlas))
        local = local_box(atlas.frame, box)
        tiles = tiles_in(atlas, local)
        count = sum(meeting(atlas.tile(k).mesh, local).shape[0] for k in tiles)
        if not count:
            raise DomainError(f"The window {list(box)} is outside of the domain.")
        u0, v0, u1, v1 = box
        corners = torch.tensor([[u0, v0], [u1, v0], [u1, v1], [u0, v1]], dtype=torch.float64)
        domain = replace(atlas.domain, corners=corners.to(atlas.domain.corners))
        return cls(atlas, box, domain, tiles, count)

    def some(self, count: int) -> tuple[Partition, Tensor]:
        """About so many of the regions, evenly chosen, or all of them, and their numbers (F,)."""
        step = max(1, -(-self.count // count))
        local = None if self.box is None else local_box(self.atlas.frame, self.box)

        def evenly(tile: PartitionData) -> Tensor:
            if local is not None:
                return meeting(tile.mesh, local)[::step]
            return torch.arange(0, len(tile), step, device=tile.mesh.uv.device)

        return extract(self.atlas, evenly, self.tiles)


def colors_of(atlas: AtlasData, color: Any, numbers: Tensor) -> Any:
    """The part of an array with an entry for each region of the atlas, or the colour as it is."""
    if color is None or isinstance(color, str):
        return color
    try:
        size = len(color)
    except TypeError:
        return color  # which is wrong, as the picture says
    if size != len(atlas):
        raise ValueError(f"color has {size:,} entries, but the atlas has {len(atlas):,} regions")
    if isinstance(color, Tensor):
        return color[numbers.to(color.device)]
    if isinstance(color, list | tuple):
        return [color[k] for k in numbers.tolist()]
    return color[numbers.cpu().numpy()]
