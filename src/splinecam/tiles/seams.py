"""Seams between tiles: find common vertices, insert missing ones, and make both sides equal.

Both units beside an edge of the coarse mesh have found the same new vertices on it, up to rounding.
They are united along the edge, in order. A united vertex has the coordinates and the values that
the first of its units has found.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from splinecam._util.arrays import offsets_of
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.engine.tiling import OnEdges, unite
from splinecam.geometry.subdivision import Mesh
from splinecam.stores.untrusted import damaged, refuse_links
from splinecam.tiles.manifest import Manifest, TileEntry
from splinecam.tiles.tile_files import (
    AGAIN,
    ERRORS,
    largest_errors,
    read_array,
    read_errors,
    read_mesh,
    read_values,
    write_array,
    write_columns,
    write_errors,
    write_tile,
)
from splinecam.tiles.unit_files import BORDER_FILE as BORDER
from splinecam.tiles.unit_files import RIM, STRIP, Border, Rim, Strip, places_among, rim_of


@dataclass(frozen=True)
class Missing:
    """Vertices that a tile lacks on its edges: rounding has hidden them from it.

    tile: its number; edge: (N,) of the tile or the strip; in_strip: (N,) which of both; seam: (N,)
    the united vertices in order along the edge.
    """

    tile: int
    edge: Tensor
    in_strip: Tensor
    seam: Tensor


@dataclass(frozen=True)
class Seams:
    """The C vertices that units have in common.

    vertices: per unit the numbers (S,) of the vertices of its border. owner, place: (C,) the unit
    that a vertex is taken from, and the place in that unit's border. missing: of the units that
    lack something.
    """

    vertices: list[Tensor]
    owner: Tensor
    place: Tensor
    missing: list[Missing]

    @property
    def num_vertices(self) -> int:
        return int(self.owner.shape[0])


def find_seams(mesh: Mesh, borders: list[Border]) -> Seams:
    """Unite the vertices on the borders of units; mesh: the coarse mesh."""
    on_edges = OnEdges(
        *(
            torch.cat(column)
            for column in zip(*(_on_edges(mesh, b, k) for k, b in enumerate(borders)), strict=True)
        )
    )
    order, starts = unite(mesh, on_edges)
    on_edges = OnEdges(*(column[order] for column in on_edges))
    union = torch.cumsum(starts.long(), 0) - 1
    leader = starts.nonzero()[:, 0]
    # First the vertices of the coarse mesh, then the united ones.
    sizes = [border.vertex.shape[0] for border in borders]
    first = offsets_of(torch.tensor(sizes)).tolist()
    coarse = torch.cat([border.coarse_vertex for border in borders])
    tile = torch.repeat_interleave(torch.arange(len(borders)), torch.tensor(sizes))
    place = torch.arange(coarse.shape[0]) - torch.tensor(first[:-1])[tile]
    known = (coarse >= 0).nonzero()[:, 0]
    ids, of_known = torch.unique(coarse[known], return_inverse=True)
    lowest = known.new_zeros(ids.shape[0])
    lowest.scatter_reduce_(0, of_known, known, "amin", include_self=False)
    owner = torch.cat([tile[lowest], on_edges.number[leader]])
    place = torch.cat([place[lowest], on_edges.vertex[leader]])
    number = torch.full_like(coarse, -1)
    number[known] = of_known
    number[torch.tensor(first[:-1])[on_edges.number] + on_edges.vertex] = ids.shape[0] + union
    counts = torch.bincount(on_edges.edge[leader], minlength=mesh.num_edges)
    vertices = list(torch.split(number, sizes))
    missing = [
        _missing(k, border, mine, ids.shape[0], counts)
        for k, (border, mine) in enumerate(zip(borders, vertices, strict=True))
    ]
    return Seams(vertices, owner, place, [each for each in missing if each is not None])


def _on_edges(mesh: Mesh, border: Border, number: int) -> OnEdges:
    """The new vertices on edges, at which all pieces of an edge but the first begin."""
    start = border.ends[:, 0]
    begins = border.coarse_vertex[start] < 0
    start, root = start[begins], border.root[begins]
    a, b = mesh.uv[mesh.edges[root]].unbind(1)
    d = b - a
    t = (((border.uv[start] - a) * d).sum(1) / (d * d).sum(1)).clamp(0, 1)
    return OnEdges(root, start, torch.full_like(root, number), t)


def _missing(
    number: int, border: Border, seam: Tensor, first: int, counts: Tensor
) -> Missing | None:
    """The united vertices that lie inside pieces of the border of a unit, if there are any.

    seam: (S,) the numbers of the border's vertices. counts: (E,) of the united vertices on each
    edge of the coarse mesh; their numbers begin at ``first``.
    """
    on_edge, offset = counts[border.root], offsets_of(counts)[border.root]
    start, stop = seam[border.ends].unbind(1)
    # How many vertices of its edge come before each end of a piece, itself included.
    begin = torch.where(start < first, 0, start - first - offset + 1)
    end = torch.where(stop < first, on_edge + 1, stop - first - offset + 1)
    lacks = end - begin - 1
    if not bool((lacks > 0).any()):
        return None
    row = torch.repeat_interleave(torch.arange(lacks.shape[0]), lacks)
    step = torch.arange(row.shape[0]) - offsets_of(lacks)[row]
    there = first + offset[row] + begin[row] + step
    return Missing(number, border.edge[row], border.in_strip[row], there)


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
        torch.zeros(0, dtype=torch.int64)
        if strip is None
        else _numbers_at(border, number, strip.unit_vertex)
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


def _numbers_at(border: Border, number: Tensor, unit_vertex: Tensor) -> Tensor:
    """The numbers on seams between units of some vertices of a unit, -1 elsewhere, (V,)."""
    found = places_among(border.vertex, unit_vertex)
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
        uv, more, layer = given = _given(borders, seams, seam)
        if in_strip:
            strip = Strip.read(old / STRIP, units, outputs)
            before = strip.mesh
            after = insert_vertices(before, edge, uv, layer)
            values = torch.cat([strip.values, more])
            Strip(after, values, torch.cat([strip.unit_vertex, _NEW + seam])).write(new / STRIP)
        else:
            before = read_mesh(old, units, ARTIFICIAL)
            after = insert_vertices(before, edge, uv, layer)
            values = torch.cat([read_values(old, before.num_vertices, outputs), more])
            write_tile(new, after, values)
            rim = Rim.read(old / RIM, before.num_vertices, before.num_edges)
            write_columns(new / RIM, vars(_grown_rim(rim, before, after, seam)))
            entry = replace(entry, vertices=after.num_vertices, edges=after.num_edges)
        border = _grown(border, (before, after), in_strip, (edge, seam), given)
    write_columns(new / BORDER, vars(border))
    manifest.tiles[missing.tile] = replace(entry, folder=new.name)
    return border


def _given(borders: list[Border], seams: Seams, seam: Tensor) -> list[Tensor]:
    """The coordinates, values and layers of vertices on seams, as their owners have them."""
    pairs = list(zip(seams.owner[seam].tolist(), seams.place[seam].tolist(), strict=True))
    return [
        torch.stack([getattr(borders[owner], name)[place] for owner, place in pairs])
        for name in ("uv", "values", "vertex_layer")
    ]


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
    border: Border,
    meshes: tuple[Mesh, Mesh],
    in_strip: bool,
    where: tuple[Tensor, Tensor],
    given: list[Tensor],
) -> Border:
    """The border of a unit of which edges have been divided, either in the tile or the strip.

    meshes: of that part, before and after. where: the edges (N,), and the numbers on seams of the
    vertices that divide them, which have the given coordinates, values and layers.
    """
    (before, after), (edge, seam), (uv, values, layer) = meshes, where, given
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
        vertex_layer=torch.cat([border.vertex_layer, layer]),
        uv=torch.cat([border.uv, uv]),
        values=torch.cat([border.values, values]),
        edge=torch.cat([border.edge, pieces]),
        in_strip=torch.cat([border.in_strip, border.in_strip[row]]),
        root=torch.cat([border.root, border.root[row]]),
        ends=torch.cat([ends, place[after.edges[pieces]]]),
    )


SEAM_VERTICES, SEAM_EDGES = "seam_vertices", "seam_edges"
KEY = ".key"  # the file by which workers know the folder of an atlas


Dissolve = Callable[[JoinedStrips], list[tuple[TileEntry, Rim]]]
"""Writes the regions of all strips, without artificial edges, as tiles, and returns their rims.

The unit vertices of these rims are those of the joined strips.
"""


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
        number = _numbers_at(borders[k], seams.vertices[k], rim.unit_vertex)
        inside, strip = (number < 0).nonzero()[:, 0], strips[k]
        if inside.shape[0] and joined is not None and strip is not None:
            beside = places_among(strip.unit_vertex, rim.unit_vertex[inside])
            number[inside] = joined.seam[joined.place[k][beside]]
        _patch(folders[k], unit, rim.vertex, number, (k, borders, seams))
        entries.append(replace(unit, strip=0))
        rims.append(rim)
        numbers.append(number)
    if joined is not None:
        strips.clear()
        for entry, rim in dissolve(joined):
            entries.append(entry)
            rims.append(rim)
            numbers.append(joined.seam[rim.unit_vertex])
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
    for tile in torch.unique(owner[theirs]).tolist():
        rows = on_border[owner == tile]
        place = seams.place[number[rows]]
        uv[vertex[rows]] = borders[tile].uv[place]
        values[vertex[rows]] = borders[tile].values[place]
    write_array(folder, "mesh_uv", uv)
    write_array(folder, "values", values)


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
