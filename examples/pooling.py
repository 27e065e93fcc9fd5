"""Max-pooling against average pooling: the same network, trained with each, on the same plane.

An average is linear and draws no line. A maximum draws a line wherever another of its inputs
becomes the largest. So max-pooling divides the plane into more regions, and later layers bend once
more at each of its lines. SplineCam finds exactly the lines on which the winner changes, and no
others.

Run: python examples/pooling.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from digits_cnn import accuracy, digits, network, train  # the script next to this one
from torch import nn

import splinecam as sc

ZOOM = 8


def main(argv: list[str] | None = None) -> None:
    """Train both, compute their partitions on one plane, draw them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--channels", type=int, default=4, help="of the first convolution")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label, unseen, truth = digits(options.seed)
    corners = torch.stack([unseen[truth == k][0] for k in (0, 4, 7)])
    domain = sc.Domain.through(*corners, margin=0.3)
    figure, axes = plt.subplots(2, 2, figsize=(11, 10.6), layout="constrained")
    for (top, bottom), (name, pool) in zip(
        axes.T, {"max": nn.MaxPool2d(2), "average": nn.AvgPool2d(2)}.items(), strict=True
    ):
        model = network(pool, channels=options.channels, seed=options.seed)
        train(model, x, label, steps=options.steps)
        part = sc.partition(model, domain, progress=False)
        right = accuracy(model, unseen, truth)
        print(f"{name}-pooling: {right:.1%} of new images right, {part}")
        top.set_title(f"{name}-pooling: {len(part):,} regions, {right:.1%} right")
        part.plot(ax=top, points=corners, images=True, linewidth=0.15)
        near = sc.partition(model, domain.zoom(ZOOM), progress=False)
        near.plot(ax=bottom, linewidth=0.5, legend=False)
        for k, layer in enumerate(part.layers):
            kind = type(model[int(layer)]).__name__
            print(f"  {kind} {layer}: {int((part.mesh.edge_layer == k).sum()):,} edges")
            if kind == "MaxPool2d":
                near.neurons(layer=layer).plot(ax=bottom, color="#D55E00", linewidth=0.9)
        bottom.set_title(f"{ZOOM} times closer")
    axes[1, 0].set_title(f"{ZOOM} times closer, lines of the maxima in orange")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "pooling.png"
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
