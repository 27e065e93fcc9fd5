"""Compute an atlas in a folder, here or by workers, or what is missing of it.

Workers write their tiles if they see the folder: on this machine, and on a cluster whose machines
share its file system. Other workers send what they have computed, and this process writes it. A
worker may go on for a while after its caller was killed, so it writes to folders of its own, which
this process renames.

Some small parts, which lie all over the coarse mesh, come first and tell how many regions there
are. Then the rest is divided: every worker gets several tiles, and each tile fits the memory. How
faces are divided does not depend on the order in which tiles come back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Unpack
from uuid import uuid4

import torch
from torch import Tensor

from splinecam._util.backend import backend_of
from splinecam._util.files import folder_of, made_folder, replaced
from splinecam._util.options import device_of
from splinecam._util.progress import progress_bar, tell
from splinecam.engine.artificial_cuts import UNDECIDED, switching, without_artificial_edges
from splinecam.engine.division import Coarse
from splinecam.engine.open_part import OpenPart
from splinecam.engine.plan import Plan, first_device, free_memory, is_light, to_device
from splinecam.engine.run import Outcome, outcome_of
from splinecam.engine.step import Computation
from splinecam.engine.tiling import halves, sorted_faces
from splinecam.errors import LimitError
from splinecam.geometry.domain import Domain, Frame
from splinecam.geometry.subdivision import BORDER
from splinecam.network.capture.models import dtype_of
from splinecam.network.program import Program
from splinecam.parallel import Engine, Job, Packed, engine_for, run_tasks
from splinecam.parallel.workers import Worker
from splinecam.partitions.partition_files import output_written
from splinecam.partitions.refining import question_facts
from splinecam.partitions.request import Model, Options, Request, require_domain
from splinecam.questions.wanted import Wanted
from splinecam.stores.claims import Claims
from splinecam.stores.manifest import ATLAS, check_identity, domain_digest, model_facts
from splinecam.stores.untrusted import inside, refuse_links
from splinecam.tiles.atlas import Atlas, open_atlas
from splinecam.tiles.atlas_data import QUESTION, write_domain
from splinecam.tiles.computation import AtlasComputation, Sizes, tile_name, with_true_rim
from splinecam.tiles.manifest import FILE, Manifest, TileEntry
from splinecam.tiles.part_files import Rim, TileWriter, rim_of
from splinecam.tiles.seams import KEY, JoinedStrips, clean, complete, is_clean
from splinecam.tiles.tile_files import ERRORS, read_errors, write_columns


def _dissolved_tiles(
    work: AtlasComputation, coarse: Coarse | None, joined: JoinedStrips
) -> list[tuple[TileEntry, Rim]]:
    """Remove the artificial edges of all strips, and write what is left as tiles."""
    if coarse is None or coarse.lines is None:
        raise ValueError("there are no artificial lines")
    program, domain, frame = work.plan.last.program, work.domain, Frame.of(work.domain)
    error, layer_errors = read_errors(work.folder / ERRORS)
    errors = {name: each.to(program.device) for name, each in layer_errors.items()}

    def switch(uv: Tensor) -> tuple[Tensor, Tensor]:
        sides = (domain.embed(frame.to_plane(side)) for side in uv.unbind(1))
        layer, unit = switching((program.walk(x) for x in sides), errors, 0)
        return layer.to(uv.device), unit.to(uv.device)

    widest = max([domain.dim, *(len(each) for each in layer_errors.values())])
    rows = max(1, backend_of(joined.mesh.uv.device).numbers // widest)
    fixed = joined.mesh.vertex_layer == BORDER
    mesh, kept, undecided = without_artificial_edges(joined.mesh, coarse.lines, fixed, switch, rows)
    values = joined.values[kept]
    order, waiting = sorted_faces(mesh), [range(mesh.num_faces)]
    found: list[tuple[TileEntry, Rim]] = []
    while waiting:
        members = waiting.pop()
        if len(members) > work.sizes.regions:
            waiting += reversed(halves(members))
            continue
        faces = torch.sort(order[members.start : members.stop]).values
        some, vertex, _ = mesh.select(faces)
        name = f"strip{len(found):05d}"
        work.writer.make(name)
        outcome = Outcome(some, values[vertex], error, layer_errors, [])
        found.append((work.writer.tile(name, outcome), rim_of(some, kept[vertex])))
    if undecided.shape[0]:
        where = frame.to_plane(undecided.mean(1)).tolist()
        layer = program.layers[min(coarse.index, len(program.layers) - 1)].name
        places = [((u, v), layer, UNDECIDED) for u, v in where]
        first, rim = found[0]
        found[0] = replace(first, unresolved=first.unresolved + places), rim
    return found


_PER_WORKER = 4  # tiles that each worker is to have
_SMALL = 1 << 14  # regions below which a tile is not made smaller for the sake of the workers
_PROBES, _PROBED = 8, 512  # how many tiles come first, and which part of the faces each has
_FACES = 64  # faces of the coarse mesh for each of these tiles, from which on it is divided
_MOST = 1 << 16  # regions that a layer may make of the undivided domain in this process


def _compute_by_workers(
    engine: Engine, jobs: list[Job], work: AtlasComputation, coarse: Coarse
) -> bool:
    """Compute all tiles that are missing; False if a single face is too large for a tile.

    jobs: one job in several forms. The workers get the first that can be sent.
    """
    arrays, program = coarse.arrays(), work.plan.first.program
    place, key = work.folder.resolve() / KEY, uuid4().hex
    with replaced(inside(work.folder, KEY)) as file:
        file.write(key.encode())
    writer = replace(work.writer, folder=place.with_name("tiles"))
    given = arrays, writer, place, key, work.domain, work.open_part(coarse)
    shared = Packed.first_of(*(partial(_Shared, job, *given) for job in jobs))
    tasks = _Tasks(work, coarse.mesh.num_faces, _PER_WORKER * engine.workers)
    share = (len(program.layers) - coarse.index) / coarse.mesh.num_faces
    for number, made in run_tasks(engine, _run_tile, shared, tasks):
        if made is None and not tasks.halve(number):
            return False
        if made is None:
            continue
        members, _ = tasks.given[number]
        name = tile_name(members)
        if isinstance(made, Outcome):
            entry = work.writer.part(name, coarse, coarse.tile(members), made)
        else:
            entry = work.writer.rename(made, name)
        tasks.done(number)
        work.add(entry, tasks.left)
        work.report(program.layers[-1].name, work.regions, share * len(members))
        work.check_limit()
    return True


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all tiles share."""

    job: Job
    coarse: dict[str, Tensor]  # the coarse mesh as arrays
    writer: TileWriter
    place: Path  # a file in the folder of the atlas
    key: str  # its content
    domain: Domain
    open_part: OpenPart | None

    def in_sight(self) -> bool:
        """Whether this process sees the folder of the atlas."""
        try:
            return self.place.read_text() == self.key
        except OSError:
            return False


_Task = tuple[range, int]
"""Faces of the coarse mesh, by their places in its order, and how many regions they may have."""


def _run_tile(worker: Worker, task: _Task) -> TileEntry | Outcome | None:
    """Carry a tile to the end of the network, in a worker; None if it has too many regions.

    The worker writes the tile, under a name of its own, if it sees the folder of the atlas.
    """
    shared, (members, most) = worker.shared, task
    if "ready" not in worker.kept:  # workers may be threads: both are kept at once
        plan = shared.job.plan(worker)
        coarse = Coarse.from_arrays(shared.coarse, plan.first.program)
        part = to_device(shared.open_part, plan.first.device)
        worker.kept["ready"] = plan, replace(coarse, at_second=False), part
    plan, coarse, part = worker.kept["ready"]
    with torch.inference_mode():
        work, tile = Computation(plan, most, open_part=part), coarse.tile(members)
        try:
            end = coarse.finish(work, tile)
        except LimitError:
            return None
        outcome = with_true_rim(outcome_of(work, end), plan.last.program, shared.domain)
        outcome = to_device(outcome, torch.device("cpu")).kept()
        if not shared.in_sight():
            return outcome
        entry: TileEntry = shared.writer.part(f".{uuid4().hex}", coarse, tile, outcome)
        return entry


class _Tasks(Iterator[_Task]):
    """The tiles that are still to be computed; it may go on after it has been empty."""

    def __init__(self, work: AtlasComputation, total: int, tiles: int) -> None:
        self._work, self._total, self._tiles = work, total, tiles
        self.given: list[_Task] = []  # all tasks so far, by their numbers
        self._out = 0  # tasks without a result
        self._next: list[range] = []
        self._rest = [range(*each) for each in work.manifest.pending or []]  # not divided yet
        if not work.manifest.tiles:
            self._next, self._rest = _probes(total)
        self._left = {some.start: some for some in self._next + self._rest}

    def __next__(self) -> _Task:
        if self._rest and not self._next and not self._out:
            self._divide()
        if not self._next:
            raise StopIteration
        work = self._work
        most = work.sizes.regions
        if work.max_regions is not None:
            most = min(most, work.max_regions - work.regions)
        self.given.append((self._next.pop(0), most))
        self._out += 1
        return self.given[-1]

    @property
    def left(self) -> list[list[int]]:
        """The faces that are not done, as the manifest lists them: the next ones last."""
        ranges = (self._left[start] for start in sorted(self._left, reverse=True))
        return [[some.start, some.stop] for some in ranges]

    def done(self, number: int) -> None:
        """Note that a task has its tile."""
        self._out -= 1
        del self._left[self.given[number][0].start]

    def halve(self, number: int) -> bool:
        """Replace a task that has too many regions by its halves; False if it has one face only."""
        self.done(number)
        members, most = self.given[number]
        if most < self._work.sizes.regions:
            raise self._work.too_many()
        if len(members) == 1:
            return False
        for half in halves(members):
            self._left[half.start] = half
            self._next.append(half)
        return True

    def _divide(self) -> None:
        """Divide the rest by the number of regions of the faces that are done."""
        work = self._work
        done = self._total - sum(map(len, self._left.values()))
        each = work.regions / max(1, done)
        goal = min(work.planned, max(_SMALL, each * self._total / self._tiles))
        waiting, self._rest = self._rest[::-1], []
        while waiting:
            some = waiting.pop()
            if len(some) > 1 and len(some) * each > goal:
                waiting += reversed(halves(some))
                continue
            self._left[some.start] = some
            self._next.append(some)


def _probes(total: int) -> tuple[list[range], list[range]]:
    """A few tiles from all over the faces, and the faces between them."""
    count = min(_PROBES, total)
    starts = [total * number // count for number in range(count)]
    stops = [start + max(1, total // _PROBED) for start in starts]
    first = [range(*ends) for ends in zip(starts, stops, strict=True)]
    between = [range(*ends) for ends in zip(stops, [*starts[1:], total], strict=True)]
    return first, [some for some in between if some]


def atlas(
    model: Model,
    domain: Domain,
    folder: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    **options: Unpack[Options],
) -> Atlas:
    """The exact partition of a domain in a folder on disk, which may be larger than the memory.

    The same call after an interruption computes only what is missing there; ``sc.load(folder)``
    opens an atlas later, also without the network.

    model, options: as for ``partition``, without ``smooth``; with ``refine``, only what was asked
    can be answered, and an error says what needs all regions. folder: where the atlas is, or will
    be. n_jobs: how many processes compute tiles, as for ``sweep``.
    """
    request = Request.of("atlas", model, options)
    require_domain(domain)
    if request.smooth is not None:
        raise TypeError("smooth= works in memory: sc.partition takes it, and sc.atlas does not")
    return compute_atlas(request, domain, folder, n_jobs=n_jobs)


def compute_atlas(
    request: Request,
    domain: Domain,
    store: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    sizes: Sizes | None = None,
) -> Atlas:
    """The atlas of a domain in a folder; only what is missing there is computed."""
    folder, network, output = folder_of(store), request.model, request.output
    with torch.inference_mode(False):
        engine, first, last = engine_for(n_jobs), torch.device("cpu"), device_of(request.device)
        if engine is None:
            first = first_device(request.device, network, domain.input_shape)
        program = request.captured(domain.input_shape, first)
        names, wanted = request.names_for(program), request.wanted_for(program, domain)
        identity = {"domain": domain_digest(domain).hex(), **model_facts(network, domain, output)}
        identity["refine"] = question_facts(request.refine, wanted)
        if not _is_ready(folder, identity, names):
            with _alone(folder), torch.no_grad():
                manifest = _manifest(folder, identity)
                if manifest is None:
                    write_domain(folder, domain)
                    if wanted is not None:
                        write_columns(folder / QUESTION, wanted.written()[1])
                    manifest = Manifest(identity, {})
                if not manifest.complete:
                    manifest.about |= {
                        "input_shape": list(domain.input_shape),
                        "layers": [layer.name for layer in program.layers],
                        "stripped": program.stripped,
                        "dtype": str(dtype_of(network)).removeprefix("torch."),
                        "output": output_written(output),
                    }
                if names is not None or "names" not in manifest.about:
                    manifest.about["names"] = names and list(names)
                made = folder, manifest, request, domain, program, engine, sizes
                program = _complete(*made, wanted)
        atlas = open_atlas(folder, last)
        atlas._model, atlas._program, atlas.output = network, program.to(last), output
        return atlas


def _is_ready(folder: Path, identity: dict[str, Any], names: Sequence[str] | None) -> bool:
    """Whether an atlas is complete, and can be opened as it is, also on a read-only disk."""
    manifest = _manifest(folder, identity)
    if manifest is None or not manifest.complete or not is_clean(folder, manifest):
        return False
    return names is None or list(names) == manifest.about["names"]


def _manifest(folder: Path, identity: dict[str, Any]) -> Manifest | None:
    """The manifest in a folder, if there is one; it must be of the same model and domain."""
    if not (folder / FILE).exists():
        return None
    manifest = Manifest.read(folder)
    check_identity(folder, ATLAS, manifest.identity, identity)
    return manifest


def _complete(
    folder: Path,
    manifest: Manifest,
    request: Request,
    domain: Domain,
    program: Program,
    engine: Engine | None,
    sizes: Sizes | None,
    wanted: Wanted | None,
) -> Program:
    """Compute what is missing of an atlas; returns the program of the device that did it last."""
    device, memory, shape = device_of(request.device), request.memory, domain.input_shape
    if memory is None:
        memory = free_memory(device) // (1 if engine is None else 1 + engine.neighbours)
    budget = 3 * memory // 4
    plan = Plan.of(program, device if engine is None else None, budget)
    sizes = sizes or Sizes.within(memory)
    work = AtlasComputation(folder, manifest, plan, domain, sizes, request.max_regions)
    if wanted is not None:
        work.question, work.refined = wanted.question(prod(program.output_shape)), True
    compute = work.compute
    if engine is not None:
        tiles = _PER_WORKER * engine.workers
        # More of the first layers is left to the workers.
        work.most, work.least_parts = _MOST, tiles
        work.sizes = replace(sizes, enough=min(sizes.enough, _FACES * tiles))
        light = is_light(request.model, shape)
        rest = request.output, shape, request.device, light, budget, None
        jobs = [Job(program, None, *rest), Job(None, request.model, *rest)]
        compute = partial(_compute_by_workers, engine, jobs, work)
    with progress_bar(len(program.layers), "layer", request.progress) as bar:
        work.report = partial(tell, bar)
        _finish(work, compute)
    return plan.last.program


def _finish(work: AtlasComputation, compute: Callable[[Coarse], bool]) -> None:
    """Compute what is missing of an atlas; compute: see ``AtlasComputation.compute``."""
    manifest = work.manifest
    if manifest.complete:
        manifest.write(work.folder)
        clean(work.folder, manifest)
        return
    with torch.inference_mode():
        coarse = work.coarse()
        while coarse is not None and not compute(coarse):
            work.restart()
            coarse = work.coarse()
    with torch.inference_mode(False):
        dissolve = partial(_dissolved_tiles, work, coarse)
        complete(work.folder, manifest, None if coarse is None else coarse.mesh, dissolve)
    work.check_limit()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder, and claim it until the block or the process ends."""
    claims = Claims(made_folder(folder))
    try:
        claims.take_all(ATLAS.noun)
        refuse_links(folder)
        yield
    finally:
        claims.close()
