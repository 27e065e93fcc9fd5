"""Stores of snapshots: in memory, or in a folder that others read while training goes on.

The folder has a file per partition (``part.save``, which writes atomically), with the weights in
another one if they are wanted, and ``run.jsonl``, to which a line is appended when a partition is
complete. The first line describes the run; each other one is a JSON object with the keys ``step``,
``file``, ``scalars``, ``around``, and ``weights`` for the file of the weights. A line without a
newline was cut off and is ignored. A line supersedes earlier lines of the same or a later step, so
that a training run resumed from a checkpoint replaces what came after the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from splinecam._partition import Partition, load
from splinecam._util.files import made_folder, replaced
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.training.runs import Run, Snapshot

__all__ = ["FolderStore", "MemoryStore", "open_run"]

INDEX = "run.jsonl"
_FORMAT, _VERSION = "splinecam run", 1
# What a run may differ in from the one that is in its folder, in words.
_WORDS = {
    "domain": "on another domain",
    "side": "on squares of another size",
    "smooth": "with another accuracy (smooth=, refine=, undecided=)",
}
_MEMORY = 2 << 30  # bytes of partitions that are kept in memory

Scalars = Mapping[str, float]
Around = Mapping[str, tuple[int, ...]]
State = Callable[[], Mapping[str, Any]]  # gives the weights


class MemoryStore:
    """Keeps snapshots in memory: all scalars, and partitions up to a limit in bytes."""

    folder = None

    def __init__(self, limit: int = _MEMORY) -> None:
        self.snapshots: list[Snapshot] = []
        self.left: int | None = limit

    def keep(
        self, step: int, part: Partition, scalars: Scalars, around: Around, state: State
    ) -> Snapshot:
        """Keep a partition, on the CPU and without its model; warn when the limit is reached."""
        file, source = BytesIO(), None
        if self.left is not None:
            part.save(file)
            self.left -= file.tell()
            if self.left >= 0:
                file.seek(0)
                source = load(file)
            else:
                self.left = None
                warnings.warn(
                    f"The partitions in memory take too much: from step {step:,} on only scalars "
                    "are kept. Keep partitions in files: sc.watch(..., store='runs/a').",
                    stacklevel=4,
                )
        snapshot = Snapshot(step, scalars, around, source)
        _supersede(self.snapshots, snapshot)
        return snapshot


class FolderStore:
    """Keeps snapshots in a folder, which is created, or continued if it has a run.

    side: of squares around points; smooth: what tells the accuracy of partitions from another one.
    """

    def __init__(
        self,
        folder: Path,
        domain: Domain,
        side: float | None,
        *,
        weights: bool = False,
        smooth: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.weights = folder, weights
        self.head: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        self.head |= {"domain": _fingerprint(domain), "side": side}
        self.head |= {"smooth": smooth} if smooth else {}
        self.snapshots: list[Snapshot] = []
        if (folder / INDEX).exists():
            head, self.snapshots = _read(folder)
            for name, what in _WORDS.items():
                if head and head.get(name) != self.head.get(name):
                    raise ValueError(
                        f"The run in {folder} was recorded {what}. Choose another folder."
                    )

    def keep(
        self, step: int, part: Partition, scalars: Scalars, around: Around, state: State
    ) -> Snapshot:
        """Write the partition and the weights to files, and then a line to the index."""
        path = self.folder / f"step-{step:08d}.npz"
        self._begin()
        part.save(path)
        weights = path.with_suffix(".pt") if self.weights else None
        if weights is not None:
            with replaced(weights) as file:
                torch.save(state(), file)
        numbers = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "file": path.name, "scalars": numbers, "around": dict(around)}
        self._append(line if weights is None else {**line, "weights": weights.name})
        snapshot = Snapshot(step, scalars, around, path, weights)
        _supersede(self.snapshots, snapshot)
        return snapshot

    def _begin(self) -> None:
        """Create the folder and its index, unless they exist."""
        made_folder(self.folder)
        index = self.folder / INDEX
        if not index.exists() or not index.stat().st_size:
            self._append(self.head)

    def _append(self, line: Mapping[str, Any]) -> None:
        """Append a line in one write; a line that was cut off earlier is ended first."""
        try:
            with (self.folder / INDEX).open("a+b") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
                cut_off = file.read(1) not in (b"\n", b"")
                file.write(b"\n" * cut_off + json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise FileError(f"{self.folder / INDEX} cannot be written: {error.strerror}.") from None


def open_run(folder: str | os.PathLike[str]) -> Run:
    """The run that ``sc.watch(..., store=folder)`` has recorded so far.

    It can be opened while training goes on, from any process. Partitions are read when they are
    asked for; open the run again to see later steps.

    folder: where the run is stored.

    >>> import splinecam as sc, tempfile, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     watch = sc.watch(model, sc.Domain.box(-1, 1), every=10, store=folder)
    ...     for _ in range(25):
    ...         _ = watch.step(loss=0.5)
    ...     run = sc.open_run(folder)
    ...     run.steps, len(run[-1].partition) == run[-1].scalars["num_regions"]
    ([0, 10, 20], True)
    """
    path = Path(folder)
    if not (path / INDEX).is_file():
        what = "has no run in it" if path.is_dir() else "is not there"
        raise FileError(
            f"{path} {what}: {INDEX} is missing. A run begins with the first recorded step of "
            "sc.watch(..., store=folder)."
        )
    head, snapshots = _read(path)
    return Run(tuple(snapshots), head.get("side"), path)


def _read(folder: Path) -> tuple[dict[str, Any], list[Snapshot]]:
    """The description of a run and its snapshots; lines that were cut off are left out."""
    index = folder / INDEX
    try:
        lines = index.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise FileError(f"{index} cannot be read: {error.strerror}.") from None
    parsed = [found for found in map(_parse, lines) if found]
    head = parsed[0] if parsed else {}
    if parsed and head.get("format") != _FORMAT:
        raise FileError(f"{index} is not the index of a run recorded by SplineCam (sc.watch).")
    if parsed and head.get("version") != _VERSION:
        raise FileError(
            f"{index} has version {head.get('version')} of the format; this SplineCam reads "
            f"version {_VERSION}. Install a newer splinecam to read it."
        )
    snapshots: list[Snapshot] = []
    for line in parsed[1:]:
        if "step" in line and "file" in line:
            scalars = {k: math.nan if v is None else v for k, v in line.get("scalars", {}).items()}
            around = {group: tuple(counts) for group, counts in line.get("around", {}).items()}
            path = folder / line["file"]
            weights = folder / line["weights"] if line.get("weights") else None
            _supersede(snapshots, Snapshot(line["step"], scalars, around, path, weights))
    return head, snapshots


def _parse(line: bytes) -> dict[str, Any]:
    """A line of the index; empty if it was cut off."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _supersede(snapshots: list[Snapshot], newest: Snapshot) -> None:
    """Append a snapshot in place of those of the same and of later steps."""
    while snapshots and snapshots[-1].step >= newest.step:
        snapshots.pop()
    snapshots.append(newest)


def _fingerprint(domain: Domain) -> str:
    """A hash of a domain, the same for equal domains only."""
    arrays = (domain.origin, domain.basis, domain.corners)
    content = b"".join(array.cpu().numpy().tobytes() for array in arrays)
    return hashlib.sha256(content + repr(domain.input_shape).encode()).hexdigest()
