"""How time, memory and bytes grow with regions and domains: the basis of plans for more.

Run ``python benchmarks/scaling.py``; ``--only folds294_atlas`` runs one line, ``--folder`` says
where atlases are written. Every line is measured in a process of its own. The number of regions is
known beforehand: lines in general position make as many as there are lines and crossings, and one
more. Folds make mirror images of these. *right* tells whether the number, Euler's number and the
sum of all areas are exact. *CPU* are seconds of the processor, without other processes. *peak* is
the most additional memory in use, including the result. *bytes* is the size of a region on disk, in
an atlas or by ``part.save``.

``--domains 500`` measures the cost of a domain, in a sweep that keeps the partitions and in one
that keeps a number of each. ``--limits`` measures the promise of ``memory``: *of memory* is the
peak divided by it, and *times* the seconds of the processor divided by those without a limit.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from common import Table, alone, machine, options, perceptron, warm_up, with_peak
from networks import folds
from torch import Tensor, nn

import splinecam as sc

CPU = torch.device("cpu")
PRECISION = 1e-9  # of the sum of all areas

TABLE = Table(
    {
        "workload": "<18",
        "regions": ">14,",
        "right": ">7",
        "seconds": ">9.2f",
        "CPU": ">9.2f",
        "µs each": ">9.2f",
        "peak MiB": ">10,.0f",
        "bytes": ">8.0f",
        "open": ">9.4f",
    }
)


@dataclass(frozen=True)
class Scale:
    """A network with a known number of regions, and how it is computed.

    way: "whole" in memory; "budget" within 200 MB; "workers" by two processes; "atlas" on disk
    within 4 GB.
    """

    pleats: int
    times: int
    lines: int
    way: str

    def model(self) -> nn.Module:
        return folds(self.pleats, self.times, self.lines)

    def regions(self) -> int:
        """The number of regions, counted without the library."""
        *_, last, _, _ = self.model()
        return self.pleats ** (2 * self.times) * count(last.weight.detach(), last.bias.detach())


WORKLOADS = {
    "lines1860": Scale(8, 0, 1860, "whole"),
    "lines1860_budget": Scale(8, 0, 1860, "budget"),
    "lines1860_workers": Scale(8, 0, 1860, "workers"),
    "folds29": Scale(8, 2, 29, "whole"),
    "folds29_budget": Scale(8, 2, 29, "budget"),
    "folds29_workers": Scale(8, 2, 29, "workers"),
    "folds29_atlas": Scale(8, 2, 29, "atlas"),
    "folds92": Scale(8, 2, 92, "whole"),
    "folds92_atlas": Scale(8, 2, 92, "atlas"),
    "lines5870_budget": Scale(8, 0, 5870, "budget"),
    "folds294_atlas": Scale(8, 2, 294, "atlas"),
}
LARGE = {"folds92", "folds92_atlas", "lines5870_budget", "folds294_atlas"}


def count(weight: Tensor, bias: Tensor) -> int:
    """The regions of the unit square that lines ``weight @ x + bias = 0`` in general position make.

    One, and one more for every line that crosses the square and for every crossing inside.
    """
    start, end, crosses = _clipped(weight, bias)
    start, end = start[crosses], end[crosses]
    weight, bias = weight[crosses], bias[crosses]
    crossings = 0
    for some in torch.arange(len(bias)).split(1024):
        sides = [weight[some] @ point.T + bias[some, None] for point in (start, end)]
        apart = (sides[0] > 0) != (sides[1] > 0)  # the others' ends are on both sides of the line
        apart &= _both(weight, bias, start[some], end[some])
        apart[torch.arange(len(some)), some] = False  # a line does not cross itself
        crossings += int(apart.sum())
    return 1 + len(bias) + crossings // 2


def _both(weight: Tensor, bias: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Whether the ends of some segments are on both sides of each line, (N, L)."""
    return (start @ weight.T + bias > 0) != (end @ weight.T + bias > 0)


def _clipped(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ends of lines in the unit square, (L, 2) each, and whether they cross it, (L,)."""
    square = (weight * weight).sum(1, keepdim=True)
    foot, along = -bias[:, None] * weight / square, torch.stack([-weight[:, 1], weight[:, 0]], 1)
    low, high = (0 - foot) / along, (1 - foot) / along
    first = torch.minimum(low, high).amax(1, keepdim=True)
    last = torch.maximum(low, high).amin(1, keepdim=True)
    return foot + first * along, foot + last * along, (first < last)[:, 0]


def measure(name: str, folder: str | None) -> dict[str, Any]:
    """One line of the table."""
    scale, domain = WORKLOADS[name], sc.Domain.box(0.0, 1.0)
    model, expected = scale.model(), scale.regions()
    warm_up(CPU)
    store = Path(tempfile.mkdtemp(prefix="splinecam-scaling-", dir=folder))
    quiet = {"device": CPU, "progress": False}
    if scale.way == "budget":
        quiet["memory"] = 2e8
    if scale.way == "workers":
        quiet["n_jobs"] = 2
        sc.partition(perceptron(2, 64, 16, 1), domain, **quiet)  # starts the processes
    if scale.way == "atlas":
        quiet |= {"memory": 4e9, "store": store / "atlas"}
    try:
        begin, used = perf_counter(), process_time()
        made, peak = with_peak(lambda: sc.partition(model, domain, **quiet), CPU)
        taken, used = perf_counter() - begin, process_time() - used
        row = _stored(made, scale.way, store)
        mesh = made.mesh if isinstance(made, sc.Partition) else made
        euler = mesh.num_vertices - mesh.num_edges + len(made)
        right = len(made) == expected and euler == 1 and abs(_area(made) - 1) < PRECISION
        return {
            **{"workload": name, "regions": len(made), "right": "yes" if right else "NO"},
            **{
                "seconds": taken,
                "CPU": used,
                "µs each": 1e6 * taken / len(made),
                "peak MiB": peak / 2**20,
            },
            **row,
        }
    finally:
        shutil.rmtree(store)


def _stored(made: Any, way: str, store: Path) -> dict[str, float]:
    """Bytes of the stored form per region, and seconds to open an atlas."""
    if way != "atlas":
        made.save(store / "part.npz")
        return {"bytes": (store / "part.npz").stat().st_size / len(made)}
    size = sum(file.stat().st_size for file in (store / "atlas").rglob("*") if file.is_file())
    begin = perf_counter()
    sc.load(store / "atlas")
    return {"bytes": size / len(made), "open": perf_counter() - begin}


def _area(made: Any) -> float:
    if isinstance(made, sc.Partition):
        return float(made.areas.sum())
    return sum(float(made.tile(k).areas.sum()) for k in range(made.num_tiles))


# -- limits of memory --------------------------------------------------------------------------

LIMITS = Table(
    {
        "workload": "<10",
        "regions": ">12,",
        "memory": ">10,.0f",
        "peak": ">10,.0f",
        "of memory": ">11.2f",
        "free peak": ">11,.0f",
        "CPU": ">9.2f",
        "times": ">8.2f",
        "valid": ">7",
    }
)


def _pooled() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)).double().eval()


def _image_plane(side: float) -> sc.Domain:
    image = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(1))
    return sc.Domain.around(image, side=side, seed=0)


def _square(side: float) -> sc.Domain:
    return sc.Domain.around([0.0, 0.0], side=side)


# A network, a domain of a given side, the side, and the bytes to stay within.
LIMITED = {
    "mlp": (lambda: perceptron(2, 512, 512, 512, 1), _square, 4.0, 2e8),
    "cnn": (_pooled, _image_plane, 1.5, 1e8),
    "wide": (lambda: perceptron(2, 1500, 1), _square, 2.0, 1.2e8),
    "deep": (lambda: perceptron(2, *[64] * 16, 1), _square, 400.0, 1e8),
    "atlas": (lambda: perceptron(2, *[256] * 6, 1), _square, 4.0, 2e8),
}


def limited(name: str, memory: float | None, folder: str | None) -> dict[str, Any]:
    """A partition within so many bytes, or without a limit."""
    make, around, side, _ = LIMITED[name]
    model, quiet = make(), {"device": CPU, "progress": False}
    warm_up(CPU)
    store = Path(tempfile.mkdtemp(prefix="splinecam-limits-", dir=folder))
    sc.partition(model, around(1e-6), **quiet)
    if name == "atlas":
        sc.atlas(model, around(1e-6), store / "small", **quiet)
        quiet["store"] = store / "atlas"
    try:
        used = process_time()
        run = lambda: sc.partition(model, around(side), memory=memory, **quiet)  # noqa: E731
        made, peak = with_peak(run, CPU)
        used = process_time() - used
        valid = "" if memory is None else "yes" if made.validate().ok else "NO"
        return {"regions": len(made), "peak": peak / 1e6, "CPU": used, "valid": valid}
    finally:
        shutil.rmtree(store)


def limits(name: str, folder: str | None) -> dict[str, Any]:
    """One line of the table of limits."""
    memory = LIMITED[name][-1]
    free, bound = (alone(limited, name, bytes_, folder) for bytes_ in (None, memory))
    if free["regions"] != bound["regions"]:
        raise RuntimeError(f"{name}: {bound['regions']} regions instead of {free['regions']}")
    more = {"workload": name, "memory": memory / 1e6, "free peak": free["peak"]}
    more |= {"of memory": 1e6 * bound["peak"] / memory, "times": bound["CPU"] / free["CPU"]}
    return {**bound, **more}


# -- domains -----------------------------------------------------------------------------------


def domains(number: int) -> str:
    """What a small domain costs: with its partition, and with a number of it."""
    model, places = perceptron(5, 50, 50, 50, 5), []
    centers = torch.randn(number, 5, generator=torch.Generator().manual_seed(0))
    places = [sc.Domain.around(x, side=1.0, seed=i) for i, x in enumerate(centers)]
    warm_up(CPU)
    begin = process_time()
    parts = sc.sweep(model, places, device=CPU, progress=False)
    kept = process_time() - begin
    regions = sum(map(len, parts))
    size = sum(x.nbytes for part in parts for x in (part.values, *vars(part.mesh).values()))
    del parts
    begin = process_time()
    sc.sweep(model, places, device=CPU, progress=False, reduce=len)
    reduced = process_time() - begin
    return (
        f"{number:,} domains, {regions / number:,.0f} regions each, on one core: "
        f"{1e3 * kept / number:.2f} ms and {size / number:,.0f} bytes each, "
        f"{1e3 * reduced / number:.2f} ms for a number of each"
    )


def main() -> None:
    """Print the table, or the cost of domains."""
    parser = options(__doc__, WORKLOADS)
    parser.add_argument(
        "--folder",
        help="where atlases are written, made if it is missing (default: a temporary folder)",
    )
    parser.add_argument("--domains", type=int, help="measure the cost of so many small domains")
    parser.add_argument("--limits", action="store_true", help="measure the limits of memory")
    given = parser.parse_args()
    if given.folder is not None:
        Path(given.folder).mkdir(parents=True, exist_ok=True)
    print(machine(CPU))
    if given.domains:
        print(alone(domains, given.domains))
        return
    if given.limits:
        print(LIMITS.heading())
        for name in LIMITED:
            print(LIMITS.line(limits(name, given.folder)), flush=True)
        return
    print(TABLE.heading())
    for name in given.only or [name for name in WORKLOADS if name not in LARGE]:
        # Processes are started by this one, which is not a worker of another itself.
        here = WORKLOADS[name].way == "workers"
        row = measure(name, given.folder) if here else alone(measure, name, given.folder)
        print(TABLE.line(row), flush=True)


if __name__ == "__main__":
    main()
