"""The frames of a pane, and the network that computes partitions while one looks."""

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

_KEPT = 1 << 30  # bytes of partitions from files that stay in memory


class TooMuch(SplineCamError):
    """A partition has too many regions or takes too long; the message says which."""


@dataclass(frozen=True)
class Limits:
    """What a computation may take while one looks: regions, bytes of memory, seconds."""

    max_regions: int = 200_000
    memory: int = 1 << 30
    seconds: float = 5.0


@dataclass(frozen=True)
class Network:
    """A captured network, which keeps its weights when the model changes."""

    model: nn.Module
    program: Program
    device: torch.device  # of the partitions
    output: Output = None
    names: tuple[str, ...] | None = None  # of the classes
    smooth: Smooth | None = None  # the accuracy

    @classmethod
    def of_model(cls, model: nn.Module | Captured, domain: Domain, **options: Any) -> Network:
        """Return a model as it is now for the inputs of a domain; options: of ``Request``."""
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
        """Return the partition of a domain, or raise ``TooMuch``, or ``CancelledError``."""
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
        """Return the outputs (N, n_out) at inputs (N, ...), on the CPU."""
        with torch.no_grad():
            return self.program(x.to(self.program.device)).flatten(1).cpu()


class Frames:
    """A series of partitions of one domain with labels for a slider, or one that is computed."""

    grows = False  # whether frames may be added later

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
        """Return the partition of a frame; None if the network is to compute it."""
        return self.partitions[frame] if self.partitions else None

    def network(self, frame: int) -> Network:
        """Return the network of a frame, or raise an error that says why there is none."""
        if self._network is not None:
            return self._network
        part = self.partitions[frame]
        return Network(
            part.model, part._network, part.mesh.uv.device, part._chosen_output, part.names
        )

    def poll(self) -> bool:
        """Look for new frames; return whether the labels have changed."""
        return False


class RunFrames(Frames):
    """The recorded steps of a training run, also while it grows; the last used partitions stay."""

    def __init__(self, source: Run | Watch | Path, *, kept: int = _KEPT):
        self.grows = not isinstance(source, Run)
        self.partitions, self._source = (), source
        self._kept, self._size, self._limit = OrderedDict[str, Partition](), 0, kept
        self._lock = RLock()
        self._present: Partition | None = None  # of a network before its first recorded step
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
            key = _key(snapshot)
            if key not in self._kept:
                self._kept[key] = snapshot.partition
                self._size += _size(self._kept[key])
            self._kept.move_to_end(key)
            # Partitions that were not used for long make room.
            while self._size > self._limit and len(self._kept) > 1:
                self._size -= _size(self._kept.popitem(last=False)[1])
            return self._kept[key]

    def network(self, frame: int) -> Network:
        raise SplineCamError(
            "A recorded run holds partitions and no networks, so nothing can be computed beyond "
            "what was recorded. Show a partition, or a model and a domain."
        )

    def poll(self) -> bool:
        before = self._shown
        source = self._source
        try:
            run = open_run(source) if isinstance(source, Path) else source
            found = run.run.snapshots if isinstance(run, Watch) else run.snapshots
        except FileError:
            if not before:
                raise
            return False  # known frames stay while the folder cannot be read
        if [_key(each) for each in found] == [_key(each) for each in before]:
            return False
        with self._lock:
            self._shown = found
        return True


def _key(snapshot: Snapshot) -> str:
    """Return a text that differs for different snapshots, also for a step recorded again."""
    source = snapshot.source
    if not isinstance(source, Path):
        return f"{snapshot.step} {id(source)}"
    try:
        return f"{snapshot.step} {source} {source.stat().st_mtime_ns}"
    except OSError:  # it is missing, as reading it will say
        return f"{snapshot.step} {source}"


def _size(part: Partition) -> int:
    """Return about how many bytes a partition takes."""
    mesh = part.mesh
    arrays = (mesh.uv, mesh.edges, mesh.corners, mesh.offsets, part._outputs)
    return 2 * sum(array.numel() * array.element_size() for array in arrays)
