"""Complete an atlas: unite what tiles have in common, and make it bit for bit the same in both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from splinecam.atlas.borders import BORDER, Border
from splinecam.atlas.inserting import insert_missing
from splinecam.atlas.manifest import Manifest, TileEntry
from splinecam.atlas.rounding_errors import ERRORS, largest_errors, write_errors
from splinecam.atlas.seams import Seams, find_seams
from splinecam.atlas.strips import JoinedStrips, join_strips
from splinecam.atlas.tile_files import AGAIN, read_array, read_values, write_array
from splinecam.atlas.unit_files import RIM, STRIP, Rim, Strip, places_among
from splinecam.geometry.subdivision import Mesh
from splinecam.stores.untrusted import damaged, refuse_links

__all__ = [
    "KEY",
    "SEAM_EDGES",
    "SEAM_VERTICES",
    "Dissolve",
    "Dissolved",
    "clean",
    "complete",
    "is_clean",
]

SEAM_VERTICES, SEAM_EDGES = "seam_vertices", "seam_edges"
KEY = ".key"  # the file by which workers know the folder of an atlas


@dataclass(frozen=True)
class Dissolved:
    """A tile of regions that were divided by artificial edges.

    rim: of the tile; its unit vertices are those of the joined strips.
    """

    entry: TileEntry
    rim: Rim


Dissolve = Callable[[JoinedStrips], list[Dissolved]]
"""Writes tiles of the regions of all strips, without artificial edges."""


def complete(folder: Path, manifest: Manifest, coarse: Mesh | None, dissolve: Dissolve) -> None:
    """Find the seams of an atlas whose units are all done; coarse: None if there is one tile."""
    tiles = folder / "tiles"
    values, layers = largest_errors(tiles / tile.folder / ERRORS for tile in manifest.tiles)
    if layers.keys() != set(manifest.about["layers"]):
        raise damaged(tiles, "its rounding errors are those of other layers", AGAIN)
    write_errors(folder / ERRORS, values, layers)
    if coarse is not None:
        units = manifest.tiles
        borders = [Border.read(tiles / tile.folder / BORDER, coarse) for tile in units]
        seams = find_seams(coarse, borders)
        while seams.missing:
            for missing in seams.missing:
                borders[missing.tile] = insert_missing(tiles, manifest, borders, seams, missing)
            manifest.write(folder)
            seams = find_seams(coarse, borders)
        sizes = [len(layers[name]) for name in manifest.about["layers"]], len(values)
        strips = [_strip(tiles / unit.folder, *sizes) for unit in units]
        entries, rims, numbers = _numbered(tiles, units, (borders, strips), seams, dissolve)
        manifest.tiles = entries
        manifest.seams = _write_seams(tiles, entries, rims, numbers)
    manifest.complete = True
    manifest.write(folder)
    clean(folder, manifest)


def clean(folder: Path, manifest: Manifest) -> None:
    """Remove what was of use while the atlas was computed only, and leftovers of killed runs."""
    refuse_links(folder)
    for leftover in (folder / "coarse", folder / ".coarse.part"):
        shutil.rmtree(leftover, ignore_errors=True)
    (folder / KEY).unlink(missing_ok=True)
    known = {tile.folder for tile in manifest.tiles}
    for path in (folder / "tiles").iterdir():
        if path.name not in known:
            shutil.rmtree(path, ignore_errors=True)
            continue
        shutil.rmtree(path / STRIP, ignore_errors=True)
        for name in (BORDER, RIM, ERRORS):
            (path / name).unlink(missing_ok=True)


def is_clean(folder: Path, manifest: Manifest) -> bool:
    """Whether nothing is left of the computation of an atlas that is complete."""
    return not any((folder / "tiles" / tile.folder / ERRORS).exists() for tile in manifest.tiles)


def _strip(folder: Path, units: list[int], outputs: int) -> Strip | None:
    """The strip of a unit, if it has one."""
    return Strip.read(folder / STRIP, units, outputs) if (folder / STRIP).is_dir() else None


def _numbered(
    tiles: Path,
    units: list[TileEntry],
    made: tuple[list[Border], list[Strip | None]],
    seams: Seams,
    dissolve: Dissolve,
) -> tuple[list[TileEntry], list[Rim], list[Tensor]]:
    """All tiles, their rims, and the numbers of the vertices of the rims.

    Vertices on seams between units have the lowest numbers. Those between a tile and the strip of
    its unit follow; they have the number of the strip's vertex.
    """
    borders, strips = made
    folders = [tiles / unit.folder for unit in units]
    joined = None
    if any(strip is not None for strip in strips):
        joined = join_strips(strips, borders, seams)
    entries, rims, numbers = [], [], []
    for k, unit in enumerate(units):
        if not unit.regions:
            continue
        rim = Rim.read(folders[k] / RIM, unit.vertices, unit.edges)
        on_border = places_among(borders[k].vertex, rim.unit_vertex)
        number = torch.where(on_border >= 0, seams.vertices[k][on_border.clamp(min=0)], -1)
        inside, strip = (on_border < 0).nonzero()[:, 0], strips[k]
        if inside.shape[0] and joined is not None and strip is not None:
            beside = places_among(strip.unit_vertex, rim.unit_vertex[inside])
            number[inside] = joined.seam[joined.place[k][beside]]
        _patch(folders[k], unit, rim.vertex, number, (k, borders, seams))
        entries.append(replace(unit, strip=0))
        rims.append(rim)
        numbers.append(number)
    if joined is not None:
        strips.clear()
        for each in dissolve(joined):
            entries.append(each.entry)
            rims.append(each.rim)
            numbers.append(joined.seam[each.rim.unit_vertex])
    return entries, rims, numbers


def _patch(
    folder: Path,
    unit: TileEntry,
    vertex: Tensor,
    number: Tensor,
    others: tuple[int, list[Border], Seams],
) -> None:
    """Give the vertices (S,) of a tile the coordinates and values that their owners have.

    others: the number of the unit, the borders of all units, and their seams.
    """
    k, borders, seams = others
    on_border = ((number >= 0) & (number < seams.num_vertices)).nonzero()[:, 0]
    owner = seams.owner[number[on_border]]
    theirs = (owner != k).nonzero()[:, 0]
    if not theirs.shape[0]:
        return
    uv = read_array(folder, "mesh_uv", "f")
    values = read_values(folder, unit.vertices, borders[k].values.shape[1])
    if uv.shape != (unit.vertices, 2):
        raise damaged(folder / "mesh_uv.npy", f"it has the shape {tuple(uv.shape)}", AGAIN)
    for mine, rows in _by_owner(owner[theirs], on_border[theirs]):
        place = seams.place[number[rows]]
        uv[vertex[rows]] = borders[mine].uv[place]
        values[vertex[rows]] = borders[mine].values[place]
    write_array(folder, "mesh_uv", uv)
    write_array(folder, "values", values)


def _by_owner(owner: Tensor, rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield each owner that occurs, with the rows that it owns."""
    for tile in torch.unique(owner).tolist():
        yield tile, rows[owner == tile]


def _write_seams(
    tiles: Path, entries: list[TileEntry], rims: list[Rim], numbers: list[Tensor]
) -> dict[str, int]:
    """Write which vertices and edges each tile shares; returns how many there are.

    An edge is known by the vertices at its ends.
    """
    known, vertex = torch.unique(torch.cat(numbers), return_inverse=True)
    vertices = torch.split(vertex, [number.shape[0] for number in numbers])
    ends = [mine[rim.ends] for rim, mine in zip(rims, vertices, strict=True)]
    keys = torch.cat([pair.amin(1) * known.shape[0] + pair.amax(1) for pair in ends])
    different, edge = torch.unique(keys, return_inverse=True)
    edges = torch.split(edge, [rim.edge.shape[0] for rim in rims])
    for entry, rim, mine, beside in zip(entries, rims, vertices, edges, strict=True):
        for name, local, shared in (
            (SEAM_VERTICES, rim.vertex, mine),
            (SEAM_EDGES, rim.edge, beside),
        ):
            write_array(tiles / entry.folder, name, torch.stack([local, shared], 1))
    return {
        "vertices": int(known.shape[0]),
        "edges": int(different.shape[0]),
        "ends": int(vertex.shape[0]),
    }
