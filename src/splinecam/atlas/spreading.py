"""Compute the tiles of an atlas by workers, which write them where they see the atlas's folder.

On this machine they do, and on a cluster if the folder is on a file system that its machines share.
Other workers send what they have computed, and this process writes it. Workers write to folders of
their own, which this process renames: one whose caller was killed may go on for a while.

Some small units, spread over the coarse mesh, come first and tell how many regions there are. Then
the rest is divided such that every worker gets several tiles, each of which fits the memory. How
faces are divided does not depend on the order in which tiles come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import torch
from torch import Tensor

from splinecam._util.files import replaced
from splinecam.atlas.completing import KEY
from splinecam.atlas.making import Making, TileTooLarge, tile_name
from splinecam.atlas.manifest import TileEntry
from splinecam.atlas.writing import TileWriter
from splinecam.engine.division import Coarse
from splinecam.engine.plan import to_device
from splinecam.engine.run import Outcome, Run
from splinecam.engine.tiling import halves
from splinecam.errors import LimitError
from splinecam.parallel import Engine, Job, Packed, run_tasks
from splinecam.parallel.workers import Worker
from splinecam.stores.untrusted import inside

__all__ = ["Spread"]

_PER_WORKER = 4  # tiles that each worker is to have
_SMALL = 1 << 14  # regions below which a tile is not made smaller for the sake of the workers
_PROBES, _PROBED = 8, 512  # how many units come first, and which part of the faces each has
_FACES = 64  # faces of the coarse mesh for each of these tiles, from which on it is divided
_MOST = 1 << 16  # regions that a layer may make of the undivided domain in this process


@dataclass(frozen=True, eq=False)
class Spread:
    """Workers that compute tiles; jobs: one job in several forms, the first that can be sent is."""

    engine: Engine
    jobs: list[Job]

    @property
    def tiles(self) -> int:
        """How many tiles there are to be at least, if they are not very small."""
        return _PER_WORKER * self.engine.workers

    def prepare(self, making: Making) -> None:
        """Leave more of the first layers to the workers.

        A wide one is computed in parts of the domain, between artificial lines.
        """
        making.most, making.least_parts = _MOST, self.tiles
        enough = min(making.sizes.enough, _FACES * self.tiles)
        making.sizes = replace(making.sizes, enough=enough)

    def compute(self, making: Making, coarse: Coarse) -> None:
        """Compute all tiles that are missing."""
        arrays, program = coarse.arrays(), making.plan.first.program
        place, key = making.folder.resolve() / KEY, uuid4().hex
        with replaced(inside(making.folder, KEY)) as file:
            file.write(key.encode())
        given = arrays, making.writer.absolute(), place, key
        shared = Packed.first_of(*(partial(_Shared, job, *given) for job in self.jobs))
        tasks = _Tasks(making, coarse.mesh.num_faces, self.tiles)
        share = (len(program.layers) - coarse.index) / coarse.mesh.num_faces
        for number, made in run_tasks(self.engine, _run_unit, shared, tasks):
            if made is None:
                tasks.halve(number)
                continue
            members = tasks.members[number]
            name = tile_name(members)
            if isinstance(made, Outcome):
                entry = making.writer.unit(name, coarse, coarse.unit(members).tile, made)
            else:
                entry = making.writer.rename(made, name)
            tasks.done(number)
            making.add(entry, tasks.left)
            making.report(program.layers[-1].name, making.regions, share * len(members))
            making.check_limit()


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all units share: the job, the coarse mesh as arrays, and what writes tiles.

    key: what the file ``place`` has if the folder of the atlas is the one of the caller.
    """

    job: Job
    coarse: dict[str, Tensor]
    writer: TileWriter
    place: Path
    key: str

    def in_sight(self) -> bool:
        """Whether this process sees the folder of the atlas."""
        try:
            return self.place.read_text() == self.key
        except OSError:
            return False


class _Task(NamedTuple):
    """Faces of the coarse mesh, by their places in its order, and how many regions may come."""

    start: int
    stop: int
    most: int


def _run_unit(worker: Worker, task: _Task) -> TileEntry | Outcome | None:
    """Carry a unit to the end of the network, in a worker; None if it has too many regions.

    The tile is written, under a name of its own, if the folder of the atlas is in sight.
    """
    shared = worker.shared
    if "ready" not in worker.kept:  # workers may be threads: both are kept at once
        plan = shared.job.plan(worker)
        coarse = Coarse.from_arrays(shared.coarse, plan.first.program)
        worker.kept["ready"] = plan, replace(coarse, at_second=False)
    plan, coarse = worker.kept["ready"]
    with torch.inference_mode():
        run = Run(plan, task.most, lambda name, regions, share: None)
        unit = coarse.unit(range(task.start, task.stop))
        try:
            end = unit.finish(run)
        except LimitError:
            return None
        outcome: Outcome = to_device(run.result(end), torch.device("cpu")).kept()
        if not shared.in_sight():
            return outcome
        entry: TileEntry = shared.writer.unit(f".{uuid4().hex}", coarse, unit.tile, outcome)
        return entry


class _Tasks(Iterator[_Task]):
    """The units that are still to be computed; it may go on after it has been empty.

    members: the faces of each task, by its number.
    """

    def __init__(self, making: Making, total: int, tiles: int) -> None:
        self._making, self._total, self._tiles = making, total, tiles
        self.members: list[range] = []
        self._most: list[int] = []
        self._out = 0  # tasks without a result
        self._next: list[range] = []
        self._rest = [range(*each) for each in making.manifest.pending or []]  # not divided yet
        if not making.manifest.tiles:
            self._next, self._rest = _probes(total)
        self._left = {some.start: some for some in self._next + self._rest}

    def __next__(self) -> _Task:
        if self._rest and not self._next and not self._out:
            self._divide()
        if not self._next:
            raise StopIteration
        members, making = self._next.pop(0), self._making
        most = making.sizes.regions
        if making.max_regions is not None:
            most = min(most, making.max_regions - making.regions)
        self.members.append(members)
        self._most.append(most)
        self._out += 1
        return _Task(members.start, members.stop, most)

    @property
    def left(self) -> list[list[int]]:
        """The faces that are not done, as the manifest lists them: the next ones last."""
        ranges = (self._left[start] for start in sorted(self._left, reverse=True))
        return [[some.start, some.stop] for some in ranges]

    def done(self, number: int) -> None:
        """Take in that a task has its tile."""
        self._out -= 1
        del self._left[self.members[number].start]

    def halve(self, number: int) -> None:
        """Replace a task that has too many regions by its halves."""
        self.done(number)
        if self._most[number] < self._making.sizes.regions:
            raise self._making.too_many()
        if len(self.members[number]) == 1:
            raise TileTooLarge("a single face of the coarse mesh is too large for a tile")
        for half in halves(self.members[number]):
            self._left[half.start] = half
            self._next.append(half)

    def _divide(self) -> None:
        """Divide the rest by the number of regions of the faces that are done."""
        making = self._making
        done = self._total - sum(map(len, self._left.values()))
        each = making.regions / max(1, done)
        goal = min(making.planned, max(_SMALL, each * self._total / self._tiles))
        waiting, self._rest = self._rest[::-1], []
        while waiting:
            some = waiting.pop()
            if len(some) > 1 and len(some) * each > goal:
                waiting += reversed(halves(some))
                continue
            self._left[some.start] = some
            self._next.append(some)


def _probes(total: int) -> tuple[list[range], list[range]]:
    """A few units that are spread over all faces, and the faces between them."""
    count = min(_PROBES, total)
    starts = [total * number // count for number in range(count)]
    stops = [start + max(1, total // _PROBED) for start in starts]
    first = [range(*ends) for ends in zip(starts, stops, strict=True)]
    between = [range(*ends) for ends in zip(stops, [*starts[1:], total], strict=True)]
    return first, [some for some in between if some]
