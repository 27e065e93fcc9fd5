"""A decision boundary that is moved until a class has the area that one wants.

A classifier of two moons is trained first. Then the exact area of its second class becomes part of
the loss: ``part.differentiable()`` has the gradient of the area with respect to all weights. The
area reaches a quarter of the square, and nearly as many points are classified as before.

Run: python examples/wanted_area.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

DOMAIN = sc.Domain.box(-2, 2)


def moons(count: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2) on two half circles, with noise, and their labels (count,)."""
    label = torch.arange(count) % 2
    angle = math.pi * torch.rand(count)
    side = 1.0 - 2.0 * label
    points = torch.stack([side * (angle.cos() - 0.5), side * (angle.sin() - 0.25)], 1)
    return points + 0.1 * torch.randn(count, 2), label


def train(model: nn.Module, x: Tensor, label: Tensor, share: float | None, steps: int) -> None:
    """Fit the labels; with a share, give the second class this share of the square, too."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), label)
        if share is not None:
            part = sc.partition(model, DOMAIN, progress=False)
            found = part.differentiable().class_areas[1] / DOMAIN.area
            loss = loss + 50 * (found - share).square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(argv: list[str] | None = None) -> None:
    """Train, move the boundary, draw both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--share", type=float, default=0.25, help="of the square that is wanted")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each phase")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    x, label = moons(400)
    model = nn.Sequential(
        *(nn.Linear(2, 16), nn.ReLU()), *(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 2)
    )
    figure, axes = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained")
    for ax, share in zip(axes, (None, options.share), strict=True):
        train(model, x, label, share, options.steps)
        part = sc.partition(model, DOMAIN, names=["first", "second"], progress=False)
        area = float(part.class_regions().areas[1]) / DOMAIN.area
        right = float((model(x).argmax(1) == label).double().mean())
        title = f"{area:.1%} of the square is of the second class, {right:.1%} of the points right"
        print(title)
        part.plot(ax=ax, legend=False, axes="off")
        ax.scatter(*x.T, c=label, s=5, cmap="gray", edgecolors="black", linewidths=0.4, zorder=4)
        ax.set_title(title.replace(", ", ",\n"))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "wanted_area.png"
    figure.savefig(path, dpi=100, bbox_inches="tight")
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
