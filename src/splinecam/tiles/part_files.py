"""What the computation of a part leaves in its folder: a tile, perhaps a strip, and its border.

A part is some faces of the coarse mesh, which are refined on their own. A seam between parts runs
along edges of the coarse mesh, which refinement divides. A part knows the edge of the coarse mesh
from which each of these pieces comes.

Where the coarse mesh has artificial edges, the regions beside them are fragments of larger ones.
They are kept apart from the tile, as a strip. When all parts are done, the strips are joined, and
the artificial edges are removed. A strip has the files of a tile, in the folder ``strip``.

Vertices are named by their numbers in the part: its regions are in the tile or in the strip.
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
from splinecam.tiles import tile_files
from splinecam.tiles.manifest import TileEntry

# What a part's folder has beside the tile, until the atlas is complete.
BORDER_FILE, STRIP, RIM = "border.npz", "strip", "rim.npz"


@dataclass(frozen=True)
class PartBorder:
    """The vertices and edges of a part on seams."""

    vertex: Tensor  # (S,) of the part
    vertex_layer: Tensor  # (S,) the layer that made it
    coarse_vertex: Tensor  # (S,) its number in the coarse mesh, -1 for new ones
    uv: Tensor  # (S, 2)
    values: Tensor  # (S, n_out)
    edge: Tensor  # (P,) of the tile or the strip
    in_strip: Tensor  # (P,) which of both
    root: Tensor  # (P,) the edge of the coarse mesh from which it comes
    ends: Tensor  # (P, 2) places in ``vertex``

    @classmethod
    def read(cls, path: Path, coarse: Mesh) -> PartBorder:
        """The border in a file."""
        columns: dict[str, tile_files.Column] = {
            "vertex": (("S",), 0, inf),
            "vertex_layer": (("S",), -1, inf),
            "coarse_vertex": (("S",), -1, coarse.num_vertices),
            "uv": (("S", 2), *tile_files.FINITE),
            "values": (("S", "n"), *tile_files.FINITE),
            "edge": (("P",), 0, inf),
            "in_strip": (("P",), 0, 2),
            "root": (("P",), 0, coarse.num_edges),
            "ends": (("P", 2), 0, "S"),
        }
        return cls(**tile_files.read_columns(path, columns))


def _border_of(coarse: Coarse, tile: MeshTile, mesh: Mesh, values: Tensor) -> PartBorder:
    """The border of a part that has been refined, as if all of its edges were in the tile."""
    root = ROOT - mesh.edge_layer
    outer = (mesh.halfedge_face().view(-1, 2) < 0).any(1)
    inside = coarse.mesh.edge_layer[root.clamp(min=0)] != BORDER
    edge = ((root >= 0) & outer & inside).nonzero()[:, 0]
    vertex, ends = torch.unique(mesh.edges[edge], return_inverse=True)
    known = tile.vertex_ids.shape[0]
    coarse_vertex = torch.where(vertex < known, tile.vertex_ids[vertex.clamp(max=known - 1)], -1)
    ends, in_strip = ends.view(-1, 2), torch.zeros_like(edge, dtype=torch.bool)
    uv, values, layer = mesh.uv[vertex], values[vertex], mesh.vertex_layer[vertex]
    return PartBorder(vertex, layer, coarse_vertex, uv, values, edge, in_strip, root[edge], ends)


def _drawn(coarse: Mesh, mesh: Mesh) -> Mesh:
    """The mesh of a part with the layers and units that drew its edges, instead of marks."""
    root = ROOT - mesh.edge_layer
    marked, root = root >= 0, root.clamp(min=0)
    return replace(
        mesh,
        edge_layer=torch.where(marked, coarse.edge_layer[root], mesh.edge_layer),
        edge_unit=torch.where(marked, coarse.edge_unit[root], mesh.edge_unit),
    )


@dataclass(frozen=True)
class Rim:
    """The vertices and edges of a tile beyond which other tiles, or strips, begin."""

    vertex: Tensor  # (S,) of the tile, ascending
    part_vertex: Tensor  # (S,) their numbers in the part
    edge: Tensor  # (P,) of the tile, ascending
    ends: Tensor  # (P, 2) places in ``vertex``

    @classmethod
    def read(cls, path: Path, vertices: int, edges: int) -> Rim:
        """The rim in a file; vertices, edges: how many the tile has."""
        columns: dict[str, tile_files.Column] = {
            "vertex": (("S",), 0, vertices),
            "part_vertex": (("S",), 0, inf),
            "edge": (("P",), 0, edges),
            "ends": (("P", 2), 0, "S"),
        }
        return cls(**tile_files.read_columns(path, columns))


def rim_of(mesh: Mesh, part_vertex: Tensor) -> Rim:
    """The rim of a tile, whose vertices have the numbers (V,) in their part."""
    inner = mesh.edge_layer != BORDER
    edge = (inner & (mesh.halfedge_face().view(-1, 2) < 0).any(1)).nonzero()[:, 0]
    vertex, ends = torch.unique(mesh.edges[edge], return_inverse=True)
    return Rim(vertex, part_vertex[vertex], edge, ends.view(-1, 2))


_Faces = tuple[Mesh, Tensor, Tensor]
"""Some faces of a part, with the numbers (V,) and (E,) of their vertices and edges in the part."""


def _divided(mesh: Mesh) -> list[_Faces | None]:
    """The faces of a part that are its tile and its strip, None where there are none."""
    touched = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.edges.device)
    touched[mesh.edges[mesh.edge_layer == ARTIFICIAL]] = True
    beside = mesh.sums(touched[mesh.corner_vertices()].long()) > 0
    if not bool(beside.any()):
        return [(mesh, torch.arange(mesh.num_vertices), torch.arange(mesh.num_edges)), None]
    chosen = ((~beside).nonzero()[:, 0], beside.nonzero()[:, 0])
    return [mesh.select(faces) if faces.shape[0] else None for faces in chosen]


@dataclass(frozen=True)
class Strip:
    """The regions of a part beside artificial edges."""

    mesh: Mesh
    values: Tensor  # (V, n_out)
    part_vertex: Tensor  # (V,) the numbers of the vertices in the part

    def write(self, folder: Path) -> None:
        """Write the strip to a folder, which is made."""
        folder.mkdir(exist_ok=True)
        tile_files.write_tile(folder, self.mesh, self.values)
        tile_files.write_array(folder, "part_vertex", self.part_vertex)

    @classmethod
    def read(cls, folder: Path, units: Sequence[int], outputs: int) -> Strip:
        """The strip in a folder; units: how many each layer has; outputs: how many there are."""
        mesh = tile_files.read_mesh(folder, units, ARTIFICIAL)
        values = tile_files.read_values(folder, mesh.num_vertices, outputs)
        part_vertex = tile_files.read_array(folder, "part_vertex", "i")
        if part_vertex.shape != (mesh.num_vertices,):
            raise damaged(folder / "part_vertex.npy", "it has another shape", tile_files.AGAIN)
        return cls(mesh, values, part_vertex)


@dataclass(frozen=True)
class TileWriter:
    """Writes tiles to folders of their own in a folder; frame: that of the domain.

    refined: whether faces are divided for one question only.
    """

    folder: Path
    frame: Frame
    refined: bool = False

    @torch.no_grad()
    def part(self, name: str, coarse: Coarse, tile: MeshTile, outcome: Outcome) -> TileEntry:
        """Write the outcome of a part, with its border; returns the tile without its strip."""
        border = _border_of(coarse, tile, outcome.mesh, outcome.output)
        whole = _drawn(coarse.mesh, outcome.mesh)
        own, strip = _divided(whole)
        self.make(name)
        entry = TileEntry(name, 0, 0, 0, (0.0, 0.0, 0.0, 0.0))
        if own is not None:
            mesh, vertex, _ = own
            values = outcome.output if mesh is whole else outcome.output[vertex]
            entry = self.tile(name, replace(outcome, mesh=mesh, output=values))
            tile_files.write_columns(self.folder / name / RIM, vars(rim_of(mesh, vertex)))
        if strip is not None:
            mesh, vertex, beside = strip
            Strip(mesh, outcome.output[vertex], vertex).write(self.folder / name / STRIP)
            artificial = int((mesh.edge_layer == ARTIFICIAL).sum())
            entry = replace(entry, strip=max(0, mesh.num_faces - artificial))
            in_strip = torch.isin(border.edge, beside)
            in_tile = beside[:0] if own is None else own[2]
            strip_edge, tile_edge = (torch.searchsorted(x, border.edge) for x in (beside, in_tile))
            edge = torch.where(in_strip, strip_edge, tile_edge)
            border = replace(border, in_strip=in_strip, edge=edge)
        tile_files.write_errors(
            self.folder / name / tile_files.ERRORS, outcome.error, outcome.layer_errors
        )
        tile_files.write_columns(self.folder / name / BORDER_FILE, vars(border))
        return entry

    def make(self, name: str) -> None:
        """Make the folder of a tile, which replaces the leftovers of a killed run."""
        path = inside(self.folder, name)
        with writing(path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)

    def rename(self, entry: TileEntry, name: str) -> TileEntry:
        """Give the folder of a tile another name."""
        path = inside(self.folder, name)
        with writing(path):
            shutil.rmtree(path, ignore_errors=True)
            (self.folder / entry.folder).rename(path)
        return replace(entry, folder=name)

    def tile(self, name: str, outcome: Outcome) -> TileEntry:
        """Write the arrays of a tile to its folder."""
        mesh = outcome.mesh
        tile_files.write_tile(self.folder / name, mesh, outcome.output)
        if self.refined:
            settled = outcome.settled
            none = torch.zeros(mesh.num_faces, dtype=torch.int64)
            found = none if settled is None else settled.long()
            tile_files.write_array(self.folder / name, tile_files.SETTLED, found)
        tile_files.write_errors(
            self.folder / name / tile_files.ERRORS, outcome.error, outcome.layer_errors
        )
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
