"""Samples on decision boundaries, as images (Fig. 6).

A fully connected network on Fashion-MNIST, in a plane of tops and a trouser, and a convolutional
one on MNIST, in a plane of a 2 and two digits 3, one of which it takes for a 2. The samples lie on
the boundary exactly: in double precision the two outputs agree there up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from splinecam import Domain, Partition, SplineCamError, partition
from splinecam.plot.images import image_grid
from splinecam.results import Boundary
from splinecam_paper.data import Images, load_images
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.training import Training, accuracy, fit, image_cnn, image_mlp, parameter_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN, MEASURED = 16, 1000  # samples on the boundary


@dataclass(frozen=True)
class Case:
    """A network, its data, and the pair of classes whose boundary is sampled.

    mistaken: whether the third image is of the second class and taken for the first one; else it
    is another image of the first class.
    """

    data: str
    network: str
    make: Callable[..., nn.Module]
    pair: tuple[int, int]
    mistaken: bool


CASES = (
    Case("fashion-mnist", "MLP", image_mlp, (0, 1), mistaken=False),
    Case("mnist", "CNN", partial(image_cnn, strided=True), (2, 3), mistaken=True),
)


@dataclass(frozen=True)
class Settings:
    """The training; samples: the number of images to train on; margin: around the three images."""

    training: Training
    samples: int = 60_000
    margin: float = 0.15


@dataclass(frozen=True)
class Found:
    """A trained network's partition in the plane of three images, and its boundary."""

    case: Case
    classes: tuple[str, str]
    part: Partition
    anchors: Tensor
    labels: Tensor
    boundary: Boundary


def run(setup: Setup, settings: Settings) -> Report:
    """Train both networks, find their boundaries, and show samples on them."""
    report, found = Report(), []
    for case in CASES:
        images = load_images(case.data, setup.data, stand_in=setup.quick)
        report.notes.append(f"{case.network}: {images.source}")
        model = case.make(seed=setup.seed)
        data = images.train[: settings.samples], images.train_labels[: settings.samples]
        fit(model, data, settings.training, setup=setup, name=f"boundary-{case.network}")
        anchors, chosen = three_images(model, images, case)
        domain = Domain.through(*anchors, margin=settings.margin)
        watch = Stopwatch()
        with watch("partition"):
            part = partition(model, domain, device=setup.device, progress=False)
        part.names = images.classes
        part.validate(progress=False)
        with watch("boundary"):
            boundary = part.decision_boundary()
        first, second = (images.classes[k] for k in case.pair)
        labels = images.test_labels[chosen["anchors"]]
        found.append(Found(case, (first, second), part, anchors, labels, boundary))
        numbers = {
            "parameters": parameter_count(model),
            "accuracy": accuracy(model, images.test, images.test_labels),
            **chosen,
            **boundary_numbers(boundary, case.pair),
            **gaps(model, part, case.pair, setup.seed),
            "seconds": watch.seconds,
        }
        report.numbers[case.network] = numbers
        report.rows += rows_of(found[-1], numbers, setup, stand_in=images.stand_in)
    report.figures["boundary"] = draw(found, setup.seed)
    return report


# -- the plane ------------------------------------------------------------------------------------


def three_images(model: nn.Module, images: Images, case: Case) -> tuple[Tensor, dict[str, Any]]:
    """The test images that span the plane (3, 1, 28, 28), their numbers and decisions.

    The first two are of the two classes, and decided so with the median lead over all others.
    """
    outputs = outputs_of(model, images.test)
    first, second = case.pair
    a, b = (typical(outputs, images.test_labels, label) for label in case.pair)
    if case.mistaken:
        # The image of the second class which is most surely taken for the first one.
        lead = leads(outputs, first).masked_fill(images.test_labels != second, -torch.inf)
        c = int(lead.argmax())
    else:
        c = typical(outputs, images.test_labels, first, share=0.25)
    anchors = [a, b, c]
    decided = outputs[anchors].argmax(1).tolist()
    return images.test[anchors], {
        "anchors": anchors,
        "labels": [images.classes[k] for k in images.test_labels[anchors].tolist()],
        "decided": [images.classes[k] for k in decided],
    }


def outputs_of(model: nn.Module, images: Tensor) -> Tensor:
    """The outputs for many images, on the CPU, (N, 10)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        return torch.cat([model(part.to(device)).cpu() for part in torch.split(images, 1000)])


def leads(outputs: Tensor, label: int) -> Tensor:
    """By how much the output of a class is above all others, (N,)."""
    others = outputs.clone()
    others[:, label] = -torch.inf
    return outputs[:, label] - others.amax(1)


def typical(outputs: Tensor, labels: Tensor, label: int, *, share: float = 0.5) -> int:
    """The image of a class whose lead is above that of a given share of the class."""
    rows = (labels == label).nonzero()[:, 0]
    if not len(rows):
        raise SplineCamError(f"No test image has the class {label}: give a data set with all ten.")
    order = leads(outputs[rows], label).argsort()
    return int(rows[order[int(share * (len(rows) - 1))]])


# -- the numbers ----------------------------------------------------------------------------------


def boundary_numbers(boundary: Boundary, pair: tuple[int, int]) -> dict[str, Any]:
    """The sizes of the partition and of its boundary."""
    part = boundary.partition
    names = part.names or ()
    return {
        "regions": len(part),
        "area": part.domain.area,
        "boundary_length": boundary.length,
        "pair_length": boundary.between(*pair).length,
        "lengths": {f"{names[i]} | {names[j]}": x for (i, j), x in boundary.pairs().items()},
    }


def gaps(model: nn.Module, part: Partition, pair: tuple[int, int], seed: int) -> dict[str, float]:
    """The largest difference of the two outputs at samples on the boundary, by precision.

    The model is run on the samples in float64 and in float32. For comparison: the median of random
    inputs in the domain, and the largest output. share_of_the_pair: of the samples at which the
    two outputs are the largest.
    """
    i, j = pair
    curve = part.decision_boundary(classes=pair)
    if not len(curve):
        return {}
    generator = torch.Generator().manual_seed(seed)
    found = {}
    x = curve.sample(MEASURED, generator=generator, dtype=torch.float64)
    anywhere = part.sample(MEASURED, generator=generator, dtype=torch.float64)
    for name, points, dtype in (
        ("float64", x, torch.float64),
        ("float32", x, torch.float32),
        ("anywhere", anywhere, torch.float64),
    ):
        copy = deepcopy(model).to(dtype)
        out = outputs_of(copy, points.to(dtype))
        gap = (out[:, i] - out[:, j]).abs()
        found[f"gap_{name}"] = float(gap.median() if name == "anywhere" else gap.max())
        found[f"largest_output_{name}"] = float(out.abs().max())
    two = outputs_of(deepcopy(model).double(), x).topk(2).indices.sort(1).values
    found["share_of_the_pair"] = float((two == torch.tensor([i, j])).all(1).double().mean())
    return found


def rows_of(found: Found, numbers: dict[str, Any], setup: Setup, *, stand_in: bool) -> list[Row]:
    """The rows of one network; the paper prints pictures and no numbers."""
    why = "no, other images" if stand_in else "the paper shows a picture without numbers"
    seconds = numbers["seconds"]
    pair = " | ".join(found.classes)
    third = f"{numbers['labels'][2]} decided as {numbers['decided'][2]}"
    rows: list[tuple[str, float | str, float | None]] = [
        ("accuracy on the test images", numbers["accuracy"], None),
        ("regions", numbers["regions"], seconds["partition"]),
        ("length of the boundary", numbers["boundary_length"], seconds["boundary"]),
        (f"length of {pair}", numbers["pair_length"], None),
        ("third image", third, None),
    ]
    if "gap_float64" in numbers:
        rows += [
            (f"|difference of outputs| on {pair}, float64, largest", numbers["gap_float64"], None),
            (f"|difference of outputs| on {pair}, float32, largest", numbers["gap_float32"], None),
            ("|difference of outputs| in the domain, median", numbers["gap_anywhere"], None),
        ]
    area = numbers["area"]
    return [
        Row(f"{found.case.network}: {what}", None, ours, why, setup.seed, area, took)
        for what, ours, took in rows
    ]


# -- the figure -----------------------------------------------------------------------------------


def draw(found: list[Found], seed: int) -> Figure:
    """Each partition with its boundary, beside samples on the boundary of the pair."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(found), 2, figsize=(9.6, 4.7 * len(found)), layout="constrained"
    )
    for (left, right), each in zip(axes, found, strict=True):
        part, pair = each.part, each.boundary.between(*each.case.pair)
        part.plot(
            ax=left,
            color="white",
            boundary_color="#d62728",
            legend=False,
            points=each.anchors,
            labels=each.labels,
            images=True,
        )
        left.set_title(f"{each.case.network}: {len(part):,} regions, boundary in red", fontsize=10)
        right.set_axis_off()
        if len(pair):
            generator = torch.Generator().manual_seed(seed)
            samples = pair.sample(SHOWN, generator=generator, dtype=torch.float64).cpu()
            image_grid(samples, ax=right, columns=4, limits=(0, 1))
        right.set_title(f"on the boundary {each.classes[0]} | {each.classes[1]}", fontsize=10)
    return figure


EXPERIMENT = Experiment(
    name="boundary",
    shows="decision boundaries in the plane of three images, and samples on them as images",
    places=("Fig. 6",),
    full=Settings(Training(8, batch=256, rate=2e-3)),
    quick=Settings(Training(3, batch=64, rate=2e-3), 6000),
    tiny=Settings(Training(8, batch=32, rate=5e-3), 512, margin=0.0),
    run=run,
    data=("fashion-mnist", "mnist"),
)
