"""The computation of an atlas in this process, tile by tile.

The first layers make a coarse mesh. It is on disk like the tiles, so that a killed computation
continues where it stopped. The faces of the coarse mesh are halved until a part should fit
the memory; tiles that are done tell how dense the regions are. A part that does not fit after all
is halved and computed again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.files import writing
from splinecam.engine.activations import Interpolated, State
from splinecam.engine.artificial_cuts import ARTIFICIAL, MOST_PARTS, choose_lines
from splinecam.engine.division import ENOUGH, Coarse, begin
from splinecam.engine.open_part import OpenPart, Question, open_part
from splinecam.engine.plan import Plan, to_device
from splinecam.engine.run import Outcome, outcome_of
from splinecam.engine.step import Computation, Report, silent
from splinecam.engine.tiling import MeshTile, halves
from splinecam.errors import FileError, LimitError
from splinecam.geometry.domain import Domain, Frame
from splinecam.network.program import Program
from splinecam.stores.untrusted import check_entries, damaged, open_plain, seal, unseal
from splinecam.tiles.manifest import Manifest, TileEntry
from splinecam.tiles.part_files import TileWriter
from splinecam.tiles.tile_files import AGAIN, check_fields, read_array, write_array

_NAMES = "names.json"  # the file with the names of the coarse mesh's arrays
_TILE_BYTES = 1200  # of memory per region of a tile, measured: while it is computed and written
_ROOM = 0.7  # a tile is planned for this share of what fits
_PART = 0.6  # the same for parts between artificial lines
_MORE = 4  # times as many parts where a tile was too large
_PROBES = 64  # the first tile has one face in so many, as the density is unknown


@dataclass(frozen=True)
class Sizes:
    """How many regions a tile has at most, and with how many faces a coarse mesh is divided."""

    regions: int
    enough: int = ENOUGH

    @classmethod
    def within(cls, memory: int) -> Sizes:
        """The sizes for so many bytes of memory."""
        return cls(max(1, memory // _TILE_BYTES))


@dataclass
class AtlasComputation:
    """The computation of an atlas in a folder.

    question: if given, faces are divided only as long as it is open on them.
    """

    folder: Path
    manifest: Manifest
    plan: Plan
    domain: Domain
    sizes: Sizes
    max_regions: int | None = None  # of the whole atlas
    report: Report = silent
    most: float = inf  # about how many regions a layer may make of the undivided domain
    least_parts: int = 2  # if artificial lines divide the domain, they make at least so many
    need: float = 0.0  # bytes for each face of the last tile
    question: Question | None = None
    refined: bool = False  # whether the tiles say which faces are settled

    @property
    def writer(self) -> TileWriter:
        """What writes the tiles."""
        return TileWriter(self.folder / "tiles", Frame.of(self.domain), self.refined)

    def open_part(self, coarse: Coarse) -> OpenPart | None:
        """Where the question is open, None if all faces are to be divided."""
        # Faces are united again across artificial lines, which settled ones cannot be.
        return None if coarse.lines is not None else self._open_part

    @cached_property
    def _open_part(self) -> OpenPart | None:
        if self.question is None:
            return None
        with torch.inference_mode(False), torch.no_grad():
            return open_part(self.plan.first, self.domain, self.question, self.report)

    # -- the coarse mesh ----------------------------------------------------------------------

    def coarse(self) -> Coarse | None:
        """The coarse mesh, from disk or computed; None if one tile was enough."""
        fresh = self.manifest.pending is None
        if fresh:
            enough, most = self.sizes.enough, self.most
            made = begin(self.plan, self.domain, enough=enough, most=most, report=self.report)
            if isinstance(made, Outcome):
                self._write_only(made.kept())
                return None
            if made.mesh.num_faces == 1 or self.manifest.parts:
                made = self._cut(made)
            _write_arrays(self.folder / "coarse", made.arrays())
            self.manifest.unresolved = self.writer.places(made.state.ambiguities)
            self.manifest.pending = [[0, made.mesh.num_faces]]
            self.manifest.write(self.folder)
        if not (self.folder / "coarse").is_dir():
            return None
        # Files of another process are not trusted; checksums of our own would take long.
        arrays = _read_arrays(self.folder / "coarse", verify=not fresh)
        coarse = self._checked(arrays)
        if not coarse.at_second:
            return coarse
        if self.plan.make_second is None:  # it began with a GPU, and goes on without
            return replace(coarse, at_second=False)
        return Coarse.from_arrays(arrays, self.plan.second.program)

    def _checked(self, arrays: Mapping[str, Tensor]) -> Coarse:
        """The coarse mesh from its arrays; a ``FileError`` unless they fit together."""
        folder, program, fit = self.folder / "coarse", self.plan.first.program, True
        try:
            made = Coarse.from_arrays(arrays, program)
            check_fields(made.mesh, [prod(x.shape) for x in program.layers], ARTIFICIAL, folder)
            faces, given = made.mesh.num_faces, made.layer_input
            fit = _fits(made.state)
            if given is not None:
                layer = program.stages[made.index].layer
                units = torch.Size([prod(layer.shape) if layer is not None else -1])
                fit &= given.low.shape == given.high.shape == units
                signs = given.signs
                rows = [] if signs is None else [signs.positive, signs.negative]
                fit &= all(len(each) == made.mesh.num_vertices for each in rows)
            fit &= torch.equal(torch.sort(made.order).values, torch.arange(faces))
            fit &= all(0 <= start < stop <= faces for start, stop in self.manifest.pending or [])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            if isinstance(error, FileError):
                raise
            raise damaged(folder, error, AGAIN) from error
        if not fit:
            raise damaged(folder, "its arrays do not fit together", AGAIN)
        return made

    def _cut(self, coarse: Coarse) -> Coarse:
        """The coarse mesh, divided by artificial lines."""
        place = self.plan.second if coarse.at_second else self.plan.first
        sample = coarse.sample(place.program)
        parts = max(self.least_parts, self.manifest.parts)
        if sample.regions < np.inf:
            parts = max(parts, ceil(sample.regions / (_PART * self.sizes.regions)))
        self.manifest.parts = parts
        return coarse.cut(place.program, choose_lines(sample, parts))

    def _write_only(self, outcome: Outcome) -> None:
        """Write the whole partition as the only tile."""
        with torch.inference_mode(False):
            name = tile_name(range(1))
            self.writer.make(name)
            entry = self.writer.tile(name, outcome)
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
        """Raise a ``LimitError`` if there are too many regions."""
        if self.max_regions is not None and self.regions > self.max_regions:
            raise self.too_many()

    def too_many(self) -> LimitError:
        return LimitError(
            f"The atlas exceeds max_regions={self.max_regions:,}. Raise max_regions, or choose a "
            "smaller domain."
        )

    # -- tiles --------------------------------------------------------------------------------

    def compute(self, coarse: Coarse) -> bool:
        """Compute all missing tiles; False if a single face is too large for a tile."""
        waiting, total = list(self.manifest.pending or []), coarse.mesh.num_faces
        with ThreadPoolExecutor(1) as pool:
            writing: Future[TileEntry] | None = None
            while waiting:
                members = range(*waiting[-1])
                done = total - sum(stop - start for start, stop in self.manifest.pending or [])
                if done:  # the faces that are done tell how many regions a part will have
                    large = len(members) * self.regions / done > self.planned
                else:
                    large = len(members) > max(1, total // _PROBES)
                large |= len(members) * self.need > _ROOM * self.plan.last.memory
                if len(members) > 1 and large:
                    _halve(waiting)
                    continue
                tile = coarse.tile(members)
                outcome = self._outcome(coarse, tile, members)
                if outcome is None and len(members) == 1:
                    return False
                if outcome is None:
                    _halve(waiting)
                    continue
                waiting.pop()
                if writing is not None:
                    self.add(writing.result(), [*waiting, [members.start, members.stop]])
                given = tile_name(members), coarse, tile, outcome
                writing = pool.submit(self.writer.part, *given)
                del given, tile, outcome
                if not done:  # nothing is known of the density yet
                    self.add(writing.result(), waiting)
                    writing = None
            if writing is not None:
                self.add(writing.result(), waiting)
        return True

    def add(self, tile: TileEntry, pending: list[list[int]]) -> None:
        """Add a tile on disk to the manifest; pending: what is left."""
        self.manifest.tiles.append(tile)
        self.manifest.tiles.sort(key=lambda each: each.folder)
        self.manifest.pending = [list(each) for each in pending]
        self.manifest.write(self.folder)

    @property
    def planned(self) -> float:
        """The number of regions for which tiles are planned."""
        return _ROOM * self.sizes.regions

    @property
    def regions(self) -> int:
        """About how many regions are done; never more than there are."""
        return sum(tile.regions + tile.strip for tile in self.manifest.tiles)

    def _outcome(self, coarse: Coarse, tile: MeshTile, members: range) -> Outcome | None:
        """The outcome of a tile, on the CPU; None if it has more regions than fit the memory."""
        done, fits = self.regions, self.sizes.regions
        left = fits if self.max_regions is None else self.max_regions - done

        def report(name: str, regions: int, share: float) -> None:
            self.report(name, done + regions, share * len(members) / coarse.mesh.num_faces)

        work = Computation(self.plan, min(fits, left), report, measured=True)
        work.open_part = self.open_part(coarse)
        try:
            end = coarse.finish(work, tile)
        except LimitError:
            if self.max_regions is not None and left <= fits:
                raise self.too_many() from None
            return None
        # A tile that had to be divided was too large by an unknown factor.
        used = 2 * work.memory if work.need else work.worst
        self.need = used / len(members)
        outcome = with_true_rim(outcome_of(work, end), self.plan.last.program, self.domain)
        return to_device(outcome, torch.device("cpu")).kept()


def with_true_rim(outcome: Outcome, program: Program, domain: Domain) -> Outcome:
    """The outcome of a tile with the network's outputs on its rim, where other tiles may have them.

    Settled faces have outputs with the same answer. They may have ended before the last layers.
    """
    if outcome.settled is None:
        return outcome
    mesh, errors = outcome.mesh, outcome.layer_errors
    rim = torch.zeros(mesh.num_vertices, dtype=torch.bool, device=mesh.uv.device)
    rim[mesh.edges[(mesh.halfedge_face().view(-1, 2) < 0).any(1)]] = True
    rim[mesh.corner_vertices()[~outcome.settled[mesh.owners()]]] = False
    step = max(1, backend_of(program.device).numbers // max(1, *program.widths))
    for some in torch.split(rim.nonzero()[:, 0], step):
        x = domain.embed(Frame.of(domain).to_plane(mesh.uv[some]))
        outcome.output[some] = program(x.to(program.device)).flatten(1).to(outcome.output)
    none = {layer.name: outcome.error.new_zeros(prod(layer.shape)) for layer in program.layers}
    return replace(outcome, layer_errors=none | errors)


def tile_name(members: range) -> str:
    """The folder of a tile; the names order tiles by their faces."""
    return f"{members.start:08d}"


def _fits(state: State) -> bool:
    """Whether each vertex has values of its own, or lies between others that have."""
    known = {len(value) for value in state.rows.values()}
    if not isinstance(state.pending, Interpolated):
        return known == {state.mesh.num_vertices}
    new, inside = state.pending, state.pending.inside
    entries = {len(value) for value in new.values.values()}
    if len(known) != 1 or len(entries) != 1 or state.rows.keys() != new.values.keys():
        return False
    most = entries.pop()
    shown = torch.arange(min(new.count, most + 1)) if new.shown is None else new.shown
    index = torch.cat([shown, inside.p, inside.q])
    counts = len(shown) == new.count >= 0 and len(inside.p) == len(inside.q) == len(inside.t)
    ranged = not len(index) or 0 <= int(index.min()) <= int(index.max()) < most
    return counts and ranged and known.pop() + new.count + inside.count == state.mesh.num_vertices


def _halve(pending: list[list[int]]) -> None:
    """Replace the next part by its halves; the first half comes next."""
    first, second = halves(range(*pending.pop()))
    pending += [[second.start, second.stop], [first.start, first.stop]]


def _write_arrays(folder: Path, arrays: Mapping[str, Tensor]) -> None:
    """Write named arrays to a folder, which appears when it is complete."""
    draft = folder.with_name(f".{folder.name}.part")
    if draft.exists():
        shutil.rmtree(draft)
    with writing(folder):
        draft.mkdir()
        for number, value in enumerate(arrays.values()):
            write_array(draft, str(number), value)
        (draft / _NAMES).write_bytes(seal({"names": list(arrays)}))
        if folder.exists():  # the run was killed before it wrote the manifest
            shutil.rmtree(folder)
        draft.rename(folder)


def _read_arrays(folder: Path, *, verify: bool) -> dict[str, Tensor]:
    """The arrays of a folder, mapped into memory; verify: compare their checksums."""
    path = folder / _NAMES
    try:
        with open_plain(path) as file:
            about = unseal(file.read(), path, AGAIN)
    except FileNotFoundError:
        raise damaged(folder, f"there is no {_NAMES}", AGAIN) from None
    check_entries(about, {"names": list[str]}, path, AGAIN)
    names = enumerate(about["names"])
    return {name: read_array(folder, str(k), "fi", verify=verify) for k, name in names}
