"""What is a region? A pruned network has fewer linear regions than activation regions.

A network learns a target: a disc in a ring. Then most of its weights are set to zero, a few more
in each round, and the others go on learning. Some units are left without a way to the output, but
still divide the plane: their lines are borders of activation regions, and the map is the same on
both sides. Linear regions have a border only where the map changes. Activation regions are convex,
and linear regions need not be: the ring is one of them, with a hole. On the right are the classes,
with their pieces and holes.

Run: python examples/definitions.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import splinecam as sc


def target(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points of the square from -1 to 1, and whether each is on a ring or in its middle."""
    x = 2 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 1
    radius = x.norm(dim=1)
    return x, (radius < 0.2) | ((radius > 0.5) & (radius < 0.8))


def train(model: nn.Sequential, x: Tensor, label: Tensor, steps: int) -> None:
    """Learn with the weights that are not zero; the others stay zero."""
    masks = [(layer.weight, layer.weight != 0) for layer in model[::2]]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(x)[:, 0], label.float()).backward()
        optimizer.step()
        with torch.no_grad():
            for weight, kept in masks:
                weight *= kept


def prune(model: nn.Sequential, share: float) -> None:
    """Set the smallest weights of all layers but the first to zero, so that a share is zero."""
    for layer in model[2::2]:
        size = layer.weight.detach().abs()
        with torch.no_grad():
            layer.weight *= size > size.flatten().quantile(share)


def main(argv: list[str] | None = None) -> None:
    """Train and prune, compute the partition, draw it under three definitions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--steps", type=int, default=600, help="training steps of each round")
    parser.add_argument("--pruned", type=float, default=0.8, help="share of weights set to zero")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    n = options.width
    model = nn.Sequential(nn.Linear(2, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1))
    x, label = target(2000, options.seed)
    train(model, x, label, 2 * options.steps)
    for share in (0.5, 0.8, 1.0):
        prune(model, share * options.pruned)
        train(model, x, label, options.steps)
    right = float(((model(x)[:, 0] > 0) == label).float().mean())
    print(f"{right:.1%} of the points right with {options.pruned:.0%} of the weights pruned")

    part = sc.partition(model.eval(), sc.Domain.box(-1, 1), names=["paper", "target"])
    found, shape, pieces = part.counts(), part.topology(), part.merged()
    print(found)
    print(shape)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.7), layout="constrained")
    plain = {"axes": "off", "boundary": False, "linewidth": 0.4}
    part.plot(ax=axes[0], color="random", **plain)
    axes[0].set_title(f"{found.activation_regions:,} activation regions")
    part.plot(ax=axes[1], color="merged", edges=pieces.edges, **plain)
    axes[1].set_title(f"{found.linear_regions:,} linear regions, {found.distinct_maps:,} maps")
    part.plot(
        ax=axes[2], color="class", edges=pieces.edges, axes="off", linewidth=0.15, legend=False
    )
    text = [f"{row.name}: $b_0 = {row.components}, b_1 = {row.holes}$" for row in shape.classes]
    axes[2].set_title("; ".join(text))
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "definitions.png"
    figure.savefig(path, dpi=80)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
