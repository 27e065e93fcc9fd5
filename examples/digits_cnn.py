"""A convolutional network for handwritten digits, on the plane through three of them.

The network learns the 8x8 digits that come with scikit-learn. The plane goes through a three, an
eight and a nine that it has not seen. The script finds the regions there and the decision boundary.
For images on the boundary the network cannot decide: the two best classes have the same output, up
to rounding.

Run: python examples/digits_cnn.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import splinecam as sc


def digits(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images (N, 1, 8, 8) in [0, 1] and labels (N,): 1,400 to learn from, then the other 397."""
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(found.images, dtype=torch.float32)[order, None] / 16
    label = torch.tensor(found.target)[order]
    return x[:1400], label[:1400], x[1400:], label[1400:]


def network(pool: nn.Module, *, channels: int, seed: int) -> nn.Sequential:
    """Two convolutions with pooling after each, and one hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), pool),
        *(nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), pool),
        *(nn.Flatten(), nn.Linear(8 * channels, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def train(model: nn.Module, x: Tensor, label: Tensor, *, steps: int) -> None:
    """Fit the model in place on random batches."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (128,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), label[batch]).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def accuracy(model: nn.Module, x: Tensor, label: Tensor) -> float:
    """The share of images that the model has right."""
    with torch.no_grad():
        return float((model(x).argmax(1) == label).double().mean())


def main(argv: list[str] | None = None) -> None:
    """Train, compute, draw the plane and a grid of undecidable images."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--classes", type=int, nargs=3, default=[3, 8, 9], help="of the corners")
    parser.add_argument("--channels", type=int, default=6, help="of the first convolution")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--margin", type=float, default=0.35, help="room around the three digits")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label, unseen, truth = digits(options.seed)
    model = network(nn.MaxPool2d(2), channels=options.channels, seed=options.seed)
    train(model, x, label, steps=options.steps)
    print(f"{accuracy(model, unseen, truth):.1%} of {len(unseen)} new images right")

    corners = torch.stack([unseen[truth == k][0] for k in options.classes])
    part = sc.partition(model, sc.Domain.through(*corners, margin=options.margin), progress=False)
    boundary = part.decision_boundary()
    print(part)
    for (i, j), length in boundary.pairs().items():
        print(f"  boundary between {i} and {j}: length {length:.2f}")
    tied = boundary.sample(1000, dtype=torch.float64)
    gap = model.double()(tied).topk(2).values.diff().abs().max()
    print(f"largest gap of the two best outputs at 1,000 samples: {gap:.1e}")

    figure = plt.figure(figsize=(12.8, 6.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.18, 1))
    part.plot(ax=left, points=corners, images=True, linewidth=0.12)
    left.set_title(f"{len(part):,} regions on the plane through three digits")
    generator = torch.Generator().manual_seed(options.seed)
    boundary.plot_samples(16, ax=right, columns=4, limits=(0, 1), generator=generator)
    right.set_title("images on the decision boundary, and the classes that tie")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "digits_cnn.png"
    figure.savefig(path, dpi=150)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
