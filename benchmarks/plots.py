"""Time pictures of partitions: drawing one, and saving it as PNG, PDF and SVG.

Run ``python benchmarks/plots.py``, or ``--only lines2400 --repeat 5``. Pictures are six inches
wide, in 300 dpi. Every figure starts from a partition of its own, which knows nothing yet.
"""

from __future__ import annotations

import io
from functools import partial

import matplotlib
import torch
from common import Best, Table, machine, mlp, options
from torch import nn

import splinecam as sc

matplotlib.use("Agg")

# About 10,000, 100,000 and a million regions, of one layer and of several.
WORKLOADS = {
    "lines240": mlp(240, side=2.0, outputs=3),
    "lines750": mlp(750, side=2.0, outputs=3),
    "lines2400": mlp(2400, side=2.0, outputs=3),
    "mlp64x3": mlp(*[64] * 3, side=4.0, outputs=3),
    "mlp128x4": mlp(*[128] * 4, side=4.0, outputs=3),
    "mlp256x6": mlp(*[256] * 6, side=4.0, outputs=3),
}
COLORS = ("class", "slope", "random")
FORMATS = ("png", "pdf", "svg")
TABLE = Table(
    {
        "workload": "<12",
        "color": "<8",
        "regions": ">10,",
        **dict.fromkeys(("plot", *FORMATS), ">8.2f"),
        **dict.fromkeys([f"MB {kind}" for kind in FORMATS], ">8.1f"),
    }
)


def measure(name: str, color: str, repeat: int, device: torch.device) -> dict[str, object]:
    """One row of the table."""
    import matplotlib.pyplot as plt

    model, domain = WORKLOADS[name].model().to(device), WORKLOADS[name].domain()
    best, size = Best(device), {}
    for _ in range(repeat):
        part = sc.partition(model, domain, device=device, progress=False)
        save = best.time("plot", partial(part.plot, color=color)).figure.savefig
        for kind in FORMATS:
            file = io.BytesIO()
            best.time(kind, partial(save, file, format=kind, dpi=300))
            size[f"MB {kind}"] = file.tell() / 1e6
        plt.close("all")
    return {"workload": name, "color": color, "regions": len(part), **best.times, **size}


def main() -> None:
    """Print a table, one picture a line as soon as it is measured."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}: seconds, and sizes in MB\n")
    print(TABLE.heading())
    small = sc.partition(nn.Linear(2, 3), sc.Domain.box(-1, 1), device="cpu", progress=False)
    for kind in FORMATS:  # loads what is needed, not to be timed
        small.plot().figure.savefig(io.BytesIO(), format=kind)
    for name in settings.only or WORKLOADS:
        for color in COLORS:
            row = measure(name, color, settings.repeat, settings.device)
            print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
