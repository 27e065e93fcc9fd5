"""Two moons and two circles: how regions and decision boundary move while a network learns.

Before training the regions know nothing of the data. While the network learns, the lines of its
units move to where the function must bend. They do not move onto the decision boundary, which ends
up in a calm place between the classes. They gather among the points, and regions become dense.

Run: python examples/moons_circles.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_circles, make_moons
from torch import Tensor, nn

import splinecam as sc


def datasets(count: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Points (count, 2) around zero and labels (count,) of both datasets."""
    moons = make_moons(count, noise=0.09, random_state=seed)
    circles = make_circles(count, noise=0.06, factor=0.45, random_state=seed)
    found = {}
    for name, (x, label) in {"two moons": moons, "two circles": circles}.items():
        x = torch.tensor(x, dtype=torch.float32)
        found[name] = (x - x.mean(0)) / x.std(), torch.tensor(label)
    return found


def snapshots(
    x: Tensor, label: Tensor, domain: sc.Domain, *, steps: list[int], width: int, seed: int
) -> dict[int, tuple[sc.Partition, float]]:
    """Train a network with one output; its partition and accuracy after so many steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    found = {}
    for step in range(max(steps) + 1):
        logit = model(x)[:, 0]
        if step in steps:
            accuracy = float(((logit > 0) == (label == 1)).double().mean())
            found[step] = sc.partition(model.eval(), domain, progress=False), accuracy
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(logit, label.float()).backward()
        optimizer.step()
    return found


def main(argv: list[str] | None = None) -> None:
    """Train on both datasets, draw one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 30, 100, 1000])
    parser.add_argument("--width", type=int, default=24, help="units of a hidden layer")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args(argv)

    columns = len(options.steps)
    figure, axes = plt.subplots(
        2, columns, figsize=(3.6 * columns, 7.8), layout="constrained", squeeze=False
    )
    domain = sc.Domain.box(-2.4, 2.4)
    for row, (name, (x, label)) in zip(axes, datasets(140, options.seed).items(), strict=True):
        found = snapshots(
            x, label, domain, steps=options.steps, width=options.width, seed=options.seed
        )
        for ax, (step, (part, accuracy)) in zip(row, found.items(), strict=True):
            part.plot(
                ax=ax,
                color="class",
                points=x,
                labels=label,
                axes="off",
                legend=False,
                linewidth=0.3,
            )
            ax.set_title(f"step {step:,}: {len(part):,} regions")
            near = part.density(x, radius=0.1).count.double().mean()
            length = part.decision_boundary().length
            print(
                f"{name}, step {step}: {len(part)} regions, {near:.1f} of them within 0.1 of a "
                f"point, boundary of length {length:.2f}, {accuracy:.0%} of the points right"
            )
        row[0].set_title(f"{name}, {row[0].get_title()}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "moons_circles.png"
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
