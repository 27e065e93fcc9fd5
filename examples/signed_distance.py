"""A shape as the zero level of a network: the signed distance to a star, learnt and measured.

A network learns the distance to a shape's outline (negative inside). Its zero level is the learnt
shape: a polygon, found exactly here with its corners, its area and its distance from the true star.
The level sets around it are exact polygons, too. The slope of every region tells how good the
learnt distance is: a true distance has slope one everywhere but on the ridges that run into the
corners. There the regions crowd.

Run: python examples/signed_distance.py --out out
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


def star(points: int, *, outer: float = 0.8, inner: float = 0.36) -> Tensor:
    """The corners (2 points, 2) of a star, counter-clockwise from its top."""
    angle = math.pi * (0.5 + torch.arange(2 * points) / points)
    radius = torch.where(torch.arange(2 * points) % 2 == 0, outer, inner)
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1)


def signed_distance(x: Tensor, corners: Tensor) -> Tensor:
    """Distance of points (N, 2) to a polygon's outline, (N,); negative inside."""
    a, b = corners, corners.roll(-1, 0)
    side, ray = b - a, x[:, None] - a  # (k, 2), (N, k, 2)
    t = ((ray * side).sum(-1) / side.square().sum(-1)).clamp(0, 1)
    distance = (ray - t[..., None] * side).norm(dim=-1).amin(1)
    # A ray to the right crosses the outline an odd number of times from inside.
    spans = (a[:, 1] > x[:, 1:]) != (b[:, 1] > x[:, 1:])
    cross = side[:, 0] * ray[..., 1] - side[:, 1] * ray[..., 0]
    hits = spans & ((cross > 0) == (side[:, 1] > 0))
    return torch.where(hits.sum(1) % 2 == 1, -distance, distance)


def area_of(corners: Tensor) -> float:
    """Area of a polygon with corners (k, 2), by the shoelace formula."""
    x, y = corners.T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum().abs() / 2)


def closed(corners: Tensor) -> Tensor:
    """The corners (k, 2) with the first one again at the end, for drawing."""
    return torch.cat([corners, corners[:1]])


def train(corners: Tensor, *, width: int, steps: int, seed: int) -> nn.Sequential:
    """Three hidden layers, fitted to the distance at random points of the square."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU()),
        nn.Linear(width, 1),
    )
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(steps):
        x = 2 * torch.rand(2048, 2) - 1
        optimizer.zero_grad()
        nn.functional.l1_loss(model(x)[:, 0], signed_distance(x, corners)).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def picture(part: sc.Partition, corners: Tensor, outline: Tensor, path: Path) -> None:
    """Level sets, surface, slopes, and the learnt shape beside the true one."""
    figure = plt.figure(figsize=(10.8, 10.4), layout="constrained")
    levels_ax, slope_ax, shape_ax = (figure.add_subplot(2, 2, k) for k in (1, 3, 4))
    plain = {"boundary": False, "axes": "off"}
    colors = {"cmap": "RdBu", "limits": (-0.4, 0.8)}
    part.plot(ax=levels_ax, edges=False, colorbar=False, **colors, **plain)
    levels = part.level_set([k / 20 for k in range(-8, 20)])
    levels.plot(ax=levels_ax, color=INK, linewidth=0.6)
    levels.at(0.0).plot(ax=levels_ax, color=INK, linewidth=2.5)
    levels_ax.set_title("exact level sets, 0.05 apart")
    surface_ax = figure.add_subplot(2, 2, 2, projection="3d")
    part.plot.surface(ax=surface_ax, view=(52, -70), height=0.7, **colors)
    surface_ax.set_axis_off()
    surface_ax.set_title("the distance as a surface")
    slope = part.weight[:, 0].norm(dim=1)
    part.plot(ax=slope_ax, color=slope, cmap="PuOr", limits=(0.4, 1.6), linewidth=0.2, **plain)
    slope_ax.set_title(f"slope of each of the {len(part):,} regions")
    part.plot(ax=shape_ax, color="class", legend=False, linewidth=0.2, **plain)
    for ax in (shape_ax, shape_ax.inset_axes((0.02, 0.68, 0.3, 0.3))):
        ax.plot(*closed(corners).T, "--", color="#D55E00", linewidth=1.2)
        ax.plot(*closed(outline).T, ".-", color=INK, markersize=4, linewidth=1.4)
    ax.set(xlim=(-0.07, 0.07), ylim=(0.7, 0.84), xticks=[], yticks=[])
    shape_ax.indicate_inset_zoom(ax, edgecolor=INK)
    shape_ax.set_title(f"learnt shape: {len(outline)} corners, area {area_of(outline):.3f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> None:
    """Train, compute, compare with the true star, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--points", type=int, default=5, help="of the star")
    parser.add_argument("--width", type=int, default=40, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=4000, help="training steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    corners = star(options.points)
    model = train(corners, width=options.width, steps=options.steps, seed=options.seed)
    part = sc.partition(model, sc.Domain.box(-1, 1), progress=False)
    shape = part.class_regions().polygons(0)[0]  # the largest piece below zero
    slope = part.weight[:, 0].norm(dim=1)
    near_one = float(part.areas[(slope - 1).abs() < 0.1].sum() / part.areas.sum())
    off = signed_distance(shape.outline.float(), corners).abs().max()
    print(part)
    print(f"learnt shape: {len(shape.outline)} corners, area {shape.area:.4f}")
    print(f"true star: {len(corners)} corners, area {area_of(corners):.4f}")
    print(f"no corner of the learnt shape is farther than {off:.4f} from the true outline")
    print(f"slope within 10% of one on {near_one:.1%} of the area")
    path = options.out / "signed_distance.png"
    picture(part, corners, shape.outline, path)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
