"""Pictures of curves: decision boundaries, level sets and the curves of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splinecam.analysis.boundary import Boundary, LevelSet
from splinecam.analysis.curves import Curves
from splinecam.plot.arrays import to_numpy
from splinecam.plot.figures import flat_axes, new_axes, require_matplotlib
from splinecam.plot.palette import INK, class_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_curves"]

_COLORS = {"color", "colors", "array", "edgecolor", "edgecolors"}


def plot_curves(
    curves: Curves,
    *,
    ax: Axes | None = None,
    each: bool | None = None,
    colorbar: bool = True,
    legend: bool = True,
    **style: Any,
) -> Axes:
    """Draw curves, by default on a new figure that shows them in the frame of the domain.

    each: a colour for every level, unit or pair of classes, with a colour bar or a legend unless
    these are switched off; by default for several levels, if no colour is given. style: goes to
    matplotlib's ``LineCollection``: color, linewidth, label, ...

    >>> import splinecam as sc
    >>> part = sc.partition(torch.nn.Linear(2, 1), sc.Domain.box(-1, 1), progress=False)
    >>> ax = part.level_set([-0.1, 0.0, 0.1]).plot()
    >>> len(ax.collections)
    1
    """
    require_matplotlib()
    from splinecam.plot.decorations import clip_to, draw_border, fit_figure, set_frame
    from splinecam.plot.scale_bar import scale_of
    from splinecam.plot.side_layout import picture_size

    domain, own = curves.partition.domain, ax is None
    if ax is None:
        ax = new_axes(domain)
        set_frame(ax, domain)
        draw_border(ax, domain)
    flat_axes(ax)
    given = {k for k in _COLORS & style.keys() if style[k] is not None}
    several = isinstance(curves, LevelSet) and len(curves.levels) > 1
    plain = {k: to_numpy(v) for k, v in style.items()}
    style = {"linewidth": 1.6 * scale_of(max(picture_size(ax))), "zorder": 3.3, **plain}
    if not given and (several if each is None else each):
        _plot_each(curves, ax, colorbar, legend, style)
    else:
        _plot_alike(curves, ax, given, style)
    clip_to(ax.collections[-1], ax, domain)
    if own:
        fit_figure(ax, domain)
    ax.autoscale_view()  # unless the limits are set, as after part.plot()
    return ax


def _plot_alike(curves: Curves, ax: Axes, given: set[str], style: dict[str, Any]) -> None:
    """Draw the curves in one colour, or with the colours that are given for each segment."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array

    from splinecam.plot.cell_image import ink_over
    from splinecam.plot.lines import Lines

    several = style.get("array") is not None
    several = several or any(len(to_rgba_array(style[k])) > 1 for k in given)
    if not given:
        style["color"] = ink_over(ax)
    segments = to_numpy(curves.ends)
    lines = LineCollection(segments, **style) if several else Lines(segments, **style)
    ax.add_collection(lines)


def _plot_each(
    curves: Curves, ax: Axes, colorbar: bool, legend: bool, style: dict[str, Any]
) -> None:
    """Draw every label in its colour: of a colour map for levels, otherwise of the palette."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    from splinecam.plot.cell_image import ink_over
    from splinecam.plot.colors import MAX_ENTRIES
    from splinecam.plot.decorations import add_colorbar, add_legend, is_flat, make_room
    from splinecam.plot.lines import Lines

    below = is_flat(curves.partition.domain)
    label, order = torch.sort(curves.label, stable=True)
    found, count = torch.unique_consecutive(label, return_counts=True)
    segments, groups = to_numpy(curves.ends[order]), count.tolist()
    if isinstance(curves, LevelSet):
        levels = np.asarray(curves.levels)[to_numpy(found)]
        first = 0 if ink_over(ax) == INK else 0.3
        colors = ListedColormap(colormaps["viridis"](np.linspace(first, 1, 256)))
        style = {"cmap": colors, "clim": (min(curves.levels), max(curves.levels)), **style}
        lines = Lines(segments, array=levels, groups=groups, **style)
        ax.add_collection(lines)
        if colorbar:
            several = curves.partition.values.shape[1] > 1
            name = f"level of output {curves.output}" if several else "level"
            make_room(ax)
            bar = add_colorbar(ax, lines, name, below=below)
            if len(curves.levels) <= 12:
                bar.set_ticks(list(curves.levels))
        return
    palette = class_palette(len(found))
    ax.add_collection(Lines(segments, colors=palette, groups=groups, **style))
    if legend and 0 < len(found) <= MAX_ENTRIES:
        names = [_name(curves, k) for k in found.tolist()]
        make_room(ax)
        add_legend(ax, list(zip(names, palette, strict=True)), below=below, curves=True)


def _name(curves: Curves, label: int) -> str:
    """The name of a label: "1 | 2" for a pair of classes, "layer 1, unit 5" for a unit."""
    key = curves.key(label)
    if not isinstance(key, tuple):
        return str(key)
    first, second = key
    if isinstance(curves, Boundary) and curves.partition.names is not None:
        first, second = (curves.partition.names[k] for k in key)
        return f"{first} | {second}"
    return f"layer {first}, unit {second}" if isinstance(first, str) else f"{first} | {second}"
