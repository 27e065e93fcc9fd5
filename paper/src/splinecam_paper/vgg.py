"""VGG11 around samples of TinyImageNet: time by area, orientations, and lines where classes tie.

The paper measures the time and the average region volume (ARV) of squares of growing area around 10
training samples, the spread of the volumes over 20 orientations of squares around 5 samples, and
shows the partitions around the samples that the network is most certain of, with red lines where
any two classes have equal probability. For a VGG16 it says that 1,000 regions take 7 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from splinecam import Domain, Partition, partition
from splinecam.plot.figures import new_figure, plain_spines
from splinecam.plot.palette import GREY
from splinecam_paper.data import Images, load_images
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.neighbourhoods import Squares, chosen, plus_minus, statistics
from splinecam_paper.training import Training, accuracy, augmented, fit, parameter_count, vgg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- the networks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class VggSettings:
    """Images and networks: the side of images, how many of them, and the factor of widths."""

    training: Training = field(default_factory=lambda: Training(60, batch=128))
    side: int = 64
    factor: float = 1.0
    images: int | None = None


def tiny_imagenet(setup: Setup, settings: VggSettings) -> Images:
    """The images with the side and the number of the settings, in random order."""
    images = load_images("tinyimagenet", setup.data, stand_in=setup.quick)
    order = torch.randperm(len(images.train), generator=torch.Generator().manual_seed(0))
    order = order[: settings.images]
    return replace(
        images,
        train=_resized(images.train[order], settings.side),
        train_labels=images.train_labels[order],
        test=_resized(images.test, settings.side),
    )


def _resized(x: Tensor, side: int) -> Tensor:
    return x if x.shape[-1] == side else adaptive_avg_pool2d(x, side)


def trained_vgg(
    depth: int, images: Images, settings: VggSettings, *, setup: Setup, augment: bool
) -> tuple[nn.Module, float]:
    """A network of 11 or 16 layers trained with the seed of the setup, and its test accuracy.

    The authors start from weights of ImageNet; ours are trained from scratch. Experiments with the
    same settings and the same folder for results share the checkpoints.
    """
    model = vgg(
        depth,
        side=settings.side,
        channels=images.train.shape[1],
        classes=len(images.classes),
        factor=settings.factor,
        seed=setup.seed,
    )
    fit(
        model,
        (images.train, images.train_labels),
        settings.training,
        setup=setup,
        name=f"vgg{depth}{'-augmented' if augment else ''}-{setup.seed}",
        augment=augmented if augment else None,
    )
    return model, accuracy(model, images.test, images.test_labels, batch=250)


def entropy(model: nn.Module, x: Tensor, *, batch: int = 250) -> Tensor:
    """The entropy of the class probabilities of each sample, (N,)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        parts = torch.split(x, batch)
        logits = torch.cat([model(part.to(device)).double().cpu() for part in parts])
    share = logits.softmax(1)
    found: Tensor = -torch.special.xlogy(share, share).sum(1)
    return found


# -- the experiment -------------------------------------------------------------------------------


AREA = 0.005
SMALLER = 10.0  # by how much other squares are smaller, to see what the area does
CERTAIN = 10  # samples of lowest entropy, of which two dense and two sparse ones are shown
# Over 20 orientations around each of 5 samples: the largest standard deviation of the volumes of
# regions in a square, and the standard deviation of ARV (supplement, "Variation of region
# statistics between random orientations").
PAPER_WITHIN = (7.3955e-07, 2.2665e-07, 3.0617e-06, 1.0149e-06, 2.2171e-06)
PAPER_BETWEEN = (5.5993e-08, 7.4666e-09, 1.3462e-07, 3.9948e-08, 1.2935e-07)
PAPER_REGIONS, PAPER_SECONDS = 1000, 7 * 60.0  # VGG16, in the section on the method


@dataclass(frozen=True)
class Settings:
    """The networks and the squares.

    areas: of squares around ``growing`` training samples. samples, orientations: of squares of one
    area in several planes. regions: of the VGG16 whose time is taken. area: of the other squares;
    ties: of those in which classes tie, larger since ten classes tie in fewer places than 200.
    """

    networks: VggSettings
    areas: Sequence[float]
    growing: int
    samples: int
    orientations: int
    regions: int = PAPER_REGIONS
    area: float = AREA
    ties: float = 10 * AREA


def run(setup: Setup, settings: Settings) -> Report:
    """Train a VGG11 and a VGG16, and look at the regions around training samples."""
    images = tiny_imagenet(setup, settings.networks)
    networks, report = settings.networks, Report(notes=[images.source])
    model, right = trained_vgg(11, images, networks, setup=setup, augment=False)
    why = "no: other data" if images.stand_in else "no: ten classes, trained from scratch"
    report.rows.append(Row("test accuracy of VGG11", None, right, why, setup.seed))
    report.numbers = {"accuracy": right}
    warm_up(model, images, settings, setup)

    growth = grow(model, images, settings, setup)
    report.rows += growth_rows(growth, settings, why, setup.seed)
    report.figures["vgg"] = draw_growth(growth, settings.areas)

    turned, small = turn(model, images, settings, setup)
    report.rows += orientation_rows(turned, settings, why, setup.seed)
    report.rows.append(ratio_row(small, settings.area / SMALLER, why, setup.seed))

    parts = certain_parts(model, images, settings, setup)
    ties = [part.decision_boundary(kind="pairwise") for part in parts]
    dense = torch.tensor([float(len(part)) for part in parts])
    lengths = torch.tensor([float(tie.length) for tie in ties])
    report.rows.append(tie_row(dense, lengths, settings, why, setup.seed))
    report.figures["vgg-ties"] = draw_ties(parts, dense)

    report.rows.append(time_row(images, settings, why, setup))
    report.numbers |= {
        "areas": settings.areas,
        **{f"{name} by sample and area": values for name, values in growth.items()},
        **{f"{name} by sample and orientation": values for name, values in turned.items()},
        "NR of certain samples": dense,
        "length of ties of certain samples": lengths,
    }
    return report


def warm_up(model: nn.Module, images: Images, settings: Settings, setup: Setup) -> None:
    """Compute and check one partition, so that no later time includes the start of the device."""
    domain = Domain.around(images.train[0], side=settings.areas[0] ** 0.5, seed=setup.seed)
    part = partition(model, domain, device=setup.device, progress=False)
    part.validate(progress=False)


# -- time and volume by area ----------------------------------------------------------------------


def grow(model: nn.Module, images: Images, settings: Settings, setup: Setup) -> dict[str, Tensor]:
    """Seconds, NR and ARV of squares around training samples, (samples, areas) each."""
    x = {"train": chosen(images.train, settings.growing, seed=setup.seed)}
    squares = [Squares.around(x, area, seed=setup.seed).groups["train"] for area in settings.areas]
    shape = (settings.growing, len(settings.areas))
    found = {name: torch.zeros(shape, dtype=torch.float64) for name in ("seconds", "NR", "ARV")}
    with setup.bar(settings.growing * len(settings.areas), "squares") as bar:
        for k, by_area in enumerate(zip(*squares, strict=True)):
            for j, square in enumerate(by_area):
                watch = Stopwatch()
                with watch("partition"):
                    part = partition(model, square, device=setup.device, progress=False)
                measured = {"seconds": watch.last, **statistics(part)}
                for name, values in found.items():
                    values[k, j] = measured[name]
                bar.update()
    return found


def growth_rows(growth: dict[str, Tensor], settings: Settings, why: str, seed: int) -> list[Row]:
    """Whether time and regions grow along a line, and where ARV rises and falls."""
    rows = []
    areas = torch.tensor(settings.areas, dtype=torch.float64)
    for name, paper in (("seconds", "near 1 (linear)"), ("NR", None)):
        alike = [float(torch.corrcoef(torch.stack([areas, row]))[0, 1]) for row in growth[name]]
        what = f"correlation of area and {name} of VGG11, over samples"
        rows.append(Row(what, paper, plus_minus(alike), why, seed))
    seconds, regions = (float(growth[name][:, -1].mean()) for name in ("seconds", "NR"))
    what = f"seconds of VGG11 for the largest square, {regions:,.0f} regions"
    rows.append(Row(what, None, seconds, "the paper shows curves", seed, settings.areas[-1]))
    rows[-1] = replace(rows[-1], seconds=seconds)
    step = growth["ARV"].diff(dim=1).sign()
    peaks = (step[:, :-1] > 0) & (step[:, 1:] < 0)
    ours = f"{int(peaks.any(1).sum())} of {len(step)} samples"
    rows.append(Row("ARV rises and falls again with the area", "some of 10", ours, why, seed))
    return rows


def draw_growth(growth: dict[str, Tensor], areas: Sequence[float]) -> Figure:
    """Time and ARV by area, a line for each sample."""
    figure = new_figure(figsize=(8, 3.2), layout="constrained")
    labels = {"seconds": "seconds", "ARV": "average region volume (ARV)"}
    for ax, (name, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        ax.plot(areas, growth[name].T.numpy(), linewidth=1.2, marker="o", markersize=2.5)
        ax.set_xlabel("area of the domain", fontsize=9)
        ax.set_ylabel(label, fontsize=9)
        ax.set_ylim(bottom=0)
        plain_spines(ax, GREY)
    return figure


# -- orientations ---------------------------------------------------------------------------------


def turn(
    model: nn.Module, images: Images, settings: Settings, setup: Setup
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """NR, ARV and the deviation of volumes in several planes, (samples, orientations) each.

    Also those of smaller squares in the same planes.
    """
    x = chosen(images.train, settings.samples, seed=setup.seed + 1)
    groups = {
        str(k): point.expand(settings.orientations, *point.shape) for k, point in enumerate(x)
    }
    squares = Squares.around(groups, settings.area, seed=setup.seed)

    def measured(squares: Squares) -> dict[str, Tensor]:
        found = squares.measure(model, device=setup.device)
        names = ("NR", "ARV", "std")
        return {name: torch.stack([found[group][name] for group in groups]) for name in names}

    return measured(squares), measured(squares.resized(settings.area / SMALLER))


def orientation_rows(
    turned: dict[str, Tensor], settings: Settings, why: str, seed: int
) -> list[Row]:
    """The deviations of volumes within squares and of ARV between them, for each sample."""
    within, between = turned["std"].amax(1), turned["ARV"].std(1)
    rows = []
    for what, ours, paper in (
        ("largest deviation of region volumes within a square", within, PAPER_WITHIN),
        ("deviation of ARV between orientations", between, PAPER_BETWEEN),
    ):
        printed, found = (", ".join(f"{x:.3g}" for x in row) for row in (paper, ours.tolist()))
        rows.append(Row(f"{what}, by sample", printed, found, why, seed, settings.area))
    theirs = plus_minus([a / b for a, b in zip(PAPER_WITHIN, PAPER_BETWEEN, strict=True)])
    rows.append(replace(ratio_row(turned, settings.area, why, seed), paper=theirs))
    share = plus_minus(between / turned["ARV"].mean(1))
    what = "deviation of ARV between orientations, relative to its mean"
    rows.append(Row(what, None, share, "the paper does not print ARV", seed, settings.area))
    return rows


def ratio_row(turned: dict[str, Tensor], area: float, why: str, seed: int) -> Row:
    """The deviation within squares over that between them."""
    ratio = plus_minus(turned["std"].amax(1) / turned["ARV"].std(1))
    what = f"the first deviation over the second, with {float(turned['NR'].mean()):,.0f} regions"
    return Row(what, None, ratio, why, seed, area)


# -- ties of classes ------------------------------------------------------------------------------


def certain_parts(
    model: nn.Module, images: Images, settings: Settings, setup: Setup
) -> list[Partition]:
    """The partitions around the training samples of lowest entropy."""
    x = images.train[entropy(model, images.train).argsort()[:CERTAIN]]
    squares = Squares.around({"train": x}, settings.ties, seed=setup.seed).groups["train"]
    return [partition(model, square, device=setup.device, progress=False) for square in squares]


def tie_row(dense: Tensor, lengths: Tensor, settings: Settings, why: str, seed: int) -> Row:
    """Whether squares with more regions have longer lines where two classes tie."""
    order = dense.argsort()
    sparse_two, dense_two = lengths[order[:2]].mean(), lengths[order[-2:]].mean()
    ours = f"{float(dense_two):.3g} and {float(sparse_two):.3g}"
    if lengths.std() > 0 and dense.std() > 0:
        both = torch.corrcoef(torch.stack([dense, lengths]))[0, 1]
        ours += f"; correlation with NR {float(both):.2g}"
    what = "length of ties of two classes, two densest and two sparsest of 10 certain samples"
    return Row(what, "more around dense ones", ours, why, seed, settings.ties)


def draw_ties(parts: list[Partition], dense: Tensor) -> Figure:
    """The two densest and the two sparsest partitions, with red lines where two classes tie."""
    order = dense.argsort(descending=True).tolist()
    figure = new_figure(figsize=(12, 3.3), layout="constrained")
    for ax, k in zip(figure.subplots(1, 4), [*order[:2], *order[-2:]], strict=True):
        part = parts[k]
        thin = min(0.3, 18 / len(part) ** 0.5)  # points
        part.plot(ax=ax, color="none", boundary=False, linewidth=thin, axes="off", colorbar=False)
        part.decision_boundary(kind="pairwise").plot(ax=ax, color="red", linewidth=0.9)
        ax.set_title(f"{len(part):,} regions", fontsize=9)
    return figure


# -- the time of a VGG16 --------------------------------------------------------------------------


def time_row(images: Images, settings: Settings, why: str, setup: Setup) -> Row:
    """The seconds for as many regions of a VGG16 as in the paper, beside its 7 minutes."""
    model, _ = trained_vgg(16, images, settings.networks, setup=setup, augment=False)
    x, area, watch = images.train[0], settings.area, Stopwatch()
    part = partition(model, _square(x, area, setup), device=setup.device, progress=False)
    for _ in range(3):  # the number of regions is about proportional to the area
        area *= settings.regions / len(part)
        watch = Stopwatch()
        with watch("partition"):
            part = partition(model, _square(x, area, setup), device=setup.device, progress=False)
    size = f"{parameter_count(model) / 1e6:.3g} M parameters"
    what = f"seconds of a VGG16 ({size}) for {len(part):,} regions"
    comparable = f"another machine; the paper names 138 M parameters, its code has 16.9 M; {why}"
    return Row(what, PAPER_SECONDS, watch.last, comparable, setup.seed, area, watch.last)


def _square(x: Tensor, area: float, setup: Setup) -> Domain:
    return Domain.around(x, side=area**0.5, seed=setup.seed)


EXPERIMENT = Experiment(
    name="vgg",
    shows="time and ARV by area, spread over orientations and ties of classes of a VGG11",
    places=("Fig. 11", "Fig. 13", "Suppl. D.2", "Sec. 2.2"),
    full=Settings(
        VggSettings(),
        areas=(0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01),
        growing=10,
        samples=5,
        orientations=20,
    ),
    quick=Settings(
        VggSettings(Training(4, batch=64), 16, 1 / 16, 1200),
        areas=(0.1, 0.2, 0.3, 0.4, 0.5),
        growing=5,
        samples=3,
        orientations=5,
        regions=100,
        area=0.5,
        ties=0.5,
    ),
    tiny=Settings(
        VggSettings(Training(1, batch=50), 8, 1 / 64, 100), (1.0, 2.0, 3.0), 2, 2, 2, 3, 2.0, 2.0
    ),
    run=run,
    data=("tinyimagenet",),
)
