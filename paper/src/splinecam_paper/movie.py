"""Regions and decision boundary of a network while it trains, as a movie.

The paper's web page shows how the regions and the boundary move during training. Here a network
learns to tell two spirals apart; ``splinecam.watch`` records its partition at steps that are spaced
logarithmically, as training is fast at first and slow later, and ``splinecam.movie`` shows them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from splinecam import Domain
from splinecam.training import Run, Watch, log_steps, movie, watch
from splinecam_paper.experiment import Experiment, Report, Row, Setup, Stopwatch
from splinecam_paper.training import mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOMAIN = Domain.box(-1.1, 1.1)
NONE = "the paper gives no numbers"


@dataclass(frozen=True)
class Settings:
    """The training and the movie: units of each layer, points, steps, and frames."""

    width: int = 32
    points: int = 400
    steps: int = 3000
    frames: int = 60


def run(setup: Setup, settings: Settings) -> Report:
    """Train a network, and write the movie and a figure of six moments."""
    x, label = spirals(settings.points, setup.seed)
    timer = Stopwatch()
    with timer("training and partitions"):
        watched = train(x, label, setup, settings)
    recorded = watched.run
    final = recorded[-1].partition
    final.attach(watched.model)
    final.validate(progress=False)
    report = Report(figures={"movie": draw_moments(recorded, x, label)})
    report.figures["movie-curves"] = watched.plot(scalars=("loss", "accuracy", "boundary_length"))
    look: dict[str, Any] = {"color": "class", "points": x, "labels": label}
    lines: dict[str, Any] = {"legend": False, "linewidth": 0.25, "axes": "off", "dpi": 62}
    for kind, picture in (("gif", lines), ("html", {})):
        with timer(kind):
            path = setup.out / f"movie.{kind}"
            setup.out.mkdir(parents=True, exist_ok=True)
            movie(recorded, path, progress=False, **look, **picture)
        report.files.append(path)
    most = max(recorded, key=lambda shot: shot.scalars["num_regions"])
    first, last = recorded[0].scalars, recorded[-1].scalars
    given = (setup.seed, DOMAIN.area)
    report.rows = [
        Row("regions before training", None, int(first["num_regions"]), NONE, *given),
        Row(
            f"most regions, after step {most.step:,}",
            *(None, int(most.scalars["num_regions"]), NONE, *given),
        ),
        Row("regions after training", None, int(last["num_regions"]), NONE, *given),
        Row("length of the boundary", None, last["boundary_length"], NONE, *given),
        Row(
            f"training with {len(recorded)} exact partitions (seconds)",
            *(None, timer.seconds["training and partitions"], NONE, *given),
        ),
    ]
    report.numbers = {
        "steps": [{"step": shot.step, **shot.scalars} for shot in recorded],
        "seconds": timer.seconds,
    }
    return report


def spirals(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2) of two spirals, and which of them each point belongs to, (count,)."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    radius = 0.1 + 0.85 * torch.rand(count, generator=generator).sqrt()
    angle = 2.6 * math.pi * radius + math.pi * label
    x = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return x + 0.015 * torch.randn(count, 2, generator=generator), label


def train(x: Tensor, label: Tensor, setup: Setup, settings: Settings) -> Watch:
    """Train the network, and record its partition at chosen steps."""
    width = settings.width
    model = mlp([2, width, width, width, 1], seed=setup.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.05)
    steps = log_steps(settings.steps, settings.frames)
    watched = watch(model, DOMAIN, every=steps, device=setup.device)

    def scalars() -> dict[str, Any]:
        logit = model(x)[:, 0]
        loss = binary_cross_entropy_with_logits(logit, label.float())
        return {"loss": loss, "accuracy": ((logit > 0) == (label == 1)).float().mean()}

    with setup.bar(settings.steps, "steps") as bar:
        for _ in range(settings.steps):
            found = scalars()
            watched.step(**found)
            optimizer.zero_grad()
            found["loss"].backward()
            optimizer.step()
            bar.update()
    watched.snapshot(**scalars())
    return watched


def draw_moments(recorded: Run, x: Tensor, label: Tensor) -> Figure:
    """Six moments of the training, evenly spaced among the recorded steps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(7.6, 5.5), layout="constrained")
    places = torch.linspace(0, len(recorded) - 1, axes.size).round().long().tolist()
    look: dict[str, Any] = {"color": "class", "axes": "off", "legend": False, "linewidth": 0.3}
    for ax, shot in zip(axes.flat, [recorded[k] for k in places], strict=True):
        shot.partition.plot(ax=ax, boundary_color="red", **look)
        ax.scatter(*x.T, s=3, c=[("#003a5c", "#6b2f00")[k] for k in label.tolist()], linewidths=0)
        regions = int(shot.scalars["num_regions"])
        ax.set_title(f"step {shot.step:,}: {regions:,} regions", fontsize=9)
    return figure


EXPERIMENT = Experiment(
    name="movie",
    shows="regions and boundary of a network of two inputs while it trains, as a movie",
    places=("project page",),
    full=Settings(),
    quick=Settings(steps=1500, frames=30),
    tiny=Settings(width=6, points=60, steps=20, frames=6),
    run=run,
)
