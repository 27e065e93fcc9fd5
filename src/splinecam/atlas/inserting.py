"""Insert vertices that a unit lacks on its border, because rounding has hidden them from it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from splinecam._util.csr import offsets_of
from splinecam.atlas.borders import BORDER, Border
from splinecam.atlas.manifest import Manifest
from splinecam.atlas.rounding_errors import ERRORS, read_errors
from splinecam.atlas.seams import Missing, Seams
from splinecam.atlas.tile_files import read_mesh, read_values, write_tile
from splinecam.atlas.unit_files import RIM, STRIP, Rim, Strip, places_among, rim_of
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.geometry.subdivision import Mesh

__all__ = ["insert_missing", "insert_vertices"]

_NEW = 1 << 40  # numbers in a unit of vertices that are inserted: this, plus that of the seam


def insert_missing(
    tiles: Path, manifest: Manifest, borders: list[Border], seams: Seams, missing: Missing
) -> Border:
    """Write a unit anew, with the vertices that it lacks; returns its new border.

    The unit gets another folder, so that the manifest decides which of both is there.
    """
    entry, border = manifest.tiles[missing.tile], borders[missing.tile]
    old, new = tiles / entry.folder, tiles / f"{entry.folder}a"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, new)
    values, layers = read_errors(old / ERRORS)
    units, outputs = [len(layers[name]) for name in manifest.about["layers"]], len(values)
    for in_strip in (False, True):
        rows = (missing.in_strip == in_strip).nonzero()[:, 0]
        if not rows.shape[0]:
            continue
        rows = rows[torch.argsort(missing.edge[rows], stable=True)]
        edge, seam = missing.edge[rows], missing.seam[rows]
        new_ones = _given(borders, seams, seam)
        if in_strip:
            strip = Strip.read(old / STRIP, units, outputs)
            before = strip.mesh
            after = insert_vertices(before, edge, new_ones.uv, new_ones.layer)
            values = torch.cat([strip.values, new_ones.values])
            Strip(after, values, torch.cat([strip.unit_vertex, _NEW + seam])).write(new / STRIP)
        else:
            before = read_mesh(old, units, ARTIFICIAL)
            after = insert_vertices(before, edge, new_ones.uv, new_ones.layer)
            values = torch.cat([read_values(old, before.num_vertices, outputs), new_ones.values])
            write_tile(new, after, values)
            rim = Rim.read(old / RIM, before.num_vertices, before.num_edges)
            _grown_rim(rim, before, after, seam).write(new / RIM)
            entry = replace(entry, vertices=after.num_vertices, edges=after.num_edges)
        border = _grown(border, (before, after), in_strip, edge, new_ones)
    border.write(new / BORDER)
    manifest.tiles[missing.tile] = replace(entry, folder=new.name)
    return border


class _New(NamedTuple):
    """Vertices on seams: their numbers, coordinates, values and layers, (N, ...) each."""

    seam: Tensor
    uv: Tensor
    values: Tensor
    layer: Tensor


def _given(borders: list[Border], seams: Seams, seam: Tensor) -> _New:
    """Vertices on seams as their owners have them."""
    pairs = list(zip(seams.owner[seam].tolist(), seams.place[seam].tolist(), strict=True))
    columns = (
        torch.stack([getattr(borders[owner], name)[place] for owner, place in pairs])
        for name in ("uv", "values", "vertex_layer")
    )
    return _New(seam, *columns)


def insert_vertices(mesh: Mesh, edge: Tensor, uv: Tensor, vertex_layer: Tensor) -> Mesh:
    """Divide edges (N,), ascending, at points (N, 2) in order along each; faces get the corners."""
    made = mesh.divide(edge, uv, vertex_layer)
    more = torch.bincount(edge, minlength=mesh.num_edges)
    first = offsets_of(more)  # the first piece of each edge after its own
    corner_edge, back = mesh.corners >> 1, mesh.corners & 1
    count = more[corner_edge] + 1
    row = torch.repeat_interleave(torch.arange(count.shape[0]), count)
    step = torch.arange(row.shape[0]) - offsets_of(count)[row]
    piece = torch.where(back[row] == 1, count[row] - 1 - step, step)
    e = corner_edge[row]
    number = torch.where(piece == 0, e, mesh.num_edges + first[e] + piece - 1)
    return replace(made, offsets=offsets_of(count)[mesh.offsets], corners=2 * number + back[row])


def _grown_rim(rim: Rim, before: Mesh, after: Mesh, seam: Tensor) -> Rim:
    """The rim of a tile with new vertices."""
    unit_vertex = torch.full((after.num_vertices,), -1)
    unit_vertex[rim.vertex] = rim.unit_vertex
    unit_vertex[before.num_vertices :] = _NEW + seam
    return rim_of(after, unit_vertex)


def _grown(
    border: Border, meshes: tuple[Mesh, Mesh], in_strip: bool, edge: Tensor, new: _New
) -> Border:
    """The border of a unit whose edges (N,) have been divided, either in the tile or the strip.

    meshes: of that part, before and after.
    """
    before, after = meshes
    seam = new.seam
    first = border.vertex.shape[0]
    place = torch.full((after.num_vertices,), -1)  # of a vertex of the part in the border
    mine = (border.in_strip == in_strip).nonzero()[:, 0]
    place[before.edges[border.edge[mine]]] = border.ends[mine]
    place[before.num_vertices :] = first + torch.arange(seam.shape[0])
    row = mine[places_among(border.edge[mine], edge)]
    pieces = before.num_edges + torch.arange(edge.shape[0])
    ends = border.ends.clone()
    ends[mine] = place[after.edges[border.edge[mine]]]
    return Border(
        vertex=torch.cat([border.vertex, _NEW + seam]),
        coarse_vertex=torch.cat([border.coarse_vertex, torch.full_like(seam, -1)]),
        vertex_layer=torch.cat([border.vertex_layer, new.layer]),
        uv=torch.cat([border.uv, new.uv]),
        values=torch.cat([border.values, new.values]),
        edge=torch.cat([border.edge, pieces]),
        in_strip=torch.cat([border.in_strip, border.in_strip[row]]),
        root=torch.cat([border.root, border.root[row]]),
        ends=torch.cat([ends, place[after.edges[pieces]]]),
    )
