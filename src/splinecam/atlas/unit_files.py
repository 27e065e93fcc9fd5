"""What a unit of the computation leaves in its folder: a tile, and perhaps a strip.

Where the coarse mesh has artificial edges, the regions beside them are parts of larger ones. They
are kept apart from the tile, as a strip. When all units are done, the strips are joined, and the
artificial edges are removed. A strip has the files of a tile in the folder ``strip``, without maps.

Vertices are named by their numbers in the unit, whose regions are those of the tile and the strip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from splinecam.atlas.borders import Border
from splinecam.atlas.tile_files import (
    AGAIN,
    Column,
    read_array,
    read_columns,
    read_mesh,
    read_values,
    write_array,
)
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.engine.division import Coarse
from splinecam.engine.tiling import ROOT
from splinecam.geometry.subdivision import BORDER, Mesh
from splinecam.stores.untrusted import damaged, write_arrays

__all__ = [
    "RIM",
    "STRIP",
    "Part",
    "Rim",
    "Strip",
    "divided",
    "places_among",
    "rim_of",
    "with_parts",
]

STRIP, RIM = "strip", "rim.npz"


@dataclass(frozen=True)
class Part:
    """Some faces of a unit, with the numbers (V,) and (E,) that vertices and edges have there."""

    mesh: Mesh
    vertex: Tensor
    edge: Tensor


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

    def write(self, path: Path) -> None:
        """Write the rim to a file."""
        write_arrays(path, {name: value.cpu().numpy() for name, value in vars(self).items()})

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


def divided(coarse: Coarse, artificial: int, unit: Mesh) -> tuple[Part | None, Part | None]:
    """The tile and the strip of a unit that has been refined, None for one without faces.

    artificial: the layer of artificial edges of the coarse mesh.
    """
    root = ROOT - unit.edge_layer
    cut = (root >= 0) & (coarse.mesh.edge_layer[root.clamp(min=0)] == artificial)
    touched = torch.zeros(unit.num_vertices, dtype=torch.bool, device=root.device)
    touched[unit.edges[cut]] = True
    beside = unit.sums(touched[unit.corner_vertices()].long()) > 0
    return _part(unit, ~beside), _part(unit, beside)


def _part(unit: Mesh, chosen: Tensor) -> Part | None:
    """Some faces of a unit, (F,) booleans."""
    if bool(chosen.all()):
        numbers = (torch.arange(count) for count in (unit.num_vertices, unit.num_edges))
        return Part(unit, *numbers)
    faces = chosen.nonzero()[:, 0]
    return Part(*unit.select(faces)) if faces.shape[0] else None


@dataclass(frozen=True)
class Strip:
    """A strip: its mesh, the values (V, n_out), and the numbers of vertices (V,) in the unit."""

    mesh: Mesh
    values: Tensor
    unit_vertex: Tensor

    def write(self, folder: Path) -> None:
        """Write the strip to a folder, which is made."""
        folder.mkdir(exist_ok=True)
        for field in fields(Mesh):
            write_array(folder, f"mesh_{field.name}", getattr(self.mesh, field.name))
        write_array(folder, "values", self.values)
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
            place = places_among(part.edge, border.edge)
            found = place >= 0
            in_strip[found], local[found] = is_strip, place[found]
    return replace(border, in_strip=in_strip, edge=local)
