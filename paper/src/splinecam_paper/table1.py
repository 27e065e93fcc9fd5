"""Regions of fully connected and convolutional networks with about as many parameters (Table 1).

Each network is trained on MNIST or Fashion-MNIST. Squares of growing area around the centre of
three test images, in their plane, are the same for all networks of a data set and seed; the paper
prints neither its squares nor its convolutional network. Two networks with the printed number of
parameters stand for the latter: convolutions with strides, and convolutions with pooling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from splinecam import DataError, Domain, Partition, partition
from splinecam.plot.palette import CLASSES, INK
from splinecam.questions.measures import shapes
from splinecam_paper.data import Images, load_images
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch, summary
from splinecam_paper.training import Training, accuracy, fit, image_cnn, image_mlp, parameter_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "MLP": image_mlp,
    "CONV, strided": partial(image_cnn, strided=True),
    "CONV, pooled": partial(image_cnn, strided=False),
}
CONVOLUTIONAL = tuple(NETWORKS)[1:]
PLANES = {"mnist": (2, 3, 3), "fashion-mnist": (0, 1, 0)}  # classes of the images, as in Fig. 6
CALLED = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}

# What Table 1 prints, by data set and kind of network.
PAPER = {
    ("mnist", "MLP"): {"NR": 318, "ARV": 3.144e-4, "ANV": 4, "ARE": 102e7},
    ("mnist", "CONV"): {"NR": 8814, "ARV": 1.134e-5, "ANV": 4, "ARE": 17e7},
    ("fashion-mnist", "MLP"): {"NR": 1364, "ARV": 4.991e-4, "ANV": 4, "ARE": 36e7},
    ("fashion-mnist", "CONV"): {"NR": 28222, "ARV": 3.54e-5, "ANV": 4, "ARE": 14e7},
}
ECCENTRICITIES = [printed["ARE"] for printed in PAPER.values()]
# The numbers whose ratio between CONV and MLP is compared, and what the paper calls them.
COMPARED = {"NR": "NR", "ARE": "ARE", "ARE float32": "ARE", "ARE repeated": "ARE"}
AREAS = {"mnist": 0.1, "fashion-mnist": 1.0}  # NR x ARV of all its rows but one
FLOOR = 1e-10  # the authors' code adds it to the smallest distance of two vertices

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How many networks, and which squares.

    seeds: networks of each kind. areas: of the squares, ascending; those that would have more than
    ``most`` regions are left out. pictured: the area of the squares in the picture. samples: the
    number of images to train on, from the first.
    """

    seeds: int
    areas: Sequence[float]
    most: int
    pictured: float
    training: Training
    samples: int = 60_000


def run(setup: Setup, settings: Settings) -> Report:
    """Train the networks, scan the areas, and compare with Table 1."""
    report, records, pictures = Report(), [], {}
    stand_ins = {}
    with setup.bar(len(PLANES) * settings.seeds * len(NETWORKS), "networks") as bar:
        for name in PLANES:
            images = load_images(name, setup.data, stand_in=setup.quick)
            stand_ins[name] = images.stand_in
            report.notes.append(f"{CALLED[name]}: {images.source}")
            for seed, kind in product(range(settings.seeds), NETWORKS):
                here = replace(setup, seed=setup.seed + seed)
                model, record = trained(images, kind, here, settings)
                square = unit_square(three_images(images, here.seed))
                records += [record | each for each in scan(model, square, here, settings)]
                if seed == 0:
                    shown = square.zoom(settings.pictured**-0.5)
                    part = partition(model, shown, device=setup.device, progress=False)
                    pictures[name, kind] = part
                    part.validate(progress=False)
                bar.update()
    report.numbers = {"networks": records}
    for name in PLANES:
        mine = [each for each in records if each["data"] == name]
        report.rows += rows_of(name, mine, stand_in=stand_ins[name])
        report.notes.append(f"{CALLED[name]}: {accuracies(mine)}")
    report.notes += [" ".join(note.format(seeds=settings.seeds).split()) for note in NOTES]
    report.figures["table1"] = draw_scan(records)
    report.figures["table1-regions"] = draw_regions(pictures)
    return report


NOTES = (
    """Ours are means ± standard deviations over {seeds} seeds; a seed chooses the weights, the
    order of the training images, and the three test images of the plane.""",
    """The paper's area is NR x ARV. ARE is for the scanned area at which a network has about as
    many regions as the paper's, and ratios are for that of the MLP, or the nearest that was scanned
    for both networks.""",
    """A row with a vertex repeated has ARE = mean diameter / 1e-10: a polygon that ends with its
    first vertex has two vertices at distance 0, to which the authors' code adds 1e-10. It is
    computed for the ARV that the paper prints, as diameters grow with the root of the areas.""",
    """In general position a vertex inside a domain with four corners has four edges, and a vertex
    on its sides three; by Euler's formula ANV is then 4 for every network.""",
)


# -- measuring ------------------------------------------------------------------------------------


def trained(
    images: Images, kind: str, setup: Setup, settings: Settings
) -> tuple[nn.Module, Record]:
    """A trained network, with what is known of it."""
    model = NETWORKS[kind](seed=setup.seed)
    data = images.train[: settings.samples], images.train_labels[: settings.samples]
    name = f"table1-{images.name}-{kind.replace(', ', '-')}-{setup.seed}"
    watch = Stopwatch()
    with watch("training"):
        fit(model, data, settings.training, setup=setup, name=name)
    return model, {
        "data": images.name,
        "network": kind,
        "seed": setup.seed,
        "parameters": parameter_count(model),
        "accuracy": accuracy(model, images.test, images.test_labels),
        "training_seconds": watch.last,
    }


def three_images(images: Images, seed: int) -> Tensor:
    """Three random test images of the classes that span the plane, (3, 1, 28, 28)."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images.test), generator=generator)
    chosen = []
    for place, label in enumerate(PLANES[images.name]):
        rows = order[images.test_labels[order] == label]
        if len(rows) <= place:
            raise DataError(
                f"{len(rows)} of the test images of {images.name} show the class "
                f"{images.classes[label]!r}; the plane needs {place + 1}: give a larger data set."
            )
        chosen.append(rows[place])
    return images.test[torch.stack(chosen)]


def unit_square(samples: Tensor) -> Domain:
    """The square of area 1 around the centre of three samples, in their plane."""
    around = Domain.through(*samples)
    return around.zoom(around.area**0.5, at=around.project(samples)[0].mean(0))


def scan(model: nn.Module, square: Domain, setup: Setup, settings: Settings) -> list[Record]:
    """What is measured on each square, from the smallest to the largest."""
    found: list[Record] = []
    watch = Stopwatch()
    for area in settings.areas:
        if found and found[-1]["NR"] * area / found[-1]["area"] > settings.most:
            break
        with watch(f"{area}"):
            domain = square.zoom(area**-0.5)
            part = partition(model, domain, device=setup.device, progress=False)
        found.append({"area": area, **measure(part), "seconds": watch.last})
    return found


def measure(part: Partition) -> dict[str, float]:
    """NR, ARV and ANV, and the eccentricity as the paper defines it and as it may be computed.

    ARE: the mean of the largest over the smallest distance between two vertices of a region. ARE
    float32: of vertices rounded to single precision. ARE repeated: where the first vertex is
    repeated at the end. elongation: the mean diameter over the root of the mean area.
    """
    exact = shapes(part.mesh)
    diameter = exact.diameter.mean() * part._frame.scale
    rounded = shapes(replace(part.mesh, uv=part.vertices.float().double()))
    area = part.areas.mean()
    return {
        "NR": len(part),
        "ARV": float(area),
        "ANV": float(part.mesh.counts().double().mean()),
        "ARE": float(exact.eccentricity.mean()),
        "median eccentricity": float(exact.eccentricity.median()),
        "ARE float32": float((rounded.diameter / (rounded.nearest + FLOOR)).mean()),
        "coincident float32": int((rounded.nearest == 0).sum()),
        "ARE repeated": float(diameter / FLOOR),
        "elongation": float(diameter / area.sqrt()),
    }


# -- the table ------------------------------------------------------------------------------------


def rows_of(name: str, records: list[Record], *, stand_in: bool) -> list[Row]:
    """The rows of one data set: each network beside Table 1, and then CONV over MLP."""
    curves = {kind: [each for each in records if each["network"] == kind] for kind in NETWORKS}
    rows: list[Row] = []

    def add(what: str, paper: Any, ours: float | str, why: str, here: list[Record]) -> None:
        why = "no, other images" if stand_in else why
        seconds = float(np.mean([each["seconds"] for each in here])) if here else None
        area = here[0]["area"] if here else None
        rows.append(Row(f"{CALLED[name]}, {what}", paper, ours, why, None, area, seconds))

    for kind, mine in curves.items():
        printed = PAPER[name, kind.partition(",")[0]]
        other = "another plane" if kind == "MLP" else "another plane and network"
        small = nearest_area(mine, AREAS[name])
        add(f"{kind}: NR, the paper's area", printed["NR"], mean_text(small, "NR"), other, small)
        wanted, clipped = area_with(printed["NR"], mine)
        add(f"{kind}: area with the paper's NR", AREAS[name], f"{clipped}{wanted:.3g}", other, [])
        here = nearest_area(mine, wanted)
        area = float(f"{printed['NR'] * printed['ARV']:.3g}")
        add(f"{kind}: NR x ARV", area, here[0]["NR"] * here[0]["ARV"], "it is the area", here)
        add(f"{kind}: ARE", printed["ARE"], mean_text(here, "ARE"), "no, see the notes", here)
        scaled = [each["elongation"] * printed["ARV"] ** 0.5 / FLOOR for each in here]
        add(f"{kind}: ARE, vertex repeated", printed["ARE"], spread(scaled), "see the notes", here)
    wanted, _ = area_with(PAPER[name, "MLP"]["NR"], curves["MLP"])
    for kind, key in product(CONVOLUTIONAL, COMPARED):
        printed = {each: PAPER[name, each][COMPARED[key]] for each in ("MLP", "CONV")}
        paper = float(f"{printed['CONV'] / printed['MLP']:.3g}")
        above = nearest_area(curves[kind], wanted)
        below = nearest_area(curves["MLP"], above[0]["area"])
        ours = [b[key] / a[key] for a, b in zip(below, above, strict=True)]
        same = sum((each > 1) == (paper > 1) for each in ours)
        verdict = f"the paper's direction in {same} of {len(ours)} seeds"
        add(f"{kind} / MLP: {key}", paper, spread(ours), verdict, above)
    low, high = min(ECCENTRICITIES), max(ECCENTRICITIES)
    largest = max(each["ARE float32"] for each in records)
    verdict = "no, too small" if largest < low else "of the paper's size"
    add("ARE float32, largest of all", f"{low:.3g} to {high:.3g}", largest, verdict, [])
    corners = [each["ANV"] for each in records]
    add("ANV, least and largest of all", 4, f"{min(corners):g} and {max(corners):g}", "yes", [])
    return rows


def nearest_area(records: list[Record], wanted: float) -> list[Record]:
    """The records of the area nearest to a wanted one among those of all seeds, one for each."""
    count = Counter(each["area"] for each in records)
    areas = [area for area, number in count.items() if number == max(count.values())]
    nearest = min(areas, key=lambda area: abs(np.log(area / wanted)))
    return [each for each in records if each["area"] == nearest]


def accuracies(records: list[Record]) -> str:
    """The accuracy of each kind of network on the test images, in words."""
    first = records[0]["area"]
    found = {
        kind: mean_text(
            [r for r in records if (r["network"], r["area"]) == (kind, first)], "accuracy"
        )
        for kind in NETWORKS
    }
    return "accuracy " + "; ".join(f"{kind} {text}" for kind, text in found.items()) + "."


def area_with(regions: float, records: list[Record]) -> tuple[float, str]:
    """The area at which the mean number of regions is the given one, between scanned areas.

    If there is none, the first or the last area, with the word "below " or "above ".

    >>> scanned = [{"area": 1.0, "NR": 10}, {"area": 100.0, "NR": 1000}]
    >>> area_with(5, scanned), area_with(5000, scanned)
    ((1.0, 'below '), (100.0, 'above '))
    """
    areas = sorted({each["area"] for each in records})
    counts = [np.mean([each["NR"] for each in records if each["area"] == x]) for x in areas]
    if regions < counts[0]:
        return areas[0], "below "
    if regions > counts[-1]:
        return areas[-1], "above "
    return float(np.exp(np.interp(np.log(regions), np.log(counts), np.log(areas)))), ""


def mean_text(records: list[Record], key: str) -> str:
    """The mean and the standard deviation of a quantity."""
    return spread([each[key] for each in records])


def spread(values: Sequence[float]) -> str:
    """The mean and the standard deviation of some values.

    >>> spread([1.0, 2.0])
    '1.5 ± 0.5'
    """
    mean, std = summary({"": values})[""].values()
    return f"{mean:,.0f} ± {std:,.0f}" if 1000 <= mean < 1e6 else f"{mean:.4g} ± {std:.2g}"


# -- the figures ----------------------------------------------------------------------------------


def draw_scan(records: list[Record]) -> Figure:
    """NR, ARV and ARE by area for each data set; the paper's numbers are hollow markers."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6.2), layout="constrained", sharex=True)
    for line, (name, row) in enumerate(zip(PLANES, axes, strict=True)):
        mine = [each for each in records if each["data"] == name]
        for ax, keys in zip(row, COLUMNS, strict=True):
            for (kind, color), (key, style) in product(COLORS.items(), keys.items()):
                draw_band(ax, [r for r in mine if r["network"] == kind], key, color, style)
            for kind in ("MLP", "CONV"):
                color = COLORS["MLP" if kind == "MLP" else "CONV, strided"]
                value = PAPER[name, kind][next(iter(keys))]
                ax.plot(AREAS[name], value, "o", mfc="white", mec=color, mew=1.6, ms=7, zorder=5)
            ax.set(xscale="log", yscale="log", title=TITLES[next(iter(keys))] if not line else "")
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.25, lw=0.5)
        row[0].set_ylabel(CALLED[name])
    for ax in axes[1]:
        ax.set_xlabel("area of the square")
    add_legends(axes[0])
    return figure


def draw_band(ax: Any, records: list[Record], key: str, color: str, style: str) -> None:
    """The mean of a quantity by area, and the range of the seeds around it."""
    areas = sorted({each["area"] for each in records})
    values = [[r[key] for r in records if r["area"] == x] for x in areas]
    ax.plot(areas, [np.mean(v) for v in values], style, color=color, lw=1.6)
    low, high = [min(v) for v in values], [max(v) for v in values]
    ax.fill_between(areas, low, high, color=color, alpha=0.18, lw=0)


def add_legends(axes: Any) -> None:
    """Say what colours, markers and dashes mean."""
    from matplotlib.lines import Line2D

    kinds = [Line2D([], [], color=color, label=kind) for kind, color in COLORS.items()]
    paper: dict[str, Any] = {"mfc": "white", "mec": INK, "ls": "", "marker": "o", "mew": 1.6}
    kinds.append(Line2D([], [], label="paper", **paper))
    axes[0].legend(handles=kinds, frameon=False, fontsize=8)
    names = zip(COLUMNS[2].values(), ("exact", "in float32", "vertex repeated"), strict=True)
    dashes = [Line2D([], [], color=INK, ls=style, label=label) for style, label in names]
    axes[2].legend(handles=dashes, frameon=False, fontsize=8, loc="center right")


def draw_regions(parts: dict[tuple[str, str], Partition]) -> Figure:
    """The regions of each network in the same square of a data set."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
    for ax, ((name, kind), part) in zip(axes.flat, parts.items(), strict=True):
        part.plot(ax=ax, color="random", boundary=False, legend=False, linewidth=0.25)
        ax.set_title(f"{CALLED[name]}, {kind}: {len(part):,} regions", fontsize=9)
    return figure


COLORS = dict(zip(NETWORKS, CLASSES, strict=False))
COLUMNS = ({"NR": "-"}, {"ARV": "-"}, {"ARE": "-", "ARE float32": ":", "ARE repeated": "--"})
TITLES = {"NR": "regions (NR)", "ARV": "mean area (ARV)", "ARE": "mean eccentricity (ARE)"}

DECADES = tuple(10.0 ** (k / 2) for k in range(-4, 7))
EXPERIMENT = Experiment(
    name="table1",
    shows="regions of an MLP and a CNN with as many parameters, in squares of growing area",
    places=("Table 1",),
    full=Settings(4, DECADES, 300_000, 1.0, Training(8, batch=256, rate=2e-3)),
    quick=Settings(2, DECADES[::2], 10_000, 0.1, Training(2, batch=64, rate=2e-3), 3000),
    tiny=Settings(1, (0.01, 0.1), 2000, 0.01, Training(1, batch=64), 128),
    run=run,
    data=("mnist", "fashion-mnist"),
)
