"""Regions around training, test and random points while CNNs of several widths learn CIFAR10.

The paper trains networks of six convolutions and two linear layers for 100 epochs, and shows the
average region volume and the number of regions in squares around 25 training samples, 25 test
samples and 5 random points. Its formula for the filters gives none for the first layer: ours are
those of the authors' script. It names no area; ours is 0.02, in inputs normalised as in the script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

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
from splinecam_paper.training import Training, cifar_cnn, flipped

GROUPS = ("train", "test")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of the authors' script


@dataclass(frozen=True)
class Settings:
    """The networks, their training and the squares.

    filters: of the first layer of each network. epochs: after which regions are counted. images:
    for training. points, random: squares around training and test samples each, and around random
    points. seeds: networks of each size. area: of a square. coarse: how many pixels become one in
    each direction.
    """

    filters: Sequence[int]
    epochs: Sequence[int]
    images: int
    points: int
    random: int
    seeds: int
    area: float = 0.02
    coarse: int = 1


def run(setup: Setup, settings: Settings) -> Report:
    """Train every network, measure the squares, and look at each claim of the paper."""
    images = load_images("cifar10", setup.data, stand_in=setup.quick)
    plan = plan_of(images, settings, setup.seed)
    runs = {
        filters: train_and_measure(
            partial(cifar_cnn, filters), plan, setup=setup, name=f"cifar-cnn-{filters}"
        )
        for filters in settings.filters
    }
    square = plan.squares.groups["train"][0]
    model = runs[settings.filters[0]].models[0]
    partition(model, square, device=setup.device, progress=False).validate(progress=False)

    used = len(plan.data[0])
    report = Report(notes=[images.source])
    report.notes.append(
        f"Every network is trained on {used:,} images for {plan.epochs[-1]} epochs."
    )
    why = why_of(settings.seeds, stand_in=images.stand_in)
    rows = [replace(row, comparable=why) for row in claims(runs)]
    report.rows = [replace(row, seed=setup.seed, area=settings.area) for row in rows]
    report.numbers = {f"CNN x{filters}": found.numbers() for filters, found in runs.items()}
    volumes = {f"CNN x{filters}": found.over("ARV") for filters, found in runs.items()}
    counts = {f"CNN x{filters}": found.over("NR") for filters, found in runs.items()}
    report.figures = {
        "cifar-sweep": draw_bands(volumes, plan.epochs, "ARV"),
        "cifar-sweep-volumes": draw_distributions(volumes, plan.epochs, "ARV", GROUPS),
        "cifar-sweep-regions": draw_distributions(counts, plan.epochs, "NR", GROUPS),
    }
    return report


def plan_of(images: Images, settings: Settings, seed: int) -> Plan:
    """The data, normalised as in the authors' script, the squares, and their training."""
    x = normalised(images.train[: settings.images], settings.coarse)
    test = normalised(images.test, settings.coarse)
    points = {
        "train": chosen(x, settings.points, seed=seed),
        "test": chosen(test, settings.points, seed=seed),
        "random": uniform(x, settings.random, seed=seed),
    }
    return Plan(
        data=(x, images.train_labels[: settings.images]),
        test=(test, images.test_labels),
        training=Training(settings.epochs[-1], batch=128, constant=True),
        squares=Squares.around(points, settings.area, seed=seed),
        epochs=settings.epochs,
        seeds=settings.seeds,
        augment=flipped,
    )


def normalised(x: Tensor, coarse: int) -> Tensor:
    """Images with mean 0 and deviation 1 in each channel, of fewer pixels if asked for."""
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (avg_pool2d(x, coarse) - mean) / std


def claims(runs: dict[int, Runs]) -> list[Row]:
    """What the paper says about its figures, beside what was measured."""
    last = next(iter(runs.values())).epochs[-1]
    rows = []
    for filters, found in runs.items():
        rows.append(Row(f"test accuracy, CNN x{filters}", None, plus_minus(found.accuracies), ""))
    for filters, found in runs.items():
        ours = plus_minus(found.each("ARV", "train")[:, -1].mean(1))
        what = f"mean ARV around training samples, CNN x{filters}, epoch {last}"
        rows.append(Row(what, "falls with the width", ours, ""))
    for group, paper in (
        ("train", "falls, for most networks after every epoch"),
        ("test", "falls"),
        ("random", "falls, much for CNN x8, little for CNN x32"),
    ):
        for filters, found in runs.items():
            mean = found.each("ARV", group).mean(2)  # (seeds, epochs)
            steps = float((mean.diff(dim=1) < 0).float().mean())
            ours = f"{plus_minus(mean[:, -1] / mean[:, 0])}; falls in {steps:.0%} of the steps"
            what = f"mean ARV around {group} points, end over start, CNN x{filters}"
            rows.append(Row(what, paper, ours, ""))
    for filters, found in runs.items():
        off, on = (found.each("ARV", group)[:, -1].mean(1) for group in ("random", "train"))
        what = f"mean ARV around random over that around training points, CNN x{filters}"
        rows.append(Row(f"{what}, epoch {last}", "above 1", plus_minus(off / on), ""))
    for filters, found in runs.items():
        train, test = (found.each("ARV", group)[:, -1].quantile(0.05, 1) for group in GROUPS)
        what = f"5 % quantile of ARV, training over test samples, CNN x{filters}, epoch {last}"
        paper = "below 1 (tails of training samples)"
        rows.append(Row(what, paper, plus_minus(train / test), ""))
    return rows


EXPERIMENT = Experiment(
    name="cifar-sweep",
    shows="ARV and NR around samples of CIFAR10 over the training of CNNs of several widths",
    places=("Fig. 12", "Fig. 16", "Fig. 17"),
    full=Settings((8, 16, 32), (0, 1, 2, 5, 10, 20, 50, 100), 20_000, 25, 5, 3),
    quick=Settings((4, 8), (0, 1, 2, 6), 3000, 5, 5, 1, coarse=2),
    tiny=Settings((2, 3), (0, 1, 2), 150, 2, 2, 1, coarse=4),
    run=run,
    data=("cifar10",),
)
