"""Run tasks in a worker, with what all tasks share, on the worker's threads and device."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch

from splinecam._util.options import device_of
from splinecam.parallel.flat import Block, Parts, join, load, load_file, parts_of, save

_PATIENCE = 1.0  # seconds between two looks at the parent
_SMALL = 1 << 16  # bytes of a result up to which it is not worth a file


class Setting(NamedTuple):
    """How workers do their tasks.

    threads: of each worker, None for as many as the engine gives it. neighbours: workers that share
    a machine. folder: on this machine, for shared objects and results; None if workers are
    elsewhere. owner: the process that started the workers, if they are to end with it.
    """

    threads: int | None = None
    neighbours: int = 1
    folder: str | None = None
    owner: int | None = None


@dataclass
class Worker:
    """A worker: its setting, and what it keeps from one task to the next.

    shared: the object that all tasks share. kept: whatever tasks put there.
    """

    shared: Any
    setting: Setting
    kept: dict[str, Any] = field(default_factory=dict)

    def device(self, wanted: str | torch.device) -> torch.device:
        """The device of this worker; workers on one machine take its GPUs in turn."""
        chosen, folder = device_of(wanted), self.setting.folder
        if chosen.type != "cuda" or chosen.index is not None or folder is None:
            return chosen
        if (gpus := torch.cuda.device_count()) < 2:
            return chosen
        if "slot" not in self.kept:
            self.kept["slot"] = _slot(Path(folder))
        return torch.device("cuda", self.kept["slot"] % gpus)

    def memory_share(self, device: torch.device) -> float:
        """The part of the free memory of a device that this worker may take."""
        if device.type != "cuda":
            return 1 / self.setting.neighbours
        return 1 / -(-self.setting.neighbours // torch.cuda.device_count())


Function = Callable[[Worker, Any], Any]
"""What is done for a task, in a worker."""

# The workers for the last shared objects, by key. A process serves one call at a time, or a few if
# several callers use one cluster.
_KEPT: dict[str, Worker] = {}
_MOST = 2


def perform(
    shared: Block | str | Worker,
    key: str,
    function: Function,
    number: int,
    task: Any,
    setting: Setting,
) -> tuple[int, Any]:
    """Do a task in a worker, and return its number and its result, or the file of its result.

    shared: the block or the file of the object that all tasks share, or a worker in this process.
    key: the same for all tasks that share an object.
    """
    if isinstance(shared, Worker):
        return number, function(shared, task)
    worker = _KEPT.get(key)
    if worker is None:
        _end_with(setting.owner)
        _keep_memory()
        value = load_file(Path(shared)) if isinstance(shared, str) else load(shared)
        worker = Worker(value, setting)
        for old in list(_KEPT)[: 1 - _MOST]:
            _KEPT.pop(old, None)  # another thread may have been here
        _KEPT[key] = worker
    with _alone(), _threads(setting.threads):
        result = function(worker, task)
    if setting.folder is None:
        return number, result
    return number, _kept_in_file(parts_of(result), Path(setting.folder))


def received(result: Any, setting: Setting) -> Any:
    """The result of ``perform`` in the process that asked for it."""
    if setting.folder is None:
        return result
    if not isinstance(result, str):
        return load(result)
    path, posix = Path(result), os.name == "posix"  # there a map outlives the name of its file
    value = load_file(path) if posix else load(np.fromfile(path, dtype=np.uint8))
    path.unlink()
    return value


def _kept_in_file(parts: Parts, folder: Path) -> Block | str:
    """The file of a result, or its block if it is small or there is no room for the file."""
    if sum(part.nbytes for part in parts) > _SMALL:
        path = folder / f"{uuid4().hex}.result"
        try:
            save(parts, path)
            return str(path)
        except OSError:
            with suppress(OSError):
                path.unlink()
    return join(parts)


def _end_with(owner: int | None) -> None:
    """End this process when its parent, the owner, is killed: else it would wait for minutes."""
    name = f"end with {owner}"
    if os.getppid() != owner or any(each.name == name for each in threading.enumerate()):
        return

    def watch() -> None:
        while os.getppid() == owner:
            sleep(_PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, name=name, daemon=True).start()


def _keep_memory() -> None:
    """Let this process keep what tasks share: joblib takes this for a leak, and would end it."""
    module = sys.modules.get("joblib.externals.loky.process_executor")
    if module is not None:
        vars(module)["_MAX_MEMORY_LEAK_SIZE"] = math.inf


def _alone() -> AbstractContextManager[Any]:
    """A context in which a task does not spread its own work over workers, as Dask would."""
    joblib = sys.modules.get("joblib")
    return nullcontext() if joblib is None else joblib.parallel_config(backend="sequential")


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Compute on this number of threads."""
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _slot(folder: Path) -> int:
    """A number that no other worker has taken in this folder."""
    number = 0
    while True:
        try:
            (folder / f"{number}.slot").touch(exist_ok=False)
            return number
        except FileExistsError:
            number += 1
