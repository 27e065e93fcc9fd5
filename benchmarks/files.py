"""Time saving a partition and loading it again, beside the time to compute it.

Run ``python benchmarks/files.py``, or ``--only lines2400 --repeat 5``. The maps of the regions are
part of the file; they are computed before the clock starts. Loading checks the file; *unchecked*
leaves out whether the regions fit together.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import torch
from common import Best, Table, machine, mlp, options, warm_up

import splinecam as sc

# About 10,000, 100,000 and a million regions; the last with ten outputs.
WORKLOADS = {
    "lines240": mlp(240, side=2.0),
    "lines750": mlp(750, side=2.0),
    "lines2400": mlp(2400, side=2.0),
    "lines2400x10": mlp(2400, side=2.0, outputs=10),
    "mlp256x6": mlp(*[256] * 6, side=4.0, outputs=3),
}
STEPS = ("partition", "maps", "save", "load", "unchecked")
TABLE = Table(
    {"workload": "<14", "regions": ">10,", **dict.fromkeys(STEPS, ">10.2f"), "MB": ">8.0f"}
)


def measure(name: str, repeat: int, device: torch.device) -> dict[str, object]:
    """One row of the table."""
    model, domain = WORKLOADS[name].model().to(device), WORKLOADS[name].domain()
    best = Best(device)
    work = partial(sc.partition, model, domain, device=device, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.npz"
        for _ in range(repeat):
            part = best.time("partition", work)
            best.time("maps", partial(getattr, part, "maps"))
            best.time("save", partial(part.save, path))
            best.time("load", partial(sc.load, path, device=device))
            best.time("unchecked", partial(sc.load, path, device=device, verify=False))
        size = path.stat().st_size
    return {"workload": name, "regions": len(part), **best.times, "MB": size / 1e6}


def main() -> None:
    """Print a table, one workload a line as soon as it is measured."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}: seconds, and size in MB\n")
    print(TABLE.heading())
    warm_up(settings.device)
    for name in settings.only or WORKLOADS:
        print(TABLE.line(measure(name, settings.repeat, settings.device)), flush=True)


if __name__ == "__main__":
    main()
