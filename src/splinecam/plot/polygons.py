"""The picture of a list of polygons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from splinecam.plot.figures import flat_axes, new_figure, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_partition"]


def plot_partition(
    cycles: Sequence[Tensor],
    ax: Axes | None = None,
    xlims: Sequence[float] | None = None,
    ylims: Sequence[float] | None = None,
    *,
    edgecolor: Any = "w",
    linewidth: float = 0.3,
    alpha: float = 1.0,
    colors: Sequence[Any] | None = None,
    figsize: tuple[float, float] = (15, 15),
    color_range: Sequence[float] = (0.3, 1.0),
) -> Axes:
    """Draw a list of polygons, as the paper's code does; ``part.plot`` shows a partition better.

    cycles: polygons (k, 2), closed or open. ax: the axes to draw on, by default new ones on a
    figure of ``figsize`` inches. xlims, ylims: the part of the plane that is shown, by default all
    of it. edgecolor, linewidth: of the edges. alpha: the opacity. colors: one for each polygon, or
    some from which one is drawn for each; by default random ones. color_range: the least and the
    largest red, green and blue of random colours. figsize: width and height of a new figure. The
    same polygons always get the same colours.

    >>> import torch
    >>> ax = plot_partition([torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])])
    >>> len(ax.collections[0].get_paths())
    1
    """
    require_matplotlib()
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    canvas = new_figure(figsize=figsize).add_subplot() if ax is None else flat_axes(ax)
    random = np.random.default_rng(0)
    face: Any = colors
    if colors is None:
        face = random.random((len(cycles), 3)).clip(color_range[0], color_range[1])
    elif len(colors) != len(cycles):
        face = [colors[k] for k in random.integers(len(colors), size=len(cycles))]
    canvas.add_collection(
        PolyCollection(
            [np.asarray(polygon.detach().cpu()) for polygon in cycles],
            facecolors=to_rgba_array(face),
            edgecolors=edgecolor,
            linewidths=linewidth,
            alpha=alpha,
        )
    )
    canvas.autoscale_view()
    canvas.set(xticks=[], yticks=[])
    if xlims is not None:
        canvas.set_xlim(*map(float, xlims))
    if ylims is not None:
        canvas.set_ylim(*map(float, ylims))
    return canvas
