"""Stores of snapshots: in memory, or in a folder that others read while training goes on.

The folder has a file per partition (``part.save`` writes it atomically), files of weights if they
are wanted, and ``run.jsonl``, to which a line is appended when a partition is complete. The first
line describes the run; each other line is a JSON object with the keys ``step``, ``file``,
``scalars``, ``around``, ``weights`` for the file of the weights, and a checksum. A last line
without a newline was cut off: it is ignored, and the next line replaces it. A line supersedes
earlier lines of the same or a later step: a run resumed from a checkpoint replaces its own end.

One process records at a time. A process is refused if another one has recorded in between.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from splinecam._util.files import made_folder, replaced, writing
from splinecam.errors import FileError
from splinecam.geometry.domain import Domain
from splinecam.partitions.partition import Partition, load
from splinecam.stores.claims import Claims
from splinecam.stores.manifest import RUN, check_identity, domain_digest, read_head, with_head
from splinecam.stores.untrusted import check_entries, inside, open_plain, seal, unseal
from splinecam.training.runs import Run, Snapshot

INDEX = "run.jsonl"
_IDENTITY: dict[str, Any] = {"domain": str, "side": float | None, "smooth": dict[str, Any] | None}
_LINE: dict[str, Any] = {"step": int, "file": str, "weights": str | None}
_LINE |= {"scalars": dict[str, float | bool | None], "around": dict[str, list[int]]}
_MEMORY = 2 << 30  # bytes of partitions that are kept in memory

Scalars = Mapping[str, float]
Around = Mapping[str, tuple[int, ...]]
State = Callable[[], Mapping[str, Any]]  # returns the weights


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
                    f"The partitions take too much memory: from step {step:,} on only scalars "
                    "are kept. Keep partitions in files: sc.watch(..., store='runs/a').",
                    stacklevel=4,
                )
        return _supersede(self.snapshots, Snapshot(step, scalars, around, source))


class FolderStore:
    """Keeps snapshots in a folder, which is created, or continued if it has a run."""

    def __init__(
        self, folder: Path, domain: Domain, side: float | None, *, weights: bool, smooth: Any
    ) -> None:
        self.folder, self.weights = folder, weights
        self.identity = {"domain": domain_digest(domain).hex(), "side": side, "smooth": smooth}
        self.snapshots: list[Snapshot] = []
        self._claims: Claims | None = None
        self._complete = self._size = 0  # bytes of the index, of complete lines and in all
        if (folder / INDEX).exists():
            there, self.snapshots, self._complete, self._size = _read(folder)
            if self._complete:
                check_identity(folder, RUN, there, self.identity)

    def keep(
        self, step: int, part: Partition, scalars: Scalars, around: Around, state: State
    ) -> Snapshot:
        """Write the partition and the weights to files, and then a line to the index."""
        self._begin()
        path = inside(self.folder, f"step-{step:08d}.npz")
        weights = inside(self.folder, f"{path.stem}.pt") if self.weights else None
        part.save(path)
        if weights is not None:
            with replaced(weights) as file:
                torch.save(state(), file)
        numbers = {k: v if math.isfinite(v) else None for k, v in scalars.items()}
        line = {"step": step, "file": path.name, "scalars": numbers, "around": dict(around)}
        self._append({**line, "weights": None if weights is None else weights.name})
        return _supersede(self.snapshots, Snapshot(step, scalars, around, path, weights))

    def _begin(self) -> None:
        """Create the folder and its index if they are missing, and claim them for this process."""
        made_folder(self.folder)
        if self._claims is None:
            self._claims = Claims(self.folder)
        self._claims.take_all(RUN.noun)
        index = inside(self.folder, INDEX)
        if (index.stat().st_size if index.exists() else 0) != self._size:
            raise FileError(
                f"Another sc.watch has recorded in {self.folder} since this one read it. Choose "
                "another folder, or continue that run with a new sc.watch."
            )
        if not self._complete:
            self._append(with_head(RUN, {"identity": self.identity}))

    def _append(self, line: Mapping[str, Any]) -> None:
        """Append a line in one write; it replaces a line that was cut off."""
        index = inside(self.folder, INDEX)
        with writing(index), index.open("ab") as file:
            if self._size > self._complete:
                file.truncate(self._complete)
            file.write(seal(line) + b"\n")
            file.flush()
            self._complete = self._size = os.fstat(file.fileno()).st_size


def open_run(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder as far as it is recorded. Partitions are read when they are used."""
    path = Path(folder)
    if not (path / INDEX).is_file():
        what = "has no run in it" if path.is_dir() else "is not there"
        raise FileError(
            f"{path} {what}: {INDEX} is missing. A run begins with the first recorded step of "
            "sc.watch(..., store=folder)."
        )
    identity, snapshots, *_ = _read(path)
    return Run(tuple(snapshots), identity.get("side"), path)


def _read(folder: Path) -> tuple[dict[str, Any], list[Snapshot], int, int]:
    """Return the identity of a run, its snapshots, and its bytes, in complete lines and in all."""
    index = folder / INDEX
    with open_plain(index) as file:
        content = file.read()
    *lines, rest = content.split(b"\n")
    identity: dict[str, Any] = {}
    snapshots: list[Snapshot] = []
    if lines:
        head = read_head(lines[0], index, RUN)
        check_entries(head, {"identity": Any}, index, RUN.remedy)
        identity = head["identity"]
        check_entries(identity, _IDENTITY, index, RUN.remedy)
    for line in lines[1:]:
        found = unseal(line, index, RUN.remedy)
        check_entries(found, _LINE, index, RUN.remedy)
        scalars = {k: math.nan if v is None else v for k, v in found["scalars"].items()}
        around = {group: tuple(counts) for group, counts in found["around"].items()}
        path = inside(folder, found["file"])
        weights = found["weights"] and inside(folder, found["weights"])
        _supersede(snapshots, Snapshot(found["step"], scalars, around, path, weights))
    return identity, snapshots, len(content) - len(rest), len(content)


def _supersede(snapshots: list[Snapshot], newest: Snapshot) -> Snapshot:
    """Append and return a snapshot; it replaces snapshots of the same and of later steps."""
    while snapshots and snapshots[-1].step >= newest.step:
        snapshots.pop()
    snapshots.append(newest)
    return newest
