"""Time pictures of partitions: drawing one, and saving it as PNG, PDF and SVG.

Run ``python benchmarks/plots.py``, or ``--only lines2400 --repeat 5``. Pictures are six inches
wide, in 300 dpi. Every figure starts from a partition of its own, so that nothing is already known
to it.
"""

from __future__ import annotations

import io
import math

import matplotlib
import torch
from bench import Workload, arguments, machine, seconds
from torch import nn

import splinecam as sc

matplotlib.use("Agg")

# About 10,000, 100,000 and a million regions, of one layer and of several.
WORKLOADS = {
    "lines240": Workload((2, 240), 2.0, outputs=3),
    "lines750": Workload((2, 750), 2.0, outputs=3),
    "lines2400": Workload((2, 2400), 2.0, outputs=3),
    "mlp64x3": Workload((2, 64, 64, 64), 4.0, outputs=3),
    "mlp128x4": Workload((2, *[128] * 4), 4.0, outputs=3),
    "mlp256x6": Workload((2, *[256] * 6), 4.0, outputs=3),
}
COLORS = ("class", "slope", "random")
FORMATS = ("png", "pdf", "svg")


def measure(name: str, color: str, repeat: int, device: torch.device) -> str:
    """One row of the table."""
    import matplotlib.pyplot as plt

    workload = WORKLOADS[name]
    best: dict[str, float] = {}
    size: dict[str, int] = {}
    regions = 0
    for _ in range(repeat):
        part = sc.partition(
            workload.model().to(device), workload.domain(), device=device, progress=False
        )
        regions = len(part)
        drawn = []
        times = {"plot": seconds(lambda: drawn.append(part.plot(color=color)), device)}  # noqa: B023
        for kind in FORMATS:
            file = io.BytesIO()
            save = drawn[0].figure.savefig
            times[kind] = seconds(lambda: save(file, format=kind, dpi=300), device)  # noqa: B023
            size[kind] = file.tell()
        plt.close("all")
        best = {step: min(time, best.get(step, math.inf)) for step, time in times.items()}
    cells = "".join(f"{time:>8.2f}" for time in best.values())
    return f"{name:<12}{color:<8}{regions:>10,}{cells}" + "".join(
        f"{count / 1e6:>8.1f}" for count in size.values()
    )


def main() -> None:
    """Print a table, one picture a line as soon as it is measured."""
    options = arguments(__doc__, WORKLOADS)
    print(f"{machine(options.device)}, best of {options.repeat}: seconds, and sizes in MB\n")
    head = ("workload", "color", "regions", "plot", *FORMATS, *FORMATS)
    print("{:<12}{:<8}{:>10}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}".format(*head))
    small = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), device="cpu", progress=False)
    for kind in FORMATS:  # loads what is needed, not to be timed
        small.plot().figure.savefig(io.BytesIO(), format=kind)
    for name in options.only or WORKLOADS:
        for color in COLORS:
            print(measure(name, color, options.repeat, options.device), flush=True)


if __name__ == "__main__":
    main()
