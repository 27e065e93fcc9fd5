"""Seams between tiles: find common vertices, insert missing ones, and make both sides equal.

Both parts beside an edge of the coarse mesh find the same new vertices on it, up to rounding. They
are united along the edge, in order. A united vertex has the coordinates and the values of the first
of its parts.
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
from splinecam.tiles import tile_files
from splinecam.tiles.manifest import Manifest, TileEntry
from splinecam.tiles.part_files import BORDER_FILE, RIM, STRIP, PartBorder, Rim, Strip, rim_of


@dataclass(frozen=True)
class Missing:
    """Vertices that a part lacks on its edges: rounding has hidden them from it."""

    part: int  # its number
    edge: Tensor  # (N,) of the tile or the strip
    in_strip: Tensor  # (N,) which of both
    seam: Tensor  # (N,) the united vertices in order along the edge


@dataclass(frozen=True)
class Seams:
    """The C vertices that parts have in common."""

    vertices: list[Tensor]  # for each part the numbers (S,) of the vertices of its border
    owner: Tensor  # (C,) the part from which a vertex is taken
    uv: Tensor  # (C, 2), like the next ones as the owner has them
    values: Tensor  # (C, n_out)
    vertex_layer: Tensor  # (C,)
    missing: list[Missing]  # what parts lack

    @property
    def num_vertices(self) -> int:
        return int(self.owner.shape[0])


def find_seams(mesh: Mesh, borders: list[PartBorder], *, alike: bool = True) -> Seams:
    """Unite the vertices on the borders of parts; mesh: the coarse mesh; alike: see ``unite``."""
    found = (_on_edges(mesh, border, k) for k, border in enumerate(borders))
    on_edges = OnEdges(*map(torch.cat, zip(*found, strict=True)))
    order, starts = unite(mesh, on_edges, alike=alike)
    on_edges = OnEdges(*(column[order] for column in on_edges))
    union = torch.cumsum(starts.long(), 0) - 1
    leader = starts.nonzero()[:, 0]
    # First the vertices of the coarse mesh, then the united ones.
    sizes = torch.tensor([border.vertex.shape[0] for border in borders])
    coarse = torch.cat([border.coarse_vertex for border in borders])
    known = (coarse >= 0).nonzero()[:, 0]
    ids, of_known = torch.unique(coarse[known], return_inverse=True)
    lowest = known.new_zeros(ids.shape[0])
    lowest.scatter_reduce_(0, of_known, known, "amin", include_self=False)
    place = offsets_of(sizes)[on_edges.number] + on_edges.vertex
    source = torch.cat([lowest, place[leader]])
    number = torch.full_like(coarse, -1)
    number[known] = of_known
    number[place] = ids.shape[0] + union
    counts = torch.bincount(on_edges.edge[leader], minlength=mesh.num_edges)
    vertices = list(torch.split(number, sizes.tolist()))
    missing = [
        _missing(k, border, mine, ids.shape[0], counts)
        for k, (border, mine) in enumerate(zip(borders, vertices, strict=True))
    ]
    owner = torch.repeat_interleave(torch.arange(len(borders)), sizes)[source]
    uv, values, layer = (
        torch.cat([getattr(border, name) for border in borders])[source]
        for name in ("uv", "values", "vertex_layer")
    )
    return Seams(vertices, owner, uv, values, layer, [each for each in missing if each is not None])


def _on_edges(mesh: Mesh, border: PartBorder, number: int) -> OnEdges:
    """The new vertices on edges, at which all pieces of an edge but the first begin."""
    start = border.ends[:, 0]
    begins = border.coarse_vertex[start] < 0
    start, root = start[begins], border.root[begins]
    a, b = mesh.uv[mesh.edges[root]].unbind(1)
    d = b - a
    t = (((border.uv[start] - a) * d).sum(1) / (d * d).sum(1)).clamp(0, 1)
    return OnEdges(root, start, torch.full_like(root, number), t)


def _missing(
    part: int, border: PartBorder, seam: Tensor, first: int, counts: Tensor
) -> Missing | None:
    """The united vertices that lie inside pieces of the border of a part, if there are any.

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
    return Missing(part, border.edge[row], border.in_strip[row], there)


@dataclass(frozen=True)
class JoinedStrips:
    """All strips as one mesh, with artificial edges."""

    mesh: Mesh
    values: Tensor  # (V, n_out)
    seam: Tensor  # (V,) numbers of vertices on seams between parts; others have larger ones
    place: list[Tensor]  # for each part the vertices (V,) of its strip in the mesh


def _join_strips(
    strips: list[Strip | None], borders: list[PartBorder], seams: Seams
) -> JoinedStrips:
    """Unite the vertices and edges that strips have in common; None for a part without a strip."""
    there = [strip for strip in strips if strip is not None]
    numbers = [
        torch.zeros(0, dtype=torch.int64)
        if strip is None
        else _numbers_at(border, number, strip.part_vertex)
        for strip, border, number in zip(strips, borders, seams.vertices, strict=True)
    ]
    every = torch.cat(numbers)
    shared, of_shared = torch.unique(every[every >= 0], return_inverse=True)
    alone = (every < 0).nonzero()[:, 0]
    place = torch.empty_like(every)
    place[every >= 0] = of_shared
    place[alone] = shared.shape[0] + torch.arange(alone.shape[0])
    source = place.new_empty(shared.shape[0] + alone.shape[0])
    source[place] = torch.arange(place.shape[0])
    columns = zip(
        *((each.mesh.uv, each.values, each.mesh.vertex_layer) for each in there), strict=True
    )
    uv, values, layer = (torch.cat(column)[source] for column in columns)
    uv[: shared.shape[0]], values[: shared.shape[0]] = seams.uv[shared], seams.values[shared]
    seam = torch.cat([shared, seams.num_vertices + torch.arange(alone.shape[0])])
    places = torch.split(place, [number.shape[0] for number in numbers])
    own = [mine for mine, strip in zip(places, strips, strict=True) if strip is not None]
    return JoinedStrips(
        _united([each.mesh for each in there], own, uv, layer), values, seam, list(places)
    )


def _places_among(known: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted number in distinct known ones, -1 if it is not there, (N,)."""
    if not known.shape[0]:
        return torch.full_like(wanted, -1)
    sorted_known, order = torch.sort(known)
    place = torch.searchsorted(sorted_known, wanted).clamp(max=known.shape[0] - 1)
    return torch.where(sorted_known[place] == wanted, order[place], -1)


def _numbers_at(border: PartBorder, number: Tensor, part_vertex: Tensor) -> Tensor:
    """The numbers on seams of some vertices of a part, -1 elsewhere, (V,)."""
    found = _places_among(border.vertex, part_vertex)
    return torch.where(found >= 0, number[found.clamp(min=0)], -1)


def _united(meshes: list[Mesh], places: list[Tensor], uv: Tensor, vertex_layer: Tensor) -> Mesh:
    """One mesh of all, whose vertices have new numbers; equal edges become one."""
    edges = torch.cat([place[mesh.edges] for mesh, place in zip(meshes, places, strict=True)])
    low, high = edges.aminmax(dim=1)
    key, of_edge = torch.unique(low * uv.shape[0] + high, return_inverse=True)
    first = torch.full_like(key, edges.shape[0])
    first.scatter_reduce_(0, of_edge, torch.arange(edges.shape[0]), "amin")
    half, start = [], 0
    for mesh in meshes:
        edge, back = start + (mesh.corners >> 1), mesh.corners & 1
        turned = edges[edge, 0] != edges[first[of_edge[edge]], 0]
        half.append(2 * of_edge[edge] + (back ^ turned.long()))
        start += mesh.num_edges
    return Mesh(
        uv=uv,
        edges=edges[first],
        offsets=offsets_of(torch.cat([mesh.counts() for mesh in meshes])),
        corners=torch.cat(half),
        edge_layer=torch.cat([mesh.edge_layer for mesh in meshes])[first],
        edge_unit=torch.cat([mesh.edge_unit for mesh in meshes])[first],
        vertex_layer=vertex_layer,
    )


_NEW = 1 << 40  # the number in a part of a vertex that is inserted, less its number on seams


def insert_missing(
    tiles: Path, manifest: Manifest, border: PartBorder, seams: Seams, missing: Missing
) -> PartBorder:
    """Write a part again, with the vertices that it lacks; returns its new border.

    The part gets another folder: the manifest decides which of both folders counts.
    """
    entry = manifest.tiles[missing.part]
    old, new = tiles / entry.folder, tiles / f"{entry.folder}a"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(old, new)
    values, layers = tile_files.read_errors(old / tile_files.ERRORS)
    units, outputs = [len(layers[name]) for name in manifest.about["layers"]], len(values)
    for in_strip in (False, True):
        rows = (missing.in_strip == in_strip).nonzero()[:, 0]
        if not rows.shape[0]:
            continue
        rows = rows[torch.argsort(missing.edge[rows], stable=True)]
        edge, seam = missing.edge[rows], missing.seam[rows]
        point = seams.uv[seam], seams.vertex_layer[seam]
        if in_strip:
            strip = Strip.read(old / STRIP, units, outputs)
            before, after = strip.mesh, insert_vertices(strip.mesh, edge, *point)
            values = torch.cat([strip.values, seams.values[seam]])
            Strip(after, values, torch.cat([strip.part_vertex, _NEW + seam])).write(new / STRIP)
        else:
            before = tile_files.read_mesh(old, units, ARTIFICIAL)
            after = insert_vertices(before, edge, *point)
            values = tile_files.read_values(old, before.num_vertices, outputs)
            tile_files.write_tile(new, after, torch.cat([values, seams.values[seam]]))
            rim = Rim.read(old / RIM, before.num_vertices, before.num_edges)
            part_vertex = torch.full((after.num_vertices,), -1)
            part_vertex[rim.vertex] = rim.part_vertex
            part_vertex[before.num_vertices :] = _NEW + seam
            tile_files.write_columns(new / RIM, vars(rim_of(after, part_vertex)))
            entry = replace(entry, vertices=after.num_vertices, edges=after.num_edges)
        border = _grown(border, (before, after), in_strip, edge, seam, seams)
    tile_files.write_columns(new / BORDER_FILE, vars(border))
    manifest.tiles[missing.part] = replace(entry, folder=new.name)
    return border


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


def _grown(
    border: PartBorder,
    meshes: tuple[Mesh, Mesh],
    in_strip: bool,
    edge: Tensor,
    seam: Tensor,
    seams: Seams,
) -> PartBorder:
    """The border of a part after edges (N,) of its tile or strip got vertices on seams (N,)."""
    (before, after), first = meshes, border.vertex.shape[0]
    place = torch.full((after.num_vertices,), -1)  # of a vertex of that mesh in the border
    mine = (border.in_strip == in_strip).nonzero()[:, 0]
    place[before.edges[border.edge[mine]]] = border.ends[mine]
    place[before.num_vertices :] = first + torch.arange(seam.shape[0])
    row = mine[_places_among(border.edge[mine], edge)]
    pieces = before.num_edges + torch.arange(edge.shape[0])
    ends = border.ends.clone()
    ends[mine] = place[after.edges[border.edge[mine]]]
    more = {
        "vertex": _NEW + seam,
        "vertex_layer": seams.vertex_layer[seam],
        "coarse_vertex": torch.full_like(seam, -1),
        "uv": seams.uv[seam],
        "values": seams.values[seam],
        "edge": pieces,
        "in_strip": border.in_strip[row],
        "root": border.root[row],
        "ends": place[after.edges[pieces]],
    }
    old = vars(border) | {"ends": ends}
    return PartBorder(**{name: torch.cat([old[name], each]) for name, each in more.items()})


SEAM_VERTICES, SEAM_EDGES = "seam_vertices", "seam_edges"
KEY = ".key"  # the file by which workers know the folder of an atlas


Dissolve = Callable[[JoinedStrips], list[tuple[TileEntry, Rim]]]
"""Writes the regions of all strips, without artificial edges, as tiles, and returns their rims.

The ``part_vertex`` of these rims are vertices of the joined strips.
"""


def complete(folder: Path, manifest: Manifest, coarse: Mesh | None, dissolve: Dissolve) -> None:
    """Find the seams of an atlas whose parts are all done; coarse: None if there is one tile."""
    tiles = folder / "tiles"
    values, layers = tile_files.largest_errors(
        tiles / tile.folder / tile_files.ERRORS for tile in manifest.tiles
    )
    if layers.keys() != set(manifest.about["layers"]):
        raise damaged(tiles, "its rounding errors belong to other layers", tile_files.AGAIN)
    tile_files.write_errors(folder / tile_files.ERRORS, values, layers)
    if coarse is not None:
        parts, alike = manifest.tiles, manifest.identity.get("refine") is None
        borders = [PartBorder.read(tiles / part.folder / BORDER_FILE, coarse) for part in parts]
        seams = find_seams(coarse, borders, alike=alike)
        while seams.missing:
            for each in seams.missing:
                border = borders[each.part]
                borders[each.part] = insert_missing(tiles, manifest, border, seams, each)
            manifest.write(folder)
            seams = find_seams(coarse, borders, alike=alike)
        units = [len(layers[name]) for name in manifest.about["layers"]]
        strips = [
            Strip.read(tiles / part.folder / STRIP, units, len(values))
            if (tiles / part.folder / STRIP).is_dir()
            else None
            for part in parts
        ]
        made = _numbered(tiles, parts, borders, strips, seams, dissolve)
        manifest.tiles = [tile for tile, _, _ in made]
        manifest.seams = _write_seams(tiles, made)
    manifest.complete = True
    manifest.write(folder)
    clean(folder, manifest)


def clean(folder: Path, manifest: Manifest) -> None:
    """Remove what only the computation needs, and the leftovers of killed runs."""
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
        for name in (BORDER_FILE, RIM, tile_files.ERRORS):
            (path / name).unlink(missing_ok=True)


def is_clean(folder: Path, manifest: Manifest) -> bool:
    """Whether nothing is left of the computation of an atlas that is complete."""
    return not any(
        (folder / "tiles" / tile.folder / tile_files.ERRORS).exists() for tile in manifest.tiles
    )


_Numbered = tuple[TileEntry, Rim, Tensor]
"""A tile, its rim, and the numbers (S,) of the rim's vertices."""


def _numbered(
    tiles: Path,
    parts: list[TileEntry],
    borders: list[PartBorder],
    strips: list[Strip | None],
    seams: Seams,
    dissolve: Dissolve,
) -> list[_Numbered]:
    """All tiles with their rims; ``strips`` is emptied.

    Vertices on seams between parts have the lowest numbers. Those between a tile and the strip of
    its part follow; they have the number of the strip's vertex.
    """
    joined = _join_strips(strips, borders, seams) if any(strips) else None
    made: list[_Numbered] = []
    for k, part in enumerate(parts):
        if not part.regions:
            continue
        rim = Rim.read(tiles / part.folder / RIM, part.vertices, part.edges)
        number = _numbers_at(borders[k], seams.vertices[k], rim.part_vertex)
        inside, strip = (number < 0).nonzero()[:, 0], strips[k]
        if inside.shape[0] and joined is not None and strip is not None:
            beside = _places_among(strip.part_vertex, rim.part_vertex[inside])
            number[inside] = joined.seam[joined.place[k][beside]]
        on_border = ((number >= 0) & (number < seams.num_vertices)).nonzero()[:, 0]
        theirs = on_border[seams.owner[number[on_border]] != k]
        if theirs.shape[0]:
            _patch(tiles / part.folder, part, rim.vertex[theirs], seams, number[theirs])
        made.append((replace(part, strip=0), rim, number))
    if joined is not None:
        strips.clear()
        made += [(tile, rim, joined.seam[rim.part_vertex]) for tile, rim in dissolve(joined)]
    return made


def _patch(folder: Path, tile: TileEntry, vertex: Tensor, seams: Seams, number: Tensor) -> None:
    """Move vertices (N,) of a tile to vertices (N,) of seams, and give them the values there."""
    uv = tile_files.read_array(folder, "mesh_uv", "f")
    values = tile_files.read_values(folder, tile.vertices, seams.values.shape[1])
    if uv.shape != (tile.vertices, 2):
        raise damaged(
            folder / "mesh_uv.npy", f"it has the shape {tuple(uv.shape)}", tile_files.AGAIN
        )
    uv[vertex], values[vertex] = seams.uv[number], seams.values[number]
    tile_files.write_array(folder, "mesh_uv", uv)
    tile_files.write_array(folder, "values", values)


def _write_seams(tiles: Path, made: list[_Numbered]) -> dict[str, int]:
    """Write which vertices and edges each tile shares; returns how many there are."""
    numbers = [number for _, _, number in made]
    known, vertex = torch.unique(torch.cat(numbers), return_inverse=True)
    vertices = torch.split(vertex, [number.shape[0] for number in numbers])
    # An edge is known by the vertices at its ends.
    ends = [mine[rim.ends] for (_, rim, _), mine in zip(made, vertices, strict=True)]
    keys = torch.cat([pair.amin(1) * known.shape[0] + pair.amax(1) for pair in ends])
    different, edge = torch.unique(keys, return_inverse=True)
    edges = torch.split(edge, [rim.edge.shape[0] for _, rim, _ in made])
    for (tile, rim, _), mine, beside in zip(made, vertices, edges, strict=True):
        folder = tiles / tile.folder
        tile_files.write_array(folder, SEAM_VERTICES, torch.stack([rim.vertex, mine], 1))
        tile_files.write_array(folder, SEAM_EDGES, torch.stack([rim.edge, beside], 1))
    return {"vertices": len(known), "edges": len(different), "ends": len(vertex)}
