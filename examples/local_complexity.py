"""How often units switch near images of digits while a network learns them.

Around images that the network has not seen, units switch along diameters of balls of one radius.
Forward passes at the ends of all diameters bound their number, and exact diameters correct it: the
bands are 99 % intervals. Beside it is the count that most scripts take: units that do not have the
same sign at all of 25 points of a ball. It counts units of a ball and not switches along a line,
and it misses units that come back between two points. A table tells which share of all switches
they are, by layer, radius and time.

Run: python examples/local_complexity.py --out out
A thousand images of MNIST, from a file with arrays x and y: add --data mnist.npz --images 1000
--train 1000 --width 200 --steps 100000 --looks 40 --device cuda
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from digits_cnn import accuracy, digits  # the script next to this one
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import CLASSES
from splinecam.results import LocalComplexity


def images(options: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images in [0, 1] to train on, their labels, others, and the labels of these."""
    if options.data is None:
        x, label, unseen, truth = digits(options.seed)
    else:
        with np.load(options.data) as file:
            x, label = torch.tensor(file["x"]).float() / file["x"].max(), torch.tensor(file["y"])
        x, unseen = x[: len(x) // 2], x[len(x) // 2 :]
        label, truth = label.long()[: len(x)], label.long()[len(x) :]
    kept = slice(options.train)
    x, label, unseen, truth = (
        part.to(options.device) for part in (x[kept], label[kept], unseen, truth)
    )
    return x, label, unseen, truth


def mlp(*, inputs: int, width: int, seed: int) -> nn.Sequential:
    """Three hidden layers."""
    torch.manual_seed(seed)
    sizes = (inputs, width, width, width)
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))


def missed(local: LocalComplexity) -> str:
    """Which share of the switches of each layer the ends of diameters do not show."""
    shares = []
    for k in range(len(local.layers)):
        seen, value = float(local.ends[..., k].double().mean()), local.mean(k).value
        shares.append(f"{max(0.0, 1 - seen / value) if value else 0:6.1%}")
    return "  ".join(shares)


def watched(
    model: nn.Module, x: Tensor, label: Tensor, near: Tensor, options: argparse.Namespace
) -> dict[int, LocalComplexity]:
    """Train the model in place; return its local complexity near some images, by step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = sc.training.log_steps(options.steps, options.looks)
    chosen, found = set(steps), {}
    how = {"precision": 0.02, "progress": False, "device": options.device}
    print("  step  radius  missed by the ends, by layer")
    for step in range(options.steps + 1):
        if step in chosen:
            found[step] = sc.local_complexity(model, near, options.radius, **how)
            others = options.radii if step in (steps[0], steps[len(steps) // 2], steps[-1]) else ()
            for radius in others:
                local = sc.local_complexity(model, near, radius, **how)
                print(f"{step:6,}  {radius:6g}  {missed(local)}")
        batch = torch.randint(len(x), (128,)).to(x.device)
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
    parser.add_argument("--radii", type=float, nargs="*", default=[0.1, 0.3, 3.0], help="others")
    parser.add_argument("--data", type=Path, help="an .npz file of images x (N, h, w) and labels y")
    parser.add_argument("--train", type=int, help="train on so many images, by default all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label, unseen, truth = images(options)
    model = mlp(inputs=x[0].numel(), width=options.width, seed=options.seed).to(options.device)
    found = watched(model, x, label, unseen[: options.images], options)
    print(f"{accuracy(model, unseen, truth):.1%} of {len(unseen)} new images right")
    for step, local in found.items():
        unseen_share = 1 - float(local.ends.sum(-1).double().mean()) / local.mean().value
        points = float(local.points.sum(1).double().mean())
        print(
            f"step {step:5,}: {local.mean()} switches, of which the ends miss {unseen_share:.1%}; "
            f"25 points show {points:.1f} units"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "local_complexity.png"
    draw(found, options.radius).savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
