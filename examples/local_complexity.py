"""How often units switch near images of digits while a network learns them.

Around images that the network has not seen, units switch along diameters of balls of one radius.
Forward passes at the ends of all diameters bound their number, and exact diameters correct it: the
bands are 99 % intervals. Beside it is the count that most scripts take: units that do not have the
same sign at all of 25 points of a ball. It counts units of a ball and not switches along a line,
and it misses units that come back between two points.

Run: python examples/local_complexity.py --out out
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from digits_cnn import accuracy, digits  # the script next to this one
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import CLASSES
from splinecam.results import LocalComplexity


def mlp(*, width: int, seed: int) -> nn.Sequential:
    """Three hidden layers for images of 64 pixels."""
    torch.manual_seed(seed)
    sizes = (64, width, width, width)
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))


def watched(
    model: nn.Module, x: Tensor, label: Tensor, near: Tensor, options: argparse.Namespace
) -> dict[int, LocalComplexity]:
    """Train the model in place; return its local complexity near some images, by step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    chosen, found = set(sc.training.log_steps(options.steps, options.looks)), {}
    for step in range(options.steps + 1):
        if step in chosen:
            found[step] = sc.local_complexity(
                model, near, options.radius, precision=0.02, progress=False
            )
        batch = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), label[batch]).backward()
        optimizer.step()
    return found


def draw(found: dict[int, LocalComplexity], radius: float) -> plt.Figure:
    """Switches along diameters with their intervals, and the units that 25 points show."""
    figure = plt.figure(figsize=(10.4, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = [step + 1 for step in found]
    for k in range(len(next(iter(found.values())).layers)):
        means = [local.mean(k) for local in found.values()]
        color, label = CLASSES[k], f"layer {k + 1}"
        left.plot(steps, [mean.value for mean in means], color=color, label=label)
        low, high = [mean.low for mean in means], [mean.high for mean in means]
        left.fill_between(steps, low, high, color=color, alpha=0.3, linewidth=0)
        ends = [float(local.ends[..., k].double().mean()) for local in found.values()]
        left.plot(steps, ends, color=color, linestyle=":", linewidth=1.2)
        count = [float(local.points[:, k].double().mean()) for local in found.values()]
        right.plot(steps, count, color=color, label=label)
    left.set_title("switches along a diameter (dotted: seen at its ends)")
    right.set_title("units that switch among 25 points of a ball")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="training step + 1", ylim=(0, None))
        ax.legend(frameon=False)
    left.set_ylabel(f"mean over images, radius {radius:g}")
    return figure


def main(argv: list[str] | None = None) -> None:
    """Train, measure at chosen steps, draw both counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=100, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=3000, help="training steps")
    parser.add_argument("--looks", type=int, default=16, help="at most so many measurements")
    parser.add_argument("--images", type=int, default=60, help="with a ball around each")
    parser.add_argument("--radius", type=float, default=1.0, help="of the balls")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label, unseen, truth = digits(options.seed)
    model = mlp(width=options.width, seed=options.seed)
    found = watched(model, x, label, unseen[: options.images], options)
    print(f"{accuracy(model, unseen, truth):.1%} of {len(unseen)} new images right")
    for step, local in found.items():
        missed = 1 - float(local.ends.sum(-1).double().mean()) / local.mean().value
        points = float(local.points.sum(1).double().mean())
        print(
            f"step {step:5,}: {local.mean()} switches, of which the ends miss {missed:.1%}; "
            f"25 points show {points:.1f} units"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "local_complexity.png"
    draw(found, options.radius).savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
