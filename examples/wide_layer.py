"""One wide layer as string art: a thousand units, each a straight line, and the regions between.

A unit of the first layer switches on a straight line; its weight and bias place the line. Here each
line joins the points of the unit circle at the angles t and 3 t, for a thousand random angles. The
lines wrap around a nephroid, the bright curve in a cup of coffee, and divide the disc into some
200,000 regions. Their colour shows how steeply the network rises.

Run: python examples/wide_layer.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc


def string_art(units: int, factor: int, seed: int) -> nn.Sequential:
    """A hidden layer whose units switch on chords from angle t to angle factor * t; their mean."""
    model = nn.Sequential(nn.Linear(2, units), nn.ReLU(), nn.Linear(units, 1))
    generator = torch.Generator().manual_seed(seed)
    t = 2 * math.pi * (torch.arange(units) + torch.rand(units, generator=generator)) / units
    middle, half = (factor + 1) / 2 * t, (factor - 1) / 2 * t  # the chord is x . normal = cos(half)
    with torch.no_grad():
        model[0].weight.copy_(on_circle(middle))
        model[0].bias.copy_(-half.cos())
        model[2].weight.fill_(1 / units)
        model[2].bias.zero_()
    return model.eval()


def on_circle(angle: Tensor) -> Tensor:
    """Points (N, 2) of the unit circle."""
    return torch.stack([angle.cos(), angle.sin()], 1)


def main(argv: list[str] | None = None) -> None:
    """Build the network, compute its partition of a disc, draw it at print size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--factor", type=int, default=3, help="2 for a cardioid, 3 for a nephroid")
    parser.add_argument("--dpi", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    model = string_art(options.units, options.factor, options.seed)
    disc = sc.Domain.polygon(1.003 * on_circle(torch.arange(360) * math.pi / 180))
    start = perf_counter()
    part = sc.partition(model, disc, progress=False)
    print(part, f"in {perf_counter() - start:.2f} s")
    print(f"half of the regions are smaller than {part.areas.median() / disc.area:.1e} of the disc")

    start = perf_counter()
    figure, ax = plt.subplots(figsize=(8, 8))
    figure.subplots_adjust(0.01, 0.01, 0.99, 0.99)
    slope = part.weight[:, 0].norm(dim=1)
    part.plot(
        ax=ax,
        color=slope,
        cmap="viridis",
        linewidth=0.06,
        boundary=False,
        axes="off",
        colorbar=False,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "wide_layer.png"
    figure.savefig(path, dpi=options.dpi)
    print(f"The picture is in {path}, drawn in {perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
