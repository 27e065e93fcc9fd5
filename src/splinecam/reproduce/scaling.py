"""One layer of growing width and input dimension: the time, and the number of regions.

The paper takes a single layer of n ReLUs with random weights on inputs of D numbers, and a square
of area 4 around the origin in a random plane. Each unit cuts the plane along a line; n lines in
general position make at most 1 + n + n (n - 1) / 2 regions, of which the square shows a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from splinecam._partition import Partition, partition
from splinecam.geometry.domain import Domain
from splinecam.reproduce.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam.reproduce.networks import mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

AREA = 4.0
PAPER_REGIONS, PAPER_SECONDS = 132_569, 134.0  # for 1,000 units on 8,002 inputs


@dataclass(frozen=True)
class Settings:
    """The layers: widths and dimensions of those in the plot, largest for the picture."""

    widths: Sequence[int]
    dimensions: Sequence[int]
    largest: tuple[int, int]


def run(setup: Setup, settings: Settings) -> Report:
    """Time each layer, and draw the regions of the largest one."""
    report = Report()
    curves: dict[int, list[dict[str, float]]] = {}
    with setup.bar(len(settings.dimensions) * len(settings.widths), "layers") as bar:
        for dimension in settings.dimensions:
            curves[dimension] = []
            for width in settings.widths:
                curves[dimension].append(measure(width, dimension, setup)[1])
                bar.update()
    part, largest = measure(*settings.largest, setup)
    part.validate(progress=False)
    width, dimension = settings.largest
    is_paper = settings.largest == (1000, 8002)
    what = f"of {width:,} units on {dimension:,} inputs"
    same = "yes, up to the random weights" if is_paper else "no, a smaller layer"
    report.rows += [
        Row(f"regions {what}", PAPER_REGIONS, len(part), same, setup.seed, AREA),
        Row(
            f"seconds {what}",
            PAPER_SECONDS,
            largest["seconds"],
            "another machine" if is_paper else same,
            setup.seed,
            AREA,
            largest["seconds"],
        ),
    ]
    last = settings.widths[-1]
    for dimension, rows in curves.items():
        what = f"regions of {last:,} units on {dimension:,} inputs"
        why = "the paper shows a curve without numbers"
        ours, seconds = int(rows[-1]["regions"]), rows[-1]["seconds"]
        report.rows.append(Row(what, None, ours, why, setup.seed, AREA, seconds))
    report.numbers = {"curves": curves, "largest": largest}
    report.figures["scaling"] = draw_curves(curves)
    ax = part.plot(color="area", boundary=False, linewidth=0.1, axes="off", colorbar=False)
    report.figures["scaling-regions"] = ax.figure
    return report


def measure(width: int, dimension: int, setup: Setup) -> tuple[Partition, dict[str, float]]:
    """The partition of one random layer, with its number of regions and its time."""
    model = mlp([dimension, width, 1], seed=setup.seed)
    domain = Domain.around(torch.zeros(dimension), side=AREA**0.5, seed=setup.seed)
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, domain, device=setup.device, progress=False)
    return part, {"width": width, "regions": len(part), "seconds": watch.last}


def draw_curves(curves: dict[int, list[dict[str, float]]]) -> Figure:
    """Time and regions by width, a line for each dimension."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for ax, key in zip(axes, ("seconds", "regions"), strict=True):
        for dimension, rows in curves.items():
            ax.plot([r["width"] for r in rows], [r[key] for r in rows], label=f"D = {dimension:,}")
        ax.set(xlabel="units", ylabel=key)
        ax.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="scaling",
    shows="time and regions of one random layer by width and input dimension",
    places=("Fig. 10", "Fig. 18"),
    full=Settings(range(10, 1000, 30), (2, 2002, 4002, 6002, 8002), (1000, 8002)),
    quick=Settings(range(10, 1000, 90), (2, 2002, 8002), (1000, 8002)),
    tiny=Settings((10, 20), (2, 12), (30, 12)),
    run=run,
)
