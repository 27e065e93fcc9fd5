"""The figures of the experiment ``cats``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from splinecam.partitions.partition import Partition

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_epochs(
    parts: list[list[Partition]],
    epochs: Sequence[int],
    train: tuple[Tensor, Tensor],
) -> Figure:
    """A row for each plane, a column for each epoch: region size, boundary, and images."""
    import matplotlib.pyplot as plt

    size = (2 * len(epochs), 2.05 * len(parts) + 0.25)
    figure, axes = plt.subplots(*(len(parts), len(epochs)), figsize=size, layout="constrained")
    for row, several in enumerate(parts):
        for column, part in enumerate(several):
            draw_plane(axes[row, column], part, train)
            if row == 0:
                axes[row, column].set_title(f"epoch {epochs[column]}", fontsize=9)
            axes[row, column].text(
                *(0.5, -0.02, f"{len(part):,} regions"),
                **{"transform": axes[row, column].transAxes, "ha": "center", "va": "top"},
                fontsize=8,
            )
    return figure


def draw_plane(ax: Any, part: Partition, train: tuple[Tensor, Tensor]) -> None:
    """The regions by area, the boundary in red, and the images that span the plane in white."""
    style: dict[str, Any] = {"color": "area", "cmap": "viridis", "edges": False, "axes": "off"}
    part.plot(ax=ax, boundary=True, boundary_color="red", colorbar=False, legend=False, **style)
    uv, distance = part.domain.project(train[0])
    ax.scatter(*uv[distance < 1e-3].T, s=16, color="white", edgecolors="black", zorder=9)


def draw_planes(
    parts: Sequence[Partition], train: tuple[Tensor, Tensor], names: Sequence[str]
) -> Figure:
    """For each plane the three images, the partition, and images on the boundary."""
    import matplotlib.pyplot as plt

    from splinecam.plot import image_grid

    size = (7.4, 2.95 * len(parts))
    figure = plt.figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(parts), 3, width_ratios=[0.8, 3, 3], squeeze=False)
    for row, part in zip(axes, parts, strict=True):
        distance = part.domain.project(train[0])[1]
        spanning = distance < 1e-3
        titles = [names[k] for k in train[1][spanning].tolist()]
        image_grid(train[0][spanning], ax=row[0], columns=1, titles=titles)
        draw_plane(row[1], part, train)
        row[1].set_title(f"{len(part):,} regions", fontsize=9)
        draw_boundary_images(row[2], part, 16, 4)
    return figure


def draw_samples(parts: Sequence[Partition]) -> Figure:
    """Images on the decision boundary, a row for each plane."""
    import matplotlib.pyplot as plt

    size = (8, 1.05 * len(parts))
    figure, axes = plt.subplots(len(parts), figsize=size, layout="constrained", squeeze=False)
    for ax, part in zip(axes[:, 0], parts, strict=True):
        draw_boundary_images(ax, part, 8, 8)
    return figure


def draw_boundary_images(ax: Any, part: Partition, count: int, columns: int) -> None:
    """Random images on the decision boundary, or a note that it does not cross the plane."""
    boundary = part.decision_boundary()
    if boundary.length:
        generator = torch.Generator().manual_seed(0)
        boundary.plot_samples(
            count, ax=ax, columns=columns, generator=generator, titles=False, limits=(0, 1)
        )
    else:
        ax.set_axis_off()
        ax.text(0.5, 0.5, "The boundary does not cross this plane.", ha="center", fontsize=8)


def draw_curvature(pairs: Mapping[str, Tensor]) -> Figure:
    """Regions by curvature (2, planes) of several networks, a point for each plane."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
    for name, (curvature, regions) in pairs.items():
        ax.scatter(curvature, regions, s=14, label=name)
    ax.set(xlabel="turning of the boundary per length (radians)", ylabel="regions")
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    return figure
