"""Meshes of several domains as one: a stack of parallel planes, each at a height of its own.

Faces meet only across edges, so that one mesh may as well have many components. A third coordinate,
the same for all vertices of a component, says whose they are. It costs no precision: between
vertices of one height every interpolation gives that height, and every difference zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of, owners_of, take, take_rows
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.engine.tiling import Tile
from splinecam.geometry.subdivision import Mesh, polygon_mesh

__all__ = ["part_of", "share_out", "stack", "unstack"]

Named = list[tuple[str, Ambiguities]]
"""Ambiguities with the names of the cuts that raised them."""


def stack(polygons: Sequence[Tensor]) -> Mesh:
    """The mesh of convex polygons, (k, 2) each, given counter-clockwise; one alone has no height.

    >>> triangle = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> stack([triangle, triangle]).uv[:, 2].tolist()
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    if len(polygons) == 1:
        return polygon_mesh(polygons[0])
    counts = torch.tensor([polygon.shape[0] for polygon in polygons])
    uv = torch.cat(list(polygons))
    height = owners_of(counts, uv.shape[0]).to(uv)
    return polygon_mesh(torch.cat([uv, height[:, None]], 1), counts)


def _heights(mesh: Mesh) -> tuple[Tensor, Tensor, Tensor]:
    """Which component each vertex (V,), edge (E,) and face (F,) belongs to."""
    vertex = mesh.uv[:, 2].long()
    edge = take(vertex, mesh.edges[:, 0])
    return vertex, edge, take(edge, take(mesh.corners, mesh.offsets[:-1]) >> 1)


def part_of(mesh: Mesh, members: range) -> Tile:
    """Some consecutive components; a single one has no height any more."""
    face = _heights(mesh)[2]
    chosen = ((face >= members.start) & (face < members.stop)).nonzero()[:, 0]
    part, vertex_ids, _ = mesh.select(chosen)
    return Tile(replace(part, uv=_flat(part.uv, members)), vertex_ids)


def _flat(uv: Tensor, members: range) -> Tensor:
    return uv if len(members) > 1 else uv[:, :2].contiguous()


def share_out(ambiguities: Named, parts: Sequence[range]) -> list[Named]:
    """What is doubtful in each part; the parts are ranges of components, one after the other."""
    shares: list[Named] = [[] for _ in parts]
    first = torch.tensor([members.start for members in parts])
    for name, ambiguity in ambiguities:
        uv = ambiguity.uv.cpu()
        part = torch.bucketize(uv[:, 2].contiguous(), first.to(uv), right=True) - 1
        order, _, counts = _ranked(part, len(parts))
        pieces = torch.split(uv[order], counts.tolist())
        for mine, members, piece in zip(shares, parts, pieces, strict=True):
            if piece.shape[0]:
                mine.append((name, Ambiguities(_flat(piece, members), ambiguity.reason)))
    return shares


def unstack(mesh: Mesh, values: Tensor, members: range) -> list[tuple[Mesh, Tensor]]:
    """Each of the components with its values: (V, n) at the vertices of all.

    All are numbered anew at once, in the order that they have, so that only views are left to make.
    """
    count = len(members)
    if count == 1:
        return [(mesh, values)]
    ranked = [_ranked(label - members.start, count) for label in _heights(mesh)]
    (vertices, new_vertex, v), (edges, new_edge, e), (faces, _, f) = ranked
    entries, sizes = take_rows(mesh.offsets, faces)
    half = take(mesh.corners, entries)
    label = owners_of(f, faces.shape[0])
    ends = offsets_of(sizes)
    starts = ends[offsets_of(f)[:-1]]
    # The offsets of a component with F faces are F + 1 numbers, the first of them zero.
    offsets = ends.new_zeros(faces.shape[0] + count)
    place = torch.arange(1, faces.shape[0] + 1, device=faces.device) + label
    offsets[place] = ends[1:] - take(starts, label)
    h = torch.diff(ends[offsets_of(f)])
    table = torch.stack([v, e, f, h]).tolist()
    columns = {
        "uv": (mesh.uv[vertices, :2], table[0]),
        "edges": (take(new_vertex, take(mesh.edges, edges).view(-1)).view(-1, 2), table[1]),
        "offsets": (offsets, [size + 1 for size in table[2]]),
        "corners": (2 * take(new_edge, half >> 1) + (half & 1), table[3]),
        "edge_layer": (take(mesh.edge_layer, edges), table[1]),
        "edge_unit": (take(mesh.edge_unit, edges), table[1]),
        "vertex_layer": (take(mesh.vertex_layer, vertices), table[0]),
    }
    parts = {name: torch.split(array, size) for name, (array, size) in columns.items()}
    rows = zip(*parts.values(), strict=True)
    meshes = (Mesh(**dict(zip(parts, row, strict=True))) for row in rows)
    return list(zip(meshes, torch.split(take(values, vertices), table[0]), strict=True))


def _ranked(label: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Members ordered by label (N,), the place of each one among its label's, the labels' sizes."""
    order = torch.sort(label, stable=True).indices
    sizes = torch.bincount(label, minlength=count)
    place = torch.empty_like(order)
    place[order] = torch.arange(order.shape[0], device=order.device)
    return order, place - take(offsets_of(sizes), label), sizes
