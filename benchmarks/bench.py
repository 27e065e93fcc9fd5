"""Time partitions beside plain forward passes of the same vertices, with their peak memory.

make bench, or for example:

  python benchmarks/bench.py --groups lines mlp --device cuda --json figures.json
  python benchmarks/bench.py --only mlp64x3 --repeat 9

What the columns mean is described in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import against
import sweeps
import torch
from common import Table, Times, Workload, alone, in_turns, machine, options, warm_up, with_peak
from floor import floors
from networks import GROUPS, WORKLOADS

from splinecam.engine.run import run
from splinecam.network.capture import capture

Row = dict[str, Any]

TABLE = Table(
    {
        "workload": "<28",
        "regions": ">10,",
        "capture": ">9.2f",
        "median": ">10.4f",
        "best": ">10.4f",
        "spread": ">10.4f",
        "peak": ">9.0f",
        "floor": ">10.4f",
        "ratio": ">8.1f",
        "µs each": ">9.2f",
    }
)
TITLES = {
    "lines": "One layer",
    "mlp": "Several layers",
    "shapes": "Wide, deep, and narrow with many regions",
    "trained": "Trained, beside random networks of the same shape",
    "degenerate": "Degenerate: lines through one point, every unit twice, a grid with diagonals",
    "conv": "Convolutions, with strides, average pooling and max-pooling",
    "zoo": "Trained networks of others",
    "regions": "Growth with the regions: one network, growing domains",
    "width": "Growth with the width: three layers on one domain",
    "tiles": "Tiles: one partition within smaller and smaller budgets of memory",
}
# Groups with a table of their own.
OTHERS: dict[str, Callable[[argparse.Namespace], Iterable[Row]]] = {
    "sweep": sweeps.report,
    "relucent": against.report,
}
NOTABLE = 1.2, 0.01  # floors that differ by this factor and have these seconds are both told
WARM_UPS = {"cpu": 0, "cuda": 3}  # besides the run whose memory is measured


def measure(workload: Workload, name: str, repeat: int, device: torch.device) -> Row:
    """One row of the table."""
    domain, model = workload.domain(), workload.model().to(device)
    warm_up(device)
    start = perf_counter()
    program = capture(model, domain.input_shape, device=device)
    captured = perf_counter() - start
    with torch.no_grad():
        work = partial(run, program, domain, memory=workload.memory)
        outcome, peak = with_peak(work, device)
        plain = floors(program, model, domain, outcome)
        regions = outcome.mesh.num_faces
        del outcome
        for _ in range(WARM_UPS[device.type]):
            work()
        times, *others = in_turns([work, *plain.values()], repeat, device)
    by_kind = dict(zip(plain, others, strict=True))
    floor = min(other.best for other in others)
    return {
        "workload": name,
        "regions": regions,
        "expected": workload.regions,
        "size": workload.size,
        "capture": captured,
        **numbers(times),
        "peak": peak / 2**20,
        "floor": floor,
        "floors": {kind: numbers(each) for kind, each in by_kind.items()},
        "ratio": times.best / floor,
        "µs each": 1e6 * times.best / regions,
    }


def row(name: str, repeat: int, device: torch.device) -> Row:
    """The row of a workload by its name; other processes know it by that."""
    return measure(WORKLOADS[name], name, repeat, device)


def numbers(times: Times) -> Row:
    """The figures of several runs."""
    return {
        "runs": len(times.each),
        "median": times.median,
        "best": times.best,
        "spread": times.spread,
    }


def note(made: Row) -> str:
    """What else is to be said of a row."""
    notes = []
    if made["expected"] not in (None, made["regions"]):
        notes.append(f"expected {made['expected']:,} regions")
    best = {kind: floor["best"] for kind, floor in made["floors"].items()}
    low, high = min(best.values()), max(best.values())
    if high > NOTABLE[0] * low and low > NOTABLE[1]:
        notes.append("floors: " + ", ".join(f"{kind} {time:.4f}" for kind, time in best.items()))
    return "; ".join(notes)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The power of x with which y grows: the slope of the line that fits the logarithms."""
    return statistics.linear_regression([*map(math.log, x)], [*map(math.log, y)]).slope


def growth(group: str, rows: list[Row], last: int = 3) -> list[str]:
    """How the cost of a group grows, over all of its rows and over the largest."""
    if group not in ("regions", "width") or len(rows) < 2:
        return []
    by, of = ("regions", ("best", "floor"))
    if group == "width":
        by, of = ("size", ("best", "floor", "regions"))
    lines = []
    for what in of:
        powers = [
            exponent([made[by] for made in part], [made[what] for made in part])
            for part in (rows, rows[-last:])
        ]
        lines.append(
            f"{what:<8} grows with the power {powers[0]:.2f} of the {group}"
            f" ({powers[1]:.2f} over the last {min(last, len(rows))})"
        )
    return lines


def table(group: str, names: list[str], settings: argparse.Namespace) -> Iterator[Row]:
    """Measure and print a group; each workload has a process of its own."""
    print(f"\n{TITLES[group]}\n{TABLE.heading()}")
    rows = []
    for name in names:
        rows.append({"group": group, **alone(row, name, settings.repeat, settings.device)})
        print(TABLE.line(rows[-1], note(rows[-1])), flush=True)
        yield rows[-1]
    for line in growth(group, rows):
        print(line)


def chosen(settings: argparse.Namespace) -> dict[str, list[str]]:
    """The names of the workloads to be measured, by group."""
    made = {group: list(make()) for group, make in GROUPS.items()}
    if settings.only:
        return {
            group: found
            for group, names in made.items()
            if (found := [name for name in names if name in settings.only])
        }
    small = settings.device.type == "cpu"
    return {
        group: [name for name in names if not (small and WORKLOADS[name].large)]
        for group, names in made.items()
        if group in (settings.groups or made)
    }


def measured_on(settings: argparse.Namespace) -> Iterator[Row]:
    """Print all tables of one device, and give their rows."""
    start = perf_counter()
    print(f"{machine(settings.device)}; seconds, at least {settings.repeat} runs; peak in MiB")
    for group, names in chosen(settings).items():
        if names:
            yield from table(group, names, settings)
        else:
            print(f"\n{TITLES[group]}: not here")
    for group, report in OTHERS.items():
        if group in (settings.groups or (() if settings.only else OTHERS)):
            yield from report(settings)
    print(f"\n{perf_counter() - start:.0f} seconds in all\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, one workload a line as soon as it is measured."""
    parser = options(__doc__, WORKLOADS)
    every = [*GROUPS, *OTHERS]
    parser.add_argument(
        *("--groups", "--group"), nargs="+", choices=every, metavar="GROUP", help=", ".join(every)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.set_defaults(device=None)
    settings = parser.parse_args(argv)
    devices = [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()
    rows: list[Row] = []
    machines: dict[str, str] = {}
    for device in devices if settings.device is None else [settings.device]:
        machines[str(device)] = machine(device).split(", ", 1)[1]
        for made in measured_on(argparse.Namespace(**{**vars(settings), "device": device})):
            rows.append({"device": str(device), **made})
            if settings.json:  # each time, so that nothing is lost when a later one fails
                content = {"torch": torch.__version__, "machines": machines, "rows": rows}
                settings.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
