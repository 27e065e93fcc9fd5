"""The signed distance to the edge of a shape, learnt for a simple and for a convoluted shape.

A photo is cut at a low and at a high grey value into two shapes. A ReLU network of width 256 and
depth 6 learns the distance of each place to the edge of a shape, negative inside: the shape is then
where the network is negative, and its edge is the zero level set, which is exact here. The networks
are the same, and the harder shape gets more regions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import l1_loss

from splinecam import Domain, Partition, partition
from splinecam_paper.data import Photo, load_photo, signed_distance_image
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.fields import (
    RED,
    conditions,
    crowding,
    draw_by_layer,
    mean_text,
    outputs,
    pixel_places,
    show_image,
)
from splinecam_paper.training import Training, fit, mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AREA = 4.0
TASKS = {"easy": 0.01, "hard": 0.5}  # the grey values in the caption of the figure
TEXT = (0.001, 0.05)  # and those in the text of the paper
SHARES = {0.001: 0.1, 0.01: 0.15, 0.05: 0.25, 0.5: 0.6}  # of darker pixels, for stand-ins


@dataclass(frozen=True)
class Settings:
    """The networks, the photo and its side in pixels, the training, and the number of seeds."""

    width: int
    depth: int
    photo: str
    side: int
    training: Training
    seeds: int


def run(setup: Setup, settings: Settings) -> Report:
    """Train a network for each shape and seed, and measure and draw their partitions."""
    photo = load_photo(settings.photo, setup.data, size=settings.side, stand_in=setup.quick)
    report = Report(notes=[f"{photo.source} The image of the paper, of MetFaces, is not at hand."])
    masks = {task: shape_of(photo, grey) for task, grey in TASKS.items()}
    found: dict[str, list[dict[str, Any]]] = {task: [] for task in TASKS}
    drawn: dict[str, Partition] = {}
    with setup.bar(settings.seeds * len(TASKS), "networks") as bar:
        for seed in range(setup.seed, setup.seed + settings.seeds):
            for task, mask in masks.items():
                part, row = measure(task, mask, replace(setup, seed=seed), settings)
                found[task].append(row)
                drawn.setdefault(task, part)
                bar.update()
    for part in drawn.values():
        part.validate(progress=False)
    report.rows = table(found, settings, photo)
    report.numbers = {"photo": photo.source, "thresholds": TASKS, **found}
    report.figures["sdf2d"] = draw(photo, masks, drawn)
    report.figures["sdf2d-by-layer"] = draw_by_layer(drawn["hard"], "hard")
    report.figures["sdf2d-thresholds"] = draw_thresholds(photo)
    return report


def shape_of(photo: Photo, grey: float) -> Tensor:
    """Where the photo is brighter than a grey value, (H, W); a stand-in has a value of its own."""
    if photo.stand_in:
        grey = float(photo.values.quantile(SHARES[grey]))
    return photo.values > grey


def measure(
    task: str, mask: Tensor, setup: Setup, settings: Settings
) -> tuple[Partition, dict[str, Any]]:
    """The partition of a network that has learnt the distance to a shape, and its measures."""
    places, distance = pixel_places(settings.side), signed_distance_image(mask).float().view(-1)
    model = mlp([2, *[settings.width] * settings.depth, 1], seed=setup.seed)
    domain = Domain.box(-1, 1)
    before = len(partition(model, domain, device=setup.device, progress=False))
    name = f"sdf2d-{task}-{setup.seed}"
    data = (places, distance[:, None])
    fit(model, data, settings.training, setup=setup, name=name, loss=l1_loss)
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, domain, device=setup.device, progress=False)
    learnt = outputs(model, places)
    inside, wanted = learnt <= 0, mask.reshape(-1)
    fixed = torch.cat(list(part.fixed_units().values()))
    pixel = 2 / settings.side
    return part, {
        "seed": setup.seed,
        "regions": len(part),
        "regions_before": before,
        "regions_by_layer": list(part.counts().cells_by_layer.values()),
        "cutting_units": int((fixed == -1).sum()),
        "mean_error_in_pixels": float((learnt - distance).abs().mean()) / pixel,
        "overlap": float((inside & wanted).sum() / (inside | wanted).sum()),
        "distance_in_pixels": distances(part, mask),
        "crowding_by_layer": crowding(part, part.level_set(0.0), 4 * pixel),
        "seconds": watch.last,
    }


def edge_places(mask: Tensor) -> Tensor:
    """The middles between neighbouring pixels of which one is in the shape, (N, 2).

    >>> edge_places(torch.tensor([[True, False], [True, True]])).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    places = pixel_places(len(mask)).view(*mask.shape, 2)
    beside = (places[:, 1:] + places[:, :-1]) / 2
    below = (places[1:] + places[:-1]) / 2
    return torch.cat([beside[mask[:, 1:] != mask[:, :-1]], below[mask[1:] != mask[:-1]]])


def distances(part: Partition, mask: Tensor) -> dict[str, float]:
    """How far the learnt zero level set and the true edge are from each other, in pixels.

    Means over both curves: of the learnt curve from the true one, and the other way round; nan if
    the network is zero nowhere.
    """
    learnt, true = part.level_set(0.0), edge_places(mask)
    if not len(learnt):
        return {"learnt_to_true": math.nan, "true_to_learnt": math.nan}
    points = learnt.sample(5000, generator=torch.Generator().manual_seed(0)).cpu()
    nearest = torch.cat([torch.cdist(some, true).amin(1) for some in torch.split(points, 500)])
    back = learnt.nearest(true).distance
    pixel = 2 / len(mask)
    return {
        "learnt_to_true": float(nearest.mean()) / pixel,
        "true_to_learnt": float(back.mean()) / pixel,
    }


def table(found: dict[str, list[dict[str, Any]]], settings: Settings, photo: Photo) -> list[Row]:
    """The rows of the table: means over the seeds."""
    small = (settings.width, settings.depth) != (256, 6)
    same = conditions(settings.seeds, small=small, stand_in=photo.stand_in)
    rows = []

    def add(what: str, paper: Sequence[str | None], values: dict[str, list[Any]]) -> None:
        for said, (task, each) in zip(paper, values.items(), strict=True):
            rows.append(Row(f"{what}, {task}", said, mean_text(each), same, area=AREA))

    def of(key: str) -> dict[str, list[Any]]:
        return {task: [row[key] for row in each] for task, each in found.items()}

    add("regions", ("fewer", "more, finer"), of("regions"))
    pairs = zip(found["easy"], found["hard"], strict=True)
    ratio = [hard["regions"] / easy["regions"] for easy, hard in pairs]
    rows.append(Row("regions, hard by easy", "above 1", mean_text(ratio), same, area=AREA))
    start = mean_text([row["regions_before"] for row in found["easy"]])
    rows.append(Row("regions before training", None, start, same, area=AREA))
    units = settings.width * settings.depth
    add(f"units that cut the image, of {units:,}", ("fewer", "more"), of("cutting_units"))
    add("overlap of the shapes (IoU)", (None, None), of("overlap"))
    for key, what in (
        ("learnt_to_true", "distance of the learnt edge from the true one, pixels"),
        ("true_to_learnt", "distance of the true edge from the learnt one, pixels"),
    ):
        each = {task: [row["distance_in_pixels"][key] for row in found[task]] for task in found}
        add(what, (None, None), each)
    return rows


def draw(photo: Photo, masks: dict[str, Tensor], drawn: dict[str, Partition]) -> Figure:
    """The photo and the distances above, the partitions with their zero level sets below."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9, 8), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(3, 4.4))[:, 0]
    axes = top.subplots(1, 3)
    show_image(axes[0], photo.values, "photo")
    fields = {task: signed_distance_image(mask) for task, mask in masks.items()}
    most = max(float(field.abs().max()) for field in fields.values())
    for ax, (task, field) in zip(axes[1:], fields.items(), strict=True):
        style = {"cmap": "RdBu", "vmin": -most, "vmax": most}
        show_image(ax, field, f"{task}: above {TASKS[task]:g}", **style)
    top.colorbar(axes[2].images[0], ax=axes, shrink=0.8, label="signed distance to the edge")
    for ax, (task, part) in zip(bottom.subplots(1, 2), drawn.items(), strict=True):
        part.plot(ax=ax, color="white", boundary=True, boundary_color=RED, axes="off")
        ax.set_title(f"{task}: {len(part):,} regions")
    return figure


def draw_thresholds(photo: Photo) -> Figure:
    """The shapes by both pairs of grey values in the paper: its caption's and its text's."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 5, figsize=(10, 2.4), layout="constrained")
    show_image(axes[0], photo.values, "photo")
    pairs = {"caption": TASKS.values(), "text": TEXT}
    shown = [(grey, where) for where, pair in pairs.items() for grey in pair]
    for ax, (grey, where) in zip(axes[1:], shown, strict=True):
        show_image(ax, shape_of(photo, grey).float(), f"above {grey:g} ({where})")
    return figure


def _settings(width: int, depth: int, side: int, training: Training, seeds: int) -> Settings:
    """Settings with a photo on a black ground, as the one of the paper is."""
    return Settings(width, depth, "retina", side, training, seeds)


EXPERIMENT = Experiment(
    name="sdf2d",
    shows="the signed distance of an easy and a hard shape, with the zero level set",
    places=("Fig. 5", "Sec. 3.1"),
    full=_settings(256, 6, 256, Training(1500, 16_384, rate=1e-3), 3),
    quick=_settings(64, 4, 96, Training(200, 1024, rate=2e-3), 1),
    tiny=_settings(12, 2, 16, Training(3, 128, rate=2e-3), 1),
    run=run,
    data=("photo",),
)
