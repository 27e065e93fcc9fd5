"""Pictures of curves: decision boundaries, level sets and the curves of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from splinecam.analysis.boundary import Boundary, LevelSet
from splinecam.plot.palette import INK, class_colors, flat_axes, new_axes, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from splinecam.analysis.curves import Curves

__all__ = ["plot_curves"]

_COLORS = {"color", "colors", "array", "edgecolor", "edgecolors"}
_ENTRIES = 24  # of a legend, at most


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
    from matplotlib.collections import LineCollection

    from splinecam.plot.decorations import clip_to, draw_border, fit_figure, set_frame
    from splinecam.plot.fill import ink_over
    from splinecam.plot.lines import Lines
    from splinecam.plot.scalebar import scale_of
    from splinecam.plot.side_layout import picture_size

    own = ax is None
    if ax is None:
        ax = new_axes(curves.partition.domain)
        set_frame(ax, curves.partition.domain)
        draw_border(ax, curves.partition.domain)
    flat_axes(ax)
    given = {k for k in _COLORS & style.keys() if style[k] is not None}
    several = isinstance(curves, LevelSet) and len(curves.levels) > 1
    plain = {k: v.detach().cpu().numpy() if isinstance(v, Tensor) else v for k, v in style.items()}
    style = {"linewidth": 1.6 * scale_of(max(picture_size(ax))), "zorder": 3.3, **plain}
    if not given and (several if each is None else each):
        _plot_each(curves, ax, colorbar, legend, style)
    else:
        segments: Any = curves.ends.detach().cpu().numpy()
        numbers = style.get("array")
        one = numbers is None and not any(len(_rows(style[k])) > 1 for k in given)
        if not given:
            style["color"] = ink_over(ax)
        lines = Lines(segments, **style) if one else LineCollection(segments, **style)
        ax.add_collection(lines)
    clip_to(ax.collections[-1], ax, curves.partition.domain)
    if own:
        fit_figure(ax, curves.partition.domain)
    ax.autoscale_view()  # unless the limits are set, as after part.plot()
    return ax


def _rows(color: Any) -> list[Any]:
    """The colours that are given, one or several."""
    from matplotlib.colors import to_rgba_array

    return list(to_rgba_array(color))


def _plot_each(
    curves: Curves, ax: Axes, colorbar: bool, legend: bool, style: dict[str, Any]
) -> None:
    """A colour for every label: by a colour map for levels, from the palette otherwise."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    from splinecam.plot.decorations import add_colorbar, add_legend, is_flat, make_room
    from splinecam.plot.fill import ink_over
    from splinecam.plot.lines import Lines

    below = is_flat(curves.partition.domain)
    label, order = torch.sort(curves.label, stable=True)
    found, count = torch.unique_consecutive(label, return_counts=True)
    segments = curves.ends[order].detach().cpu().numpy()
    groups: Any = {"groups": count.tolist()}
    if isinstance(curves, LevelSet):
        levels = np.asarray(curves.levels)[found.cpu().numpy()]
        dark = ink_over(ax) == INK
        shades = ListedColormap(colormaps["viridis"](np.linspace(0 if dark else 0.3, 1, 256)))
        style = {"cmap": shades, "clim": (min(curves.levels), max(curves.levels)), **style}
        lines = Lines(segments, array=levels, **groups, **style)
        ax.add_collection(lines)
        if colorbar:
            several = curves.partition.values.shape[1] > 1
            name = f"level of output {curves.output}" if several else "level"
            make_room(ax)
            bar = add_colorbar(ax, lines, name, below=below)
            if len(curves.levels) <= 12:
                bar.set_ticks(list(curves.levels))
        return
    colors = class_colors(len(found))
    ax.add_collection(Lines(segments, colors=colors, **groups, **style))
    if legend and 0 < len(found) <= _ENTRIES:
        names = [_name(curves, k) for k in found.tolist()]
        make_room(ax)
        add_legend(ax, list(zip(names, colors, strict=True)), below=below, curves=True)


def _name(curves: Curves, label: int) -> str:
    """A label in words: "1 | 2" for a pair of classes, "layer 1, unit 5" for a unit."""
    key = curves.key(label)
    if not isinstance(key, tuple):
        return str(key)
    first, second = key
    if isinstance(curves, Boundary) and curves.partition.names is not None:
        first, second = (curves.partition.names[k] for k in key)
        return f"{first} | {second}"
    return f"layer {first}, unit {second}" if isinstance(first, str) else f"{first} | {second}"
