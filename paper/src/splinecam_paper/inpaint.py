"""A photo with a square cut out, learnt as a function of the place: where the regions are.

A ReLU network of width 256 and depth 6 learns the grey values of all pixels but those of a square
hole, and fills the hole in smoothly. The paper sees many units in the hole and along the edges of
the foreground. Here their number is measured, beside that of a network that has seen the whole
photo: its regions at the same place are what the hole has to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from splinecam import Domain, Partition, partition
from splinecam._util.arrays import lengths
from splinecam_paper.data import Photo, load_photo
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.fields import (
    RED,
    conditions,
    mean_text,
    outputs,
    pixel_places,
    psnr,
    show_image,
)
from splinecam_paper.training import Training, fit, mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOLE = ((-0.3, 0.0), (0.2, 0.5))  # two corners of the square
EDGES = 0.9  # the share of pixels whose grey values change less than at an edge
RADIUS = 0.03  # of the disks in which regions are counted
NETWORKS = {"hole": "trained without the square", "whole": "trained on the whole photo"}


@dataclass(frozen=True)
class Settings:
    """The networks, the photo and its side in pixels, the training, and the number of seeds.

    points: the number of places around which regions are counted.
    """

    width: int
    depth: int
    photo: str
    side: int
    training: Training
    seeds: int
    points: int = 10_000


def run(setup: Setup, settings: Settings) -> Report:
    """Train with and without the hole for each seed; measure and draw the partitions."""
    photo = load_photo(settings.photo, setup.data, size=settings.side, stand_in=setup.quick)
    report = Report(notes=[f"{photo.source} The image of the paper is not at hand."])
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in NETWORKS}
    drawn: dict[str, Partition] = {}
    with setup.bar(settings.seeds * len(NETWORKS), "networks") as bar:
        for seed in range(setup.seed, setup.seed + settings.seeds):
            for name, rows in found.items():
                part, row = measure(name, photo, replace(setup, seed=seed), settings)
                rows.append(row)
                drawn.setdefault(name, part)
                bar.update()
    drawn["hole"].validate(progress=False)
    report.rows = table(found, settings, photo)
    report.numbers = {"photo": photo.source, "hole": HOLE, **found}
    report.figures["inpaint"] = draw(photo, drawn["hole"], found["hole"][0])
    report.figures["inpaint-whole"] = draw(photo, drawn["whole"], found["whole"][0])
    return report


def in_hole(places: Tensor) -> Tensor:
    """Which places (N, 2) lie in the hole, (N,)."""
    low, high = torch.tensor(HOLE)
    inside: Tensor = ((places > low) & (places < high)).all(1)
    return inside


def at_edges(photo: Photo) -> Tensor:
    """The pixels outside of the hole at which the grey values change most, (H W,)."""
    rows, columns = torch.gradient(photo.values)
    change = torch.hypot(rows, columns).reshape(-1)
    return (change > change.quantile(EDGES)) & ~in_hole(pixel_places(len(photo.values)))


def measure(
    name: str, photo: Photo, setup: Setup, settings: Settings
) -> tuple[Partition, dict[str, Any]]:
    """The partition of a network that has learnt the photo, and where its regions are."""
    places, grey = pixel_places(settings.side), photo.values.reshape(-1)
    hole = in_hole(places)
    known = ~hole if name == "hole" else torch.ones_like(hole)
    model = mlp([2, *[settings.width] * settings.depth, 1], seed=setup.seed)
    data = (places[known], grey[known, None])
    checkpoint = f"inpaint-{name}-{setup.seed}"
    fit(model, data, settings.training, setup=setup, name=checkpoint, loss=mse_loss)
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, Domain.box(-1, 1), device=setup.device, progress=False)
    inner = partition(model, Domain.box(*HOLE), device=setup.device, progress=False)
    learnt = outputs(model, places)
    kinds = {"hole": hole, "edges": at_edges(photo)}
    kinds["elsewhere"] = ~(kinds["hole"] | kinds["edges"])
    return part, {
        "seed": setup.seed,
        "regions": len(part),
        "regions_per_area": len(part) / part.domain.area,
        "regions_per_area_in_hole": len(inner) / inner.domain.area,
        "edge_length_per_area": edge_length(part) / part.domain.area,
        "edge_length_per_area_in_hole": edge_length(inner) / inner.domain.area,
        "density": density_by_place(part, places, kinds, settings.points),
        "psnr": psnr(learnt[known], grey[known]),
        "psnr_in_hole": psnr(learnt[hole], grey[hole]),
        "seconds": watch.last,
    }


def edge_length(part: Partition) -> float:
    """The length of all edges inside the domain."""
    ends = part.vertices[part.mesh.edges[part.mesh.edge_layer >= 0]]
    return float(lengths(ends[:, 1] - ends[:, 0]).sum())


def density_by_place(
    part: Partition, places: Tensor, kinds: dict[str, Tensor], points: int
) -> dict[str, float]:
    """The mean number of regions per area around random places of each kind, by its name."""
    found = {}
    for name, kind in kinds.items():
        some = kind.nonzero()[:, 0]
        order = torch.randperm(len(some), generator=torch.Generator().manual_seed(0))
        chosen = places[some[order[:points]]]
        found[name] = float(part.density(chosen, RADIUS).density.mean())
    return found


def table(found: dict[str, list[dict[str, Any]]], settings: Settings, photo: Photo) -> list[Row]:
    """The rows of the table: means over the seeds."""
    small = (settings.width, settings.depth) != (256, 6)
    same = conditions(settings.seeds, small=small, stand_in=photo.stand_in)
    rows = []

    def add(what: str, paper: str | None, of: Any, name: str, area: float = 4.0) -> None:
        ours = mean_text([of(row) for row in found[name]])
        rows.append(Row(f"{what}, {NETWORKS[name]}", paper, ours, same, area=area))

    square = Domain.box(*HOLE).area
    for name in NETWORKS:
        said = "many" if name == "hole" else None
        add("regions", None, lambda row: row["regions"], name)
        add(
            "regions per area in the square, by those of the image",
            said,
            lambda row: row["regions_per_area_in_hole"] / row["regions_per_area"],
            name,
            square,
        )
        add(
            "length of edges per area in the square, by that of the image",
            said,
            lambda row: row["edge_length_per_area_in_hole"] / row["edge_length_per_area"],
            name,
            square,
        )
        for kind, text in (("hole", "in the square"), ("edges", "at edges of the photo")):
            add(
                f"regions around places {text}, by those elsewhere",
                said,
                lambda row, kind=kind: row["density"][kind] / row["density"]["elsewhere"],
                name,
            )
        add("PSNR on what it has seen, dB", None, lambda row: row["psnr"], name)
    add("PSNR in the square, dB", None, lambda row: row["psnr_in_hole"], "hole", square)
    pairs = zip(found["hole"], found["whole"], strict=True)
    key = "edge_length_per_area_in_hole"
    ratio = mean_text([hole[key] / whole[key] for hole, whole in pairs])
    what = "length of edges in the square, trained without it by trained with it"
    rows.append(Row(what, "above 1, if the hole draws units", ratio, same, area=square))
    return rows


def draw(photo: Photo, part: Partition, row: dict[str, Any]) -> Figure:
    """The photo, the photo with its hole, and the learnt image above; the partition below."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    figure = plt.figure(figsize=(8, 10.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.8, 7.8))[:, 0]
    axes = top.subplots(1, 3)
    side = len(photo.values)
    cut = photo.values.clone()
    cut.view(-1)[in_hole(pixel_places(side))] = 1.0
    learnt = outputs(part.model, pixel_places(side)).view(side, side)
    show_image(axes[0], photo.values, "photo")
    show_image(axes[1], cut, "with the square cut out")
    show_image(axes[2], learnt, f"learnt, {row['psnr']:.1f} dB")
    ax = bottom.subplots()
    part.plot(ax=ax, color="white", boundary=False, axes="off")
    ax.set_title(f"{len(part):,} regions")
    width, height = (high - low for low, high in zip(*HOLE, strict=True))
    for each in (axes[2], ax):
        style: dict[str, Any] = {"fill": False, "edgecolor": RED, "linewidth": 1, "zorder": 4}
        each.add_patch(Rectangle(HOLE[0], width, height, **style))
    return figure


def _settings(width: int, depth: int, side: int, training: Training, seeds: int) -> Settings:
    """Settings with a photo of a dark figure before a bright ground."""
    return Settings(width, depth, "camera", side, training, seeds)


EXPERIMENT = Experiment(
    name="inpaint",
    shows="a photo learnt with a square cut out, and the regions in the hole",
    places=("Fig. 20",),
    full=_settings(256, 6, 256, Training(1500, 16_384, rate=1e-3), 3),
    quick=_settings(64, 4, 96, Training(200, 1024, rate=2e-3), 1),
    tiny=replace(_settings(12, 2, 16, Training(3, 128, rate=2e-3), 1), points=50),
    run=run,
    data=("photo",),
)
