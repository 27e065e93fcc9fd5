"""Time ONNX files and their partitions, beside partitions of the same network in PyTorch.

Run ``python benchmarks/importing.py``, or ``--only acas_sized chain --repeat 9``. The files are
written to a temporary folder first. *import*: ``sc.load_model``, the best; *fresh process*: the
first one in a process, after ``import torch, onnx``. *first*: ``sc.partition`` of a model that was
not captured before; *again*: of the same one. The network in PyTorch and the one in the file take
turns. Times are milliseconds of the processor, of all threads together; *ratio* compares the
medians of *again*.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import torch
from common import Table, Times, machine, options, perceptron, square, warm_up
from networks import zoo
from onnx_files import acas_sized, from_chain, residual_network, resnet18_sized
from torch import Tensor, nn

import splinecam as sc


class Residual(nn.Module):
    """A network with sums of layers, and a ``forward`` of its own."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.first = nn.Linear(2, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)]) for _ in range(blocks)
        )
        self.last = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        for block in self.blocks:
            inner, outer = block.children()
            x = torch.relu(outer(torch.relu(inner(x))) + x)
        y: Tensor = self.last(x)
        return y


def residual(width: int, blocks: int) -> nn.Module:
    """The network with weights from a fixed seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Residual(width, blocks).eval()


@dataclass(frozen=True)
class Case:
    """A file, and where there is one, the same network in PyTorch with a domain."""

    write: Callable[[Path, Any], Path]
    model: Callable[[], nn.Module] | None = None
    domain: Callable[[], sc.Domain] | None = None


def cases() -> dict[str, Case]:
    """The cases by name; ACAS Xu itself only where its weights are there."""
    found = {
        "acas_sized": Case(lambda path, _: acas_sized(path)),
        "resnet18_sized": Case(lambda path, _: resnet18_sized(path)),
        "mlp32x3": Case(from_chain, partial(chain, 2, 32, 32, 32, 1), partial(square, 2, 2.0)),
        "mlp64x3": Case(from_chain, partial(chain, 2, 64, 64, 64, 1), partial(square, 2, 2.0)),
        "mlp128x4": Case(from_chain, partial(chain, 2, *[128] * 4, 1), partial(square, 2, 2.0)),
        "residual64x3": Case(residual_network, partial(residual, 64, 3), partial(square, 2, 2.0)),
    }
    acas = zoo().get("zoo_acasxu_1_1")
    if acas is not None:
        found["acasxu_1_1"] = Case(from_chain, lambda: acas.model().float(), acas.domain)
    return found


def chain(*widths: int) -> nn.Module:
    """A perceptron in float32, as files have it."""
    return perceptron(*widths).float()


TABLE = Table(
    {
        "file": "<16",
        "MB": ">7.1f",
        "import": ">9.1f",
        "fresh process": ">15.0f",
        "regions": ">10,",
        **dict.fromkeys(("first, torch", "first, file"), ">14.1f"),
        **dict.fromkeys(("again, torch", "again, file"), ">14.1f"),
        "ratio": ">8.3f",
    }
)
FRESH = """
import sys, time, torch, onnx
start = time.process_time()
import splinecam as sc
sc.load_model(sys.argv[1])
print(time.process_time() - start)
"""


def measure(name: str, case: Case, repeat: int, device: torch.device) -> dict[str, object]:
    """One row of the table."""
    model = None if case.model is None else case.model()
    with tempfile.TemporaryDirectory() as folder:
        path = case.write(Path(folder) / f"{name}.onnx", model)
        times = in_turns([partial(sc.load_model, path)], max(repeat, 10))
        row = {
            "file": name,
            "MB": path.stat().st_size / 1e6,
            "import": 1e3 * times[0].best,
            "fresh process": 1e3 * min(fresh_process(path) for _ in range(2)),
        }
        read = sc.load_model(path)
    if model is not None and case.domain is not None:
        row |= partitions(model, read, case.domain(), repeat, device)
    return row


def partitions(
    model: nn.Module, read: nn.Module, domain: sc.Domain, repeat: int, device: torch.device
) -> dict[str, object]:
    """The times of partitions of a network in PyTorch, and of the same from a file."""

    def work(network: nn.Module) -> sc.Partition:
        return sc.partition(network, domain, device=device, progress=False)

    def first(network: nn.Module) -> sc.Partition:
        return work(copies[network].pop())

    count = len(work(model))
    if len(work(read)) != count:
        raise SystemExit(f"{len(work(read))} regions from the file, but {count} in PyTorch")
    # A copy has never been captured; copying is not part of the time.
    copies = {network: [copy.deepcopy(network) for _ in range(repeat)] for network in (model, read)}
    new = in_turns([partial(first, model), partial(first, read)], repeat)
    again = in_turns([partial(work, model), partial(work, read)], repeat)
    found = [1e3 * times.best for times in (*new, *again)]
    titles = ("first, torch", "first, file", "again, torch", "again, file")
    return {
        "regions": count,
        **dict(zip(titles, found, strict=True)),
        "ratio": again[1].median / again[0].median,
    }


def in_turns(works: Sequence[Callable[[], object]], repeat: int) -> list[Times]:
    """The processor's time for several tasks that take turns, whatever else the machine does."""
    rounds: list[list[float]] = [[] for _ in works]
    for _ in range(repeat):
        for taken, work in zip(rounds, works, strict=True):
            start = process_time()
            work()
            taken.append(process_time() - start)
    return [Times(tuple(taken)) for taken in rounds]


def fresh_process(path: Path) -> float:
    """Seconds of the first import in a new process."""
    words = [sys.executable, "-c", FRESH, str(path)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print a table, one file a line as soon as it is measured."""
    known = cases()
    settings = options(__doc__, known).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}: CPU milliseconds\n")
    print(TABLE.heading())
    warm_up(settings.device)
    for name in settings.only or known:
        row = measure(name, known[name], settings.repeat, settings.device)
        print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
