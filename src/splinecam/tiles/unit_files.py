"""What a unit of the computation leaves in its folder: a tile, perhaps a strip, and its border.

A seam runs along edges of the coarse mesh, which refinement divides into pieces. A unit knows of
each piece which edge of the coarse mesh it belongs to.

Where the coarse mesh has artificial edges, the regions beside them are parts of larger ones. They
are kept apart from the tile, as a strip. When all units are done, the strips are joined, and the
artificial edges are removed. A strip has the files of a tile in the folder ``strip``, without maps.

Vertices are named by their numbers in the unit, whose regions are those of the tile and the strip.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam._util.files import writing
from splinecam.arrangement.crossings import Ambiguities
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.engine.division import Coarse
from splinecam.engine.run import Outcome
from splinecam.engine.tiling import ROOT, MeshTile
from splinecam.geometry.domain import Frame
from splinecam.geometry.subdivision import BORDER, Mesh
from splinecam.questions.partition_data import Unresolved
from splinecam.stores.untrusted import damaged, inside
from splinecam.tiles.manifest import TileEntry
from splinecam.tiles.tile_files import (
    AGAIN,
    ERRORS,
    FINITE,
    Column,
    read_array,
    read_columns,
    read_mesh,
    read_values,
    write_array,
    write_columns,
    write_errors,
    write_tile,
)

BORDER_FILE = "border.npz"  # the file in a tile's folder, until the atlas is complete


@dataclass(frozen=True)
class Border:
    """The vertices and edges of a unit on seams.

    vertex: (S,) of the unit; vertex_layer: (S,) the layer that made it; coarse_vertex: (S,) its
    number in the coarse mesh, -1 for new ones; uv: (S, 2); values: (S, n_out). edge: (P,) of the
    tile or the strip of the unit; in_strip: (P,) which of both; root: (P,) the edges of the coarse
    mesh that they are pieces of; ends: (P, 2) places in ``vertex``.
    """

    vertex: Tensor
    vertex_layer: Tensor
    coarse_vertex: Tensor
    uv: Tensor
    values: Tensor
    edge: Tensor
    in_strip: Tensor
    root: Tensor
    ends: Tensor

    @classmethod
    def read(cls, path: Path, coarse: Mesh) -> Border:
        """The border in a file; coarse: the coarse mesh."""
        columns: dict[str, Column] = {
            "vertex": (("S",), 0, inf),
            "vertex_layer": (("S",), -1, inf),
            "coarse_vertex": (("S",), -1, coarse.num_vertices),
            "uv": (("S", 2), *FINITE),
            "values": (("S", "n"), *FINITE),
            "edge": (("P",), 0, inf),
            "in_strip": (("P",), 0, 2),
            "root": (("P",), 0, coarse.num_edges),
            "ends": (("P", 2), 0, "S"),
        }
        return cls(**read_columns(path, columns))


def border_of(coarse: Coarse, tile: MeshTile, mesh: Mesh, values: Tensor) -> Border:
    """The border of a unit that has been refined: its mesh and the values (V, n_out) there."""
    root = ROOT - mesh.edge_layer
    piece = root >= 0
    faces = mesh.halfedge_face().view(-1, 2)
    # An edge of the coarse mesh with a face on one side in the tile, and on the other elsewhere.
    real = coarse.mesh.edge_layer[root.clamp(min=0)] != -1
    edge = (piece & (faces < 0).any(1) & real).nonzero()[:, 0]
    vertex, ends = torch.unique(mesh.edges[edge], return_inverse=True)
    known = tile.vertex_ids.shape[0]
    coarse_vertex = torch.where(vertex < known, tile.vertex_ids[vertex.clamp(max=known - 1)], -1)
    ends, in_strip = ends.view(-1, 2), torch.zeros_like(edge, dtype=torch.bool)
    uv, values, layer = mesh.uv[vertex], values[vertex], mesh.vertex_layer[vertex]
    return Border(vertex, layer, coarse_vertex, uv, values, edge, in_strip, root[edge], ends)


def drawn(coarse: Coarse, mesh: Mesh) -> Mesh:
    """The mesh of a tile with the layers and units that drew its edges, instead of marks."""
    root = ROOT - mesh.edge_layer
    piece, root = root >= 0, root.clamp(min=0)
    whole = coarse.mesh
    return replace(
        mesh,
        edge_layer=torch.where(piece, whole.edge_layer[root], mesh.edge_layer),
        edge_unit=torch.where(piece, whole.edge_unit[root], mesh.edge_unit),
    )


STRIP, RIM = "strip", "rim.npz"


Part = tuple[Mesh, Tensor, Tensor]
"""Some faces of a unit, with the numbers (V,) and (E,) that vertices and edges have there."""


@dataclass(frozen=True)
class Rim:
    """The vertices and edges of a tile beyond which other tiles, or strips, begin.

    vertex: (S,) of the tile, ascending; unit_vertex: (S,) their numbers in the unit. edge: (P,) of
    the tile, ascending; ends: (P, 2) places in ``vertex``.
    """

    vertex: Tensor
    unit_vertex: Tensor
    edge: Tensor
    ends: Tensor

    @classmethod
    def read(cls, path: Path, vertices: int, edges: int) -> Rim:
        """The rim in a file; vertices, edges: how many the tile has."""
        columns: dict[str, Column] = {
            "vertex": (("S",), 0, vertices),
            "unit_vertex": (("S",), 0, inf),
            "edge": (("P",), 0, edges),
            "ends": (("P", 2), 0, "S"),
        }
        return cls(**read_columns(path, columns))


def rim_of(mesh: Mesh, unit_vertex: Tensor) -> Rim:
    """The rim of a tile, whose vertices have the numbers (V,) in their unit."""
    inner = mesh.edge_layer != BORDER
    edge = (inner & (mesh.halfedge_face().view(-1, 2) < 0).any(1)).nonzero()[:, 0]
    vertex, ends = torch.unique(mesh.edges[edge], return_inverse=True)
    return Rim(vertex, unit_vertex[vertex], edge, ends.view(-1, 2))


def divided(coarse: Coarse, unit: Mesh) -> tuple[Part | None, Part | None]:
    """The tile and the strip of a unit that has been refined, None for one without faces."""
    if coarse.lines is None:
        return _whole(unit), None
    root = ROOT - unit.edge_layer
    cut = (root >= 0) & (coarse.mesh.edge_layer[root.clamp(min=0)] == ARTIFICIAL)
    touched = torch.zeros(unit.num_vertices, dtype=torch.bool, device=root.device)
    touched[unit.edges[cut]] = True
    beside = unit.sums(touched[unit.corner_vertices()].long()) > 0
    return _part(unit, ~beside), _part(unit, beside)


def _part(unit: Mesh, chosen: Tensor) -> Part | None:
    """Some faces of a unit, (F,) booleans."""
    if bool(chosen.all()):
        return _whole(unit)
    faces = chosen.nonzero()[:, 0]
    return unit.select(faces) if faces.shape[0] else None


def _whole(unit: Mesh) -> Part:
    return unit, torch.arange(unit.num_vertices), torch.arange(unit.num_edges)


@dataclass(frozen=True)
class Strip:
    """A strip: its mesh, the values (V, n_out), and the numbers of vertices (V,) in the unit."""

    mesh: Mesh
    values: Tensor
    unit_vertex: Tensor

    def write(self, folder: Path) -> None:
        """Write the strip to a folder, which is made."""
        folder.mkdir(exist_ok=True)
        write_tile(folder, self.mesh, self.values)
        write_array(folder, "unit_vertex", self.unit_vertex)

    @classmethod
    def read(cls, folder: Path, units: Sequence[int], outputs: int) -> Strip:
        """The strip in a folder; units: how many each layer has; outputs: how many there are."""
        mesh = read_mesh(folder, units, ARTIFICIAL)
        values = read_values(folder, mesh.num_vertices, outputs)
        unit_vertex = read_array(folder, "unit_vertex", "i")
        if unit_vertex.shape != (mesh.num_vertices,):
            raise damaged(folder / "unit_vertex.npy", "it has another shape", AGAIN)
        return cls(mesh, values, unit_vertex)


def places_among(known: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted number in distinct known ones, -1 if it is not there, (N,)."""
    if not known.shape[0]:
        return torch.full_like(wanted, -1)
    sorted_known, order = torch.sort(known)
    place = torch.searchsorted(sorted_known, wanted).clamp(max=known.shape[0] - 1)
    return torch.where(sorted_known[place] == wanted, order[place], -1)


def with_parts(border: Border, tile: Part | None, strip: Part | None) -> Border:
    """The border of a unit with the places of its edges in the tile and the strip."""
    in_strip, local = border.in_strip.clone(), border.edge.clone()
    for part, is_strip in ((tile, False), (strip, True)):
        if part is not None:
            place = places_among(part[2], border.edge)
            found = place >= 0
            in_strip[found], local[found] = is_strip, place[found]
    return replace(border, in_strip=in_strip, edge=local)


@dataclass(frozen=True)
class TileWriter:
    """Writes tiles to folders of their own in a folder; frame: that of the domain."""

    folder: Path
    frame: Frame

    @torch.no_grad()
    def unit(self, name: str, coarse: Coarse, tile: MeshTile, outcome: Outcome) -> TileEntry:
        """Write the outcome of a unit, with its border; returns the tile without its strip."""
        border = border_of(coarse, tile, outcome.mesh, outcome.output)
        inner, strip = divided(coarse, outcome.mesh)
        if coarse.lines is not None:
            border = with_parts(border, inner, strip)
        self.make(name)
        entry = TileEntry(name, 0, 0, 0, (0.0, 0.0, 0.0, 0.0))
        if inner is not None:
            own, vertex, _ = inner
            mesh = drawn(coarse, own)
            values = outcome.output if own is outcome.mesh else outcome.output[vertex]
            entry = self.tile(name, replace(outcome, mesh=mesh, output=values))
            write_columns(self.folder / name / RIM, vars(rim_of(mesh, vertex)))
        if strip is not None:
            beside, vertex, _ = strip
            mesh = drawn(coarse, beside)
            Strip(mesh, outcome.output[vertex], vertex).write(self.folder / name / STRIP)
            artificial = int((mesh.edge_layer == ARTIFICIAL).sum())
            entry = replace(entry, strip=max(0, mesh.num_faces - artificial))
        write_errors(self.folder / name / ERRORS, outcome.error, outcome.layer_errors)
        write_columns(self.folder / name / BORDER_FILE, vars(border))
        return entry

    def make(self, name: str) -> None:
        """Make the folder of a tile; one that is there is of a computation that was killed."""
        path = inside(self.folder, name)
        with writing(path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)

    def rename(self, entry: TileEntry, name: str) -> TileEntry:
        """Give a tile that is written another name."""
        path = inside(self.folder, name)
        with writing(path):
            shutil.rmtree(path, ignore_errors=True)
            (self.folder / entry.folder).rename(path)
        return replace(entry, folder=name)

    def absolute(self) -> TileWriter:
        """The same for a process that runs in another folder."""
        return replace(self, folder=self.folder.resolve())

    def tile(self, name: str, outcome: Outcome) -> TileEntry:
        """Write the arrays of a tile to its folder."""
        mesh = outcome.mesh
        write_tile(self.folder / name, mesh, outcome.output)
        write_errors(self.folder / name / ERRORS, outcome.error, outcome.layer_errors)
        low, high = mesh.uv.amin(0).tolist(), mesh.uv.amax(0).tolist()
        return TileEntry(
            folder=name,
            vertices=mesh.num_vertices,
            edges=mesh.num_edges,
            regions=mesh.num_faces,
            box=(*low, *high),
            unresolved=self.places(outcome.ambiguities),
        )

    def places(self, ambiguities: list[tuple[str, Ambiguities]]) -> list[Any]:
        """Places that float64 could not settle, as the manifest lists them."""
        return [
            list(Unresolved((u, v), name, each.reason))
            for name, each in ambiguities
            for u, v in self.frame.to_plane(each.uv).tolist()
        ]
