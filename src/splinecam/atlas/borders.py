"""The border of a unit towards other units: what is needed to find the same vertices on both sides.

A seam runs along edges of the coarse mesh, which refinement divides into pieces. A unit knows of
each piece which edge of the coarse mesh it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from splinecam.atlas.tile_files import FINITE, Column, read_columns
from splinecam.engine.division import Coarse
from splinecam.engine.tiling import ROOT, Tile
from splinecam.geometry.subdivision import Mesh
from splinecam.stores.untrusted import write_arrays

__all__ = ["BORDER", "Border", "border_of", "drawn"]

BORDER = "border.npz"  # the file in a tile's folder, until the atlas is complete


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

    def write(self, path: Path) -> None:
        """Write the border to a file."""
        write_arrays(path, {name: value.cpu().numpy() for name, value in vars(self).items()})

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


def border_of(coarse: Coarse, tile: Tile, mesh: Mesh, values: Tensor) -> Border:
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
