"""The frames of a pane, and the network behind a frame, which computes while one looks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from splinecam._util.options import device_of
from splinecam.engine.plan import Plan
from splinecam.errors import DomainError, FileError, LimitError, SplineCamError, option
from splinecam.geometry.domain import Domain
from splinecam.jobs.partitioning import partition
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.partitions.captured import Captured
from splinecam.partitions.computing import compute
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.request import Request, Smooth
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import open_run
from splinecam.training.watching import Watch, temporary_eval_mode

_KEPT = 1 << 30  # bytes of partitions that were read from files and are kept


class TooMuch(SplineCamError):
    """A partition has more regions than it may have, or takes longer; the message says which."""


@dataclass(frozen=True)
class Limits:
    """What a computation may take while one looks: regions, bytes of memory, seconds."""

    max_regions: int = 200_000
    memory: int = 1 << 30
    seconds: float = 5.0


@dataclass(frozen=True)
class Network:
    """A captured network: its weights are those of a frame, also if the model has changed since.

    device: where partitions end up; names: of the classes, or None; smooth: how close partitions
    are to a network with smooth functions.
    """

    model: nn.Module
    program: Program
    device: torch.device
    output: Output = None
    names: tuple[str, ...] | None = None
    smooth: Smooth | None = None

    @classmethod
    def of_model(cls, model: nn.Module | Captured, domain: Domain, **options: Any) -> Network:
        """A model as it is now, for inputs as those of a domain; options: those of ``Request``."""
        request = Request.of("view", model, options)
        place = device_of(request.device)
        program = request.captured(domain.input_shape, place)
        names = request.names_for(program)
        return cls(request.model, program, place, request.output, names, request.smooth)

    def partition(
        self,
        domain: Domain,
        limits: Limits,
        outdated: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> Partition:
        """The partition of a domain; ``TooMuch`` beyond the limits, ``CancelledError`` if outdated.

        outdated: asked after every layer whether nobody waits for the partition any more.
        """
        end = clock() + limits.seconds

        def report(*_: object) -> None:
            if clock() > end:
                raise TooMuch(f"more than {limits.seconds:g} seconds of computation")
            if outdated():
                raise CancelledError

        with torch.inference_mode(False), torch.no_grad():
            plan, most = Plan.of(self.program, self.device, limits.memory), limits.max_regions
            try:
                found = compute(
                    plan, domain, self.smooth, max_regions=most, report=report, note=report
                )
            except LimitError as error:
                if option("max_regions") in str(error):
                    raise TooMuch(f"more than {most:,} regions") from None
                if option("memory") in str(error):
                    raise TooMuch("more regions than memory allows") from None
                raise
            program, names = plan.last.program, self.names
            return assemble(self.model, program, domain, found, output=self.output, names=names)

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs (N, n_out) at inputs (N, ...), on the CPU."""
        with torch.no_grad():
            return self.program(x.to(self.program.device)).flatten(1).cpu()


class Frames:
    """A series of partitions of one domain, with a label each, or one that a network computes.

    partitions: those in memory; labels: what the slider says about each; given: the network and
    the domain of a frame without a partition. grows: whether frames may be added later.
    """

    grows = False

    def __init__(
        self,
        partitions: Sequence[Partition],
        labels: Sequence[str] | None = None,
        *,
        given: tuple[Network, Domain] | None = None,
    ):
        self.partitions, self._network = tuple(partitions), given and given[0]
        if not self.partitions and given is None:
            raise ValueError("there is nothing to show: the list of partitions is empty")
        count = len(self.partitions)
        numbers = [str(k) for k in range(count)] if count > 1 else [""]
        self._labels = numbers if labels is None else [str(label) for label in labels]
        if labels is not None and len(labels) != count:
            raise ValueError(f"there are {len(labels)} labels for {count} partitions")
        self.domain = given[1] if given else self.partitions[0].domain
        for label, part in zip(self._labels, self.partitions, strict=False):
            if part.domain != self.domain:
                raise DomainError(
                    "The frames of one pane must have the same domain, but that of frame "
                    f"{label!r} differs from the first: {part.domain} instead of {self.domain}. To "
                    "see different domains side by side, give the partitions one by one: "
                    "sc.view(first, second)."
                )

    @property
    def labels(self) -> list[str]:
        """What the slider says about each frame."""
        return self._labels

    def partition(self, frame: int) -> Partition | None:
        """The partition of a frame; None if it is to be computed by the network."""
        return self.partitions[frame] if self.partitions else None

    def network(self, frame: int) -> Network:
        """The network of a frame; an error that says why there is none."""
        if self._network is not None:
            return self._network
        part = self.partitions[frame]
        return Network(part.model, part._network, part.mesh.uv.device, part.output, part.names)

    def poll(self) -> bool:
        """Look for new frames; whether the labels have changed."""
        return False


class RunFrames(Frames):
    """The recorded steps of a training run, also while they are recorded.

    Partitions in files are read when they are asked for; those that were asked for last are kept.
    """

    def __init__(self, source: Run | Watch | Path, *, kept: int = _KEPT):
        self.grows = not isinstance(source, Run)
        self.partitions, self._snapshots = (), _reader(source)
        self._kept, self._size, self._limit = OrderedDict[str, Partition](), 0, kept
        self._lock = RLock()
        self._present: Partition | None = None  # a network before its first recorded step
        self._shown: tuple[Snapshot, ...] = ()
        self.poll()
        if not self._shown:
            if not isinstance(source, Watch):
                raise SplineCamError("There is nothing to show: no step has been recorded.")
            with temporary_eval_mode(source.model):
                self._present = partition(source.model, source.domain, progress=False)
        self.domain = self.partition(0).domain

    @property
    def labels(self) -> list[str]:
        return [f"step {snapshot.step:,}" for snapshot in self._shown] or ["now"]

    def partition(self, frame: int) -> Partition:
        with self._lock:
            if not self._shown and self._present is not None:
                return self._present
            snapshot = self._shown[frame]
            if isinstance(snapshot.source, Partition):
                return snapshot.source
            return self._read(snapshot)

    def network(self, frame: int) -> Network:
        raise SplineCamError(
            "A recorded run holds partitions and no networks, so that nothing can be computed "
            "beyond what was recorded. Show a partition, or a model and a domain."
        )

    def poll(self) -> bool:
        before = self._shown
        try:
            found = self._snapshots()
        except FileError:
            if not before:
                raise
            return False  # what was read stays to be seen while the folder cannot be read
        if [_key(each) for each in found] == [_key(each) for each in before]:
            return False
        with self._lock:
            self._shown = found
        return True

    def _read(self, snapshot: Snapshot) -> Partition:
        """The partition in a file; the oldest of those that are kept make room for it."""
        key = _key(snapshot)
        if key not in self._kept:
            self._kept[key] = snapshot.partition
            self._size += _size(self._kept[key])
        self._kept.move_to_end(key)
        while self._size > self._limit and len(self._kept) > 1:
            self._size -= _size(self._kept.popitem(last=False)[1])
        return self._kept[key]


def _reader(source: Run | Watch | Path) -> Callable[[], tuple[Snapshot, ...]]:
    """A function that gives what has been recorded so far."""
    if isinstance(source, Run):
        return lambda: source.snapshots
    if isinstance(source, Watch):
        return lambda: source.run.snapshots
    return lambda: open_run(source).snapshots


def _key(snapshot: Snapshot) -> str:
    """What tells snapshots apart, also one that was recorded anew in the place of another."""
    source = snapshot.source
    if not isinstance(source, Path):
        return f"{snapshot.step} {id(source)}"
    try:
        return f"{snapshot.step} {source} {source.stat().st_mtime_ns}"
    except OSError:  # it is missing; reading it says so
        return f"{snapshot.step} {source}"


def _size(part: Partition) -> int:
    """About how many bytes a partition takes."""
    mesh = part.mesh
    arrays = (mesh.uv, mesh.edges, mesh.corners, mesh.offsets, part.values)
    return 2 * sum(array.numel() * array.element_size() for array in arrays)
