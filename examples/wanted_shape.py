"""A learnt shape that is given the area and the perimeter that one wants.

A network learns the signed distance to a flower, and its zero level is the learnt shape. Then the
exact area and perimeter of that level become part of the loss. ``part.differentiable()`` has their
gradients with respect to all weights. The shape gets the area that it had, and less outline: its
petals become shorter, and it stays as near to the flower as these two numbers permit.

Run: python examples/wanted_shape.py --out out
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc

DOMAIN = sc.Domain.box(-1, 1)


def flower(petals: int = 5) -> Tensor:
    """The outline of a flower, as a polygon (k, 2)."""
    angle = torch.arange(360) * (math.tau / 360)
    radius = 0.55 + 0.2 * (petals * angle).cos()
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def signed_distance(x: Tensor, outline: Tensor) -> Tensor:
    """The distance of points (N, 2) to the flower, negative inside, (N, 1)."""
    angle = torch.atan2(x[:, 1], x[:, 0])
    inside = x.norm(dim=1) < 0.55 + 0.2 * (5 * angle).cos()
    return torch.where(inside, -1, 1)[:, None] * torch.cdist(x, outline).amin(1, keepdim=True)


def measured(model: nn.Module) -> tuple[Tensor, Tensor]:
    """The area and the perimeter of the shape, exactly, with gradients."""
    moving = sc.partition(model, DOMAIN, progress=False).differentiable()
    ends = moving.boundary
    return moving.class_areas[0], (ends[:, 0] - ends[:, 1]).norm(dim=1).sum()


def train(
    model: nn.Module, outline: Tensor, wanted: tuple[float, float] | None, steps: int
) -> None:
    """Fit the distance; if they are given, an area and a perimeter, too."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 if wanted is None else 0.004)
    for _ in range(steps):
        x = 2 * torch.rand(512, 2) - 1
        loss = (model(x) - signed_distance(x, outline)).square().mean()
        if wanted is not None:
            area, perimeter = measured(model)
            off = (area / wanted[0] - 1).square() + (perimeter / wanted[1] - 1).square()
            loss = loss + off
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(argv: list[str] | None = None) -> None:
    """Learn the shape, change it, draw both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--shorter", type=float, default=0.85, help="the perimeter, of the first")
    parser.add_argument("--steps", type=int, default=200, help="training steps with both")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    outline = flower()
    model = nn.Sequential(
        *(nn.Linear(2, 32), nn.ReLU()), *(nn.Linear(32, 32), nn.ReLU()), nn.Linear(32, 1)
    )
    figure, axes = plt.subplots(1, 2, figsize=(9, 5), layout="constrained")
    wanted = None
    for ax in axes:
        train(model, outline, wanted, options.steps * (4 if wanted is None else 1))
        area, perimeter = (x.item() for x in measured(model))
        title = f"area {area:.3f}, perimeter {perimeter:.3f}"
        if wanted is not None:
            title += f" (wanted {wanted[0]:.3f} and {wanted[1]:.3f})"
        print(title)
        part = sc.partition(model, DOMAIN, names=["inside", "outside"], progress=False)
        part.plot(ax=ax, legend=False, axes="off")
        ends = part.differentiable().boundary.detach()
        ax.plot(*ends.permute(2, 1, 0), color="black", linewidth=2)
        ax.plot(*torch.cat([outline, outline[:1]]).T, color="black", linewidth=0.8, linestyle=":")
        ax.set_title(title.replace(" (", "\n("))
        wanted = area, options.shorter * perimeter
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "wanted_shape.png"
    figure.savefig(path, dpi=100, bbox_inches="tight")
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
