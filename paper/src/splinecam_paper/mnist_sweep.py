"""Regions around training, test and random points while MLPs of several widths learn MNIST.

The paper trains MLPs of five layers for 50 epochs, and shows how the average region volume and the
number of regions in squares around 25 training and 25 test samples are distributed after each
epoch. It names no area: ours is 8, that of the squares in the authors' example scripts, and four
other areas are measured at the end. Their script for MNIST repeats one linear layer, so that the
hidden weights are tied; a tied network is measured beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor, nn

from splinecam import partition
from splinecam_paper.data import Images, load_images
from splinecam_paper.experiment import Experiment, Report, Row, Setup
from splinecam_paper.neighbourhoods import (
    Plan,
    Runs,
    Squares,
    chosen,
    draw_bands,
    draw_distributions,
    plus_minus,
    train_and_measure,
    uniform,
    why_of,
)
from splinecam_paper.training import Training, mlp, seeded

HIDDEN = 4  # layers: with the last one the depth is 5
AREA = 8.0
GROUPS = ("train", "test")

Areas = dict[float, dict[int, dict[str, Tensor]]]


@dataclass(frozen=True)
class Settings:
    """The networks, their training and the squares.

    widths: of the networks; tied: width of the one with tied weights. epochs: after which regions
    are counted. areas: measured at the end. images: for training. points, random: squares around
    training and test samples each, and around random points. seeds: networks of each width. batch:
    samples of a step.
    """

    widths: Sequence[int]
    tied: int
    epochs: Sequence[int]
    areas: Sequence[float]
    images: int
    points: int
    random: int
    seeds: int
    batch: int


def run(setup: Setup, settings: Settings) -> Report:
    """Train every network, measure the squares, and look at each claim of the paper."""
    images = load_images("mnist", setup.data, stand_in=setup.quick)
    plan = plan_of(images, settings, setup.seed)
    inputs = plan.data[0].shape[1]
    runs = {}
    for width in settings.widths:
        build = partial(mlp, [inputs, *[width] * HIDDEN, 10])
        runs[width] = train_and_measure(build, plan, setup=setup, name=f"mnist-mlp-{width}")
    build = partial(tied_mlp, inputs, settings.tied)
    tied = train_and_measure(build, plan, setup=setup, name=f"mnist-tied-{settings.tied}")
    square = plan.squares.groups["train"][0]
    part = partition(
        runs[settings.widths[-1]].models[0], square, device=setup.device, progress=False
    )
    part.validate(progress=False)
    areas = scan(runs, settings, plan, setup)

    report = Report(notes=[images.source])
    why = why_of(settings.seeds, stand_in=images.stand_in)
    rows = [*claims(runs, why), tied_row(runs[settings.tied], tied, settings.tied, why)]
    report.rows = [replace(row, seed=setup.seed, area=AREA) for row in rows]
    report.rows += area_rows(areas, setup.seed)
    report.numbers = {
        "networks": {f"width {width}": found.numbers() for width, found in runs.items()},
        "tied": {settings.tied: tied.numbers()},
        "regions by area and width": areas,
    }
    for name, figure in (("ARV", "mnist-sweep"), ("NR", "mnist-sweep-regions")):
        found = {f"width {width}": each.over(name) for width, each in runs.items()}
        report.figures[figure] = draw_distributions(found, plan.epochs, name, GROUPS)
    bands = {f"width {width}": each.over("ARV") for width, each in runs.items()}
    bands[f"width {settings.tied}, tied"] = tied.over("ARV")
    report.figures["mnist-sweep-bands"] = draw_bands(bands, plan.epochs, "ARV")
    return report


def plan_of(images: Images, settings: Settings, seed: int) -> Plan:
    """The data as rows of pixels from 0 to 1, the squares, and the training of the authors."""
    x, y = images.train.flatten(1)[: settings.images], images.train_labels[: settings.images]
    test = images.test.flatten(1)
    points = {
        "train": chosen(x, settings.points, seed=seed),
        "test": chosen(test, settings.points, seed=seed),
        "random": uniform(images.train, settings.random, seed=seed).flatten(1),
    }
    return Plan(
        data=(x, y),
        test=(test, images.test_labels),
        training=Training(settings.epochs[-1], batch=settings.batch, constant=True),
        squares=Squares.around(points, AREA, seed=seed),
        epochs=settings.epochs,
        seeds=settings.seeds,
    )


def tied_mlp(inputs: int, width: int, *, seed: int = 0) -> nn.Sequential:
    """The network of the authors' script, whose hidden layers are one and the same.

    >>> from splinecam_paper.training import parameter_count
    >>> parameter_count(tied_mlp(784, 64)), parameter_count(mlp([784, *[64] * HIDDEN, 10]))
    (55050, 63370)
    """
    with seeded(seed):
        hidden = [nn.Linear(width, width), nn.ReLU()] * (HIDDEN - 1)
        layers = [nn.Linear(inputs, width), nn.ReLU(), *hidden, nn.Linear(width, 10)]
    return nn.Sequential(*layers)


def claims(runs: dict[int, Runs], why: str) -> list[Row]:
    """What the paper says about its figures, beside what was measured."""
    widths, last = list(runs), next(iter(runs.values())).epochs[-1]
    rows = [
        Row(f"test accuracy, width {width}", None, plus_minus(found.accuracies), why)
        for width, found in runs.items()
    ]
    rows += [
        Row(
            f"median ARV around training samples, width {width}, epoch {last}",
            "falls with the width",
            plus_minus(found.each("ARV", "train")[:, -1].median(1).values),
            why,
        )
        for width, found in runs.items()
    ]
    rows.append(
        Row(
            f"squares within one region (ARV = area), epoch {last}",
            "two modes for small widths, one from width 64 on",
            by_width(
                runs, lambda each: (each.over("NR")["train"][-1] == 1).float().mean(), "{:.0%}"
            ),
            why,
        )
    )
    for width in widths:
        found = runs[width]
        train, test = (found.each("ARV", group)[:, -1].quantile(0.05, 1) for group in GROUPS)
        what = f"5 % quantile of ARV, training over test samples, width {width}, epoch {last}"
        paper = "below 1 (tails of training samples)" if width >= 32 else None
        rows.append(Row(what, paper, plus_minus(train / test), why))
    for width in widths:
        mean = runs[width].each("ARV", "train").log().mean(2).exp()  # (seeds, epochs)
        largest = [runs[width].epochs[k] for k in mean.argmax(1).tolist()]
        ours = f"{plus_minus(mean[:, 0])} at the start, {plus_minus(mean.amax(1))} at most (epoch "
        ours += f"{', '.join(map(str, largest))}), {plus_minus(mean[:, -1])} at the end"
        what = f"geometric mean of ARV around training samples, width {width}"
        rows.append(Row(what, "rises at first, then falls slowly", ours, why))
    return rows


def by_width(runs: dict[int, Runs], of: Callable[[Runs], Tensor], form: str) -> str:
    """A number for each width, as text."""
    return ", ".join(f"{width}: {form.format(float(of(each)))}" for width, each in runs.items())


def tied_row(untied: Runs, tied: Runs, width: int, why: str) -> Row:
    """The regions of networks with tied hidden weights beside those of the others."""
    ours = [plus_minus(each.each("NR", "train")[:, -1].mean(1)) for each in (tied, untied)]
    what = f"mean NR around training samples, width {width}, hidden weights tied and untied"
    return Row(what, "tied in the authors' script", " and ".join(ours), why)


def scan(runs: dict[int, Runs], settings: Settings, plan: Plan, setup: Setup) -> Areas:
    """NR at the end of the training by area, width and group, for one network of each width."""
    return {
        area: {
            width: {
                group: columns["NR"]
                for group, columns in plan.squares.resized(area)
                .measure(each.models[0], device=setup.device)
                .items()
            }
            for width, each in runs.items()
        }
        for area in settings.areas
    }


def area_rows(areas: Areas, seed: int) -> list[Row]:
    """The number of regions, and the squares within one region, for each area."""
    why = "one network of each width; the paper names no area"
    rows = []
    for area, by_width in areas.items():
        counts = {width: found["train"] for width, found in by_width.items()}
        mean = ", ".join(f"{width}: {float(nr.mean()):.3g}" for width, nr in counts.items())
        one = ", ".join(
            f"{width}: {float((nr == 1).float().mean()):.0%}" for width, nr in counts.items()
        )
        what = f"training samples, area {area:g}, by width:"
        rows.append(Row(f"{what} mean NR", None, mean, why, seed, area))
        rows.append(Row(f"{what} squares within one region", None, one, why, seed, area))
    return rows


EXPERIMENT = Experiment(
    name="mnist-sweep",
    shows="ARV and NR around samples of MNIST over the training of MLPs of several widths",
    places=("Fig. 14", "Fig. 15"),
    full=Settings(
        widths=(8, 16, 32, 64, 128),
        tied=64,
        epochs=(0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50),
        areas=(0.08, 0.8, 8.0, 80.0),
        images=60_000,
        points=25,
        random=25,
        seeds=3,
        batch=256,
    ),
    quick=Settings((8, 32, 64), 64, (0, 1, 2, 5, 10), (0.8, 80.0), 6000, 10, 10, 1, 128),
    tiny=Settings((4, 8), 8, (0, 1, 2), (8.0,), 200, 3, 2, 1, 50),
    run=run,
    data=("mnist",),
)
