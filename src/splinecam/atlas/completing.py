"""Complete an atlas: unite what tiles have in common, and make it bit for bit the same in both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecam._util.csr import offsets_of
from splinecam._util.files import replaced
from splinecam.atlas.borders import BORDER, Border
from splinecam.atlas.manifest import Manifest
from splinecam.atlas.rounding_errors import ERRORS, largest_errors, write_errors
from splinecam.atlas.seams import Missing, Seams, find_seams
from splinecam.atlas.tile_files import (
    StoredMesh,
    TileCounts,
    mapped,
    read_array,
    read_maps,
    write_tile,
)
from splinecam.geometry.subdivision import Mesh

__all__ = ["SEAM_EDGES", "SEAM_VERTICES", "clean", "complete", "insert_vertices"]

SEAM_VERTICES, SEAM_EDGES = "seam_vertices", "seam_edges"


def complete(folder: Path, manifest: Manifest, coarse: Mesh | None) -> None:
    """Find the seams of an atlas whose tiles are all there; coarse: None if there is one tile."""
    tiles = folder / "tiles"
    if coarse is not None and len(manifest.tiles) > 1:
        borders = [Border.read(tiles / tile.folder / BORDER) for tile in manifest.tiles]
        seams = find_seams(coarse, borders)
        while seams.missing:
            for missing in seams.missing:
                borders[missing.tile] = _inserted(tiles, manifest, borders, seams, missing)
            manifest.write(folder)
            seams = find_seams(coarse, borders)
        for number, tile in enumerate(manifest.tiles):
            _write_seams(tiles / tile.folder, number, borders, seams)
        manifest.seams = {"vertices": seams.num_vertices, "edges": seams.num_edges}
        manifest.seams["ends"] = sum(border.vertex.shape[0] for border in borders)
    values, layers = largest_errors(tiles / tile.folder / ERRORS for tile in manifest.tiles)
    write_errors(folder / ERRORS, values, layers)
    manifest.complete = True
    manifest.write(folder)
    clean(folder, manifest)


def clean(folder: Path, manifest: Manifest) -> None:
    """Remove what was of use while the atlas was computed only, and leftovers of killed runs."""
    for leftover in (folder / "coarse", folder / ".coarse.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    known = {tile.folder for tile in manifest.tiles}
    for path in (folder / "tiles").iterdir():
        if path.name not in known:
            shutil.rmtree(path, ignore_errors=True)
        else:
            (path / BORDER).unlink(missing_ok=True)
            (path / ERRORS).unlink(missing_ok=True)


def _write_seams(folder: Path, number: int, borders: list[Border], seams: Seams) -> None:
    """Write which vertices and edges a tile shares, and give the former their common values."""
    border, seam = borders[number], seams.vertices[number]
    others = (seams.owner[seam] != number).nonzero()[:, 0]
    uv, values = mapped(folder, "mesh_uv", "r+"), mapped(folder, "values", "r+")
    for rows, mine in _by_owner(seams.owner[seam[others]], others):
        theirs = borders[rows]
        place = seams.place[seam[mine]]
        vertex = border.vertex[mine].numpy()
        uv[vertex] = theirs.uv[place].numpy()
        values[vertex] = theirs.values[place].numpy()
    for array in (uv, values):
        if isinstance(array, np.memmap):
            array.flush()
    for name, local, shared in (
        (SEAM_VERTICES, border.vertex, seam),
        (SEAM_EDGES, border.edge, seams.edges[number]),
    ):
        with replaced(folder / f"{name}.npy") as file:
            np.save(file, torch.stack([local, shared], 1).numpy())


def _by_owner(owner: Tensor, rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield each owner that occurs, with the rows that it owns."""
    for tile in torch.unique(owner).tolist():
        yield tile, rows[owner == tile]


# -- vertices that a tile lacks ---------------------------------------------------------------


def _inserted(
    tiles: Path, manifest: Manifest, borders: list[Border], seams: Seams, missing: Missing
) -> Border:
    """Write a tile anew, with the vertices that it lacks; returns its new border."""
    entry, border = manifest.tiles[missing.tile], borders[missing.tile]
    old = tiles / entry.folder
    order = torch.argsort(missing.edge, stable=True)
    edge, seam = missing.edge[order], missing.seam[order]
    uv = border.uv.new_empty((seam.shape[0], 2))
    given = border.values.new_empty((seam.shape[0], border.values.shape[1]))
    made = seam.new_empty(seam.shape)
    for k, rows in _by_owner(seams.owner[seam], torch.arange(seam.shape[0])):
        place = seams.place[seam[rows]]
        uv[rows], given[rows] = borders[k].uv[place], borders[k].values[place]
        layer = read_array(tiles / manifest.tiles[k].folder, "mesh_vertex_layer")
        made[rows] = layer[borders[k].vertex[place]]
    mesh = StoredMesh.of(old, TileCounts(entry.vertices, entry.edges, entry.regions))
    values = torch.from_numpy(mapped(old, "values"))
    whole = insert_vertices(mesh, edge, uv, made)
    name = f"{entry.folder}a"
    new = tiles / name
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    write_tile(new, whole, torch.cat([values, given]), read_maps(old))
    shutil.copy(old / ERRORS, new / ERRORS)
    grown = _grown(border, mesh, whole, edge, given)
    grown.write(new / BORDER)
    manifest.tiles[missing.tile] = replace(
        entry, folder=name, vertices=whole.num_vertices, edges=whole.num_edges
    )
    return grown


def insert_vertices(mesh: Mesh, edge: Tensor, uv: Tensor, vertex_layer: Tensor) -> Mesh:
    """Divide edges (N,), ascending, at points (N, 2) in order along each; faces get the corners."""
    divided = mesh.divide(edge, uv, vertex_layer)
    more = torch.bincount(edge, minlength=mesh.num_edges)
    first = offsets_of(more)  # the first piece of each edge after its own
    corner_edge, back = mesh.corners >> 1, mesh.corners & 1
    count = more[corner_edge] + 1
    row = torch.repeat_interleave(torch.arange(count.shape[0]), count)
    step = torch.arange(row.shape[0]) - offsets_of(count)[row]
    piece = torch.where(back[row] == 1, count[row] - 1 - step, step)
    e = corner_edge[row]
    number = torch.where(piece == 0, e, mesh.num_edges + first[e] + piece - 1)
    sizes = offsets_of(count)[mesh.offsets]
    return replace(divided, offsets=sizes, corners=2 * number + back[row])


def _grown(border: Border, old: Mesh, new: Mesh, edge: Tensor, values: Tensor) -> Border:
    """The border of a tile whose edges (N,) have been divided."""
    root = torch.full((new.num_edges,), -1)
    root[border.edge] = border.root
    root[old.num_edges :] = root[edge]
    pieces = (root >= 0).nonzero()[:, 0]
    vertex, ends = torch.unique(new.edges[pieces], return_inverse=True)
    coarse = torch.full((new.num_vertices,), -1)
    coarse[border.vertex] = border.coarse_vertex
    known = border.values.new_empty((new.num_vertices, border.values.shape[1]))
    known[border.vertex] = border.values
    known[old.num_vertices :] = values
    ends = ends.view(-1, 2)
    uv = new.uv[vertex]
    return Border(vertex, coarse[vertex], uv, known[vertex], pieces, root[pieces], ends)
