"""What compression does to a network: the exact difference after rounding and pruning.

A classifier of three spiral arms is compressed in three ways: its weights get the levels of int4 or
of int3, or the smallest third of them becomes zero. The colour is the exact largest difference of a
logit at every point. Between the decision boundaries of both networks, the hatched area shows where
they choose different classes. No sample could show that nothing worse lies between the samples.

Run: python examples/compression.py --out out
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import matplotlib.pyplot as plt
from boundary import three_arms, train
from torch import nn

import splinecam as sc


def quantised(model: nn.Module, bits: int) -> nn.Module:
    """The weights of each tensor rounded to the levels that so many bits have."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        step = weight.detach().abs().max() / (2 ** (bits - 1) - 1)
        weight.data = (weight.data / step).round() * step
    return other


def pruned(model: nn.Module, share: float) -> nn.Module:
    """The smallest weights of each matrix set to zero."""
    other = copy.deepcopy(model)
    for weight in other.parameters():
        if weight.dim() == 2:
            limit = weight.detach().abs().flatten().quantile(share)
            weight.data[weight.detach().abs() < limit] = 0
    return other


def main(argv: list[str] | None = None) -> None:
    """Train, compress, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=32, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    options = parser.parse_args(argv)
    model = train(*three_arms(300), width=options.width, steps=options.steps)
    others = {
        "int4": quantised(model, 4),
        "int3": quantised(model, 3),
        "pruned by a third": pruned(model, 1 / 3),
    }
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.6), layout="constrained")
    for ax, (name, other) in zip(axes, others.items(), strict=True):
        diff = sc.difference(model, other, sc.Domain.box(-1.1, 1.1), progress=False)
        print(f"{name}: {diff!r}")
        print(f"  {diff.largest()}")
        diff.plot(ax=ax, axes="off", labels=("original", name), legend=False)
        share = 100 * diff.disagreement.share
        ax.set_title(f"{name}: {share:.2f} % of the plane decided otherwise")
    path = options.out / "compression.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    main()
