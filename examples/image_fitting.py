"""An image as a function of the pixel's place, learnt with and without periodic encoding.

A network takes the coordinates of a pixel and gives its colour. A plain network bends along few
lines, and its picture stays blurred. If waves first encode the coordinates, a single unit of the
first layer switches at many places over the whole image. A network of nearly the same size then has
many times as many regions, and small ones where the picture has detail. The waves are
piecewise-linear (``sc.nn.PeriodicEncoding``), so the regions are exact here, too.

Run: python examples/image_fitting.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

# Rings of petals, from the outermost: how long they are, their number, and their colour.
PETALS = (
    (0.95, 12, (0.75, 0.16, 0.32)),
    (0.74, 12, (0.92, 0.36, 0.38)),
    (0.53, 9, (0.98, 0.62, 0.42)),
    (0.33, 7, (1.00, 0.84, 0.55)),
)


def flower(side: int) -> tuple[Tensor, Tensor]:
    """A painted flower: the places (side^2, 2) of its pixels in [-1, 1]^2, and RGB (side^2, 3)."""
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    radius, angle = torch.hypot(x, y), torch.atan2(y, x)
    image = torch.stack([0.15 + 0.05 * y, 0.29 + 0.07 * y, 0.24 + 0.02 * y], -1)
    for k, (length, number, color) in enumerate(PETALS):
        wave = torch.cos(number * angle + math.pi * k)
        inside = torch.sigmoid((length * (0.8 + 0.2 * wave) - radius) * 40)[..., None]
        shade = (0.55 + 0.45 * radius / length) * (0.86 + 0.14 * wave)
        image = torch.lerp(image, shade[..., None] * torch.tensor(color), inside)
    seeds = (0.9 + 0.3 * torch.cos(40 * x) * torch.cos(40 * y))[..., None]
    core = torch.sigmoid((0.15 - radius) * 40)[..., None]
    image = torch.lerp(image, seeds * torch.tensor([0.35, 0.2, 0.12]), core)
    return torch.stack([x, y], -1).view(-1, 2), image.clamp(0, 1).view(-1, 3)


def fit(x: Tensor, rgb: Tensor, *, frequencies: int, options: argparse.Namespace) -> nn.Sequential:
    """Three hidden layers that have learnt the image, after an encoding with frequencies."""
    torch.manual_seed(options.seed)
    encoding = [sc.nn.PeriodicEncoding(frequencies)] if frequencies else []
    width = options.width
    model = nn.Sequential(
        *encoding,
        *(nn.Linear(2 + 4 * frequencies, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 3),
    )
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=options.steps)
    for _ in range(options.steps):
        batch = torch.randint(len(x), (4096,))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[batch]), rgb[batch]).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def mean_colors(part: sc.Partition) -> Tensor:
    """The network's colour at each region's centroid, (F, 3): the mean over the region."""
    centroids = part.centroids[:, :, None]
    return ((part.weight @ centroids)[:, :, 0] + part.bias).clamp(0, 1)


def draw(part: sc.Partition, image: Tensor, row: list[plt.Axes]) -> None:
    """The fitted image, the regions in their mean colours, and one unit of the first layer."""
    row[0].imshow(image.numpy(), origin="lower", extent=(-1, 1, -1, 1))
    row[0].set(xticks=[], yticks=[])
    part.plot(ax=row[1], color=mean_colors(part), edges=False, boundary=False, axes="off")
    part.plot(ax=row[2], color="white", boundary=False, axes="off", linewidth=0.2)
    curve = part.neurons(layer=part.layers[-3]).longest()
    curve.plot(ax=row[2], color="#D55E00", linewidth=1.6)
    row[1].set_title(f"{len(part):,} regions, each in its mean colour")
    row[2].set_title("where one unit of the first layer switches")


def main(argv: list[str] | None = None) -> None:
    """Fit the flower twice, compute both partitions, draw one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--frequencies", type=int, default=3, help="of the encoding")
    parser.add_argument("--width", type=int, default=20, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=1500, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    side = 128
    x, rgb = flower(side)
    figure, axes = plt.subplots(2, 3, figsize=(12, 8.4), layout="constrained")
    for row, (name, frequencies) in zip(
        axes, {"plain": 0, "encoded": options.frequencies}.items(), strict=True
    ):
        model = fit(x, rgb, frequencies=frequencies, options=options)
        part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
        with torch.no_grad():
            quality = -10 * math.log10(float((model(x).clamp(0, 1) - rgb).square().mean()))
            image = model(flower(4 * side)[0]).clamp(0, 1).view(4 * side, 4 * side, 3)
        draw(part, image, row)
        row[0].set_title(f"{name} network: {quality:.1f} dB")
        size = sum(weights.numel() for weights in model.parameters())
        print(f"{name}: {size:,} parameters, {quality:.1f} dB, {len(part):,} regions")
    target = axes[0, 0].inset_axes((0.03, 0.03, 0.3, 0.3), xticks=[], yticks=[])
    target.imshow(rgb.view(side, side, 3).numpy(), origin="lower")
    target.set_title("target", size=8, color="white", pad=2)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "image_fitting.png"
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
