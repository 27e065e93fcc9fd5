"""Join the strips of all units, and remove the artificial edges between them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of
from splinecam.atlas.borders import Border
from splinecam.atlas.seams import Seams
from splinecam.atlas.unit_files import Strip, places_among
from splinecam.geometry.subdivision import Mesh

__all__ = ["JoinedStrips", "join_strips"]


@dataclass(frozen=True)
class JoinedStrips:
    """All strips as one mesh, with artificial edges.

    values: (V, n_out). seam: (V,) the numbers of vertices on seams between units, and beyond these
    a number for each other vertex. place: per unit, the vertices (V,) of its strip in the mesh.
    """

    mesh: Mesh
    values: Tensor
    seam: Tensor
    place: list[Tensor]


def join_strips(strips: list[Strip | None], borders: list[Border], seams: Seams) -> JoinedStrips:
    """Unite the vertices and edges that strips have in common; None for a unit without a strip."""
    numbers = [
        torch.zeros(0, dtype=torch.int64) if strip is None else _seam_numbers(strip, border, number)
        for strip, border, number in zip(strips, borders, seams.vertices, strict=True)
    ]
    every = torch.cat(numbers)
    shared, of_shared = torch.unique(every[every >= 0], return_inverse=True)
    place = torch.empty_like(every)
    place[every >= 0] = of_shared
    alone = (every < 0).nonzero()[:, 0]
    place[alone] = shared.shape[0] + torch.arange(alone.shape[0])
    there = [strip for strip in strips if strip is not None]
    count = shared.shape[0] + alone.shape[0]
    uv, values, made = (
        _placed(count, place, torch.cat(columns))
        for columns in (
            [strip.mesh.uv for strip in there],
            [strip.values for strip in there],
            [strip.mesh.vertex_layer for strip in there],
        )
    )
    for tile in torch.unique(seams.owner[shared]).tolist():
        mine = (seams.owner[shared] == tile).nonzero()[:, 0]
        source = seams.place[shared[mine]]
        uv[mine], values[mine] = borders[tile].uv[source], borders[tile].values[source]
    seam = torch.cat([shared, seams.num_vertices + torch.arange(alone.shape[0])])
    places = list(torch.split(place, [number.shape[0] for number in numbers]))
    sizes = [strip.mesh.num_vertices for strip in there]
    mesh = _united(there, torch.split(place, sizes), uv, made)
    return JoinedStrips(mesh, values, seam, places)


def _seam_numbers(strip: Strip, border: Border, number: Tensor) -> Tensor:
    """The number of each vertex of a strip on the seams between units, -1 elsewhere, (V,)."""
    found = places_among(border.vertex, strip.unit_vertex)
    return torch.where(found >= 0, number[found.clamp(min=0)], -1)


def _placed(count: int, place: Tensor, value: Tensor) -> Tensor:
    out = value.new_empty((count, *value.shape[1:]))
    out[place] = value
    return out


def _united(
    strips: list[Strip], places: tuple[Tensor, ...], uv: Tensor, vertex_layer: Tensor
) -> Mesh:
    """One mesh of all strips, whose vertices have new numbers; equal edges become one."""
    edges = torch.cat(
        [place[strip.mesh.edges] for strip, place in zip(strips, places, strict=True)]
    )
    low, high = edges.aminmax(dim=1)
    key, of_edge = torch.unique(low * uv.shape[0] + high, return_inverse=True)
    first = torch.full_like(key, edges.shape[0])
    first.scatter_reduce_(0, of_edge, torch.arange(edges.shape[0]), "amin")
    starts = offsets_of(torch.tensor([strip.mesh.num_edges for strip in strips])).tolist()
    half = []
    for strip, start in zip(strips, starts, strict=False):
        edge, back = start + (strip.mesh.corners >> 1), strip.mesh.corners & 1
        turned = edges[edge, 0] != edges[first[of_edge[edge]], 0]
        half.append(2 * of_edge[edge] + (back ^ turned.long()))
    layer, unit = (
        torch.cat([getattr(strip.mesh, name) for strip in strips])[first]
        for name in ("edge_layer", "edge_unit")
    )
    return Mesh(
        uv=uv,
        edges=edges[first],
        offsets=offsets_of(torch.cat([strip.mesh.counts() for strip in strips])),
        corners=torch.cat(half),
        edge_layer=layer,
        edge_unit=unit,
        vertex_layer=vertex_layer,
    )
