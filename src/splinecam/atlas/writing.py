"""Write what a unit of the computation has made: a tile, perhaps a strip, and its border."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from splinecam._util.files import writing
from splinecam.analysis.partition_data import Unresolved
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.atlas.borders import BORDER, Border, border_of, drawn
from splinecam.atlas.manifest import TileEntry
from splinecam.atlas.rounding_errors import ERRORS, write_errors
from splinecam.atlas.tile_files import write_tile
from splinecam.atlas.unit_files import RIM, STRIP, Part, Strip, divided, rim_of, with_parts
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.engine.division import Coarse
from splinecam.engine.run import Outcome
from splinecam.engine.tiling import Tile
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh
from splinecam.stores.untrusted import inside

__all__ = ["TileWriter"]


@dataclass(frozen=True)
class TileWriter:
    """Writes tiles to folders of their own in a folder; frame: that of the domain."""

    folder: Path
    frame: Frame

    @torch.no_grad()
    def unit(self, name: str, coarse: Coarse, tile: Tile, outcome: Outcome) -> TileEntry:
        """Write the outcome of a unit, with its border; returns the tile without its strip."""
        border = border_of(coarse, tile, outcome.mesh, outcome.output)
        inner: Part | None = Part(outcome.mesh, *_numbers(outcome.mesh))
        strip = None
        if coarse.lines is not None:
            inner, strip = divided(coarse, ARTIFICIAL, outcome.mesh)
            border = with_parts(border, inner, strip)
        self.make(name)
        entry = TileEntry(name, 0, 0, 0, (0.0, 0.0, 0.0, 0.0))
        if inner is not None:
            mesh = drawn(coarse, inner.mesh)
            values = outcome.output if inner.mesh is outcome.mesh else outcome.output[inner.vertex]
            entry = self.tile(name, replace(outcome, mesh=mesh, output=values))
            rim_of(mesh, inner.vertex).write(self.folder / name / RIM)
        if strip is not None:
            mesh = drawn(coarse, strip.mesh)
            kept = Strip(mesh, outcome.output[strip.vertex], strip.vertex)
            kept.write(self.folder / name / STRIP)
            artificial = int((mesh.edge_layer == ARTIFICIAL).sum())
            entry = replace(entry, strip=max(0, mesh.num_faces - artificial))
        self._keep(name, border, outcome)
        return entry

    def _keep(self, name: str, border: Border, outcome: Outcome) -> None:
        """Write what is needed until the atlas is complete."""
        write_errors(self.folder / name / ERRORS, outcome.error, outcome.layer_errors)
        border.write(self.folder / name / BORDER)

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


def _numbers(mesh: Mesh) -> tuple[Tensor, Tensor]:
    """The numbers of all vertices and edges."""
    return torch.arange(mesh.num_vertices), torch.arange(mesh.num_edges)
