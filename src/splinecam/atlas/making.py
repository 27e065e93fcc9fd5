"""Compute an atlas: tile after tile, each of which is on disk before the next one begins.

The coarse mesh, which the first layers make, is on disk too, so that a computation that was killed
continues with the tile at which it stopped. Its faces are divided by halves until a part is
expected to fit the memory; the density of regions is known from the tiles that are done. A part
that does not fit is halved and computed again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splinecam.analysis.partition_data import Unresolved
from splinecam.arrangement.edge_crossings import Ambiguities
from splinecam.atlas.borders import BORDER, Border, border_of, drawn
from splinecam.atlas.manifest import Manifest, TileEntry
from splinecam.atlas.rounding_errors import ERRORS, write_errors
from splinecam.atlas.tile_files import mapped, write_array, write_tile
from splinecam.atlas.unit_files import RIM, STRIP, Part, Strip, divided, rim_of, with_parts
from splinecam.engine.activations import State
from splinecam.engine.artificial_cuts import ARTIFICIAL
from splinecam.engine.cut_lines import MOST_PARTS, choose_lines
from splinecam.engine.division import ENOUGH, Coarse, Ready, begin, halves
from splinecam.engine.plan import Plan
from splinecam.engine.run import Outcome, Report, Run
from splinecam.engine.tiling import Tile
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain
from splinecam.geometry.frame import Frame
from splinecam.geometry.subdivision import Mesh

__all__ = ["Making", "Sizes", "TileTooLarge"]

_TILE_BYTES = 1200  # of memory per region of a tile, measured: while it is computed and written
_ROOM = 0.7  # the share of what fits for which a tile is planned
_PART = 0.6  # the same for parts between artificial lines
_MORE = 4  # times as many parts where a tile was too large
_PROBES = 64  # the first tile is this part of the whole, as nothing is known of the density


@dataclass(frozen=True)
class Sizes:
    """How many regions a tile has at most, and with how many faces a coarse mesh is divided."""

    regions: int
    enough: int = ENOUGH

    @classmethod
    def within(cls, memory: int) -> Sizes:
        """Sizes for which so many bytes suffice."""
        return cls(max(1, memory // _TILE_BYTES))


@dataclass
class Making:
    """The computation of an atlas in a folder.

    max_regions: of the whole atlas. report: is told of layers,
    see ``engine.run.Report``.
    """

    folder: Path
    manifest: Manifest
    plan: Plan
    domain: Domain
    sizes: Sizes
    max_regions: int | None = None
    report: Report = lambda name, regions, share: None

    # -- the coarse mesh ----------------------------------------------------------------------

    def coarse(self) -> Coarse | None:
        """The coarse mesh, which is computed unless it is on disk; None if one tile was enough."""
        if self.manifest.pending is None:
            made = begin(self.plan, self.domain, enough=self.sizes.enough, report=self.report)
            if isinstance(made, Ready):
                self._write_only(made)
                return None
            if made.mesh.num_faces == 1 or self.manifest.parts:
                made = self._cut(made)
            _write_arrays(self.folder / "coarse", made.arrays())
            self.manifest.unresolved = self._places(made.state.ambiguities)
            self.manifest.pending = [[0, made.mesh.num_faces]]
            self.manifest.write(self.folder)
        if not (self.folder / "coarse").is_dir():
            return None
        arrays = _read_arrays(self.folder / "coarse")
        flags = arrays["flags"].tolist()
        place = self.plan.second if flags[1] else self.plan.first
        return Coarse.from_arrays(arrays, place.program)

    def _cut(self, coarse: Coarse) -> Coarse:
        """The coarse mesh, divided by artificial lines."""
        place = self.plan.second if coarse.at_second else self.plan.first
        sample = coarse.sample(place.program)
        parts = max(2, self.manifest.parts)
        if sample.regions < np.inf:
            parts = max(parts, ceil(sample.regions / (_PART * self.sizes.regions)))
        self.manifest.parts = parts
        return coarse.cut(place.program, choose_lines(sample, parts))

    def _write_only(self, made: Ready) -> None:
        """Write the whole partition as the only tile."""
        outcome = made.run.result(made.state).kept()
        with torch.inference_mode(False):
            entry = self.write(self._name(), outcome)
        self.manifest.tiles.append(entry)
        self.manifest.pending = []
        self.manifest.write(self.folder)

    def restart(self) -> None:
        """Begin again with more parts: a single face of the coarse mesh is too large for a tile."""
        if self.manifest.parts >= MOST_PARTS:
            raise LimitError(
                f"A tile of the atlas exceeds {self.sizes.regions:,} regions, which is what the "
                "memory allows. Raise memory, or choose a smaller domain."
            )
        self.manifest.parts = min(MOST_PARTS, max(_PROBES, _MORE * self.manifest.parts))
        self.manifest.tiles, self.manifest.pending = [], None
        self.manifest.write(self.folder)

    def check_limit(self) -> None:
        """Raise a ``LimitError`` if the complete atlas has too many regions."""
        if self.max_regions is not None and self._regions() > self.max_regions:
            raise self._too_many()

    def _too_many(self) -> LimitError:
        return LimitError(
            f"The atlas exceeds max_regions={self.max_regions:,}. Raise max_regions, or choose a "
            "smaller domain."
        )

    # -- tiles --------------------------------------------------------------------------------

    def compute(self, coarse: Coarse) -> None:
        """Compute all tiles that are missing."""
        pending = self.manifest.pending or []
        total = coarse.mesh.num_faces
        while pending:
            members = range(*pending[-1])
            expected = self._expected(members, total, pending)
            if len(members) > 1 and expected > _ROOM * self.sizes.regions:
                _halve(pending)
                continue
            try:
                entry = self._tile(coarse, members, total)
            except TileTooLarge:
                if len(members) == 1:
                    raise
                _halve(pending)
                continue
            pending.pop()
            self.manifest.tiles.append(entry)
            self.manifest.write(self.folder)

    def _expected(self, members: range, total: int, pending: list[list[int]]) -> float:
        """About how many regions a part will have, from those that are done."""
        done = total - sum(stop - start for start, stop in pending)
        if not done:
            return 0.0 if len(members) <= max(1, total // _PROBES) else np.inf
        return len(members) * self._regions() / done

    def _regions(self) -> int:
        """About how many regions are done; never more than there are."""
        return sum(tile.regions + tile.strip for tile in self.manifest.tiles)

    def _tile(self, coarse: Coarse, members: range, total: int) -> TileEntry:
        """Compute one tile and write it."""
        done, fits = self._regions(), self.sizes.regions
        left = fits if self.max_regions is None else self.max_regions - done
        most = min(fits, left)

        def report(name: str, regions: int, share: float) -> None:
            self.report(name, done + regions, share * len(members) / total)

        run = Run(self.plan, most, report)
        unit = coarse.unit(members)
        try:
            end = unit.finish(run)
        except LimitError as reason:
            if self.max_regions is not None and left <= fits:
                raise self._too_many() from None
            raise TileTooLarge(str(reason)) from None
        return self._finished(coarse, unit.tile, run, end)

    def _finished(self, coarse: Coarse, tile: Tile, run: Run, end: State) -> TileEntry:
        """Write a tile at the end of the network."""
        outcome = run.result(end).kept()
        with torch.inference_mode(False):
            border = border_of(coarse, tile, outcome.mesh, outcome.output)
            inner: Part | None = Part(outcome.mesh, *_numbers(outcome.mesh))
            strip = None
            if coarse.lines is not None:
                inner, strip = divided(coarse, ARTIFICIAL, outcome.mesh)
                border = with_parts(border, inner, strip)
            return self._write_unit(coarse, outcome, border, inner, strip)

    def _write_unit(
        self,
        coarse: Coarse,
        outcome: Outcome,
        border: Border,
        inner: Part | None,
        strip: Part | None,
    ) -> TileEntry:
        """Write the tile and the strip of a unit, of which one may be missing."""
        name = self._name()
        entry = TileEntry(name, 0, 0, 0, (0.0, 0.0, 0.0, 0.0))
        folder = self.folder / "tiles" / name
        if inner is not None:
            mesh = drawn(coarse, inner.mesh)
            values = outcome.output[inner.vertex]
            entry = self.write(name, replace(outcome, mesh=mesh, output=values))
            rim_of(mesh, inner.vertex).write(folder / RIM)
        if strip is not None:
            mesh = drawn(coarse, strip.mesh)
            Strip(mesh, outcome.output[strip.vertex], strip.vertex).write(folder / STRIP)
            artificial = int((mesh.edge_layer == ARTIFICIAL).sum())
            entry = replace(entry, strip=max(0, mesh.num_faces - artificial))
        write_errors(folder / ERRORS, outcome.error, outcome.layer_errors)
        border.write(folder / BORDER)
        return entry

    def _name(self) -> str:
        """The name of the next tile, whose folder is made."""
        name = f"{len(self.manifest.tiles):05d}"
        folder = self.folder / "tiles" / name
        if folder.exists():  # of a computation that was killed
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return name

    def write(self, name: str, outcome: Outcome) -> TileEntry:
        """Write the arrays of a tile, which the manifest does not know yet."""
        mesh, folder = outcome.mesh, self.folder / "tiles" / name
        write_tile(folder, mesh, outcome.output)
        write_errors(folder / ERRORS, outcome.error, outcome.layer_errors)
        low, high = mesh.uv.amin(0).tolist(), mesh.uv.amax(0).tolist()
        return TileEntry(
            folder=name,
            vertices=mesh.num_vertices,
            edges=mesh.num_edges,
            regions=mesh.num_faces,
            box=(*low, *high),
            unresolved=self._places(outcome.ambiguities),
        )

    def _places(self, ambiguities: list[tuple[str, Ambiguities]]) -> list[Any]:
        """Places that float64 could not settle, as the manifest lists them."""
        frame = Frame.of(self.domain)
        return [
            list(Unresolved((u, v), name, each.reason))
            for name, each in ambiguities
            for u, v in frame.to_plane(each.uv).tolist()
        ]


class TileTooLarge(LimitError):
    """A tile has more regions than fit the memory."""


def _numbers(mesh: Mesh) -> tuple[Tensor, Tensor]:
    """The numbers of all vertices and edges."""
    return torch.arange(mesh.num_vertices), torch.arange(mesh.num_edges)


def _halve(pending: list[list[int]]) -> None:
    """Replace the next part by its halves, of which the first comes next."""
    first, second = halves(range(*pending.pop()))
    pending += [[second.start, second.stop], [first.start, first.stop]]


def _write_arrays(folder: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write named arrays to a folder, which appears when it is complete."""
    draft = folder.with_name(f".{folder.name}.part")
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir()
    for number, value in enumerate(arrays.values()):
        write_array(draft, str(number), value)
    (draft / "names.json").write_text(json.dumps(list(arrays)))
    if folder.exists():  # of a computation that was killed before the manifest knew of it
        shutil.rmtree(folder)
    draft.rename(folder)


def _read_arrays(folder: Path) -> dict[str, Tensor]:
    """The arrays of a folder, mapped into memory."""
    found = {}
    for number, name in enumerate(json.loads((folder / "names.json").read_text())):
        array = mapped(folder, str(number))
        found[name] = torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))
    return found
