"""An image as a function of the place, learnt with and without periodic encoding, layer by layer.

A ReLU network of width 10 and depth 5 takes the coordinates of a pixel and gives its grey value.
With an encoding, it sees sines and cosines of the coordinates instead. Here these are piecewise
linear with five pieces per period, so that the partition is exact; a network with true sines
is trained beside it, to see what the pieces cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from splinecam import Domain, Partition, partition
from splinecam.nn import PeriodicEncoding
from splinecam.plot import INK, plot_bands
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

PIECES = 5  # per period of the sine, as in the paper
AREA = 4.0
KINDS = {"encoded": "with encoding", "plain": "without encoding", "sine": "with true sines"}


@dataclass(frozen=True)
class Settings:
    """The networks, the photo and its side in pixels, the training, and the number of seeds.

    frequencies: of the encoding, each twice the one before.
    """

    width: int
    depth: int
    frequencies: int
    photo: str
    side: int
    training: Training
    seeds: int


class SineEncoding(nn.Module):
    """The encoding of ``PeriodicEncoding``, with true sines and cosines.

    >>> x = torch.tensor([[0.0, 0.5]])  # where both encodings agree: at knots of four pieces
    >>> torch.allclose(SineEncoding(2)(x), PeriodicEncoding(2, 4)(x), atol=1e-6)
    True
    """

    def __init__(self, n_frequencies: int) -> None:
        super().__init__()
        self.n_frequencies = n_frequencies

    def forward(self, x: Tensor) -> Tensor:
        """The encoding (..., d (1 + 2 L)) of points (..., d)."""
        angles = [torch.pi * 2**k * x for k in range(self.n_frequencies)]
        waves = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
        return torch.cat([x, *waves], -1)


def network(kind: str, settings: Settings, seed: int) -> nn.Sequential:
    """A ReLU network of places, which sees them as they are, or encoded."""
    inputs = 2 if kind == "plain" else 2 + 4 * settings.frequencies
    hidden = mlp([inputs, *[settings.width] * settings.depth, 1], seed=seed)
    if kind == "plain":
        return hidden
    sine = kind == "sine"
    encoding = SineEncoding if sine else lambda count: PeriodicEncoding(count, PIECES)
    return nn.Sequential(encoding(settings.frequencies), *hidden)


def run(setup: Setup, settings: Settings) -> Report:
    """Train the networks of all seeds, and measure and draw their partitions."""
    photo = load_photo(settings.photo, setup.data, size=settings.side, stand_in=setup.quick)
    report = Report(notes=[photo.source])
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    drawn: dict[str, Partition] = {}
    with setup.bar(settings.seeds, "seeds") as bar:
        for seed in range(setup.seed, setup.seed + settings.seeds):
            for kind, rows in found.items():
                model = network(kind, settings, seed)
                before = {} if kind == "sine" else measure(model, settings.depth, setup)[1]
                curve = train(model, photo, replace(setup, seed=seed), settings, kind)
                rows.append({"seed": seed, "psnr": curve[settings.training.epochs], "over": curve})
                if kind != "sine":
                    part, measured = measure(model, settings.depth, setup)
                    rows[-1] |= {**measured, "before_training": before}
                    drawn.setdefault(kind, part)
            bar.update()
    for part in drawn.values():
        part.validate(progress=False)
    report.rows = table(found, settings, photo)
    report.numbers = {"photo": photo.source, **found}
    report.figures["inr"] = draw_layers(photo, drawn, found)
    report.figures["inr-convergence"] = draw_convergence(found)
    return report


def train(
    model: nn.Module, photo: Photo, setup: Setup, settings: Settings, kind: str
) -> dict[int, float]:
    """Fit a network to the photo, and return its PSNR over the epochs."""
    places, grey = pixel_places(settings.side), photo.values.reshape(-1)
    epochs = settings.training.epochs
    return fit(
        model,
        (places, grey[:, None]),
        settings.training,
        setup=setup,
        name=f"inr-{kind}-{setup.seed}",
        loss=mse_loss,
        record=lambda _, model: psnr(outputs(model, places), grey),
        record_after={round(epochs * k / 20) for k in range(21)},
    )


def measure(model: nn.Module, depth: int, setup: Setup) -> tuple[Partition, dict[str, Any]]:
    """The partition of the image, its regions after each layer, and the units that cut it."""
    watch = Stopwatch()
    with watch("partition"):
        part = partition(model, Domain.box(-1, 1), device=setup.device, progress=False)
    fixed = part.fixed_units()
    relus = part.layers[-depth:]
    return part, {
        "regions": len(part),
        "regions_by_layer": list(part.counts().cells_by_layer.values()),
        "cutting_units": [int((fixed[name] == -1).sum()) for name in relus],
        "seconds": watch.last,
    }


def table(found: dict[str, list[dict[str, Any]]], settings: Settings, photo: Photo) -> list[Row]:
    """The rows of the table: means over the seeds."""

    def of(kind: str, key: str, place: int | None = None) -> str:
        values = [row[key] if place is None else row[key][place] for row in found[kind]]
        return mean_text(values)

    width, depth = settings.width, settings.depth
    small = (width, depth) != (10, 5)
    same = conditions(settings.seeds, small=small, stand_in=photo.stand_in)
    rows = []
    for kind in ("plain", "encoded"):
        for place, paper in ((0, "10"), (depth - 1, "4")):
            what = f"units of layer {place + 1} that cut the image, of {width}, {KINDS[kind]}"
            ours = of(kind, "cutting_units", place)
            rows.append(Row(what, paper if kind == "plain" else None, ours, same, area=AREA))
    for kind, paper in (("plain", "fewer"), ("encoded", "significantly more")):
        seconds = sum(row["seconds"] for row in found[kind]) / settings.seeds
        ours = of(kind, "regions")
        rows.append(Row(f"regions {KINDS[kind]}", paper, ours, same, None, AREA, seconds))
    encoding = "of them, those of the encoding alone"
    rows.append(Row(encoding, None, of("encoded", "regions_by_layer", 0), same, area=AREA))
    for place in (0, depth - 1):
        starts = [row["before_training"]["cutting_units"][place] for row in found["plain"]]
        what = f"units of layer {place + 1} that cut the image before training, without encoding"
        rows.append(Row(what, None, mean_text(starts), same, area=AREA))
    claims = {"plain": "worse", "encoded": "better", "sine": "negligible difference"}
    for kind, paper in claims.items():
        rows.append(Row(f"PSNR {KINDS[kind]}, dB", paper, of(kind, "psnr"), same))
    return rows


def draw_layers(
    photo: Photo, drawn: dict[str, Partition], found: dict[str, list[dict[str, Any]]]
) -> Figure:
    """A row for each network: the photo, the lines of each layer, and the learnt image."""
    import matplotlib.pyplot as plt

    depth = len(found["plain"][0]["cutting_units"])
    figure = plt.figure(figsize=(2 * (depth + 2), 4.8), layout="constrained")
    axes = figure.subplots(2, depth + 2, squeeze=False)
    for row, (kind, part) in zip(axes, drawn.items(), strict=True):
        measured = found[kind][0]
        show_image(row[0], photo.values, "photo")
        row[0].set_ylabel(KINDS[kind])
        names = part.layers[-depth:]
        counts = measured["regions_by_layer"][-depth:]
        for k, (ax, name) in enumerate(zip(row[1:-1], names, strict=True)):
            curves = part.neurons(layer=name)
            curves.plot(ax=ax, color=INK, linewidth=0.5)
            curves.longest().plot(ax=ax, color=RED, linewidth=1.4)
            ax.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", xticks=[], yticks=[])
            units = f"{measured['cutting_units'][k]} units, {counts[k]:,} regions"
            ax.set_title(f"layer {k + 1}\n{units}", size=9)
        side = 2 * photo.values.shape[0]
        image = outputs(part.model, pixel_places(side)).view(side, side)
        show_image(row[-1], image, f"learnt, {measured['psnr']:.1f} dB")
        for ax in (row[0], row[-1]):
            ax.title.set_size(9)
    return figure


def draw_convergence(found: dict[str, list[dict[str, Any]]]) -> Figure:
    """PSNR over the epochs: the mean of the seeds, with a band."""
    epochs = list(found["plain"][0]["over"])
    values = {
        KINDS[kind]: torch.tensor([[row["over"][epoch] for row in rows] for epoch in epochs])
        for kind, rows in found.items()
    }
    ax = plot_bands(epochs, values, band="points", log=False, xlabel="epochs", ylabel="PSNR, dB")
    return cast("Figure", ax.figure)


def _settings(side: int, epochs: int, seeds: int, batch: int = 4096) -> Settings:
    """Settings with the network of the paper."""
    return Settings(10, 5, 4, "camera", side, Training(epochs, batch, rate=5e-3), seeds)


EXPERIMENT = Experiment(
    name="inr",
    shows="a photo learnt with and without periodic encoding, layer by layer",
    places=("Fig. 4", "Sec. 3.2"),
    full=_settings(256, 600, 5, batch=8192),
    quick=_settings(128, 120, 3),
    tiny=replace(_settings(16, 2, 1), depth=2, frequencies=1),
    run=run,
    data=("photo",),
)
