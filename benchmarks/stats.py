"""Time statistics and boundaries of a partition, beside the partition itself.

Run ``python benchmarks/stats.py``, or ``--only lines1000 --repeat 5 --device cuda``. Every figure
starts from a partition of its own, which knows nothing yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from common import Best, Table, machine, mlp, options
from torch import nn

import splinecam as sc

# "lines2400" has about a million regions.
WORKLOADS = {
    "lines1000": mlp(1000, side=2.0),
    "lines2400": mlp(2400, side=2.0),
    "lines2400_out10": mlp(2400, side=2.0, outputs=10),
    "mlp128x4": mlp(*[128] * 4, side=4.0),
    "mlp128x4_out10": mlp(*[128] * 4, side=4.0, outputs=10),
    "mlp256x6": mlp(*[256] * 6, side=4.0),
}

STEPS: dict[str, Callable[[sc.Partition], object]] = {
    "maps": lambda part: part._maps,
    "all stats": lambda part: part.stats(),
    "boundary": lambda part: part.decision_boundary().length,
    "table": lambda part: part.table(),
}

TIMES = ("partition", "maps", "stats", "boundary", "table")
RATIOS = ("of partition", "+ boundary")
TABLE = Table(
    {
        "workload": "<16",
        "regions": ">10,",
        **dict.fromkeys(TIMES, ">10.3f"),
        **dict.fromkeys(RATIOS, ">14.2f"),
    }
)


def measure(name: str, repeat: int, device: torch.device) -> dict[str, object]:
    """One row of the table: the best times, and ratios to the partition."""
    domain, model = WORKLOADS[name].domain(), WORKLOADS[name].model().to(device)
    best = Best(device)
    make = partial(sc.partition, model, domain, device=device, progress=False)
    for step, work in repeat * list(STEPS.items()):
        part = best.time("partition", make)
        best.time(step, partial(work, part))
    times = best.times
    plain = times["all stats"] - times["boundary"]
    ratios = (plain / times["partition"], times["all stats"] / times["partition"])
    return {
        "workload": name,
        "regions": len(part),
        **times,
        "stats": plain,
        **dict(zip(RATIOS, ratios, strict=True)),
    }


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    settings = options(__doc__, WORKLOADS).parse_args()
    device = settings.device
    print(f"{machine(device)}, best of {settings.repeat}, seconds")
    print("stats: without the boundary, but with the affine maps; ratios are to the partition\n")
    print(TABLE.heading())
    small = sc.partition(nn.Linear(2, 1), sc.Domain.box(-1, 1), device=device, progress=False)
    for work in STEPS.values():  # loads what is needed, not to be timed
        work(small)
    for name in settings.only or WORKLOADS:
        print(TABLE.line(measure(name, settings.repeat, device)), flush=True)


if __name__ == "__main__":
    main()
