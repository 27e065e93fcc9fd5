"""Time the partition of fixed workloads beside plain forward passes of the same vertices.

Run ``make bench``, or ``python benchmarks/bench.py --only mlp64x3 --repeat 9 --device cuda``. The
method is described in ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import platform
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.capture import capture
from splinecam.engine import run

CHUNK = 4096


@dataclass(frozen=True)
class Workload:
    """An MLP with default initialisation (seed 0) on a square of the given side at the origin."""

    widths: tuple[int, ...]
    side: float
    outputs: int = 1
    regions: int = 0

    def model(self) -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers: list[nn.Module] = []
            for a, b in pairwise(self.widths):
                layers += [nn.Linear(a, b), nn.ReLU()]
            layers.append(nn.Linear(self.widths[-1], self.outputs))
        return nn.Sequential(*layers).double().eval()

    def domain(self) -> sc.Domain:
        return sc.Domain.around([0.0] * self.widths[0], side=self.side, seed=1)


# ``regions`` is the count on which independent programs agree.
WORKLOADS = {
    "line100_d2": Workload((2, 100), 2.0, regions=1_868),
    "line300_d2": Workload((2, 300), 2.0, regions=15_533),
    "line1000_d2": Workload((2, 1000), 2.0, regions=176_967),
    "line1000_d8002": Workload((8002, 1000), 2.0, regions=138_624),
    "mlp32x3": Workload((2, 32, 32, 32), 2.0, regions=1_180),
    "mlp64x3": Workload((2, 64, 64, 64), 4.0, regions=12_042),
    "mlp128x4": Workload((2, *[128] * 4), 4.0, regions=61_014),
    "mlp256x6": Workload((2, *[256] * 6), 4.0, regions=386_316),
    "mlp784_50x3": Workload((784, 50, 50, 50), 40.0, outputs=10, regions=5_097),
}


def machine(device: torch.device) -> str:
    """What is measured with, for the table's heading."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{platform.machine()}, {torch.get_num_threads()} threads"
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


def forward_passes(model: nn.Sequential, born: list[int], domain: sc.Domain) -> Callable[[], None]:
    """Each vertex evaluated once, from the layer where it is born.

    ``born[0]`` counts the corners of the domain, ``born[k]`` the vertices made by the k-th ReLU.
    Corners run through the whole network, the others from the ReLU that made them on.
    """
    device = next(model.parameters()).device
    relus = [i for i, layer in enumerate(model) if isinstance(layer, nn.ReLU)]
    tails: list[tuple[nn.Sequential, Tensor, int]] = []
    for start, count in zip([0, *relus], born, strict=True):
        width = domain.dim if start == 0 else int(model[start - 1].out_features)
        rows = torch.randn(min(count, CHUNK), width, dtype=torch.float64, device=device)
        tails.append((model[start:], rows, count))

    def work() -> None:
        with torch.no_grad():
            for tail, rows, count in tails:
                for done in range(0, count, CHUNK):
                    tail(rows[: min(CHUNK, count - done)])

    return work


def measure(name: str, repeat: int, device: torch.device) -> str:
    """One row of the table."""
    workload = WORKLOADS[name]
    domain, model = workload.domain(), workload.model().to(device)
    programs = []
    shape = domain.input_shape
    captured = seconds(lambda: programs.append(capture(model, shape, device=device)), device)

    def work() -> None:
        with torch.no_grad():
            run(programs[0], domain)

    part = sc.partition(model, domain, device=device, progress=False)  # warms up, and is kept
    cuts = torch.bincount(part.vertex_op.cpu() + 1, minlength=len(part.cuts) + 1)
    plain = forward_passes(model, cuts.tolist(), domain)
    times, floors = [], []
    for _ in range(repeat):  # in turns, so that both see the same machine
        times.append(seconds(work, device))
        floors.append(seconds(plain, device))
    count = len(part.regions)
    verdict = "" if count == workload.regions else f"  expected {workload.regions:,}"
    best, floor = min(times), min(floors)
    return (
        f"{name:<16}{count:>10,}{captured:>11.3f}{statistics.median(times):>10.4f}{best:>10.4f}"
        f"{floor:>10.4f}{best / floor:>8.1f}{verdict}"
    )


def arguments(description: str | None, workloads: Iterable[str]) -> argparse.Namespace:
    """What both benchmarks take: workloads, repetitions and the device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", choices=list(workloads), help="these workloads")
    parser.add_argument("--repeat", type=int, default=5, help="runs per workload")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda")
    return parser.parse_args()


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    options = arguments(__doc__, WORKLOADS)
    device = options.device
    print(f"{machine(device)}, best of {options.repeat}, seconds\n")
    head = ("workload", "regions", "capture", "median", "best", "floor", "ratio")
    print("{:<16}{:>10}{:>11}{:>10}{:>10}{:>10}{:>8}".format(*head))
    capture(nn.Linear(2, 1), (2,), device=device)  # loads torch.export, not to be timed
    for name in options.only or WORKLOADS:
        print(measure(name, options.repeat, device), flush=True)


if __name__ == "__main__":
    main()
