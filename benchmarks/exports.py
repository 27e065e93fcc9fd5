"""Time exports of regions to other programs, beside the time to compute the partition.

Run ``python benchmarks/exports.py``, or ``--only lines2400 --repeat 5``. Each format has a line:
seconds of the clock and of the processor (the best of the runs), the ratio of the latter to the
partition's, the most MiB in use beyond the partition, and the size of the file in MB. The maps,
areas and centroids of the regions are computed before the clock starts; *maps* has their time.
Files have the default columns, and Parquet all of them. *estimate* is the time and the memory that
``to_networkx`` expects.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeVar

import torch
from common import Table, Workload, machine, mlp, options, warm_up, with_peak

import splinecam as sc

T = TypeVar("T")

# About 10,000, 100,000 and a million regions.
WORKLOADS = {
    "lines240": mlp(240, side=2.0),
    "lines750": mlp(750, side=2.0),
    "lines2400": mlp(2400, side=2.0),
    "mlp256x6": mlp(*[256] * 6, side=4.0, outputs=3),
}
TABLE = Table(
    {
        "workload": "<11",
        "regions": ">9,",
        "what": ">10",
        "seconds": ">9.2f",
        "CPU": ">7.2f",
        "ratio": ">7.1f",
        "MiB": ">7,.0f",
        "MB": ">7,.0f",
        "estimate": ">16",
    }
)


def exports(part: sc.Partition, folder: Path) -> dict[str, Callable[[], object]]:
    """The ways to give a partition to other programs, by name."""
    return {
        "shapely": part.to_shapely,
        "geojson": partial(part.export, folder / "a.geojson", progress=False),
        "ply": partial(part.export, folder / "a.ply", output=0, progress=False),
        "vtp": partial(part.export, folder / "a.vtp", output=0, progress=False),
        "vtk": partial(part.export, folder / "a.vtk", output=0, progress=False),
        "parquet": partial(part.export, folder / "a.parquet"),
        "networkx": partial(part.to_networkx, max_regions=None, progress=False),
    }


def estimate(part: sc.Partition) -> str:
    """The time and the memory that ``to_networkx`` expects."""
    try:
        part.to_networkx(max_regions=1)
    except sc.LimitError as error:
        found = re.search(r"about (.*?) of memory and (.*? s)", str(error))
        return "" if found is None else f"{found[2]}, {found[1]}"
    return ""


def clocked(work: Callable[[], T], repeat: int) -> tuple[T, dict[str, float]]:
    """The result of the last run, and the least seconds of the clock and of the processor."""
    clock, cpu = [], []
    for _ in range(repeat):
        start, used = perf_counter(), process_time()
        made = work()
        clock.append(perf_counter() - start)
        cpu.append(process_time() - used)
    return made, {"seconds": min(clock), "CPU": min(cpu)}


def measure(
    name: str, workload: Workload, repeat: int, device: torch.device
) -> Iterator[dict[str, object]]:
    """The rows of a workload."""
    compute = partial(
        sc.partition, workload.model().to(device), workload.domain(), device=device, progress=False
    )
    part, first = clocked(compute, repeat)
    row = {"workload": name, "regions": len(part)}
    yield row | {"what": "partition", **first}
    _, times = clocked(lambda: (part._maps, part.areas, part.centroids), 1)
    yield row | {"what": "maps", **times}
    with tempfile.TemporaryDirectory() as folder:
        for what, work in exports(part, Path(folder)).items():
            _, peak = with_peak(work, torch.device("cpu"))
            _, times = clocked(work, repeat)
            files = [path.stat().st_size for path in Path(folder).glob(f"*.{what}")]
            yield row | {
                "what": what,
                **times,
                "ratio": times["CPU"] / first["CPU"],
                "MiB": peak / 2**20,
                "MB": sum(files) / 1e6 if files else None,
                "estimate": estimate(part) if what == "networkx" else None,
            }


def main() -> None:
    """Print a table, one format a line as soon as it is measured."""
    settings = options(__doc__, WORKLOADS).parse_args()
    print(f"{machine(settings.device)}, best of {settings.repeat}\n")
    print(TABLE.heading())
    warm_up(settings.device)
    for name in settings.only or WORKLOADS:
        for row in measure(name, WORKLOADS[name], settings.repeat, settings.device):
            print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
