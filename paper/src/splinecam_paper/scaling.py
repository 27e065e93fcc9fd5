"""One layer of growing width and input dimension: the time, and the number of regions.

The paper takes a single layer of n ReLUs with random weights on inputs of D numbers, and a square
of area 4 around the origin in a random plane. Each unit cuts the plane along a line; n lines in
general position make at most 1 + n + n (n - 1) / 2 regions, of which the square shows a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splinecam import Domain, Partition, partition
from splinecam.plot.figures import plain_spines
from splinecam.plot.palette import GREY
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch, summary
from splinecam_paper.training import mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AREA = 4.0
PAPER_LAYER = (1000, 8002)  # units and inputs, Fig. 18
PAPER_REGIONS, PAPER_SECONDS = 132_569, 134.0


@dataclass(frozen=True)
class Settings:
    """The layers: widths and dimensions of those in the plot.

    largest: width of the layer in the picture, which has weights from so many ``seeds``.
    """

    widths: Sequence[int]
    dimensions: Sequence[int]
    largest: int = 1000
    seeds: int = 10


def run(setup: Setup, settings: Settings) -> Report:
    """Time each layer, and draw the regions of the largest one."""
    curves: dict[int, list[dict[str, float]]] = {}
    draws: dict[int, list[dict[str, float]]] = {}
    measure(settings.widths[0], settings.dimensions[0], setup)  # what only the first call does
    with setup.bar(
        len(settings.dimensions) * (len(settings.widths) + settings.seeds), "layers"
    ) as bar:
        for dimension in settings.dimensions:
            curves[dimension], draws[dimension] = [], []
            for width in settings.widths:
                curves[dimension].append(measure(width, dimension, setup)[1])
                bar.update()
            for k in range(settings.seeds):
                other = replace(setup, seed=setup.seed + k)
                draws[dimension].append(measure(settings.largest, dimension, other)[1])
                bar.update()
    part, _ = measure(settings.largest, settings.dimensions[-1], setup)
    part.validate(progress=False)
    report = Report(numbers={"curves": curves, "largest": draws})
    for dimension in reversed(settings.dimensions):
        report.rows += rows(settings.largest, dimension, draws[dimension], setup)
    report.figures["scaling"] = draw_curves(curves)
    ax = part.plot(color="area", boundary=False, linewidth=0.05, axes="off", colorbar=False)
    report.figures["scaling-regions"] = ax.figure
    return report


def rows(width: int, dimension: int, draws: list[dict[str, float]], setup: Setup) -> Iterator[Row]:
    """Regions and seconds of a layer with weights from several seeds, beside the paper's."""
    over = summary({key: [draw[key] for draw in draws] for key in ("regions", "seconds")})
    regions, seconds = over["regions"], over["seconds"]
    what = f"of {width:,} units on {dimension:,} inputs, {len(draws)} seeds"
    given = (setup.seed, AREA, seconds["mean"])
    ours = f"{regions['mean']:,.0f} ± {regions['std']:,.0f}"
    if (width, dimension) == PAPER_LAYER:
        one = "one draw of random weights in the paper"
        yield Row(f"regions {what}", PAPER_REGIONS, ours, one, *given)
        ours = f"{seconds['mean']:.3g} ± {seconds['std']:.1g}"
        yield Row(f"seconds {what}", PAPER_SECONDS, ours, "another machine", *given)
    else:
        without = "the paper shows a curve without numbers"
        yield Row(f"regions {what}", None, ours, without, *given)


def measure(width: int, dimension: int, setup: Setup) -> tuple[Partition, dict[str, float]]:
    """The partition of one random layer, with its number of regions and its time."""
    model = mlp([dimension, width, 1], seed=setup.seed)
    domain = Domain.around(torch.zeros(dimension), side=AREA**0.5, seed=setup.seed)
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, domain, device=setup.device, progress=False)
    return part, {"width": width, "regions": len(part), "seconds": watch.last}


def draw_curves(curves: dict[int, list[dict[str, float]]]) -> Figure:
    """Time and regions by width, a line for each dimension, with upper bounds."""
    import matplotlib.pyplot as plt
    from matplotlib.cm import viridis

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    bounds: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "seconds": ("n² / 5000, the paper's bound", lambda n: n * n / 5000),
        "regions": ("1 + n + n (n − 1) / 2, all lines cross", lambda n: 1 + n * (n + 1) / 2),
    }
    shades = viridis(np.linspace(0, 0.85, len(curves)))
    for ax, (key, (name, bound)) in zip(axes, bounds.items(), strict=True):
        for color, (dimension, rows) in zip(shades, curves.items(), strict=True):
            line: dict[str, Any] = {"color": color, "label": f"D = {dimension:,}", "linewidth": 1.3}
            ax.plot([r["width"] for r in rows], [r[key] for r in rows], **line)
        widths = np.array([r["width"] for r in next(iter(curves.values()))])
        ax.plot(widths, bound(widths), color=GREY, linestyle="--", linewidth=1, label=name)
        ax.set(xlabel="units n", ylabel=key, xscale="log", yscale="log")
        plain_spines(ax, GREY)
        ax.legend(frameon=False, fontsize=7.5)
    return figure


EXPERIMENT = Experiment(
    name="scaling",
    shows="time and regions of one random layer by width and input dimension",
    places=("Fig. 10", "Fig. 18"),
    full=Settings(range(10, 1000, 30), (2, 2002, 4002, 6002, 8002)),
    quick=Settings(range(10, 1000, 90), (2, 2002, 8002), seeds=3),
    tiny=Settings((10, 20), (2, 12), largest=30, seeds=2),
    run=run,
)
