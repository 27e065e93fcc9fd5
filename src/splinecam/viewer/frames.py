"""The network behind a frame, which partitions windows and other planes while one looks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Protocol

import torch
from torch import Tensor, nn

from splinecam._util.options import device_of
from splinecam.engine.plan import Plan
from splinecam.engine.run import run
from splinecam.errors import DomainError, FileError, SplineCamError
from splinecam.geometry.domain import Domain
from splinecam.jobs.partitioning import partition
from splinecam.network.capture import naming_option
from splinecam.network.capture.models import Output
from splinecam.network.program import Program
from splinecam.partitions.captured import Captured
from splinecam.partitions.partition import Partition, assemble
from splinecam.partitions.request import Request
from splinecam.training.runs import Run, Snapshot
from splinecam.training.store import open_run
from splinecam.training.watching import Watch, temporary_eval_mode

_OPTION = "view(sc.partition(model, domain, smooth=1e-3)) shows a network near it"


class GivenUp(Exception):
    """A computation was ended because nobody waits for its result any more."""


@dataclass(frozen=True)
class Network:
    """A captured network: its weights are those of a frame, also if the model has changed since.

    device: where partitions end up; names: of the classes, or None.
    """

    model: nn.Module
    program: Program
    device: torch.device
    output: Output = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of_partition(cls, part: Partition) -> Network:
        """The network of a partition; an error if the partition was loaded without it."""
        device = part.mesh.uv.device
        return cls(part.model, part.program, device, part.output, part.names)

    @classmethod
    def of_model(
        cls,
        model: nn.Module | Captured,
        domain: Domain,
        *,
        output: Output = None,
        device: str | torch.device = "auto",
        names: tuple[str, ...] | None = None,
    ) -> Network:
        """A model as it is now, for inputs as those of a domain."""
        request = Request.of("view", model, {"output": output, "device": device, "names": names})
        place = device_of(request.device)
        with naming_option(_OPTION):
            program = request.captured(domain.input_shape, place)
        return cls(request.model, program, place, request.output, request.names_for(program))

    def partition(
        self,
        domain: Domain,
        *,
        max_regions: int | None = None,
        memory: int | None = None,
        outdated: Callable[[], bool] = lambda: False,
    ) -> Partition:
        """The exact partition of a domain; a ``LimitError`` beyond max_regions.

        outdated: asked after every layer; when it says so, the computation ends with ``GivenUp``.
        """

        def report(name: str, regions: int, share: float) -> None:
            if outdated():
                raise GivenUp

        with torch.inference_mode(False), torch.no_grad():
            plan = Plan.of(self.program, self.device, memory)
            found = run(self.program, domain, max_regions=max_regions, report=report, plan=plan)
            return assemble(
                self.model,
                plan.last.program,
                domain,
                found,
                output=self.output,
                names=self.names,
            )

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs (N, n_out) at inputs (N, ...), on the CPU."""
        with torch.no_grad():
            return self.program(x.to(self.program.device)).flatten(1).cpu()


_KEPT = 1 << 30  # bytes of partitions that were read from files and are kept


class Frames(Protocol):
    """A series of partitions of one domain, with a label each."""

    @property
    def labels(self) -> list[str]:
        """What the slider says about each frame."""

    @property
    def grows(self) -> bool:
        """Whether frames may be added later."""

    @property
    def domain(self) -> Domain:
        """The domain of all frames."""

    def partition(self, frame: int) -> Partition | None:
        """The partition of a frame; None if it is to be computed by the network."""

    def network(self, frame: int) -> Network:
        """The network of a frame; an error that says why there is none."""

    def poll(self) -> bool:
        """Look for new frames; whether the labels have changed."""


class GivenFrames:
    """Partitions that are in memory."""

    grows = False

    def __init__(self, partitions: Sequence[Partition], labels: Sequence[str] | None = None):
        self.partitions = tuple(partitions)
        if not self.partitions:
            raise ValueError("there is nothing to show: the list of partitions is empty")
        count = len(self.partitions)
        numbers = [str(k) for k in range(count)] if count > 1 else [""]
        self.labels = numbers if labels is None else [str(label) for label in labels]
        if len(self.labels) != count:
            raise ValueError(f"there are {len(self.labels)} labels for {count} partitions")
        for k, part in enumerate(self.partitions):
            require_one_domain(self.domain, part.domain, self.labels[k] or str(k))

    @property
    def domain(self) -> Domain:
        return self.partitions[0].domain

    def partition(self, frame: int) -> Partition:
        return self.partitions[frame]

    def network(self, frame: int) -> Network:
        return Network.of_partition(self.partitions[frame])

    def poll(self) -> bool:
        return False


class NetworkFrame:
    """One frame, which a network computes when it is asked for."""

    grows = False

    def __init__(self, network: Network, domain: Domain):
        self._network, self.domain = network, domain
        self.labels = [""]

    def partition(self, frame: int) -> None:
        return None

    def network(self, frame: int) -> Network:
        return self._network

    def poll(self) -> bool:
        return False


class RunFrames:
    """The recorded steps of a training run, also while they are recorded.

    Partitions in files are read when they are asked for; those that were asked for last are kept.
    """

    def __init__(self, source: Run | Watch | Path, *, kept: int = _KEPT):
        self.grows = not isinstance(source, Run)
        self._snapshots = _reader(source)
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


def require_one_domain(first: Domain, other: Domain, label: str) -> None:
    """Raise a ``DomainError`` unless frames of one pane have one domain."""
    if first != other:
        raise DomainError(
            f"The frames of one pane must have the same domain, but that of frame {label!r} "
            f"differs from the first: {other} instead of {first}. To see different domains side "
            "by side, give the partitions one by one: sc.view(first, second)."
        )


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
