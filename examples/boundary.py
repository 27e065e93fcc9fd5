"""The decision boundary of a small classifier, with samples on it and margins.

The script trains a network on three classes in a few seconds, then computes exactly:

- the decision boundary, with the classes on both sides of each piece, and the area of each class;
- samples on the boundary, where the outputs of the two classes agree up to rounding;
- how far training points are from the boundary (the radius within which the decision holds);
- level sets of one output: contours that are straight in every region;
- the curve of a single unit of the second layer.

Run: python examples/boundary.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import INK


def three_arms(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points (count, 2) on three spiral arms, and the arm of each."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.arange(count) % 3
    radius = 0.15 + 0.75 * torch.rand(count, generator=generator)
    angle = 3.5 * radius + 2 * math.pi / 3 * label
    points = radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
    return points + 0.05 * torch.randn(count, 2, generator=generator), label


def train(x: Tensor, label: Tensor, *, width: int, steps: int, seed: int = 0) -> nn.Sequential:
    """A classifier with two hidden layers."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), label).backward()
        optimizer.step()
    return model.eval()


def report(model: nn.Module, part: sc.Partition, x: Tensor) -> None:
    """Print what the picture cannot show: areas, lengths, how exact the samples are."""
    boundary, classes = part.decision_boundary(), part.class_regions()
    print(part)
    print(boundary)
    for (i, j), length in boundary.pairs().items():
        print(f"  between {i} and {j}: length {length:.3f}")
    print("area of each class:", ", ".join(f"{area:.4f}" for area in classes.areas))
    samples = boundary.sample(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    top = model.double()(samples).topk(2).values
    model.float()
    print(
        f"largest gap of the two best outputs at 1,000 samples: {(top[:, 0] - top[:, 1]).max():.1e}"
    )
    near = boundary.nearest(x)
    print(f"distance of the data to the boundary: {near.distance.min():.4f} and more")
    fixed = part.fixed_units()
    for name, piece in fixed.items():
        dead, always = int((piece == 0).sum()), int((piece == 1).sum())
        print(f"units of {name}: {len(piece)}, of which {dead} never and {always} always active")


def picture(part: sc.Partition, x: Tensor, label: Tensor, path: Path) -> None:
    """Three views side by side."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 5.2), layout="constrained")
    boundary = part.decision_boundary()
    chosen = torch.arange(0, len(x), len(x) // 12)
    part.plot(ax=axes[0], points=x[chosen], labels=label[chosen], linewidth=0.3, legend=False)
    axes[0].set_title("decision boundary, samples on it, margins")
    u, v = boundary.sample_uv(60, generator=torch.Generator().manual_seed(1)).T.cpu().numpy()
    axes[0].scatter(u, v, s=14, c="white", edgecolors=INK, linewidths=0.8, zorder=5)
    near = boundary.nearest(x[chosen])
    for point, radius in zip(x[chosen].tolist(), near.distance.tolist(), strict=True):
        axes[0].add_patch(plt.Circle(point, radius, fill=False, color=INK, lw=0.8, zorder=4))

    low, high = float(part.values[:, 0].min()), float(part.values[:, 0].max())
    levels = part.level_set(torch.linspace(low, high, 25)[1:-1], output=0)
    part.plot(ax=axes[1], color="white", boundary=False, axes="off", linewidth=0.2)
    levels.plot(ax=axes[1], cmap="viridis", linewidth=1.4)  # by level
    axes[1].set_title("exact level sets of output 0")

    part.plot(ax=axes[2], color="white", boundary=False, axes="off", linewidth=0.3)
    curve = part.neurons(layer=1).longest()
    curve.plot(ax=axes[2], color="#D55E00", linewidth=2.2)
    axes[2].set_title(f"where unit {int(curve.unit[0])} of the second layer switches")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> None:
    """Train, compute, print, draw."""
    parser = argparse.ArgumentParser(description="Decision boundary, margins, levels, units.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=32, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    options = parser.parse_args(argv)
    x, label = three_arms(300)
    model = train(x, label, width=options.width, steps=options.steps)
    part = sc.partition(model, sc.Domain.box(-1.1, 1.1), progress=False)
    report(model, part, x)
    path = options.out / "boundary.png"
    picture(part, x, label, path)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
