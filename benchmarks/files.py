"""Time saving a partition and loading it again, beside the time to compute it.

Run ``python benchmarks/files.py``, or ``--only lines2400 --repeat 5``. The maps of the regions are
part of the file; they are computed before the clock starts. Loading checks the file.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch
from bench import Workload, arguments, machine, seconds

import splinecam as sc

# About 10,000, 100,000 and a million regions; the last with ten outputs.
WORKLOADS = {
    "lines240": Workload((2, 240), 2.0),
    "lines750": Workload((2, 750), 2.0),
    "lines2400": Workload((2, 2400), 2.0),
    "lines2400x10": Workload((2, 2400), 2.0, outputs=10),
    "mlp256x6": Workload((2, *[256] * 6), 4.0, outputs=3),
}


def measure(name: str, repeat: int, device: torch.device) -> str:
    """One row of the table."""
    workload = WORKLOADS[name]
    model, domain = workload.model().to(device), workload.domain()
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.npz"
        for _ in range(repeat):
            made: list[sc.Partition] = []
            times = {
                "partition": seconds(
                    lambda: made.append(sc.partition(model, domain, device=device, progress=False)),  # noqa: B023
                    device,
                ),
                "maps": seconds(lambda: made[0].maps, device),  # noqa: B023
                "save": seconds(lambda: made[0].save(path), device),  # noqa: B023
                "load": seconds(lambda: sc.load(path, device=device), device),
            }
            best = {step: min(time, best.get(step, math.inf)) for step, time in times.items()}
        size = path.stat().st_size
    cells = "".join(f"{time:>10.2f}" for time in best.values())
    return f"{name:<14}{len(made[0]):>10,}{cells}{size / 1e6:>8.0f}"


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    options = arguments(__doc__, WORKLOADS)
    print(f"{machine(options.device)}, best of {options.repeat}: seconds, and size in MB\n")
    head = ("workload", "regions", "partition", "maps", "save", "load", "MB")
    print("{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}".format(*head))
    for name in options.only or WORKLOADS:
        print(measure(name, options.repeat, options.device), flush=True)


if __name__ == "__main__":
    main()
