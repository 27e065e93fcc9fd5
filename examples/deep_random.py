"""Deep networks before any training: how depth and initialisation make regions.

Every layer bends along lines that the layers before it have bent already. How much a layer adds is
up to the initialisation: with torch's default weights the signals shrink from layer to layer, the
biases take over, and later units hardly switch; with He's weights the regions go on growing. The
picture shows the regions of three networks in the colour of the last layer that bounds them, and
how their number grows with depth.

Run: python examples/deep_random.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import splinecam as sc
from splinecam.plot import CLASSES

INITS = ("default", "orthogonal", "He")


def deep(init: str, *, width: int, depth: int, seed: int) -> nn.Sequential:
    """A random network of two inputs: init is "default", "He" or "orthogonal"."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for k in range(depth):
        linear = nn.Linear(width if k else 2, width)
        if init == "He":
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
            nn.init.normal_(linear.bias, std=0.1)
        elif init == "orthogonal":
            nn.init.orthogonal_(linear.weight, gain=2**0.5)
            nn.init.normal_(linear.bias, std=0.1)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers).eval()


def main(argv: list[str] | None = None) -> None:
    """Count the regions after every layer, for each initialisation, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=32, help="units of a layer")
    parser.add_argument("--depth", type=int, default=10, help="number of layers")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    domain = sc.Domain.box(-1, 1)
    figure, axes = plt.subplots(1, 4, figsize=(16, 5), layout="constrained")
    for k, (init, color) in enumerate(zip(INITS, CLASSES, strict=False)):
        model = deep(init, width=options.width, depth=options.depth, seed=options.seed)
        part = sc.partition(model, domain, progress=False)
        counts = list(part.counts().cells_by_layer.values())
        print(f"{init}: {', '.join(f'{count:,}' for count in counts)} regions")
        part.plot(
            ax=axes[k], color="layer", axes="off", linewidth=0.15, legend=False, boundary=False
        )
        axes[k].set_title(f"{init}: {counts[-1]:,} regions")
        axes[3].plot(range(1, options.depth + 1), counts, "o-", color=color, label=init)
    axes[3].set(title="regions by depth", xlabel="layers", yscale="log", box_aspect=1)
    axes[3].legend(frameon=False)
    axes[3].spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{options.depth} random layers: each region in the colour of the last layer that bounds "
        "it, from blue for the first to yellow"
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "deep_random.png"
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
