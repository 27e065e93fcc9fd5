"""Time what is computed from a partition beside the partition itself.

Run ``python benchmarks/stats.py``, or ``--only lines1000 --repeat 5 --device cuda``. Every figure
starts from a partition of its own, so that nothing is already known to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from bench import Workload, arguments, machine, seconds
from torch import nn

import splinecam as sc

# "lines2400" has about a million regions.
WORKLOADS = {
    "lines1000": Workload((2, 1000), 2.0),
    "lines2400": Workload((2, 2400), 2.0),
    "lines2400_out10": Workload((2, 2400), 2.0, outputs=10),
    "mlp128x4": Workload((2, *[128] * 4), 4.0),
    "mlp128x4_out10": Workload((2, *[128] * 4), 4.0, outputs=10),
    "mlp256x6": Workload((2, *[256] * 6), 4.0),
}

STEPS: dict[str, Callable[[sc.Partition], object]] = {
    "maps": lambda part: part.maps,
    "stats": lambda part: part.stats(),
    "boundary": lambda part: part.decision_boundary().length,
    "table": lambda part: part.table(),
}


def measure(name: str, repeat: int, device: torch.device) -> tuple[int, dict[str, float]]:
    """The number of regions, and the best time in seconds of each step."""
    domain, model = WORKLOADS[name].domain(), WORKLOADS[name].model().to(device)
    best: dict[str, float] = {}
    parts: list[sc.Partition] = []

    def keep(step: str, work: Callable[[], object]) -> None:
        best[step] = min(seconds(work, device), best.get(step, math.inf))

    for step, work in repeat * list(STEPS.items()):
        parts.clear()
        keep(
            "partition",
            lambda: parts.append(sc.partition(model, domain, device=device, progress=False)),
        )
        keep(step, partial(work, parts[0]))
    return len(parts[0]), best


def line(name: str, regions: int, best: dict[str, float]) -> str:
    """One row of the table; the last columns are ratios to the partition."""
    plain = best["stats"] - best["boundary"]
    times = (best["partition"], best["maps"], plain, best["boundary"], best["table"])
    ratios = (plain / best["partition"], best["stats"] / best["partition"])
    return (
        f"{name:<16}{regions:>10,}"
        + "".join(f"{time:>10.3f}" for time in times)
        + "".join(f"{ratio:>11.2f}" for ratio in ratios)
    )


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    options = arguments(__doc__, WORKLOADS)
    device = options.device
    print(f"{machine(device)}, best of {options.repeat}, seconds")
    print("stats: without the boundary, but with the affine maps; ratios are to the partition\n")
    head = ("workload", "regions", "partition", "maps", "stats", "boundary", "table")
    print("{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}".format(*head), end="")
    print("{:>11}{:>11}".format("stats", "+ boundary"))
    small = sc.partition(nn.Linear(2, 1), sc.Domain.box(-1, 1), device=device, progress=False)
    for work in STEPS.values():  # loads what is needed, not to be timed
        work(small)
    for name in options.only or WORKLOADS:
        print(line(name, *measure(name, options.repeat, device)), flush=True)


if __name__ == "__main__":
    main()
