"""A small classifier, its exact partition and a picture: ``python -m splinecam.demo``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from splinecam.domain import Domain
from splinecam.partition import Partition, partition
from splinecam.plot import CLASSES, plot, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["main", "train", "two_spirals"]


def two_spirals(count: int, *, turns: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two interleaved noisy spirals: points ``(count, 2)`` in [-1, 1]^2, labels ``(count,)``."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 2
    radius = 0.1 + 0.82 * torch.rand(count, generator=generator).sqrt()
    angle = 2 * math.pi * turns * radius + math.pi * label
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return points + 0.014 * torch.randn(count, 2, generator=generator), label


def train(
    x: Tensor, label: Tensor, *, width: int = 64, depth: int = 3, steps: int = 800, seed: int = 1
) -> nn.Sequential:
    """A ReLU network with one output whose sign tells the classes of ``x: (N, 2)`` apart."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for k in range(depth):
            layers += [nn.Linear(width if k else 2, width), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], label.float())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def picture(part: Partition, x: Tensor, label: Tensor) -> Figure:
    """Regions, decision boundary and the training points."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 7))
    figure.subplots_adjust(0, 0, 1, 1)
    plot(part, ax=ax)
    uv, _ = part.domain.project(x)
    for k in range(2):
        u, v = uv[label == k].T.numpy()
        ax.scatter(u, v, s=11, c=CLASSES[k], edgecolors="white", linewidths=0.6, zorder=4)
    return figure


def report(part: Partition, seconds: dict[str, float]) -> str:
    """What was found, and how long each step took."""
    times = ", ".join(f"{step} {duration:.2f}" for step, duration in seconds.items())
    return f"{part.stats()}\n\nSeconds: {times}"


def main(argv: Sequence[str] | None = None) -> None:
    """Train, compute the partition, check it, draw it; print a table and the picture's path."""
    parser = argparse.ArgumentParser(prog="python -m splinecam.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dpi", type=int, default=200, help="resolution of the picture")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    options = parser.parse_args(argv)
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    seconds: dict[str, float] = {}
    start = perf_counter()

    def lap(step: str) -> None:
        nonlocal start
        seconds[step], start = perf_counter() - start, perf_counter()

    x, label = two_spirals(600)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the network is too small to share among threads
    model = train(x, label, steps=options.steps)
    torch.set_num_threads(threads)
    lap("training")
    part = partition(model, Domain.box(-1.05, 1.05), device=options.device, progress=False)
    lap("partition")
    part.validate()
    lap("validation")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "demo.png"
    picture(part, x, label).savefig(path, dpi=options.dpi)
    lap("picture")
    print(f"{report(part, seconds)}\n\nThe picture is in {path}")


if __name__ == "__main__":
    main()
