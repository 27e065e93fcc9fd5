"""VGG11 and VGG16 trained with and without data augmentation: regions around test samples.

The paper compares average region volume, number of regions and eccentricity in squares around 90
test samples of TinyImageNet. With augmentation its VGG11 has many more regions around test samples;
for VGG16 the difference is smaller, and there are more regions altogether.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from splinecam import partition
from splinecam_paper.data import Images
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.neighbourhoods import Squares, chosen, draw_densities, plus_minus
from splinecam_paper.training import Training
from splinecam_paper.vgg import VggSettings, tiny_imagenet, trained_vgg

DEPTHS = (11, 16)
TRAININGS = {False: "no augmentation", True: "augmentation"}
STATISTICS = ("ARV", "NR", "ARE")
AREA = 0.001  # the paper names none for this figure
PAPER_ACCURACY = "51 % of 200 classes"  # Fig. 8, with augmentation
PAPER_SECONDS = 7 * 60.0  # for a sample and VGG11, in the section on data augmentation


@dataclass(frozen=True)
class Settings:
    """The networks, the number of test samples, networks of each kind, and area of a square."""

    networks: VggSettings
    samples: int
    seeds: int
    area: float = AREA


@dataclass(frozen=True)
class Found:
    """What was measured of the networks of one depth and training, for each seed.

    statistics: by name, (seeds, samples); seconds: for one sample.
    """

    statistics: dict[str, Tensor]
    accuracies: list[float]
    seconds: float


def run(setup: Setup, settings: Settings) -> Report:
    """Train the networks of both depths, and compare the statistics of the same squares."""
    images = tiny_imagenet(setup, settings.networks)
    samples = {"test": chosen(images.test, settings.samples, seed=setup.seed)}
    squares = Squares.around(samples, settings.area, seed=setup.seed)
    found = {
        (depth, augment): measure(depth, images, squares, settings, augment=augment, setup=setup)
        for depth in DEPTHS
        for augment in TRAININGS
    }
    report = Report(notes=notes(images, settings))
    report.rows = rows_of(found, images, settings.seeds)
    report.rows = [replace(row, seed=setup.seed, area=settings.area) for row in report.rows]
    report.numbers = {
        f"VGG{depth}, {TRAININGS[augment]}": {
            "accuracy": each.accuracies,
            "seconds a sample": each.seconds,
            **each.statistics,
        }
        for (depth, augment), each in found.items()
    }
    panels: dict[str, dict[str, dict[str, Tensor]]] = {
        f"VGG{depth}": {
            name: {
                label: found[depth, augment].statistics[name].flatten()
                for augment, label in TRAININGS.items()
            }
            for name in STATISTICS
        }
        for depth in DEPTHS
    }
    report.figures["augmentation"] = draw_densities(panels)
    return report


def measure(
    depth: int,
    images: Images,
    squares: Squares,
    settings: Settings,
    *,
    augment: bool,
    setup: Setup,
) -> Found:
    """Train a network for each seed, and measure the squares."""
    watch = Stopwatch()
    rows: list[dict[str, Tensor]] = []
    accuracies: list[float] = []
    for seed in range(setup.seed, setup.seed + settings.seeds):
        own = replace(setup, seed=seed)
        model, right = trained_vgg(depth, images, settings.networks, setup=own, augment=augment)
        if not rows:  # also loads what the device needs, before the time is taken
            square = squares.groups["test"][0]
            part = partition(model, square, device=setup.device, progress=False)
            part.validate(progress=False)
        with watch("squares"):
            rows.append(squares.measure(model, device=setup.device)["test"])
        setup.tell(f"VGG{depth}, {TRAININGS[augment]}: {int(rows[-1]['NR'].sum()):,} regions")
        accuracies.append(right)
    statistics = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return Found(statistics, accuracies, watch.last / (settings.seeds * settings.samples))


def rows_of(found: dict[tuple[int, bool], Found], images: Images, seeds: int) -> list[Row]:
    """Accuracies, times, and the ratio of each statistic with augmentation to that without."""
    data = "other data" if images.stand_in else f"{len(images.classes)} classes"
    why = f"no: {data}, and no weights of ImageNet"
    curves = f"the paper shows densities; ours are from scratch, on {data}, of {seeds} seed"
    curves += "s" * (seeds > 1)
    rows = []
    for (depth, augment), each in found.items():
        what = f"test accuracy of VGG{depth}, {TRAININGS[augment]}"
        paper = PAPER_ACCURACY if augment else None
        rows.append(Row(what, paper, plus_minus(each.accuracies), why))
    for (depth, augment), each in found.items():
        what = f"seconds for a sample of VGG{depth}, {TRAININGS[augment]}"
        paper_seconds = PAPER_SECONDS if depth == 11 else None
        machine = f"another machine; {each.statistics['NR'].mean():,.0f} regions a sample"
        rows.append(Row(what, paper_seconds, each.seconds, machine, seconds=each.seconds))
    for (depth, augment), each in found.items():
        for name in STATISTICS:
            mean = each.statistics[name].log().mean(1).exp()
            what = f"{name} of VGG{depth}, {TRAININGS[augment]}, geometric mean over samples"
            rows.append(Row(what, None, plus_minus(mean), curves))
    says: dict[tuple[int, str], Any] = {
        (11, "ARV"): "well below 1",
        (11, "NR"): "well above 1",
        (16, "ARV"): "nearer to 1 than for VGG11",
        (16, "NR"): "nearer to 1 than for VGG11",
    }
    for depth in DEPTHS:
        for name in STATISTICS:
            with_, without = (found[depth, k].statistics[name] for k in (True, False))
            ratio = (with_ / without).log().mean(1).exp()
            what = f"{name} with augmentation over that without, VGG{depth}"
            rows.append(Row(what, says.get((depth, name)), plus_minus(ratio), curves))
    dense = [found[depth, False].statistics["NR"].mean(1) for depth in DEPTHS]
    what = "NR of VGG16 over that of VGG11, no augmentation"
    rows.append(Row(what, "above 1", plus_minus(dense[1] / dense[0]), curves))
    return rows


def notes(images: Images, settings: Settings) -> list[str]:
    """What differs from the paper."""
    size = f"{len(images.train):,} training images of {len(images.classes)} classes"
    epochs = settings.networks.training.epochs
    trained = f"The networks are trained from scratch on {size} for {epochs} epochs; the authors "
    trained += "start from weights of ImageNet and train on 100,000 images of 200 classes."
    changes = "Augmentation: mirror images, shifts by up to an eighth of the side, and brightness; "
    changes += "the paper does not say which changes it makes, and the authors' script has none."
    return [images.source, trained, changes]


EXPERIMENT = Experiment(
    name="augmentation",
    shows="ARV, NR and ARE around test samples of VGG11 and VGG16 with and without augmentation",
    places=("Fig. 8",),
    full=Settings(VggSettings(), samples=90, seeds=3),
    quick=Settings(
        VggSettings(Training(4, batch=64), 16, 1 / 16, 1200), samples=8, seeds=1, area=0.5
    ),
    tiny=Settings(VggSettings(Training(1, batch=50), 8, 1 / 64, 100), samples=2, seeds=1, area=2.0),
    run=run,
    data=("tinyimagenet",),
)
