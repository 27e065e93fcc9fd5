"""A grid with a store that is killed at random moments; ``python tests/store_cases.py 100``."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import splinecam as sc
from splinecam.stores.result_store import fill

PROCESSES: Any = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["splinecam.grids", "torch"])

DOMAINS = 40

TELL: Callable[[bytes], object] = len


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)
    )


def networks() -> dict[int, nn.Sequential]:
    return {epoch: network(epoch) for epoch in (0, 5, 10)}


def domains(count: int = DOMAINS) -> dict[str, list[sc.Domain]]:
    torch.manual_seed(0)
    squares = [sc.Domain.around(x, side=2.0, seed=k) for k, x in enumerate(torch.rand(count, 4))]
    return {"train": squares[: count // 2], "test": squares[count // 2 :]}


def largest(part: sc.Partition) -> dict[str, float]:
    """A number of a partition, of which whoever started this process is told."""
    TELL(b".")
    return {"largest": float(part.areas.max())}


def compute(store: str | None) -> sc.results.Grid:
    torch.set_num_threads(1)
    options: Any = {"device": "cpu", "memory": 4e9, "progress": False}
    return sc.grid(networks(), domains(), reduce=largest, store=store, **options)


def _compute_in_process(store: str, heard: Any, seconds: float) -> None:
    """Compute the grid with a function that tells of every result, and write often."""
    global TELL
    TELL = heard.send_bytes
    fill.__kwdefaults__["seconds"] = seconds  # of this process
    compute(store)


def start(store: Path, seconds: float = 0.02) -> tuple[Any, Any]:
    """A process that computes the grid, and where one hears of its results."""
    hear, heard = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_compute_in_process, args=(str(store), heard, seconds))
    process.start()
    heard.close()
    return process, hear


def interrupt(store: Path, times: int, seed: int = 0) -> list[int]:
    """Start the grid and kill it so many times; how many results there were after each time."""
    chance, done = random.Random(seed), []
    for _ in range(times):
        process, hear = start(store, chance.choice([0.0, 0.02, 1.0]))
        with contextlib.suppress(EOFError):  # it has ended
            for _ in range(chance.randrange(1, 2 * DOMAINS)):
                hear.recv_bytes()
            for _ in range(chance.randrange(1 << 20)):  # some time later, while it may write
                pass
        process.kill()
        process.join()
        done.append(kept(store))
    return done


def kept(store: Path) -> int:
    """The number of results in the files of a store, more than there are if two have the same."""
    ranges = [path.stem.split("-") for path in store.glob("checkpoint-*/*.npz")]
    return sum(int(stop) - int(start) for start, stop in ranges)


def same(a: sc.results.Grid, b: sc.results.Grid) -> bool:
    """Whether two grids have the same numbers, counts exactly and others to 1e-9."""
    tensors = [{k: torch.from_numpy(v).double() for k, v in x.numbers.items()} for x in (a, b)]
    return (
        a.checkpoints == b.checkpoints
        and all(tensors[0][name].equal(tensors[1][name]) for name in ("NR", "ANV", "density"))
        and all(x.allclose(tensors[1][name], rtol=1e-9) for name, x in tensors[0].items())
    )


if __name__ == "__main__":
    wanted = compute(None)
    for trial in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as folder:
            progress = interrupt(Path(folder) / "run", 1 + trial % 4, trial)
            again = compute(str(Path(folder) / "run"))
            left = [path.name for path in Path(folder).rglob("*.part")]
            ok = same(again, wanted) and not left and kept(Path(folder) / "run") == 3 * DOMAINS
            sys.stdout.write(f"{trial}: {progress} {'ok' if ok else f'FAILED {left}'}\n")
            if not ok:
                sys.exit(1)
