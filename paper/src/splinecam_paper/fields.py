"""Images and distances as functions of the place, and where the lines of networks for them lie.

An image is the square [-1, 1]^2, x to the right and y upwards; its first row is at the top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from splinecam import Partition
from splinecam._util.text import number_text
from splinecam.questions.curves import Curves
from splinecam.results import LevelSet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED = "#D00000"  # of zero level sets and chosen units, as in the paper

_BLOCK = 1 << 16  # points at once


def pixel_places(side: int) -> Tensor:
    """The centres of the pixels of a square image, row by row from the top left, (side^2, 2).

    >>> pixel_places(2).tolist()
    [[-0.5, 0.5], [0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]]
    """
    axis = (2 * torch.arange(side) + 1) / side - 1
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    return torch.stack([x, y], -1).view(-1, 2)


def outputs(model: nn.Module, places: Tensor) -> Tensor:
    """The single output of a model at places (N, d), on the CPU, (N,)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        found = [model(block.to(device))[:, 0].cpu() for block in torch.split(places, _BLOCK)]
    return torch.cat(found)


def psnr(found: Tensor, wanted: Tensor) -> float:
    """How near an image is to another with values from 0 to 1, in dB: 10 log10 (1 / MSE).

    >>> round(psnr(torch.full((9,), 0.6), torch.full((9,), 0.5)), 2)
    20.0
    """
    error = float((found.clamp(0, 1) - wanted).double().square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def show_image(ax: Axes, values: Tensor, title: str = "", **style: Any) -> None:
    """Draw an image (H, W) in the frame [-1, 1]^2, by default in grey from 0 to 1."""
    style = {"cmap": "gray", "vmin": 0, "vmax": 1, **style}
    ax.imshow(values.numpy(), extent=(-1, 1, -1, 1), interpolation="nearest", **style)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title)


def crowding(
    part: Partition, curve: LevelSet, within: float, *, count: int = 20_000
) -> list[float]:
    """By layer, how much denser its edges are near a curve than on the whole domain.

    This is the length of edges per area within a distance of the curve, divided by that on the
    domain: 1 if the edges are as dense everywhere, and nan if the layer drew none. The shares of
    length and area are those of ``count`` random points, so that they are precise to 1 % or so.
    """

    def share_near(x: Tensor) -> float:
        return float((curve.nearest(x).distance <= within).double().mean())

    edges = Curves(part, part.vertices, part.mesh.edges, part._edge_faces, part.mesh.edge_layer)
    random = torch.Generator().manual_seed(0)
    of_area = share_near(part.sample(count, generator=random))
    found = []
    for layer in range(len(part.layers)):
        drawn = edges.select(part.mesh.edge_layer == layer)
        known = len(drawn) > 0 and of_area > 0
        of_length = share_near(drawn.sample(count, generator=random)) if known else math.nan
        found.append(of_length / of_area if known else math.nan)
    return found


def draw_by_layer(part: Partition, name: str) -> Figure:
    """The edges that each layer draws in a panel of its own, with the zero level set."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9, 3.2 * math.ceil(len(part.layers) / 3)), layout="constrained")
    axes = figure.subplots(math.ceil(len(part.layers) / 3), 3, squeeze=False).flat
    for layer, ax in enumerate(axes):
        if layer >= len(part.layers):
            ax.set_axis_off()
            continue
        drawn = (part.mesh.edge_layer == layer).nonzero()[:, 0]
        part.plot(ax=ax, color="white", edges=drawn, boundary=False, axes="off", linewidth=0.15)
        part.level_set(0.0).plot(ax=ax, color=RED, linewidth=0.8)
        ax.set_title(f"{name}, layer {layer + 1}", size=9)
    return figure


def mean_text(values: Sequence[float]) -> str:
    """The mean of several runs and their standard deviation as text; nan counts as missing.

    >>> mean_text([10, 10, 13]), mean_text([100, 700]), mean_text([7]), mean_text([math.nan])
    ('11 ± 1.4', '400 ± 300', '7', 'none')
    """
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return number_text(known[0]) if known else "none"
    mean, spread = fmean(known), pstdev(known)
    return f"{mean:,.0f} ± {spread:,.0f}" if mean >= 100 else f"{mean:.4g} ± {spread:.2g}"


def conditions(seeds: int, *, small: bool, stand_in: bool, what: str = "photo") -> str:
    """Why numbers may differ from the paper's: other data, several seeds, a smaller network."""
    data = f"a stand-in for the {what}" if stand_in else f"another {what}"
    count = f"{seeds} seed{'s' * (seeds != 1)}"
    return ", ".join([data, count, *["a smaller network"] * small])
