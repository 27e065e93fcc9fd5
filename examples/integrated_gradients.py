"""Integrated gradients without sampling, and how far sampled ones are off.

A convolutional network learns the 8x8 digits that come with scikit-learn. For images that it has
not seen, the gradient of the winning output is integrated along the segment from a black image to
the digit: exactly, piece by piece, for all images of a class in one call. The usual way takes the
mean of the gradients at a few points of the segment, and takes more points until the attributions
add up to the difference of the outputs within 5 %. A right sum says little about single pixels:
they are still off by tens of percent.

M. Sotoudeh and A. V. Thakur found the same on networks for larger images (*Computing Linear
Restrictions of Neural Networks*, NeurIPS 2019). They also found that points in the middle of the
intervals do much better.

Run: python examples/integrated_gradients.py --out out
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from digits_cnn import accuracy, digits, network, train
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import CLASSES

# Where the sample of each of m intervals lies.
RULES = {"left end": 0.0, "right end": 1.0, "middle": 0.5}
SAMPLES = (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 100, 200)
ENOUGH = 0.05  # the usual check: the sum is off by less than this share


@dataclass(frozen=True)
class Attributions:
    """The images (N, 1, 8, 8), their classes (N,), and exact attributions (N, 1, 8, 8).

    change: (N,) the difference of the winning output between the image and black.
    """

    images: Tensor
    label: Tensor
    exact: Tensor
    change: Tensor
    pieces: float


def exact_attributions(model: nn.Module, images: Tensor) -> Attributions:
    """Divide the segments from black to all images of a class in one sweep, and integrate."""
    with torch.no_grad():
        label = model(images).argmax(1)
    exact, change, pieces = torch.zeros_like(images), torch.zeros(len(images)).to(images), 0
    for k in label.unique().tolist():
        some = (label == k).nonzero()[:, 0]
        segments = sc.Domain.segments(torch.zeros_like(images[some]), images[some])
        parts = sc.along(model, segments, progress=False)
        exact[some] = parts.integrated_gradients(output=k)
        last, first = parts.values[parts.offsets[1:] - 1], parts.values[parts.offsets[:-1]]
        change[some] = last[:, k] - first[:, k]
        pieces += int(parts.counts.sum())
    return Attributions(images, label, exact, change, pieces / len(images))


def sampled(model: nn.Module, known: Attributions, count: int, place: float) -> Tensor:
    """Attributions (N, 1, 8, 8) from the gradients at so many points."""
    total = torch.zeros_like(known.images)
    for k in range(count):
        x = (known.images * ((k + place) / count)).requires_grad_()
        output = model(x).gather(1, known.label[:, None]).sum()
        total += torch.autograd.grad(output, x)[0]
    return known.images * total / count


def errors(known: Attributions, found: Tensor) -> Tensor:
    """The mean error of the pixels in relation to the mean attribution, (N,)."""
    off = (found - known.exact).abs().flatten(1).sum(1)
    return off / known.exact.abs().flatten(1).sum(1)


def by_rule(model: nn.Module, known: Attributions) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """For each rule: errors (M, N) for all numbers of samples; those of the usual check; its maps.

    The usual check takes the first number of samples whose attributions add up well enough.
    """
    found = {}
    for name, place in RULES.items():
        every = torch.stack([sampled(model, known, count, place) for count in SAMPLES])
        short = (every.flatten(2).sum(2) - known.change).abs() / known.change.abs()
        fine = short < ENOUGH
        fine[-1] = True
        first, each = fine.int().argmax(0), torch.arange(len(known.images))
        chosen = every[first, each]
        found[name] = torch.stack([errors(known, one) for one in every]), first, chosen
    return found


def main(argv: list[str] | None = None) -> None:
    """Train, integrate, sample, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--images", type=int, default=100, help="that are attributed")
    parser.add_argument("--channels", type=int, default=8, help="of the first convolution")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    x, label, unseen, truth = digits(options.seed)
    model = network(nn.MaxPool2d(2), channels=options.channels, seed=options.seed)
    train(model, x, label, steps=options.steps)
    print(f"{accuracy(model, unseen, truth):.1%} of {len(unseen)} new images right")
    model.double()
    known = exact_attributions(model, unseen[: options.images].double())
    off = (known.exact.flatten(1).sum(1) - known.change).abs() / known.change.abs()
    print(f"{known.pieces:.0f} pieces on a segment; exact attributions add up to {off.max():.0e}")
    rules = by_rule(model, known)
    for name, (every, first, chosen) in rules.items():
        counts = torch.tensor(SAMPLES)[first].double()
        print(
            f"{name}: {counts.mean():.1f} samples add up within {ENOUGH:.0%}; "
            f"their pixels are off by {errors(known, chosen).mean():.1%}, "
            f"with 50 samples by {every[SAMPLES.index(50)].mean():.1%}"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "integrated_gradients.png"
    picture(known, rules).savefig(path, dpi=130)
    print(f"The picture is in {path}")


def picture(
    known: Attributions, rules: dict[str, tuple[Tensor, Tensor, Tensor]], rows: int = 3
) -> plt.Figure:
    """Errors over the number of samples, and the attributions of a few digits."""
    figure = plt.figure(figsize=(12.5, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1))
    ax = left.subplots()
    for (name, (every, first, chosen)), color in zip(rules.items(), CLASSES, strict=False):
        ax.plot(SAMPLES, every.mean(1).tolist(), color=color, label=name)
        count = float(torch.tensor(SAMPLES)[first].double().mean())
        ax.plot(count, float(errors(known, chosen).mean()), "o", color=color, markersize=9)
    ax.set(xscale="log", yscale="log", xlabel="samples on the segment")
    ax.set_ylabel("error of the pixels, relative to the exact attributions")
    ax.set_title("dots: where the attributions first add up within 5 %")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(title="sample of each interval", frameon=False)
    found = rules["left end"][2]
    order = errors(known, found).argsort()
    shown = order[torch.linspace(0.5, 0.95, rows).mul(len(order) - 1).long()]
    grid = right.subplots(rows, 4)
    titles = ("digit", "exact", "sampled", "difference")
    for row, index in zip(grid, shown.tolist(), strict=True):
        images = (known.exact[index], found[index], found[index] - known.exact[index])
        most = float(known.exact[index].abs().max())
        row[0].imshow(known.images[index, 0].numpy(), cmap="gray_r")
        for ax, image in zip(row[1:], images, strict=True):
            ax.imshow(image[0].numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
        row[2].set_xlabel(f"off by {float(errors(known, found)[index]):.0%}")
    for row in grid:
        for ax in row:
            ax.set(xticks=[], yticks=[])
    for ax, title in zip(grid[0], titles, strict=True):
        ax.set_title(title)
    return figure


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
