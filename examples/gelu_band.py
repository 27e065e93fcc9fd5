"""A GELU classifier, and the band in which its decision boundary is proved to lie.

GELU is smooth, so the network has no linear regions of its own. With ``smooth=`` a piecewise-linear
network replaces it. Nowhere on the square are its outputs further than 0.1, 0.01 or 0.001 from the
real ones. Outside of the hatched band this proves which of three spirals the real network chooses.
A tenth of the error makes about ten times as many regions, and a band about a tenth as wide: it
takes a magnification of 400 to see the last one. The red lines are the boundary of the real
network, found on a fine grid. They stay within every band.

Run: python examples/gelu_band.py --out out
"""

from __future__ import annotations

import argparse
import math
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import INK

REAL = "#c8102e"


def spirals(count: int, *, arms: int, turns: float, noise: float) -> tuple[Tensor, Tensor]:
    """Points (count, 2) within the unit disc, and labels (count,) of their arms."""
    label = torch.arange(count) % arms
    radius = 0.05 + 0.92 * torch.rand(count).sqrt()
    angle = 2 * math.pi * (label / arms + turns * radius) + noise * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label


def train(x: Tensor, label: Tensor, *, width: int, steps: int) -> nn.Sequential:
    """A network with two hidden layers, whose outputs are near 1 for the right class, else 0."""
    wanted = nn.functional.one_hot(label).float()
    model = nn.Sequential(
        *(nn.Linear(2, width), nn.GELU()),
        *(nn.Linear(width, width), nn.GELU()),
        nn.Linear(width, wanted.shape[1]),
    )
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), wanted).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def triple_point(part: sc.Partition, model: nn.Module) -> Tensor:
    """Where all three outputs of the network are equal, (2,), or nearly so."""
    x = part.vertices[(part.values.amax(1) - part.values.amin(1)).argmin()]
    for _ in range(4):  # steps of Newton's method
        y, slope = model(x).detach(), torch.func.jacrev(model)(x).detach()
        x = x - torch.linalg.lstsq(slope[1:] - slope[0], y[1:] - y[0]).solution
    return x.clamp(-1, 1)


def draw_real_boundary(ax: Axes, model: nn.Module, window: Tensor, count: int) -> None:
    """Draw where the network itself changes its class; window: (2, 2) low and high corners."""
    low, high = window
    steps = torch.linspace(0, 1, count, dtype=torch.float64)
    u, v = (low[i] + (high[i] - low[i]) * steps for i in (0, 1))
    with torch.no_grad():
        y = model(torch.cartesian_prod(v, u).flip(1)).view(count, count, -1)
    style = {"colors": REAL, "linewidths": 1.4, "zorder": 3.5}
    for i, j in combinations(range(y.shape[2]), 2):
        others = y.clone()
        others[:, :, [i, j]] = -torch.inf
        first, second = y[:, :, i], y[:, :, j]
        beaten = others.amax(2) > torch.maximum(first, second)
        ax.contour(u, v, (first - second).masked_fill(beaten, torch.nan), levels=[0], **style)


def draw_detail(ax: Axes, part: sc.Partition, model: nn.Module, window: Tensor) -> None:
    """A small window of a partition, with its band and both boundaries."""
    boundary = part.decision_boundary()
    part.plot(ax=ax, boundary=False, legend=False, axes="off")
    boundary.band.plot(ax=ax)
    boundary.plot(ax=ax, linewidth=1.0)
    draw_real_boundary(ax, model, window, 400)
    (left, bottom), (right, top) = window.tolist()
    ax.set(xlim=(left, right), ylim=(bottom, top))


def draw(parts: list[sc.Partition], model: nn.Module, zooms: list[float]) -> plt.Figure:
    """A column for each partition: all of it above, and the same place in detail below."""
    rows, columns = 1 + len(zooms), len(parts)
    size = (4 * columns, 1.2 + 4 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    center = triple_point(parts[-1], model)
    for part, whole, *details in zip(parts, *axes, strict=True):
        part.plot(ax=whole, legend=False, axes="off")
        share = part.decision_boundary().band.share
        title = f"outputs within {float(part.smoothing.tolerance.max()):g}"
        whole.set_title(f"{title}\n{len(part):,} regions, {100 * share:.2g} % undecided")
        for above, ax, zoom in zip([whole, *details], details, zooms, strict=False):
            draw_detail(ax, part, model, torch.stack([center - 1 / zoom, center + 1 / zoom]))
            corner = (center - 1 / zoom).tolist()
            above.add_patch(Rectangle(corner, 2 / zoom, 2 / zoom, fill=False, color=INK, zorder=4))
    for ax, zoom in zip(axes[1:, 0], zooms, strict=True):
        place = {"rotation": 90, "ha": "right", "va": "center", "transform": ax.transAxes}
        ax.text(-0.02, 0.5, f"the square, {zoom:g} times as large", **place)
    entries = {
        "undecided: the band of the boundary": Patch(facecolor=(*to_rgb(INK), 0.3), hatch="////"),
        "boundary of the piecewise-linear network": Line2D([], [], color=INK),
        "boundary of the real network": Line2D([], [], color=REAL),
    }
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=3)
    return figure


def main(argv: list[str] | None = None) -> None:
    """Train, partition within three bounds, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--smooth", type=float, nargs="+", default=[0.1, 0.01, 0.001])
    parser.add_argument("--width", type=int, default=12, help="units of a hidden layer")
    parser.add_argument("--steps", type=int, default=1000, help="training steps")
    parser.add_argument("--zooms", type=float, nargs="+", default=[20, 400], help="of the details")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    torch.manual_seed(options.seed)
    x, label = spirals(600, arms=3, turns=0.5, noise=0.15)
    model = train(x, label, width=options.width, steps=options.steps)
    right = float((model(x).argmax(1) == label).double().mean())
    print(f"{right:.1%} of the points right")
    model = model.double()
    parts = []
    for smooth in options.smooth:
        parts.append(sc.partition(model, sc.Domain.box(-1, 1), smooth=smooth, progress=False))
        print(f"{parts[-1]}\n{parts[-1].decision_boundary().band}")

    figure = draw(parts, model, options.zooms)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "gelu_band.png"
    figure.savefig(path, dpi=100)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the network is too small to share among threads
    main()
