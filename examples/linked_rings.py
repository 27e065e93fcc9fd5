"""Exact surfaces in three dimensions: two linked rings, and the boundaries of three classes.

A network learns the signed distance of two linked rings, and another one to tell three sectors
apart, which turn like a spiral staircase. Each surface is a mesh of flat polygons without gaps, one
polygon in each linear region. So it proves that the first network has learnt two tori, of two
components and two handles, and the volumes of the classes add up to that of the box.

Run: python examples/linked_rings.py --out out
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

BOX = sc.Domain.cube(-1, 1)
COLORS = ("#4477aa", "#ccbb44")


def ring(x: Tensor, centre: float, plane: list[int], axis: int) -> Tensor:
    """The signed distance of points (N, 3) from a torus."""
    x = x - torch.tensor([centre, 0.0, 0.0])
    return torch.stack([x[:, plane].norm(dim=1) - 0.5, x[:, axis]], 1).norm(dim=1) - 0.16


def rings(x: Tensor) -> Tensor:
    """The signed distance of points (N, 3) from two linked rings."""
    return torch.minimum(ring(x, -0.25, [0, 1], 2), ring(x, 0.25, [0, 2], 1))


def spiral(x: Tensor) -> Tensor:
    """Which of three sectors, which turn with the height, points (N, 3) are in."""
    angle = torch.atan2(x[:, 1], x[:, 0]) - 1.5 * x[:, 2]
    return (angle / (2 * math.pi / 3)).floor().long() % 3


def perceptron(*widths: int) -> nn.Sequential:
    """A ReLU network; widths from input to output."""
    layers = [each for a, b in pairwise(widths) for each in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def learn_distance(model: nn.Module, steps: int) -> None:
    """Fit the distance of the rings, mostly near them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    places = 2 * torch.rand(200_000, 3) - 1
    near = places[rings(places).abs() < 0.12]
    for _ in range(steps):
        some = torch.randint(len(near), (1500,))
        x = torch.cat([near[some], 2 * torch.rand(500, 3) - 1])
        loss = (model(x)[:, 0] - rings(x)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def learn_classes(model: nn.Module, steps: int) -> None:
    """Fit the sectors."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = 2 * torch.rand(1000, 3) - 1
        loss = nn.functional.cross_entropy(model(x), spiral(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(argv: list[str] | None = None) -> None:
    """Train both networks, and draw their surfaces."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=48, help="units of each layer")
    parser.add_argument("--steps", type=int, default=1500, help="of training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    distance = perceptron(3, *[options.width] * 3, 1)
    learn_distance(distance, options.steps)
    surface = sc.surface(distance.eval(), BOX, progress=False)
    surface.validate()
    handles = f"{surface.components} components, {surface.genus} handles"
    print(f"rings: {len(surface):,} faces, {handles}, volume {surface.volume:.3f}")

    classifier = perceptron(3, 20, 20, 3)
    learn_classes(classifier, options.steps // 4)
    classes = sc.surface(classifier.eval(), BOX, output="argmax", progress=False)
    volumes = [around.volume for around in classes]
    shown = " + ".join(f"{volume:.3f}" for volume in volumes)
    print(f"classes: volumes {shown} = {sum(volumes):.6f}")

    figure = plt.figure(figsize=(11, 5.4))
    figure.set_layout_engine("constrained", w_pad=0.15)
    left, right = (figure.add_subplot(1, 2, k, projection="3d") for k in (1, 2))
    surface.plot(ax=left, axes=False)
    left.set_title(f"{len(surface):,} flat faces: {surface.components} linked rings")
    for around, color in zip(classes, COLORS, strict=False):
        around.capped().plot(ax=right, color=color, axes=False)
    right.set_title("Two of three classes: the third one fills the rest")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "linked_rings.png"
    figure.savefig(path, dpi=110)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
