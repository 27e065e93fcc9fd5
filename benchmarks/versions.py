"""Time two versions of the package against each other, call by call, in one run.

Run ``python benchmarks/versions.py path/to/other/src`` with the path of another checkout of the
repository, for instance from ``git worktree add``. Each version has a process of its own; they take
turns, and both see the same load. All times are milliseconds of ``sc.partition``: first of all
threads of the CPU together, then of the clock. The best of all rounds counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import torch
from common import Table, Workload, machine, mlp, options
from networks import convolutional, zoo

import splinecam as sc

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp32x3": lambda: mlp(32, 32, 32, side=2.0),
    "line100_d2": lambda: mlp(100, side=2.0),
    "mlp784_50x3": lambda: mlp(50, 50, 50, side=40.0, inputs=784, outputs=10),
    "mlp64x3": lambda: mlp(64, 64, 64, side=4.0),
    "line300_d2": lambda: mlp(300, side=2.0),
    "zoo_acasxu_1_1": lambda: zoo()["zoo_acasxu_1_1"],
    "mlp128x4": lambda: mlp(*[128] * 4, side=4.0),
    "cnn_stride": lambda: convolutional()["cnn_stride"],
    "line1000_d2": lambda: mlp(1000, side=2.0),
    "mlp256x6": lambda: mlp(*[256] * 6, side=4.0),
}

TABLE = Table(
    {
        "workload": "<16",
        "regions": ">9,",
        "other": ">9.1f",
        "this": ">9.1f",
        "share": ">7.3f",
        "other passes": ">14.1f",
        "this passes": ">13.1f",
    }
)


def serve() -> None:
    """Answer every line, the name of a workload, with the times of one call."""
    known: dict[str, tuple[torch.nn.Module, sc.Domain]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in known:
            workload = WORKLOADS[name]()
            known[name] = workload.model(), workload.domain()
        model, domain = known[name]
        passed, used = perf_counter(), process_time()
        part = sc.partition(model, domain, device="cpu", progress=False)
        times = process_time() - used, perf_counter() - passed
        print(json.dumps([len(part), *times]), flush=True)


class Version:
    """A process that partitions with the package of one folder."""

    def __init__(self, folder: Path) -> None:
        paths = os.pathsep.join(map(str, (folder, Path(__file__).parent)))
        code = "import versions; versions.serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str) -> tuple[int, float, float]:
        """Regions, and the seconds of all threads and of the clock."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        print(name, file=self._process.stdin, flush=True)
        regions, used, passed = json.loads(self._process.stdout.readline())
        return regions, used, passed


def compare(name: str, versions: list[Version], rounds: int) -> dict[str, object]:
    """The best times of both versions, which take turns; the first two rounds warm up."""
    found = [[version.call(name) for version in versions] for _ in range(rounds + 2)][2:]
    other, this = zip(*found, strict=True)
    best = [[1e3 * min(call[k] for call in calls) for k in (1, 2)] for calls in (other, this)]
    if other[0][0] != this[0][0]:
        print(f"{name}: the other version finds {other[0][0]:,} regions")
    return {
        "workload": name,
        "regions": this[0][0],
        "other": best[0][0],
        "this": best[1][0],
        "share": best[1][0] / best[0][0],
        "other passes": best[0][1],
        "this passes": best[1][1],
    }


def main() -> None:
    """Print the table."""
    parser = options(__doc__, WORKLOADS)
    parser.add_argument("other", type=Path, help="the folder src of the other version")
    settings = parser.parse_args()
    versions = [Version(settings.other), Version(Path(__file__).parents[1] / "src")]
    print(f"{machine(torch.device('cpu'))}\n{TABLE.heading()}")
    for name in settings.only or WORKLOADS:
        print(TABLE.line(compare(name, versions, settings.repeat)), flush=True)


if __name__ == "__main__":
    main()
