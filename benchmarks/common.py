"""What all benchmarks share: perceptrons, clocks, memory, processes, options and tables."""

from __future__ import annotations

import argparse
import ctypes
import math
import multiprocessing
import platform
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import nn

import splinecam as sc

T = TypeVar("T")

SHORT = 4.0  # seconds up to which measurements are repeated more often
MOST = 100  # runs of one workload
PROCESS = Path("/proc/self")  # where Linux tells how much memory this process has


@dataclass(frozen=True)
class Workload:
    """A network and a domain, made when they are needed.

    regions: the right number where it is known; memory: bytes to stay within; large: only on a GPU,
    or when it is asked for; size: what the cost of a group of workloads grows with.
    """

    model: Callable[[], nn.Module]
    domain: Callable[[], sc.Domain]
    regions: int | None = None
    memory: int | None = None
    large: bool = False
    size: float | None = None


def perceptron(*widths: int, seed: int = 0) -> nn.Sequential:
    """A ReLU network in float64, initialised as torch does; widths from input to output."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double().eval()


def square(dim: int, side: float) -> sc.Domain:
    """A square at the origin: axis-aligned in two dimensions, else randomly oriented."""
    return sc.Domain.around([0.0] * dim, side=side, seed=1)


def mlp(*hidden: int, side: float, inputs: int = 2, outputs: int = 1, **more: Any) -> Workload:
    """A random perceptron on a square at the origin."""
    return Workload(
        partial(perceptron, inputs, *hidden, outputs), partial(square, inputs, side), **more
    )


# -- measuring ---------------------------------------------------------------------------------


def machine(device: torch.device) -> str:
    """The machine and its software, for a table's heading."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        count = torch.get_num_threads()
        name = f"{platform.machine()}, {count} thread{'s'[: count != 1]}"
    return f"torch {torch.__version__.split('+')[0]}, {name}"


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock time of one call, the device's queue included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start


@dataclass(frozen=True)
class Times:
    """Seconds of several runs."""

    each: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.each)

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def spread(self) -> float:
        """The range of the middle half of the runs."""
        if len(self.each) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.each, n=4, method="inclusive")
        return high - low


def in_turns(
    works: Sequence[Callable[[], object]],
    repeat: int,
    device: torch.device,
    *,
    short: float = SHORT,
) -> list[Times]:
    """The times of several tasks that take turns, so that all see the same load on the machine.

    Each has ``repeat`` runs; while all is done within ``short`` seconds there are more.
    """
    rounds: list[list[float]] = []
    start = perf_counter()
    while len(rounds) < repeat or (perf_counter() - start < short and len(rounds) < MOST):
        rounds.append([seconds(work, device) for work in works])
    return [Times(each) for each in zip(*rounds, strict=True)]


class Best:
    """The shortest time of every step of a task that is repeated."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], T]) -> T:
        """Do it, and keep the time if it is the best of this step."""
        made: list[T] = []
        taken = seconds(lambda: made.append(work()), self.device)
        self.times[step] = min(taken, self.times.get(step, math.inf))
        return made[0]


def with_peak(work: Callable[[], T], device: torch.device) -> tuple[T, int]:
    """What a call gives, and how many bytes more than before were in use at the worst moment.

    On a CPU: of the process's resident memory, so that it should have one of its own.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        start = torch.cuda.memory_allocated(device)
        made = work()
        torch.cuda.synchronize(device)
        return made, torch.cuda.max_memory_allocated(device) - start
    _return_free_memory()
    start = _resident(new_peak=True)
    made = work()
    # The kernel's figures are a few pages off, so that the peak can seem to be below the start.
    return made, max(0, _resident() - start)


def _resident(*, new_peak: bool = False) -> int:
    """The most resident bytes, since the start or since a new peak was asked for."""
    if new_peak:
        with suppress(OSError):  # then the peak is that since the start
            (PROCESS / "clear_refs").write_text("5")
    try:
        lines = (PROCESS / "status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _return_free_memory() -> None:
    """What earlier work has freed would else be used again, and not be seen."""
    with suppress(AttributeError, OSError, TypeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def alone(work: Callable[..., T], *arguments: object) -> T:
    """Call a function of a module in a process of its own, for the peak of its memory."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        context: Any = multiprocessing.get_context("forkserver")
        # Loaded once, and not used there: no threads are started that a copy would miss.
        context.set_forkserver_preload(
            ["splinecam.network.capture", "splinecam.partitions.partition", "torch._dynamo"]
        )
    else:
        context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


def warm_up(device: torch.device) -> None:
    """Load what every partition needs, so that the first one measured does not pay for it."""
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    for _ in range(3 if device.type == "cuda" else 1):
        sc.partition(model, sc.Domain.box(-1, 1), device=device, progress=False)


# -- options and tables ------------------------------------------------------------------------


def options(description: str | None, workloads: Iterable[str]) -> argparse.ArgumentParser:
    """What all benchmarks take: workloads, repetitions and the device."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(workloads)
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help="these: " + ", ".join(names)
    )
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, at least (default 5)")
    parser.add_argument(
        "--device", type=torch.device, default=torch.device("cpu"), help="cpu or cuda"
    )
    return parser


class Table:
    """Rows printed one at a time; columns: title -> format, such as ``>10.3f``."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = dict(columns)

    def heading(self) -> str:
        return "".join(
            f"{title:{self._place(kind)}}" for title, kind in self.columns.items()
        ).rstrip()

    def line(self, row: Mapping[str, Any], note: str = "") -> str:
        """The row's values under the titles; what it does not have is left empty."""
        cells = [
            f"{'':{self._place(kind)}}" if row.get(title) is None else f"{row[title]:{kind}}"
            for title, kind in self.columns.items()
        ]
        return ("".join(cells) + (f"  {note}" if note else "")).rstrip()

    @staticmethod
    def _place(kind: str) -> str:
        found = re.match(r"[<>]\d+", kind)
        if found is None:
            raise ValueError(f"A column's format starts with < or > and its width, not {kind!r}")
        return found[0]
